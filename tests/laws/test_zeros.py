"""Codes equal to their zero point are 0 in every result that the model computes from them by scales
alone, and exactly what the model has there where a rounding or a comparison tells.

ONNX Runtime without optimizations says which results are 0: those that are so for several sets of
other numbers in between. (In two, sums of few codes may cancel.)
"""

from __future__ import annotations

import secrets

import numpy as np
import onnx
import pytest
from hypothesis import settings
from laws.budget import some
from laws.jumps import draw_jumps
from laws.runtimes import RUNTIMES
from laws.zeros import SHAPE, draw_zeros
from support.onnx_cases import run_ort

import fqfuse
from fqfuse.plan.text import print_plan

FUZZ = not settings.default.derandomize
CASES = 5_000 if FUZZ else 200
TARGETS = ("onednn-v3", "onednn-v2", "unified")
BLOCKS = 4
_SETS = 6


def hold(seed: int) -> None:
    model, rng = draw_zeros(seed), np.random.default_rng(seed)
    mask = rng.random(SHAPE) < (1.0 if seed % 2 else 0.6)
    names = [info.name for info in model.graph.input]
    feeds, *others = (
        {name: np.where(mask, 0, rng.normal(size=SHAPE)).astype(np.float32) for name in names}
        for _ in range(_SETS)
    )
    zero = np.all([run_ort(model, numbers)[0] == 0 for numbers in (feeds, *others)], axis=0)
    plan = fqfuse.compile(model)
    for runtime in RUNTIMES:
        (found,) = fqfuse.InferenceSession(plan, "auto" if runtime == "onednn" else runtime, 1).run(
            None, feeds
        )
        largest = np.abs(found[zero]).max(initial=0)
        assert largest == 0, (
            f"seed {seed}, {runtime}: {largest} for 0\n{onnx.printer.to_text(model)}\n{print_plan(plan)}"
        )


@pytest.mark.hypothesis
@pytest.mark.parametrize("block", range(BLOCKS))
def test_zeros(block: int) -> None:
    start = secrets.randbits(48) if FUZZ else block * CASES
    for seed in some(range(start, start + CASES // BLOCKS)):
        hold(seed)


def hold_jumps(seed: int) -> None:
    drawn, model, shown = draw_jumps(seed)
    expected, *values = run_ort(shown, drawn.feeds)
    # What is next to a jump may fall to either side: a rounding for each operation, and two more.
    largest = np.max(
        [np.abs(v) * gain for v, gain in zip(values, drawn.values.values(), strict=True)], axis=0
    )
    if len(drawn.feeds) > 1:
        largest = np.maximum(largest, drawn.reach)
    near = (1 + len(values)) * np.spacing(np.float32(largest)).astype(np.float64)
    may_differ = drawn.distance(values[-1].astype(np.float64)) <= near
    target = TARGETS[seed % len(TARGETS)]
    plan = fqfuse.compile(model, target=target)
    runs = {"numpy": plan}
    if "onednn" in RUNTIMES and target != "unified":
        runs["auto"] = plan if target == "onednn-v3" else fqfuse.convert(plan)
    for backend, each in runs.items():
        (found,) = fqfuse.InferenceSession(each, backend, 1).run(None, drawn.feeds)
        told = (
            f"seed {seed}, {target}, {backend}\n{onnx.printer.to_text(model)}\n{print_plan(each)}"
        )
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found[drawn.zeros], expected[drawn.zeros], told)
        tolerance = near if drawn.nodes[-1].op_type == "Mod" else 0.0
        off = np.abs(found.astype(np.float64) - expected) > tolerance
        assert not (off & ~may_differ).any(), told


@pytest.mark.hypothesis
@pytest.mark.parametrize("block", range(BLOCKS))
def test_jumps(block: int) -> None:
    start = secrets.randbits(48) if FUZZ else block * CASES
    for seed in some(range(start, start + CASES // BLOCKS)):
        hold_jumps(seed)
