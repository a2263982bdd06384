"""Programs of several steps: layouts are carried, views cost nothing, operands are overwritten only
when nobody reads them again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pytest
from support.executor_plans import F32, S8, U8, Builder, scales
from support.plan_strategies import foreign_params
from support.runtime_networks import residual_network, shape_arithmetic
from support.steps_compared import compare_steps
from support.versions import unexplained

from fqfuse.ir.types import DType
from fqfuse.plan.attributes import Binary, Eltwise, PrimitiveAttr, Scale, Sum
from fqfuse.plan.types import Plan
from fqfuse.runtime.lowering.executor import OneDnnExecutor


def checked(plan: Plan, feeds: Mapping[str, np.ndarray]) -> OneDnnExecutor:
    """An executor that computes every step as NumPy does, and gives the same outputs in a plain
    run.
    """
    executor = OneDnnExecutor(plan, 2)
    assert unexplained(compare_steps(plan, executor, feeds)) == []
    everything = executor.run_all(feeds)
    for name, array in zip(plan.outputs, executor.run(feeds), strict=True):
        expected = everything.get(name, feeds.get(name, plan.constants.get(name)))
        np.testing.assert_array_equal(array, expected)
    return executor


def where(executor: OneDnnExecutor) -> list[str]:
    return [placement.runtime for placement in executor.placement()]


@pytest.mark.of_vnni("codes that are multiplied in f32 are converted in front and behind")
def test_a_residual_network_runs_without_a_reorder() -> None:
    plan = residual_network()
    x = np.random.default_rng(0).normal(size=(3, 3, 10, 12)).astype(np.float32)
    executor = checked(plan, {"image": x})
    assert executor.reorders == 0
    assert where(executor) == ["onednn"] * 6 + ["view", "onednn"]
    assert all(placement.reason == "" for placement in executor.placement())


def test_shapes_computed_by_steps() -> None:
    rng = np.random.default_rng(0)
    checked(shape_arithmetic(), {name: rng.normal(size=(2, 6)).astype(np.float32) for name in "xy"})


@pytest.fixture
def b() -> Builder:
    return Builder()


def sum_plan(b: Builder, later: str) -> Plan:
    """Two convolutions, the second adding the first's result; `later` says who else reads that."""
    x = b.quantize(b.input("x", (1, 16, 8, 8)), "codes")
    first = b.convolution(x, "first", (16, 16, 1, 1))
    attr = PrimitiveAttr(
        scales(src=0.05, weights=0.004, dst=0.05), {}, (Sum(first, 0.05), Eltwise("relu"))
    )
    src = first if later == "the same step" else x
    b.convolution(src, "second", (16, 16, 1, 1), attr=attr)
    if later == "a later step":
        b.convolution(first, "third", (16, 16, 1, 1))
        return b.plan("second", "third")
    return b.plan("second", "first") if later == "the caller" else b.plan("second")


@pytest.mark.parametrize("later", ["nobody", "the same step", "a later step", "the caller"])
def test_the_operand_of_a_sum_is_overwritten_only_when_nobody_reads_it(
    b: Builder, later: str
) -> None:
    plan = sum_plan(b, later)
    executor = checked(plan, b.feeds())
    assert executor.reorders == (0 if later == "nobody" else 1)


def test_a_sum_of_an_input_leaves_the_callers_array_alone(b: Builder) -> None:
    x, old = b.input("x", (1, 16, 8, 8), U8), b.input("old", (1, 16, 8, 8), U8)
    b.convolution(
        x,
        "y",
        (16, 16, 1, 1),
        attr=PrimitiveAttr(scales(src=0.05, weights=0.004, dst=0.05), {}, (Sum(old, 0.05),)),
    )
    feeds = b.feeds()
    copy = feeds["old"].copy()
    checked(b.plan("y"), feeds)
    np.testing.assert_array_equal(feeds["old"], copy)


def test_a_sum_of_a_constant_leaves_the_constant_alone() -> None:
    data = np.random.default_rng(1).integers(0, 256, (1, 16, 8, 8)).astype(np.uint8)
    plans = []
    for as_constant in (False, True):
        b = Builder()
        x = b.input("x", (1, 16, 8, 8), U8)
        old = b.constant("old", data) if as_constant else b.input("old", (1, 16, 8, 8), U8)
        b.convolution(
            x,
            "y",
            (16, 16, 1, 1),
            attr=PrimitiveAttr(scales(src=0.05, weights=0.004, dst=0.05), {}, (Sum(old, 0.05),)),
        )
        plans.append(b.plan("y"))
    codes = np.random.default_rng(2).integers(0, 256, (1, 16, 8, 8)).astype(np.uint8)
    (expected,) = checked(plans[0], {"x": codes, "old": data}).run({"x": codes, "old": data})
    executor = OneDnnExecutor(plans[1], 2)
    for _ in range(2):
        np.testing.assert_array_equal(executor.run({"x": codes})[0], expected)


def test_a_sum_of_codes_of_the_other_sign(b: Builder) -> None:
    x = b.quantize(b.input("x", (1, 16, 8, 8)), "codes")
    first = b.convolution(x, "first", (16, 16, 1, 1), S8)
    attr = PrimitiveAttr(scales(src=0.05, weights=0.004, dst=0.05), {}, (Sum(first, 0.05, 3, S8),))
    b.convolution(x, "second", (16, 16, 1, 1), attr=attr)
    assert checked(b.plan("second"), b.feeds()).reorders == 0


def test_a_sum_of_a_view(b: Builder) -> None:
    # The operand is a reshaped value whose first name has another reader: one buffer, two names.
    x = b.quantize(b.input("x", (2, 32)), "codes")
    for name in ("w1", "w2"):
        b.constant(name, b.rng.integers(-127, 128, (32, 32)).astype(np.int8))
    attr = PrimitiveAttr(scales(src=0.02, weights=0.004, dst=0.05))
    b.step("matmul", "MatMul", {"src": x, "weights": "w1"}, "first", U8, (2, 32), attr=attr)
    b.constant("shape", np.array([1, 2, 32]))
    b.step("onnx.Reshape", "Reshape", {"x": "first", "shape": "shape"}, "wide", U8, (1, 2, 32))
    b.step("onnx.Reshape", "Reshape", {"x": x, "shape": "shape"}, "wide codes", U8, (1, 2, 32))
    summed = PrimitiveAttr(attr.scales, {}, (Sum("wide", 0.05),))
    b.step(
        "matmul",
        "MatMul",
        {"src": "wide codes", "weights": "w2"},
        "second",
        U8,
        (1, 2, 32),
        attr=summed,
    )
    b.step("matmul", "MatMul", {"src": "first", "weights": "w2"}, "third", U8, (2, 32), attr=attr)
    checked(b.plan("second", "third"), b.feeds())


@pytest.mark.of_avx512("a softmax along another axis is compiled for it alone")
def test_transposes_are_strides_until_someone_needs_bytes(b: Builder) -> None:
    x = b.quantize(b.input("x", (1, 24, 32)), "codes", S8)
    b.constant("split", np.array([1, 24, 4, 8]))
    b.constant("join", np.array([1, 24, 32]))
    b.step("onnx.Reshape", "Reshape", {"x": x, "shape": "split"}, "heads", S8, (1, 24, 4, 8))
    b.step(
        "onnx.Transpose",
        "Transpose",
        {"x": "heads"},
        "rows",
        S8,
        (1, 4, 24, 8),
        {"perm": (0, 2, 1, 3)},
    )
    b.step(
        "onnx.Transpose",
        "Transpose",
        {"x": "heads"},
        "columns",
        S8,
        (1, 4, 8, 24),
        {"perm": (0, 2, 3, 1)},
    )
    product = PrimitiveAttr(scales(src=0.02, weights=0.02))
    b.step(
        "matmul",
        "MatMul",
        {"src": "rows", "weights": "columns"},
        "scores",
        F32,
        (1, 4, 24, 24),
        attr=product,
    )
    b.step(
        "softmax",
        "Softmax",
        {"src": "scores"},
        "shares",
        U8,
        (1, 4, 24, 24),
        {"axis": -1},
        PrimitiveAttr(scales(dst=1 / 256)),
    )
    mixed = PrimitiveAttr(scales(src=1 / 256, weights=0.02, dst=0.02))
    b.step(
        "matmul",
        "MatMul",
        {"src": "shares", "weights": "rows"},
        "mixed",
        S8,
        (1, 4, 24, 8),
        attr=mixed,
    )
    b.step(
        "onnx.Transpose",
        "Transpose",
        {"x": "mixed"},
        "back",
        S8,
        (1, 24, 4, 8),
        {"perm": (0, 2, 1, 3)},
    )
    b.step("onnx.Reshape", "Reshape", {"x": "back", "shape": "join"}, "joined", S8, (1, 24, 32))
    plan = b.plan("joined", "columns")
    executor = OneDnnExecutor(plan, 2)
    feeds = b.feeds()
    for difference in compare_steps(plan, executor, feeds):
        # exp: the library's polynomial is a few ulp off, which flips a rounding now and then
        assert difference.step.primitive == "softmax"
        assert difference.largest <= 1
    assert "numpy" not in where(executor)
    assert where(executor).count("view") >= 4


@pytest.mark.parametrize(
    ("shape", "perm", "operand", "added"),
    [
        # rotary positions of one row behind a KV cache
        (
            (2, 1, 4, 16),
            (0, 2, 1, 3),
            (2, 1, 1, 16),
            (2, 4, 1, 16),
        ),
        ((1, 1, 5, 5), (2, 0, 1, 3), (1, 1, 1, 1), (5, 1, 1, 5)),
        ((5, 3), (1, 0), (3, 5), (1, 5)),  # samples inside channels
        ((5, 4, 3), (2, 1, 0), (3, 4, 5), (1, 4, 1)),
    ],
)
def test_operands_of_what_was_transposed(
    b: Builder,
    shape: tuple[int, ...],
    perm: tuple[int, ...],
    operand: tuple[int, ...],
    added: tuple[int, ...],
) -> None:
    moved = tuple(shape[axis] for axis in perm)
    b.step(
        "onnx.Transpose", "Transpose", {"x": b.input("x", shape)}, "t", F32, moved, {"perm": perm}
    )
    b.constant("c", b.rng.normal(size=operand).astype(np.float32))
    args = {"src_0": "t", "src_1": "c"}
    chain = PrimitiveAttr(post_ops=(Binary("add", b.input("r", added)),))
    b.step("binary", "Mul", args, "y", F32, moved, {"algorithm": "mul"}, chain)
    checked(b.plan("y"), b.feeds())


@pytest.mark.parametrize("perm", [(0, 2, 3, 1), (1, 0, 3, 2), (3, 2, 1, 0)])
def test_a_transposed_feature_map_as_an_output(b: Builder, perm: tuple[int, ...]) -> None:
    x = b.quantize(b.input("x", (2, 16, 6, 5)), "codes")
    b.convolution(x, "y", (8, 16, 1, 1))
    b.step("onnx.Transpose", "Transpose", {"x": "y"}, "turned", U8, None, {"perm": perm})
    executor = checked(b.plan("turned"), b.feeds())
    assert executor.run(b.feeds())[0].flags.c_contiguous


def test_numpy_steps_in_between_read_and_write_without_reorders(b: Builder) -> None:
    x = b.quantize(b.input("x", (2, 16, 6, 5)), "codes")
    b.convolution(x, "y", (8, 16, 1, 1))
    b.constant("table", np.arange(256, dtype=np.uint8)[::-1].copy())
    b.step("onnx.Lookup", "Lookup", {"x": "y", "table": "table"}, "turned", U8, None)
    b.convolution("turned", "z", (8, 8, 3, 3), params={"pads": (1, 1, 1, 1)})
    executor = checked(b.plan("z"), b.feeds())
    assert where(executor) == ["onednn", "onednn", "numpy", "onednn"]
    assert "no primitive for Lookup" in executor.placement()[2].reason
    assert executor.reorders == 0


@pytest.mark.parametrize("shape", [(2, 16, 6, 5), (1, 1, 6, 5), (3, 7, 1, 5), (1, 16, 1, 1)])
def test_a_step_on_numpy_that_follows_its_source_keeps_channels_last(
    b: Builder, shape: tuple[int, ...]
) -> None:
    x = b.quantize(b.input("x", shape), "codes")
    channels = shape[1]
    b.convolution(x, "y", (channels, channels, 1, 1))
    b.constant("table", b.rng.permutation(256).astype(np.uint8))
    b.step("onnx.Lookup", "Lookup", {"x": "y", "table": "table"}, "found", U8, None)
    b.step("onnx.Cast", "Cast", {"x": "found"}, "floats", F32, None, {"to": F32})
    b.constant("two", np.full((1, 1, 1, 1), 2, np.float32))
    b.step(
        "binary",
        "Mul",
        {"src_0": "floats", "src_1": "two"},
        "twice",
        F32,
        None,
        {"algorithm": "mul"},
    )
    executor = checked(b.plan("twice", "found"), b.feeds())
    tensors = executor._latest().tensors
    assert {tensors[value].desc.strides for value in ("y", "found", "floats", "twice")} == {
        tensors["y"].desc.strides
    }
    assert executor.reorders == 0


def test_a_step_on_numpy_behind_a_transposition(b: Builder) -> None:
    x = b.quantize(b.input("x", (2, 16, 6, 5)), "codes")
    b.convolution(x, "y", (8, 16, 1, 1))
    b.step("onnx.Transpose", "Transpose", {"x": "y"}, "turned", U8, None, {"perm": (3, 0, 2, 1)})
    b.constant("table", b.rng.permutation(256).astype(np.uint8))
    b.step("onnx.Lookup", "Lookup", {"x": "turned", "table": "table"}, "found", U8, None)
    checked(b.plan("found"), b.feeds())


def test_shapes_that_depend_on_data_run_on_numpy(b: Builder) -> None:
    x = b.input("x", (4, 6))
    b.step(
        "onnx.NonZero",
        "Onnx",
        {"x_0": x},
        "places",
        DType.S64,
        (2, "count"),
        foreign_params("NonZero"),
    )
    b.constant("row", np.array([0]))
    b.step(
        "onnx.Gather",
        "Gather",
        {"x": "places", "indices": "row"},
        "rows",
        DType.S64,
        (1, "count"),
        {"axis": 0},
    )
    b.step("onnx.Cast", "Cast", {"x": "rows"}, "floats", F32, (1, "count"), {"to": F32})
    b.step(
        "binary",
        "Add",
        {"src_0": "floats", "src_1": "floats"},
        "twice",
        F32,
        (1, "count"),
        {"algorithm": "add"},
    )
    feeds = {x: np.array([[0, 1, 0, 0, 2, 0]] * 4, np.float32)}
    executor = checked(b.plan("twice"), feeds)
    np.testing.assert_array_equal(executor.run(feeds)[0], [[0, 0, 2, 2, 4, 4, 6, 6]])
    feeds = {x: np.ones((4, 6), np.float32)}
    assert executor.run(feeds)[0].shape == (1, 24)
    assert where(executor) == ["numpy"] * 4


def test_empty_arrays_run_on_numpy(b: Builder) -> None:
    x = b.quantize(b.input("x", ("N", 16, 6, 5)), "codes")
    b.convolution(x, "y", (8, 16, 1, 1))
    executor = checked(b.plan("y"), {"x": np.zeros((0, 16, 6, 5), np.float32)})
    assert where(executor) == ["numpy", "numpy"]
    checked(b.plan("y"), {"x": np.ones((1, 16, 6, 5), np.float32)})


def test_inputs_and_constants_may_be_outputs(b: Builder) -> None:
    x = b.input("x", (2, 3))
    b.constant("c", np.arange(6, dtype=np.float32))
    b.step("eltwise", "Relu", {"src": x}, "y", F32, (2, 3), {"algorithm": "relu"})
    feeds = b.feeds()
    executor = checked(b.plan("y", "x", "c", "y"), feeds)
    _, same, constant, _ = executor.run(feeds)
    assert not np.shares_memory(same, feeds["x"])
    assert not np.shares_memory(constant, b.constants["c"])


def test_scalars(b: Builder) -> None:
    x = b.input("x", ())
    b.step(
        "eltwise",
        "Relu",
        {"src": x},
        "y",
        F32,
        (),
        {"algorithm": "linear", "alpha": 2.0, "beta": 1.0},
    )
    (y,) = OneDnnExecutor(b.plan("y"), 1).run({"x": np.asarray(2.0, np.float32)})
    assert y.shape == ()
    assert y == 5


def test_feeds_in_any_order_of_memory(b: Builder) -> None:
    x = b.quantize(b.input("x", (2, 16, 6, 5)), "codes")
    b.convolution(x, "y", (8, 16, 1, 1))
    plan = b.plan("y")
    executor = OneDnnExecutor(plan, 2)
    data = b.feeds()["x"]
    (expected,) = executor.run({"x": data})
    for other in (np.asfortranarray(data), np.repeat(data, 2, axis=3)[..., ::2], data[::-1][::-1]):
        np.testing.assert_array_equal(executor.run({"x": other})[0], expected)


# -- concat ----------------------------------------------------------------------------------------


def dense_block(b: Builder, layers: int, factors: Mapping[str, float] | None = None) -> Plan:
    """Each layer reads everything before it, joined anew."""
    parts = [b.quantize(b.input("x", (1, 16, 8, 8)), "codes")]
    for layer in range(layers):
        args = {f"src_{index}": value for index, value in enumerate(parts)}
        attr = PrimitiveAttr(
            {role: Scale((factor,)) for role, factor in (factors or {}).items() if role in args}
        )
        b.step("concat", "Concat", args, f"joined {layer}", U8, None, {"axis": 1}, attr)
        parts.append(
            b.convolution(
                f"joined {layer}",
                f"part {layer}",
                (8, 16 + 8 * layer, 3, 3),
                params={"pads": (1, 1, 1, 1)},
            )
        )
    return b.plan(parts[-1], "joined 1")


@pytest.mark.parametrize("factors", [{}, {"src_0": 0.5}, {"src_0": 0.5, "src_1": 2.0}], ids=str)
def test_a_concat_goes_on_from_an_earlier_one(b: Builder, factors: Mapping[str, float]) -> None:
    plan = dense_block(b, 4, factors)
    executor = checked(plan, b.feeds())
    actions = executor._latest().actions
    sources = [len(a.args) - 1 for a in actions if a.primitive.desc.kind == "concat"]
    extra = len(factors)
    assert sources[2:] == [2, 2]  # what was joined before, and one more
    assert sources[0] == 1 + min(extra, 1)


@pytest.mark.of_vnni("codes that are multiplied in f32 are converted in front and behind")
@pytest.mark.parametrize("dtype", [U8, S8, F32])
@pytest.mark.parametrize("axis", [1, 2, -1])
@pytest.mark.parametrize("channels", [(1, 3), (16, 16), (5, 7, 40), (64, 200)])
def test_sources_of_a_concat_are_copied_or_joined(
    b: Builder, channels: tuple[int, ...], axis: int, dtype: DType
) -> None:
    """By whichever is faster; also where a source is joined with itself, and read by others."""
    codes = b.quantize(b.input("x", (2, 4, 6, 5)), "codes")
    same = channels if axis == 1 else channels[:1] * len(channels)
    parts = [
        b.convolution(codes, f"part {index}", (count, 4, 1, 1), dtype)
        for index, count in enumerate(same)
    ]
    args = {f"src_{index}": value for index, value in enumerate([*parts, parts[0]])}
    b.step("concat", "Concat", args, "joined", dtype, None, {"axis": axis})
    executor = checked(b.plan("joined", parts[-1]), b.feeds())
    (placed,) = [p for p in executor.placement() if p.step.op == "Concat"]
    if axis == 1:  # rows of all channels
        row = (sum(same) + same[0]) * (4 if dtype is F32 else 1)
        kind = "jit:uni" if row < 96 * len(args) else "simple:any"
        assert placed.implementation.split(" + ") == [kind] * (
            len(args) if kind == "jit:uni" else 1
        )


def test_concats_of_different_scales_do_not_share(b: Builder) -> None:
    x, y = b.input("x", (1, 16, 4, 4), U8), b.input("y", (1, 16, 4, 4), U8)
    args = {"src_0": x, "src_1": y}
    b.step("concat", "Concat", args, "a", U8, None, {"axis": 1}, PrimitiveAttr(scales(src_0=0.5)))
    b.step(
        "concat",
        "Concat",
        args | {"src_2": x},
        "b",
        U8,
        None,
        {"axis": 1},
        PrimitiveAttr(scales(src_0=0.25)),
    )
    b.step(
        "concat",
        "Concat",
        args | {"src_2": x},
        "c",
        U8,
        None,
        {"axis": 2},
        PrimitiveAttr(scales(src_0=0.5)),
    )
    checked(b.plan("a", "b", "c"), b.feeds())


def test_a_joined_value_that_was_overwritten_is_not_used_again(b: Builder) -> None:
    x, y = b.input("x", (1, 16, 4, 4), U8), b.input("y", (1, 16, 4, 4), U8)
    b.step("concat", "Concat", {"src_0": x, "src_1": y}, "a", U8, None, {"axis": 1})
    attr = PrimitiveAttr(scales(src=0.05, weights=0.004, dst=0.05), {}, (Sum("a", 0.05),))
    b.convolution(x, "summed", (32, 16, 1, 1), attr=attr)  # takes over the memory of "a"
    b.step("concat", "Concat", {"src_0": x, "src_1": y, "src_2": x}, "c", U8, None, {"axis": 1})
    checked(b.plan("summed", "c"), b.feeds())


# -- elementwise chains ----------------------------------------------------------------------------


def per_channel_chain(
    b: Builder, shape: tuple[int, ...], src: DType, dst: DType, *, shift: bool
) -> Plan:
    channels = tuple(size if axis == 1 else 1 for axis, size in enumerate(shape))
    b.convolution(
        b.quantize(b.input("x", (1, 16, *shape[2:])), "codes"),
        "y",
        (shape[1], 16, *[1] * (len(shape) - 2)),
        src,
    )
    for name, low, high in (("m", 0.1, 2), ("a", -9, 9), ("m2", 0.1, 2), ("a2", -9, 9)):
        b.constant(name, b.rng.uniform(low, high, channels).astype(np.float32))
    post_ops = (Binary("add", "a"),) if shift else ()
    post_ops += (
        Eltwise("round"),
        Eltwise("clip", 0.0, 255.0),
        Binary("mul", "m2"),
        Binary("add", "a2"),
    )
    b.step(
        "binary",
        "Mul",
        {"src_0": "y", "src_1": "m"},
        "z",
        dst,
        None,
        {"algorithm": "mul"},
        PrimitiveAttr(post_ops=post_ops),
    )
    return b.plan("z")


@pytest.mark.parametrize("shift", [False, True], ids=["scale", "scale and shift"])
@pytest.mark.parametrize("dst", [U8, S8, F32], ids=lambda d: d.value)
@pytest.mark.parametrize("src", [U8, S8], ids=lambda d: d.value)
@pytest.mark.parametrize("shape", [(1, 48, 8, 8), (2, 21, 5, 3), (1, 32, 9)], ids=str)
def test_codes_scaled_by_channel_run_as_a_depthwise_convolution(
    b: Builder, shape: tuple[int, ...], src: DType, dst: DType, shift: bool
) -> None:
    plan = per_channel_chain(b, shape, src, dst, shift=shift)
    executor = checked(plan, b.feeds())
    implementation = executor.placement()[-1].implementation
    assert "dw" in implementation or "int8" in implementation


@pytest.mark.of_vnni("codes that are multiplied in f32 are converted in front and behind")
def test_a_further_scale_keeps_the_binary(b: Builder) -> None:
    # (x * 0.3) * m rounds twice, x * (0.3 * m) once.
    b.convolution(b.quantize(b.input("x", (1, 16, 8, 8)), "codes"), "y", (48, 16, 1, 1))
    b.constant("m", b.rng.uniform(0.1, 2, (1, 48, 1, 1)).astype(np.float32))
    b.step(
        "binary",
        "Mul",
        {"src_0": "y", "src_1": "m"},
        "z",
        U8,
        None,
        {"algorithm": "mul"},
        PrimitiveAttr(scales(src_0=0.3)),
    )
    executor = checked(b.plan("z"), b.feeds())
    assert executor.placement()[-1].implementation == "jit:uni"


@pytest.mark.parametrize(
    ("op", "kernel"),
    [
        *(("AveragePool", k) for k in (2, 3, 6)),
        *(("MaxPool", k) for k in (2, 3, 6)),
        ("ReduceMean", 6),
    ],
)
@pytest.mark.parametrize("channels", [8, 16, 20])
@pytest.mark.parametrize("dtype", [F32, U8])
def test_row_major_pooling_with_the_tensor_of_a_post_op(
    b: Builder, op: str, channels: int, kernel: int, dtype: DType
) -> None:
    """oneDNN 3.2's compiled kernel reads the wrong elements of such an operand: it is not asked
    to.
    """
    shape = (2, channels, 6 // kernel, 6 // kernel)
    args, params = (
        {"src": b.input("x", (2, channels, 6, 6))},
        {"kernel_shape": (kernel, kernel), "strides": (kernel, kernel)},
    )
    if op == "ReduceMean":
        args, params = {**args, "axes": b.constant("axes", np.asarray([2, 3]))}, {"keepdims": 1}
    attr = PrimitiveAttr({}, {}, (Binary("add", b.input("skip", shape, dtype)),))
    b.step(
        "reduction" if op == "ReduceMean" else "pooling", op, args, "y", F32, shape, params, attr
    )
    executor = OneDnnExecutor(b.plan("y"), 1)
    worst = max(
        (found.largest for found in compare_steps(b.plan("y"), executor, b.feeds())), default=0.0
    )
    assert worst <= 36 * 255 * 2**-24, "36 values are added in another order"
    assert where(executor) == ["onednn"]


@pytest.mark.parametrize("op", ["GlobalAveragePool", "AveragePool"])
@pytest.mark.parametrize("shape", [(1, 64, 768), (2, 5, 7, 11), (3, 1, 2, 3, 4)], ids=str)
def test_means_of_rows_are_a_reduction(b: Builder, op: str, shape: tuple[int, ...]) -> None:
    """The compiled pooling adds up row-major maps one by one."""
    params = {} if op == "GlobalAveragePool" else {"kernel_shape": shape[2:]}
    size, attr = math.prod(shape[2:]), PrimitiveAttr({}, {}, (Eltwise("linear", 0.5, 1e-6),))
    means = (*shape[:2], *(1 for _ in shape[2:]))
    b.step("pooling", op, {"src": b.input("x", shape)}, "y", F32, means, params, attr)
    plan, feeds = b.plan("y"), b.feeds()
    executor = OneDnnExecutor(plan, 1)
    worst = max((found.largest for found in compare_steps(plan, executor, feeds)), default=0.0)
    largest = float(np.abs(feeds["x"]).max())
    assert worst <= size * largest * 2**-24, "the values are added in another order"
    assert "simple" not in executor.placement()[0].implementation


@pytest.mark.parametrize(
    ("shape", "axis"),
    [((2, 8, 6, 5), 3), ((2, 16, 7), -1), ((2, 3, 4, 5, 6), 4), ((2, 8, 6, 5), 1)],
)
def test_softmax_with_a_factor_for_each_channel(
    b: Builder, shape: tuple[int, ...], axis: int
) -> None:
    """oneDNN 3.2's compiled kernel reads beyond the factors unless it runs along the channels: it
    is not asked to.
    """
    factors = b.constant(
        "m", b.rng.uniform(0.5, 2, (1, shape[1], *[1] * (len(shape) - 2))).astype(np.float32)
    )
    attr = PrimitiveAttr({}, {}, (Binary("mul", factors),))
    b.step(
        "softmax", "Softmax", {"src": b.input("x", shape)}, "y", F32, shape, {"axis": axis}, attr
    )
    executor = OneDnnExecutor(b.plan("y"), 1)
    worst = max(
        (found.largest for found in compare_steps(b.plan("y"), executor, b.feeds())), default=0.0
    )
    assert worst <= 2 * 2**-20, "the exponential is off by a few ulp"
    assert where(executor) == ["onednn" if axis == 1 else "numpy"]


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("operand", ["tensor", "columns", "channels", "images", "codes"])
def test_resampling_channels_last_with_the_operand_of_a_post_op(
    b: Builder, mode: str, operand: str
) -> None:
    """oneDNN 3.2's plain kernel reads the wrong elements of what varies within the channels: it is
    asked for row-major tensors only.
    """
    shapes = {"columns": (1, 1, 1, 6), "channels": (1, 16, 1, 1), "images": (2, 1, 1, 1)}
    other = b.input("o", shapes.get(operand, (2, 16, 6, 6)), U8 if operand == "codes" else F32)
    b.convolution(b.quantize(b.input("x", (2, 16, 3, 3)), "codes"), "y", (16, 16, 1, 1))
    attr = PrimitiveAttr({}, {}, (Eltwise("round"), Binary("add", other)))
    params = {"mode": mode, "coordinate_transformation_mode": "half_pixel"}
    args = {"src": "y", "scales": b.constant("scales", np.asarray([1, 1, 2, 2], np.float32))}
    b.step("resampling", "Resize", args, "z", U8, (2, 16, 6, 6), params, attr)
    executor = checked(b.plan("z"), b.feeds())
    assert where(executor)[-1] == "onednn"
