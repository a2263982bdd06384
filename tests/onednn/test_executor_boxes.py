"""Steps that cut a box out of a tensor, or show an array under another shape, need no NumPy in
between.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from support.executor_plans import F32, U8, Builder, scales
from support.steps_compared import compare_steps

from fqfuse.errors import InvalidInput
from fqfuse.ir.types import DType
from fqfuse.plan.attributes import PrimitiveAttr
from fqfuse.plan.types import Plan
from fqfuse.runtime.lowering.executor import OneDnnExecutor


@pytest.fixture
def b() -> Builder:
    return Builder()


def runtimes(plan: Plan, feeds: Mapping[str, np.ndarray]) -> list[str]:
    """Where the steps ran; every step computed what NumPy computes."""
    executor = OneDnnExecutor(plan, 2)
    assert [str(d) for d in compare_steps(plan, executor, feeds)] == []
    everything = executor.run_all(feeds)
    for name, array in zip(plan.outputs, executor.run(feeds), strict=True):
        np.testing.assert_array_equal(array, everything[name])
    return [placement.runtime for placement in executor.placement()]


@pytest.mark.parametrize("index", [0, 3, -1, [2], [[-6]]])
@pytest.mark.parametrize("axis", [1, -1])
def test_one_row_at_a_constant_index(b: Builder, index: int | list[int], axis: int) -> None:
    x = b.quantize(b.input("x", (2, 6, 8)), "codes")
    b.constant("at", np.array(index))
    shape = np.take(np.zeros((2, 6, 8)), np.array(index), axis).shape
    b.step("onnx.Gather", "Gather", {"x": x, "indices": "at"}, "row", U8, shape, {"axis": axis})
    assert runtimes(b.plan("row"), b.feeds()) == ["onednn", "onednn"]


def test_the_first_token_goes_to_a_product(b: Builder) -> None:
    x = b.quantize(b.input("x", (1, 6, 16)), "codes")
    b.constant("first", np.array(0))
    b.step("onnx.Gather", "Gather", {"x": x, "indices": "first"}, "token", U8, (1, 16), {"axis": 1})
    b.constant("w", b.rng.integers(-127, 128, (16, 4)).astype(np.int8))
    attr = PrimitiveAttr(scales(src=0.02, weights=0.02))
    b.step("matmul", "MatMul", {"src": "token", "weights": "w"}, "y", F32, (1, 4), attr=attr)
    assert runtimes(b.plan("y", "token"), b.feeds()) == ["onednn"] * 3


@pytest.mark.parametrize(
    ("starts", "ends", "axes"),
    [
        ([1], [5], [1]),
        ([0, 2], [2**31 - 1, -1], [2, 3]),
        ([-4, 0, -3], [-1, 1, 2**63 - 1], [1, 0, -1]),
    ],
    ids=["channels", "to the end", "from the end"],
)
def test_a_slice_of_a_feature_map(
    b: Builder, starts: list[int], ends: list[int], axes: list[int]
) -> None:
    x = b.quantize(b.input("x", (2, 16, 6, 5)), "codes")
    b.convolution(x, "y", (8, 16, 1, 1))
    cut = [slice(None)] * 4
    for axis, start, end in zip(axes, starts, ends, strict=True):
        cut[axis] = slice(start, end)
    shape = np.zeros((2, 8, 6, 5))[tuple(cut)].shape
    args = {"x": "y"}
    for role, data in (("starts", starts), ("ends", ends), ("axes", axes)):
        args[role] = b.constant(role, np.array(data))
    b.step("onnx.Slice", "Slice", args, "part", U8, shape)
    b.convolution("part", "z", (8, shape[1], 1, 1))
    assert runtimes(b.plan("z", "part"), b.feeds()) == ["onednn"] * 4


def sliced(
    b: Builder,
    x: str,
    shape: tuple[int, ...],
    starts: list[int],
    ends: list[int],
    axes: list[int],
    steps: list[int],
) -> None:
    args = {"x": x}
    for role, data in (("starts", starts), ("ends", ends), ("axes", axes), ("steps", steps)):
        args[role] = b.constant(role, np.array(data))
    cut = [slice(None)] * len(shape)
    for axis, *bounds in zip(axes, starts, ends, steps, strict=True):
        cut[axis] = slice(*bounds)
    b.step("onnx.Slice", "Slice", args, "part", U8, np.zeros(shape)[tuple(cut)].shape)


@pytest.mark.parametrize(
    ("starts", "ends", "axes", "steps"),
    [
        ([0], [2**31 - 1], [2], [2]),
        ([1], [2**63 - 1], [3], [2]),
        ([1, 0], [8, 6], [2, 3], [2, 3]),
        ([-3, 1], [2**31 - 1, -1], [1, 2], [2, 4]),
        ([0, 2], [2, 8], [0, 1], [1, 3]),
        ([7], [8], [2], [5]),
    ],
    ids=str,
)
@pytest.mark.parametrize("last", [True, False], ids=["channels last", "row-major"])
def test_a_slice_with_gaps(
    b: Builder, starts: list[int], ends: list[int], axes: list[int], steps: list[int], last: bool
) -> None:
    x = b.quantize(b.input("x", (2, 16, 8, 6)), "codes")
    if last:
        x = b.convolution(x, "y", (8, 16, 1, 1))
    sliced(b, x, (2, 8 if last else 16, 8, 6), starts, ends, axes, steps)
    assert runtimes(b.plan("part"), b.feeds()) == ["onednn"] * (3 if last else 2)


def test_a_slice_backwards_runs_on_numpy(b: Builder) -> None:
    sliced(b, b.quantize(b.input("x", (2, 16, 6)), "codes"), (2, 16, 6), [5], [-7], [2], [-1])
    plan = b.plan("part")
    assert runtimes(plan, b.feeds()) == ["onednn", "numpy"]
    executor = OneDnnExecutor(plan, 2)
    executor.run(b.feeds())
    assert "goes backwards" in executor.placement()[1].reason


@pytest.mark.parametrize(
    ("op", "numbers", "shape"),
    [
        ("Expand", [2, 3, 5, 4, 8], (2, 3, 5, 4, 8)),
        ("Expand", [7, 1, 1, 1, 1, 1], (7, 2, 3, 1, 4, 8)),
        ("Expand", [1], (2, 3, 1, 4, 8)),
        ("Tile", [1, 2, 3, 1, 2], (2, 6, 3, 4, 16)),
        ("Tile", [5, 1, 1, 1, 1], (10, 3, 1, 4, 8)),
    ],
)
@pytest.mark.parametrize("codes", [True, False])
def test_what_stands_several_times_is_one_reorder(
    b: Builder, op: str, numbers: list[int], shape: tuple[int, ...], codes: bool
) -> None:
    x = b.input("x", (2, 4, 1, 3, 8))
    if codes:
        x = b.quantize(x, "codes")
    kind = U8 if codes else F32
    # the axes are turned first: what is repeated does not lie in its order
    turned = {"perm": (0, 3, 2, 1, 4)}
    b.step("onnx.Transpose", "Transpose", {"x": x}, "turned", kind, (2, 3, 1, 4, 8), turned)
    b.constant("numbers", np.array(numbers))
    role = "shape" if op == "Expand" else "repeats"
    b.step(f"onnx.{op}", op, {"x": "turned", role: "numbers"}, "y", kind, shape)
    where = "view" if shape == (2, 3, 1, 4, 8) else "onednn"
    assert runtimes(b.plan("y"), b.feeds()) == ["onednn"] * codes + ["view", where]


def test_an_index_outside_is_reported_as_numpy_does(b: Builder) -> None:
    x = b.quantize(b.input("x", (2, 6, 8)), "codes")
    b.constant("at", np.array(6))
    b.step("onnx.Gather", "Gather", {"x": x, "indices": "at"}, "row", U8, (2, 8), {"axis": 1})
    with pytest.raises(InvalidInput, match="Gather"):
        OneDnnExecutor(b.plan("row"), 2).run(b.feeds())


def test_an_integer_mask_under_another_shape_is_no_step(b: Builder) -> None:
    b.input("mask", (1, 6), DType.S64)
    b.constant("one", np.array([1]))
    b.constant("two", np.array([2]))
    b.step(
        "onnx.Unsqueeze", "Unsqueeze", {"x": "mask", "axes": "one"}, "wide", DType.S64, (1, 1, 6)
    )
    b.step(
        "onnx.Unsqueeze",
        "Unsqueeze",
        {"x": "wide", "axes": "two"},
        "wider",
        DType.S64,
        (1, 1, 1, 6),
    )
    b.step("onnx.Cast", "Cast", {"x": "wider"}, "floats", F32, (1, 1, 1, 6), {"to": F32})
    attr = {"algorithm": "linear", "alpha": 10000.0, "beta": -10000.0}
    b.step("eltwise", "Identity", {"src": "floats"}, "bias", F32, (1, 1, 1, 6), attr)
    feeds = {"mask": np.array([[1, 1, 0, 1, 0, 1]])}
    plan = b.plan("bias", "wide")
    assert runtimes(plan, feeds) == ["view", "view", "numpy", "onednn"]
    executor = OneDnnExecutor(plan, 2)
    bias, wide = executor.run(feeds)
    feeds["mask"][:] = 0  # what was returned is a copy
    np.testing.assert_array_equal(wide, [[[1, 1, 0, 1, 0, 1]]])
    np.testing.assert_array_equal(bias.reshape(-1), [0, 0, -10000, 0, -10000, 0])
