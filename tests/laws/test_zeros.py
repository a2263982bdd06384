"""Codes equal to their zero point are 0 in every result that the model computes from them by scales
alone.

ONNX Runtime without optimizations says which results are 0: those that are so for two sets of other
numbers in between.
"""

from __future__ import annotations

import secrets

import numpy as np
import onnx
import pytest
from hypothesis import settings
from laws.runtimes import RUNTIMES
from laws.zeros import SHAPE, draw_zeros
from support.onnx_cases import run_ort

import fqfuse
from fqfuse.plan.text import print_plan

FUZZ = not settings.default.derandomize
CASES = 5_000 if FUZZ else 200
BLOCKS = 4


def hold(seed: int) -> None:
    model, rng = draw_zeros(seed), np.random.default_rng(seed)
    mask = rng.random(SHAPE) < (1.0 if seed % 2 else 0.6)
    names = [info.name for info in model.graph.input]
    feeds, other = (
        {name: np.where(mask, 0, rng.normal(size=SHAPE)).astype(np.float32) for name in names}
        for _ in range(2)
    )
    zero = (run_ort(model, feeds)[0] == 0) & (run_ort(model, other)[0] == 0)
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
    for seed in range(start, start + CASES // BLOCKS):
        hold(seed)
