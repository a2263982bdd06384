"""Products whose post-ops read operands that oneDNN's compiled kernels do not broadcast as they
are: dimensions are joined, constants written out."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from support.codes import has_avx512
from support.executor_plans import F32, S8, U8, Builder, scales
from support.runtime_plans import one_step
from support.steps_compared import compare_steps
from support.versions import PRODUCT_OF_CODES, unexplained

from fqfuse.onednn.enums import Arg
from fqfuse.plan.attributes import Binary, Eltwise, PrimitiveAttr, Sum
from fqfuse.plan.types import Plan
from fqfuse.runtime.lowering import values
from fqfuse.runtime.lowering.executor import OneDnnExecutor
from fqfuse.runtime.lowering.program import PrimitiveAction
from fqfuse.runtime.placement import Placement


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def placed(plan: Plan, feeds: Mapping[str, np.ndarray]) -> list[Placement]:
    """Where the steps ran; every step computed what NumPy computes."""
    executor = OneDnnExecutor(plan, 2)
    assert unexplained(compare_steps(plan, executor, feeds)) == []
    return list(executor.placement())


def compiled(placement: Placement) -> bool:
    """True where a kernel for products of codes takes the step by itself, without a reorder. Such kernels
    take few operands without AVX-512: there the step must run on oneDNN in some way.
    """
    if not has_avx512():
        return placement.runtime == "onednn"
    return PRODUCT_OF_CODES.fullmatch(placement.implementation) is not None


def codes(
    rng: np.random.Generator, shape: tuple[int, ...], low: int = 0, high: int = 256
) -> np.ndarray:
    return rng.integers(low, high, shape).astype(np.uint8 if low == 0 else np.int8)


ATTR = scales(src=0.02, weights=0.01, dst=0.3)


def product(
    rng: np.random.Generator,
    left: tuple[int, ...],
    right: tuple[int, ...],
    operands: list[tuple[int, ...]],
    *,
    constants: tuple[str, ...] = ("weights",),
    live: bool = False,
) -> tuple[Plan, dict[str, np.ndarray]]:
    """A product of codes with one `add` and `mul` after another for each operand, stored as u8."""
    names = [f"operand_{index}" for index in range(len(operands))]
    chain = tuple(
        Binary(algorithm, name)
        for algorithm, name in zip(itertools.cycle(("add", "mul")), names, strict=False)
    )
    arrays = {
        name: rng.normal(1, 1, shape).astype(np.float32)
        for name, shape in zip(names, operands, strict=True)
    }
    args = [("src", codes(rng, left)), ("weights", codes(rng, right, -127, 128))]
    held = constants if live else (*constants, *names)
    plan, _, feeds = one_step(
        "matmul",
        "MatMul",
        args,
        U8,
        attr=PrimitiveAttr(ATTR, {}, chain),
        operands=arrays,
        constants=held,
    )
    return plan, feeds


PATTERNS = [mask for rank in (3, 4, 5) for mask in itertools.product((False, True), repeat=rank)]
SIZES = (2, 3, 4, 5, 6)


@pytest.mark.parametrize("batched", [True, False], ids=["batched weights", "one matrix"])
@pytest.mark.parametrize(
    "mask", PATTERNS, ids=lambda mask: "".join("n1"[not full] for full in mask)
)
def test_a_constant_operand_broadcasts_along_any_dimensions(
    rng: np.random.Generator, mask: tuple[bool, ...], batched: bool
) -> None:
    dims = SIZES[-len(mask) :]
    left, right = (*dims[:-1], 16), (*(dims[:-2] if batched else ()), 16, dims[-1])
    operand = tuple(size if full else 1 for size, full in zip(dims, mask, strict=True))
    (placement,) = placed(*product(rng, left, right, [operand]))
    assert compiled(placement) or placement.implementation.endswith("gemm:jit"), placement.reason


@pytest.mark.parametrize(
    ("operand", "batched"),
    [
        ((1, 1, 6, 7), True),  # a causal mask
        ((3, 1, 1, 7), True),  # a padding mask
        ((3, 4, 1, 7), True),
        ((1, 1, 6, 1), True),
        ((3, 4, 6, 1), False),
        ((1, 4, 6, 7), False),
        ((1, 1, 6, 7), False),
    ],
    ids=str,
)
def test_an_operand_computed_at_run_time_is_read_where_joined_dimensions_allow_it(
    rng: np.random.Generator, operand: tuple[int, ...], batched: bool
) -> None:
    left, right = (3, 4, 6, 16), (*((3, 4) if batched else ()), 16, 7)
    (placement,) = placed(*product(rng, left, right, [operand], live=True))
    assert compiled(placement), placement.reason


def test_several_operands_that_broadcast_along_different_dimensions(
    rng: np.random.Generator,
) -> None:
    operands = [(1, 4, 6, 7), (3, 1, 1, 7), (3, 4, 6, 7), (1, 1, 1, 7), (4, 1, 1), ()]
    (placement,) = placed(*product(rng, (3, 4, 6, 16), (3, 4, 16, 7), operands))
    assert compiled(placement), placement.reason


@pytest.mark.parametrize(
    ("left", "right"),
    [((1, 4, 6, 16), (3, 1, 16, 7)), ((6, 16), (3, 4, 16, 7)), ((3, 4, 1, 16), (16, 7))],
    ids=str,
)
def test_factors_that_broadcast(
    rng: np.random.Generator, left: tuple[int, ...], right: tuple[int, ...]
) -> None:
    (placement,) = placed(*product(rng, left, right, [(1, 4, 1, 7)]))
    assert placement.runtime == "onednn", placement.reason


def test_a_bias_and_a_sum_beside_a_written_operand(rng: np.random.Generator) -> None:
    chain = (Binary("add", "window"), Eltwise("relu"), Sum("old", 0.3))
    args = [
        ("src", codes(rng, (3, 4, 6, 16))),
        ("weights", codes(rng, (3, 4, 16, 7), -127, 128)),
        ("bias", np.ones(7, np.float32)),
    ]
    operands = {
        "window": rng.normal(0, 1, (1, 4, 6, 7)).astype(np.float32),
        "old": codes(rng, (3, 4, 6, 7)),
    }
    attr = PrimitiveAttr(ATTR, {}, chain)
    plan, _, feeds = one_step(
        "matmul", "MatMul", args, U8, attr=attr, operands=operands, constants=("bias", "window")
    )
    (placement,) = placed(plan, feeds)
    # behind a copy of the caller's array
    *_, product_alone = placement.implementation.split(" + ")
    assert compiled(replace(placement, implementation=product_alone)), placement.reason


def test_codes_as_operands(rng: np.random.Generator) -> None:
    args = [("src", codes(rng, (3, 4, 6, 16))), ("weights", codes(rng, (3, 4, 16, 7), -127, 128))]
    operands = {"window": codes(rng, (1, 4, 6, 7), -128, 128)}
    attr = PrimitiveAttr(
        ATTR, {}, (Eltwise("linear", 10.0, 0.0), Binary("gt", "window"), Binary("mul", "window"))
    )
    plan, _, feeds = one_step(
        "matmul", "MatMul", args, U8, attr=attr, operands=operands, constants=("window",)
    )
    (placement,) = placed(plan, feeds)
    assert compiled(placement), placement.reason


def attention(batch: int | str, shape: tuple[int, ...]) -> Plan:
    """Queries times transposed keys, both cut out of one product's codes, plus a constant: how
    exporters write attention.
    """
    b = Builder()
    lies = (batch, 6, 4, 8)
    for name in ("q", "k"):
        b.quantize(b.input(f"{name}_f32", lies), name, U8 if name == "q" else S8)
    b.step(
        "onnx.Transpose",
        "Transpose",
        {"x": "q"},
        "queries",
        U8,
        (batch, 4, 6, 8),
        {"perm": (0, 2, 1, 3)},
    )
    b.step(
        "onnx.Transpose",
        "Transpose",
        {"x": "k"},
        "keys",
        S8,
        (batch, 4, 8, 6),
        {"perm": (0, 2, 3, 1)},
    )
    b.constant("bias", b.rng.normal(0, 1, shape).astype(np.float32))
    attr = PrimitiveAttr(scales(src=0.02, weights=0.02), {}, (Binary("add", "bias"),))
    b.step(
        "matmul",
        "MatMul",
        {"src": "queries", "weights": "keys"},
        "scores",
        F32,
        (batch, 4, 6, 6),
        attr=attr,
    )
    return b.plan("scores")


@pytest.mark.parametrize("batch", [1, 3])
def test_transposed_factors_are_read_where_they_lie(rng: np.random.Generator, batch: int) -> None:
    feeds = {
        f"{name}_f32": rng.normal(0, 1, (batch, 6, 4, 8)).astype(np.float32) for name in ("q", "k")
    }
    *_, placement = placed(attention(batch, (1, 4, 6, 6)), feeds)
    # alone, without a reorder
    assert compiled(placement), placement.reason


def test_operands_too_large_to_be_written_out(
    monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    plan, feeds = product(rng, (3, 4, 6, 16), (3, 4, 16, 7), [(1, 4, 6, 7), (1, 4, 1, 7)])
    one = 3 * 4 * 6 * 7 * 4
    monkeypatch.setattr(values, "_LARGEST_WRITTEN_OUT", 2 * one)
    assert placed(plan, feeds)[0].runtime == "onednn"
    monkeypatch.setattr(values, "_LARGEST_WRITTEN_OUT", 2 * one - 1)
    (placement,) = placed(plan, feeds)
    assert placement.runtime == "numpy"
    assert "written out" in placement.reason


def test_what_is_written_out_belongs_to_the_shapes_that_are_bound(rng: np.random.Generator) -> None:
    plan = attention("B", (1, 4, 6, 6))
    executor = OneDnnExecutor(plan, 2)
    for batch in (2, 5, 2, 1, 7):
        feeds = {
            f"{name}_f32": rng.normal(0, 1, (batch, 6, 4, 8)).astype(np.float32)
            for name in ("q", "k")
        }
        assert unexplained(compare_steps(plan, executor, feeds)) == []
        assert executor.placement()[-1].runtime == "onednn"


@pytest.mark.parametrize("size", [(1,), (1, 1, 1)])
def test_a_bias_of_one_number_is_written_out(
    rng: np.random.Generator, size: tuple[int, ...]
) -> None:
    """A plan has it where it does not know how many columns there are: for it as it is, the library
    has `ref:any`, and the product would run on NumPy.
    """
    args = [
        ("src", codes(rng, (2, 3, 5, 8))),
        ("weights", codes(rng, (2, 3, 8, 7), -127, 128)),
        ("bias", np.full(size, 12.0, np.float32)),
    ]
    attr = PrimitiveAttr(ATTR, {}, (Eltwise("round"),))
    plan, _, feeds = one_step("matmul", "MatMul", args, U8, attr=attr, constants=("bias",))
    (place,) = placed(plan, feeds)
    assert place.runtime == "onednn"
    assert "ref" not in place.implementation


@pytest.mark.of_avx512("products of narrow columns are compiled for it alone")
@pytest.mark.parametrize(
    ("lead", "depth", "columns"), [((1,), 2053, 128), ((1, 1), 64, 4096), ((1, 1, 1), 300, 928)]
)
@pytest.mark.parametrize("bias", [None, "columns", "one"])
@pytest.mark.parametrize("operand", [None, "columns", "whole", "one", "sum"])
def test_a_row_of_floats_is_a_batch_of_narrow_products(
    lead: tuple[int, ...], depth: int, columns: int, bias: str | None, operand: str | None
) -> None:
    b = Builder()
    shape = (*lead, columns)
    x = b.input("x", (*lead, depth))
    # whole numbers: the sums are exact in every order
    args = {"src": x, "weights": b.constant("w", whole(b.rng, (depth, columns)))}
    if bias is not None:
        sizes = (columns,) if bias == "columns" else (1,)
        args["bias"] = b.constant("bias", whole(b.rng, sizes))
    chain: tuple[Binary | Eltwise | Sum, ...] = (Eltwise("linear", 0.5, 1.0),)
    if operand == "sum":
        chain = (*chain, Sum(b.input("skip", shape)))
    elif operand is not None:
        sizes = {"columns": (columns,), "whole": shape, "one": (1,)}[operand]
        live = operand == "whole"
        name = b.input("o", sizes) if live else b.constant("o", whole(b.rng, sizes))
        chain = (*chain, Binary("mul", name), Eltwise("relu", 0.0, 0.0))
    b.step("matmul", "MatMul", args, "y", F32, shape, attr=PrimitiveAttr({}, {}, chain))
    feeds = {name: whole(b.rng, array.shape) for name, array in b.feeds().items()}
    plan = b.plan("y")
    executor = OneDnnExecutor(plan, 2)
    assert unexplained(compare_steps(plan, executor, feeds)) == []
    action = executor._latest().actions[-1]
    assert isinstance(action, PrimitiveAction)
    assert action.args[Arg.WEIGHTS].desc.dims == (columns // 32, depth, 32)


def whole(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return rng.integers(-8, 9, shape).astype(np.float32)
