"""Requantizing codes on the oneDNN runtime: the bytes of the reorder that the plan names, by
whichever primitive is faster.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from support.runtime_plans import one_step
from support.steps_compared import compare_steps
from support.versions import nan_or

from fqfuse.ir.ops.spec import Attr
from fqfuse.ir.types import DType, TensorType
from fqfuse.plan.attributes import PrimitiveAttr, Scale, ZeroPoint
from fqfuse.plan.types import Plan, Step
from fqfuse.runtime.lowering.executor import OneDnnExecutor
from fqfuse.runtime.lowering.program import PrimitiveAction

pytestmark = pytest.mark.usefixtures("library")

U8, S8, F32 = DType.U8, DType.S8, DType.F32
CODES = {
    dtype: np.tile(np.arange(256, dtype=np.uint8).view(dtype.numpy), 16).reshape(16, 256)
    for dtype in (U8, S8)
}
"""Each code 16 times: 4096 elements, from which on a binary runs."""

TIES = [
    (1.0, 2.0),
    (1.0, 4.0),
    (2.0**-5, 2.0**-4),
    (3.0, 2.0),
    (0.5, 1.0),
    (5.0, 8.0),
    (0.75, 0.5),
    (127.5, 255.0),
    (2.0**-9, 2.0**-2),
]
RANDOM = np.exp(np.random.default_rng(3).uniform(-7, 3, (24, 2)))
ONES = [(1.0, 1.0), (1.0, 0.3), (0.3, 1.0)]
ZEROS = [(0, 0), (0, 7), (3, 0), (128, 127), (-128, 0), (114, -3), (255, 255), (1, 128)]


def run(plan: Plan, feeds: dict[str, np.ndarray], threads: int = 2) -> list[str]:
    """The kinds of the primitives that ran; each step gave the bytes of the NumPy runtime."""
    executor = OneDnnExecutor(plan, threads)
    assert [str(difference) for difference in compare_steps(plan, executor, feeds)] == []
    executor.run(feeds)
    return [
        action.primitive.desc.kind
        for action in executor._latest().actions
        if isinstance(action, PrimitiveAction)
    ]


def attributes(source: float, destination: float, zeros: tuple[int, int]) -> PrimitiveAttr:
    found = {"src": source, "dst": destination}
    points = {
        role: ZeroPoint((zero,)) for role, zero in zip(("src", "dst"), zeros, strict=True) if zero
    }
    return PrimitiveAttr(
        {role: Scale((float(np.float32(value)),)) for role, value in found.items() if value != 1},
        points,
    )


@pytest.mark.parametrize("zeros", ZEROS, ids=str)
@pytest.mark.parametrize(
    "types",
    [(U8, U8), (U8, S8), (S8, U8), (S8, S8)],
    ids=lambda types: "-".join(t.value for t in types),
)
def test_every_code_by_many_scales(types: tuple[DType, DType], zeros: tuple[int, int]) -> None:
    for source, destination in [*TIES, *map(tuple, RANDOM), *ONES]:
        attr = attributes(source, destination, zeros)
        plan, _, feeds = one_step(
            "reorder", "Identity", [("src", CODES[types[0]])], types[1], attr=attr
        )
        arithmetic = bool(attr.scales or "src" in attr.zero_points)
        assert run(plan, feeds) == ["binary" if arithmetic else "reorder"]


def test_few_codes_and_mere_conversions_stay_a_reorder() -> None:
    few = one_step(
        "reorder", "Identity", [("src", CODES[U8][:1])], S8, attr=attributes(0.3, 1.0, (3, 0))
    )
    assert run(few[0], few[2]) == ["reorder"]
    mere = one_step(
        "reorder", "Identity", [("src", CODES[U8])], S8, attr=attributes(1.0, 1.0, (0, 0))
    )
    assert run(mere[0], mere[2]) == ["reorder"]


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(
    "shape", [(1, 24, 17, 19), (2, 32, 9, 8), (3, 90, 37), (1, 5, 7, 9, 14)], ids=str
)
def test_channels_last_between_convolutions(shape: tuple[int, ...], threads: int) -> None:
    """The elements are taken as they lie, and the layout of the convolution in front is kept for
    the one behind.
    """
    rng = np.random.default_rng(0)
    channels, spatial = shape[1], len(shape) - 2
    weights = rng.integers(-64, 65, (channels, channels, *[1] * spatial)).astype(np.int8)
    params: dict[str, Attr] = {
        "kernel_shape": (1,) * spatial,
        "strides": (1,) * spatial,
        "pads": (0,) * 2 * spatial,
    }
    factor = {"src": Scale((0.01,)), "weights": Scale((0.02,))}
    steps = (
        Step(
            "a",
            "convolution",
            "Conv",
            (("src", "x"), ("weights", "w")),
            ("a",),
            params,
            PrimitiveAttr(factor),
            ("a",),
        ),
        Step(
            "b",
            "reorder",
            "Identity",
            (("src", "a"),),
            ("b",),
            {},
            attributes(0.37, 1.0, (3, 7)),
            ("b",),
        ),
        Step(
            "c",
            "convolution",
            "Conv",
            (("src", "b"), ("weights", "w")),
            ("c",),
            params,
            PrimitiveAttr(factor),
            ("c",),
        ),
    )
    types = {name: TensorType(U8, shape) for name in "xabc"}
    plan = Plan("chain", "onednn-v3", ("x",), ("c",), types, {"w": weights}, steps)
    x = rng.integers(0, 256, shape).astype(np.uint8)
    kinds = run(plan, {"x": x}, threads)
    assert kinds.count("binary") == 1
    assert kinds.count("reorder") <= 2, "only the input and the output change their layout"


@pytest.mark.parametrize("shape", [(1, 24, 17, 19), (2, 3, 40, 40)], ids=str)
def test_quantizing_f32_takes_the_elements_as_they_lie(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(1).normal(0, 40, shape).astype(np.float32)
    x.reshape(-1)[:6] = [nan_or(1.5), np.inf, -np.inf, 1e30, -0.0, 0.5]
    for dtype, (zero, scale) in itertools.product((U8, S8), [(0, 0.5), (3, 0.3), (-7, 2.0)]):
        plan, _, feeds = one_step(
            "reorder", "Identity", [("src", x)], dtype, attr=attributes(1.0, scale, (0, zero))
        )
        assert "binary" in run(plan, feeds)
