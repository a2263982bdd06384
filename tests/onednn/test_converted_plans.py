"""Plans for `onednn-v2` on the real library, which runs them as plans for `onednn-v3`: the v2
plan's numbers, on as many primitives.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Mapping
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from laws.budget import examples
from laws.chains import DrawnChain, chains
from laws.corpus import CORPUS
from laws.registry import feeds_for
from support.executor_plans import F32, S8, U8, Builder
from support.steps_compared import Difference, compare_steps

from fqfuse.composer.compose import plan_from_graph
from fqfuse.errors import PlanError
from fqfuse.passes import optimize
from fqfuse.plan.attributes import DepthwiseConv, Eltwise, PrimitiveAttr, Scale, ZeroPoint
from fqfuse.plan.conversion.convert import Conversion, convert
from fqfuse.plan.types import Plan
from fqfuse.runtime.lowering.executor import OneDnnExecutor
from fqfuse.runtime.session import InferenceSession

Feeds = Mapping[str, np.ndarray]


@cache
def plan_of(name: str) -> Plan:
    return plan_from_graph(optimize(CORPUS[name]().copy()), "onednn-v2")


def excused(plan: Plan, difference: Difference) -> bool:
    """The sign of a zero; one code behind a polynomial; among real numbers an average's division,
    or a sum in the library's own order.
    """
    if plan.type(difference.value).dtype.is_integer:
        return difference.largest <= difference.transcendental
    if difference.transcendental:
        return difference.largest < 1e-4 or difference.ulp <= 64
    return difference.largest == 0 or difference.ulp <= 1


def holds(plan: Plan, feeds: Feeds, threads: int = 2) -> OneDnnExecutor:
    """Each step of a v2 plan on the library is what NumPy, which knows v2 itself, makes of the same
    data.
    """
    executor = OneDnnExecutor(plan, threads)
    wrong = [
        str(difference)
        for difference in compare_steps(plan, executor, feeds)
        if not excused(plan, difference)
    ]
    assert not wrong, "\n".join(wrong)
    return executor


@pytest.mark.parametrize("name", CORPUS)
def test_a_v2_plan_gives_its_own_numbers_by_the_primitives_of_its_conversion(name: str) -> None:
    plan, feeds = plan_of(name), feeds_for(CORPUS[name]())
    placements = holds(plan, feeds).placement()
    converted = OneDnnExecutor(convert(plan), 2)
    converted.run(feeds)
    told = [(place.runtime, place.implementation, place.reason) for place in converted.placement()]
    assert [(place.runtime, place.implementation, place.reason) for place in placements] == told
    assert all(place.step is step for place, step in zip(placements, plan.steps, strict=True)), (
        "of the user's own plan"
    )


@pytest.mark.parametrize("how", ["mechanical", "semantic"])
@pytest.mark.parametrize("name", CORPUS)
def test_converted_plans_agree_with_numpy_step_by_step(name: str, how: Conversion) -> None:
    converted = convert(plan_of(name), how=how)
    for difference in compare_steps(
        converted, OneDnnExecutor(converted, 2), feeds_for(CORPUS[name]())
    ):
        if converted.type(difference.value).dtype.is_integer:
            assert difference.largest <= difference.transcendental, str(difference)
        else:
            assert difference.largest < 1e-4 or difference.ulp <= 64, str(difference)


@examples(80)
@given(chain=chains())
def test_chains_for_v2(chain: DrawnChain) -> None:
    holds(plan_from_graph(optimize(chain.graph.copy()), "onednn-v2"), chain.feeds(), 1)


# -- steps written by hand -------------------------------------------------------------------------


def quantize(build: Builder, source: str, name: str) -> str:
    attr = PrimitiveAttr({}, {"dst": ZeroPoint((128,))}, (), Scale((40.0,)))
    return build.step(
        "reorder", "Identity", {"src": source}, name, U8, build.values[source].shape, attr=attr
    )


def convolution(
    build: Builder, *post_ops: Eltwise, scale: Scale, bias: bool = True, dst=S8
) -> Plan:
    """f32 -> codes -> convolution -> codes or f32, for v2."""
    codes = quantize(build, build.input("x", ("N", 4, 6, 5)), "codes")
    args = {
        "src": codes,
        "weights": build.constant("w", build.rng.integers(-127, 128, (8, 4, 3, 3)).astype(np.int8)),
    }
    if bias:
        args["bias"] = build.constant("b", build.rng.integers(-999, 1000, 8).astype(np.float32))
    attr = PrimitiveAttr({}, {"src": ZeroPoint((128,))}, post_ops, scale)
    params = {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1)}
    build.step("convolution", "Conv", args, "y", dst, ("N", 8, 6, 5), params, attr)
    return replace(build.plan("y"), target="onednn-v2")


def each(*values: float) -> Scale:
    return Scale(tuple(float(np.float32(value)) for value in values), 2)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    "scale",
    [
        Scale((0.003,)),
        each(*np.linspace(-0.004, 0.005, 8)),
        Scale((0.003, 0.001, 0.002, 0.0015, 0.0007), 8),
    ],
)
def test_output_scales_for_all_for_channels_and_along_another_dimension(
    scale: Scale, bias: bool
) -> None:
    build = Builder(1)
    plan = convolution(
        build, Eltwise("tanh", scale=3.0), Eltwise("relu", 0.1, scale=-7.0), scale=scale, bias=bias
    )
    executor = holds(plan, build.feeds({"N": 3}))
    assert [place.runtime for place in executor.placement()] == ["onednn", "onednn"]


def test_what_the_library_refuses_runs_on_numpy_as_the_plan_has_it() -> None:
    """To the sign of a zero, which a conversion may change."""
    build = Builder(6)
    codes, ones = (
        quantize(build, build.input("x", (2, 4, 6, 5)), "codes"),
        build.constant("w", np.ones((8, 4, 1, 1), np.int8)),
    )
    deep, bias = (
        build.constant("dw", np.zeros((8, 1, 3, 3), np.int8)),
        build.constant("db", np.zeros(8, np.float32)),
    )
    op = DepthwiseConv(deep, bias, 3, 1, 1, S8, F32, Scale((-0.5,)))
    attr = PrimitiveAttr({}, {}, (op,), Scale((0.01,)))
    build.step(
        "convolution",
        "Conv",
        {"src": codes, "weights": ones},
        "y",
        F32,
        (2, 8, 6, 5),
        {"kernel_shape": (1, 1)},
        attr,
    )
    plan, feeds = replace(build.plan("y"), target="onednn-v2"), build.feeds()
    session = InferenceSession(plan, "onednn", 2)
    assert session.placement()[1].runtime == "numpy"
    others = InferenceSession(plan, "numpy", 1), InferenceSession(convert(plan), "numpy", 1)
    mine, theirs, converted = (run.run(None, feeds)[0].tobytes() for run in (session, *others))
    assert mine == theirs != converted


def test_what_v3_cannot_say_runs_on_numpy_too() -> None:
    """Its neighbours run on oneDNN."""
    build = Builder(2)
    chain = [Eltwise("linear", 1.0, 0.0, -1.0)] * 17
    plan = convolution(build, *chain, scale=Scale((-0.001,)), bias=False, dst=F32)
    build.step("pooling", "GlobalMaxPool", {"src": "y"}, "top", F32, ("N", 8, 1, 1))
    plan = replace(plan, steps=tuple(build.steps), values=build.values, outputs=("y", "top"))
    session, feeds = InferenceSession(plan, "onednn", 2), build.feeds()
    feeds["x"][0] = 0  # sums of 0
    for mine, theirs in zip(
        session.run(None, feeds), InferenceSession(plan, "numpy", 1).run(None, feeds), strict=True
    ):
        assert mine.tobytes() == theirs.tobytes()
    first, kept, last = session.placement()
    assert (first.runtime, kept.runtime, last.runtime) == ("onednn", "numpy", "onednn")
    assert kept.reason == "for onednn-v3 it has 34 post-ops, and onednn-v3 takes 32"
    assert kept.step is plan.steps[1]
    with pytest.raises(PlanError, match="convolution y cannot be converted"):
        convert(plan)


def test_an_infinite_factor_runs_on_numpy() -> None:
    build = Builder(3)
    plan = convolution(build, Eltwise("clip", 0.0, 6.0, math.inf), scale=Scale((0.001,)))
    executor = holds(plan, build.feeds())
    assert [place.runtime for place in executor.placement()] == ["onednn", "numpy"]


@pytest.mark.of_vnni("blocks of pixels are for its kernels")
def test_the_first_convolution_of_an_image_network_runs_over_blocks() -> None:
    """As that of a plan for v3 does."""
    build = Builder(4)
    codes = quantize(build, build.input("x", (2, 3, 32, 32)), "codes")
    weights = build.constant("w", build.rng.integers(-127, 128, (16, 3, 7, 7)).astype(np.int8))
    bias = build.constant("b", build.rng.integers(-999, 1000, 16).astype(np.float32))
    scale = each(*build.rng.uniform(0.0005, 0.001, 16))
    attr = PrimitiveAttr({}, {}, (Eltwise("relu", scale=2.0),), scale)
    params = {"kernel_shape": (7, 7), "pads": (3, 3, 3, 3), "strides": (2, 2)}
    build.step(
        "convolution",
        "Conv",
        {"src": codes, "weights": weights, "bias": bias},
        "y",
        U8,
        (2, 16, 16, 16),
        params,
        attr,
    )
    plan = replace(build.plan("y"), target="onednn-v2")
    told = holds(plan, build.feeds()).placement()[1].implementation
    assert "brgconv" in told or "amx" in told


def test_a_session_of_a_v2_plan_keeps_the_plan_and_takes_any_size() -> None:
    build = Builder(5)
    plan = convolution(build, Eltwise("relu", scale=2.0), scale=each(*np.linspace(0.001, 0.002, 8)))
    session = pickle.loads(pickle.dumps(InferenceSession(plan, "onednn", 2)))  # noqa: S301
    assert session.plan == plan
    for size in (1, 3, 1):
        feeds = build.feeds({"N": size})
        (mine,), (theirs,) = (
            session.run(None, feeds),
            InferenceSession(plan, "numpy", 1).run(None, feeds),
        )
        np.testing.assert_array_equal(mine, theirs)
        assert list(session.run_steps(feeds)) == ["codes", "y"]
