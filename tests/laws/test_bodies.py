"""The law of bodies: an If, a Loop and a Scan over quantized layers give what ONNX Runtime gives, and
what the model unrolled gives, bit for bit, on both runtimes; a saved plan does, too; and their products
run in int8.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from hypothesis import given
from hypothesis import strategies as st
from laws.budget import examples
from laws.runtimes import RUNTIMES
from support.body_cases import (
    LAYERS,
    PLACES,
    WIDTH,
    Writer,
    branched,
    fed,
    looped,
    scanned,
    unrolled,
    without_fakes,
)
from support.onnx_cases import run_ort
from support.plan_text import parse_plan

import fqfuse
from fqfuse.plan.file import plan_bytes, read_plan
from fqfuse.plan.text import print_plan
from fqfuse.plan.types import Plan, runs_in_int8

BODIES = st.builds(
    Writer,
    st.lists(st.sampled_from(LAYERS), min_size=1, max_size=4),
    st.sampled_from(PLACES),
    st.integers(0, 99),
)


def hold(proto: onnx.ModelProto, feeds: dict[str, Any], target: str = "onednn-v3") -> list[Any]:
    """Holds both runtimes, and the saved plan, against ONNX Runtime; gives what that gives."""
    plan = fqfuse.compile(proto, target=target)
    saved = read_plan(plan_bytes(plan))
    assert saved == plan
    assert parse_plan(print_plan(plan)) == plan
    assert plan_bytes(saved) == plan_bytes(plan)
    expected = run_ort(without_fakes(proto), feeds)
    for runtime in RUNTIMES if target != "unified" else ("numpy",):
        found = fqfuse.InferenceSession(saved, backend=runtime, threads=1).run(None, feeds)
        same(found, expected, runtime)
    fuses(plan)
    return expected


def same(found: Sequence[Any], expected: Sequence[Any], told: str) -> None:
    for one, other in zip(found, expected, strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype), told
        np.testing.assert_array_equal(one, other, err_msg=told)


def fuses(plan: Plan) -> None:
    """Every body was compiled, and every product in one is of codes."""
    parts = [plan, *(body for _, body in plan.within)]
    for part in parts:
        for step in part.steps:
            if step.op == "Onnx":
                assert step.bodies is not None, step.name
            if step.primitive in ("matmul", "convolution"):
                assert runs_in_int8(part, step), step.name


TARGETS = st.sampled_from(["onednn-v3", "onednn-v3", "onednn-v2", "unified"])


@given(BODIES, st.integers(1, 4), st.sampled_from(["constant", "fed", "condition"]), TARGETS)
@examples(100)
def test_a_loop_gives_what_it_gives_unrolled(
    writer: Writer, trips: int, how: str, target: str
) -> None:
    proto = looped(writer, trips, how=how, until=trips)
    feeds = {"x": fed([2, WIDTH], writer.seed), "around": fed([2, WIDTH], writer.seed + 1)}
    expected = hold(proto, {**feeds, **({"n": np.int64(trips)} if how == "fed" else {})}, target)
    flat = Writer(writer.layers, writer.place, writer.seed)
    same(run_ort(without_fakes(unrolled(flat, trips)), feeds), expected, "unrolled")


@given(BODIES, st.integers(-3, 2), st.booleans(), st.integers(-3, 2), st.booleans(), TARGETS)
@examples(60)
def test_a_scan_runs_along_any_axis_in_any_direction(
    writer: Writer, axis: int, back: bool, out_axis: int, out_back: bool, target: str
) -> None:
    proto = scanned(writer, axis=axis, back=back, out_axis=out_axis, out_back=out_back)
    shape = [2, WIDTH]
    shape.insert(axis % 3, 3)
    named = {"x": shape, "around": [2, WIDTH], "first": [2, WIDTH]}
    hold(
        proto,
        {name: fed(size, writer.seed + k) for k, (name, size) in enumerate(named.items())},
        target,
    )


@given(BODIES, BODIES, st.booleans(), TARGETS)
@examples(60)
def test_an_if_runs_the_branch_that_its_condition_takes(
    then: Writer, otherwise: Writer, go: bool, target: str
) -> None:
    otherwise = Writer(otherwise.layers, otherwise.place, then.seed)
    proto = branched(then, otherwise)
    feeds = {"x": fed([2, WIDTH], 1), "around": fed([2, WIDTH], 2), "go": np.bool_(go)}
    hold(proto, feeds, target)
