"""Operations of two operands one of which is smaller, in any pattern and at either place: the bytes
of NumPy, by compiled kernels.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np
import pytest
from support.executor_plans import F32, S8, U8, Builder, scales
from support.runtime_plans import one_step
from support.steps_compared import compare_steps

from fqfuse.ir.types import DType
from fqfuse.onednn.enums import CpuIsa
from fqfuse.onednn.library import Library
from fqfuse.plan.attributes import Binary, Eltwise, PrimitiveAttr
from fqfuse.plan.types import Plan
from fqfuse.runtime.lowering.executor import OneDnnExecutor
from fqfuse.runtime.placement import Placement

SIZES = (2, 3, 4, 5, 6)


@pytest.fixture(autouse=True)
def _has_avx512(library: Library) -> None:
    if library.effective_isa() & CpuIsa.avx512_core != CpuIsa.avx512_core:
        pytest.skip("which patterns are compiled is known for AVX-512")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def placed(plan: Plan, feeds: Mapping[str, np.ndarray]) -> Placement:
    """Where the step ran; it computed what NumPy computes."""
    executor = OneDnnExecutor(plan, 2)
    assert [str(d) for d in compare_steps(plan, executor, feeds)] == []
    return executor.placement()[0]


def data(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...]) -> np.ndarray:
    """Values that often meet each other, and none that is 0."""
    array = rng.integers(1, 12, shape)
    return (array if dtype is U8 else np.where(rng.random(shape) < 0.5, array, -array)).astype(
        dtype.numpy
    )


def operation(
    rng: np.random.Generator,
    name: str,
    shapes: tuple[tuple[int, ...], tuple[int, ...]],
    types: tuple[DType, DType, DType],
    held: tuple[str, ...] = (),
    attr: PrimitiveAttr | None = None,
    operands: Mapping[str, np.ndarray] | None = None,
) -> tuple[Plan, dict[str, np.ndarray]]:
    args = [
        (f"src_{index}", data(rng, dtype, shape))
        for index, (dtype, shape) in enumerate(zip(types[:2], shapes, strict=True))
    ]
    chosen = attr or PrimitiveAttr(scales(src_0=0.3, src_1=0.3))
    plan, _, feeds = one_step(
        "binary",
        "Add",
        args,
        types[2],
        params={"algorithm": name},
        attr=chosen,
        operands=operands,
        constants=held,
    )
    return plan, feeds


MASKS = [mask for rank in (2, 3, 4) for mask in itertools.product((False, True), repeat=rank)]
MASKS += [
    (True, True, False, True, True),
    (False, True, True, False, True),
    (True, False, True, False, True),
    (False, True, True, True, False),
]


def small(mask: tuple[bool, ...]) -> tuple[int, ...]:
    return tuple(size if full else 1 for size, full in zip(SIZES[-len(mask) :], mask, strict=True))


@pytest.mark.parametrize(
    "types", [(U8, S8, U8), (S8, F32, F32)], ids=lambda t: "-".join(d.value for d in t)
)
@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("mask", MASKS, ids=lambda mask: "".join("n1"[not full] for full in mask))
def test_a_constant_broadcasts_along_any_dimensions(
    rng: np.random.Generator, mask: tuple[bool, ...], place: int, types: tuple[DType, ...]
) -> None:
    whole = SIZES[-len(mask) :]
    shapes = (small(mask), whole) if place == 0 else (whole, small(mask))
    kinds = types[0], types[1], types[2]
    for name in ("sub", "div"):
        placement = placed(*operation(rng, name, shapes, kinds, held=(f"src_{place}",)))
        assert placement.runtime == "onednn", placement.reason


def runs(mask: tuple[bool, ...]) -> int:
    """How many dimensions are left when neighbours are joined."""
    return len(list(itertools.groupby(mask)))


@pytest.mark.parametrize("name", ["mul", "sub", "div", "gt", "le"])
@pytest.mark.parametrize("mask", MASKS, ids=lambda mask: "".join("n1"[not full] for full in mask))
def test_what_is_computed_at_run_time_broadcasts_along_joined_dimensions(
    rng: np.random.Generator, mask: tuple[bool, ...], name: str
) -> None:
    whole = SIZES[-len(mask) :]
    for shapes, types in itertools.product(
        [(small(mask), whole), (whole, small(mask))], [(U8, U8, U8), (S8, U8, F32)]
    ):
        placement = placed(*operation(rng, name, shapes, types))
        compiled = runs(mask) <= 3 and not (name == "div" and shapes[0] != whole)
        assert placement.runtime == "onednn" or not compiled, placement.reason


@pytest.mark.parametrize("second", [(), (3, 1, 1), (2, 3, 1, 5)], ids=str)
def test_operands_of_post_ops_broadcast_as_well(
    rng: np.random.Generator, second: tuple[int, ...]
) -> None:
    attr = PrimitiveAttr(
        scales(src_0=0.3, src_1=0.3),
        {},
        (Binary("mul", "rows"), Eltwise("relu"), Binary("add", "more")),
    )
    # rows: written out
    operands = {
        "rows": data(rng, F32, (2, 1, 4, 1)),
        "more": data(rng, F32, second),
    }
    plan, feeds = operation(
        rng, "sub", ((3, 1, 1), (2, 3, 4, 5)), (U8, U8, U8), ("rows", "more"), attr, operands
    )
    placement = placed(plan, feeds)
    assert placement.runtime == "onednn", placement.reason


@pytest.mark.parametrize("shape", [(3, 32, 1, 1), (2, 17, 1), (3, 5, 1, 1, 1)], ids=str)
@pytest.mark.parametrize("dtype", [U8, F32], ids=lambda dtype: dtype.value)
def test_vectors_with_an_operand_for_each_channel(
    rng: np.random.Generator, shape: tuple[int, ...], dtype: DType
) -> None:
    # As feature maps of one pixel oneDNN 3.2 reads the wrong elements of the operand for all but
    # the first sample.
    attr = PrimitiveAttr({}, {}, (Binary("mul", "factors"),))
    factors = {"factors": data(rng, F32, (1, shape[1], *[1] * (len(shape) - 2)))}
    placement = placed(
        *operation(rng, "add", (shape, shape), (dtype, dtype, dtype), ("factors",), attr, factors)
    )
    assert placement.runtime == "onednn", placement.reason


def signs_of_zeros(plan: Plan, feeds: Mapping[str, np.ndarray]) -> tuple[np.ndarray, str]:
    executor = OneDnnExecutor(plan, 2)
    (y,) = executor.run(feeds)
    return np.signbit(y), executor.placement()[0].runtime


@pytest.mark.parametrize("held", [(), ("src_0",)], ids=["live", "constant"])
def test_a_difference_with_its_operands_swapped_keeps_the_signs_of_zeros(
    held: tuple[str, ...],
) -> None:
    zeros = np.array([0.0, -0.0, 0.0, -0.0], np.float32)
    a, b = (
        zeros.reshape(2, 1, 2),
        np.ascontiguousarray(np.broadcast_to(zeros[:2].reshape(2, 1, 1), (2, 3, 2))),
    )
    for first in (a, np.abs(a)):
        args = [("src_0", first), ("src_1", b)]
        plan, _, feeds = one_step(
            "binary", "Sub", args, F32, params={"algorithm": "sub"}, constants=held
        )
        signs, runtime = signs_of_zeros(plan, feeds)
        np.testing.assert_array_equal(signs, np.signbit(first - b))
        assert runtime == ("onednn" if held else "numpy")  # values that come at run time may be -0


def test_a_difference_whose_zeros_nobody_tells_apart(rng: np.random.Generator) -> None:
    attr = PrimitiveAttr({}, {}, (Eltwise("linear", 3.0, 2.0),))
    placement = placed(*operation(rng, "sub", ((1, 3, 1), (2, 3, 4)), (F32, F32, S8), attr=attr))
    assert placement.runtime == "onednn", placement.reason


@pytest.mark.parametrize("heads", [1, 4, 12])
def test_turned_heads_times_a_matrix_keep_their_rows(rng: np.random.Generator, heads: int) -> None:
    """A rotary embedding: channels last takes five times as long."""
    b = Builder()
    turned = (1, heads, 6, 8)
    b.step(
        "onnx.Transpose",
        "Transpose",
        {"x": b.input("x", (1, 6, heads, 8))},
        "turned",
        F32,
        turned,
        {"perm": (0, 2, 1, 3)},
    )
    args = {"src_0": "turned", "src_1": b.constant("cos", data(rng, F32, (1, 1, 6, 8)))}
    b.step("binary", "Mul", args, "y", F32, turned, {"algorithm": "mul"})
    executor, plan, feeds = OneDnnExecutor(b.plan("y"), 2), b.plan("y"), b.feeds()
    assert [str(d) for d in compare_steps(plan, executor, feeds)] == []
    assert executor._latest().tensors["y"].desc.strides[-1] == 1
