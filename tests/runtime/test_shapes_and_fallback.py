"""Binding shapes, and ops without a row: onnx.reference runs them, whatever shapes they turn out to
give.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from onnx import helper, numpy_helper, parser
from support.runtime_networks import residual_network, shape_arithmetic
from support.runtime_plans import one_step

import fqfuse
from fqfuse.errors import InvalidInput, InvalidModel, UnsupportedOp
from fqfuse.ir.types import DType, TensorType
from fqfuse.plan.attributes import DepthwiseConv, PrimitiveAttr
from fqfuse.plan.shapes import bind_shapes, row_inputs, step_shapes, symbol_sizes
from fqfuse.plan.types import Plan, Step
from fqfuse.runtime.fallback import foreign_op
from fqfuse.runtime.numpy_runtime import run_step
from fqfuse.runtime.session import InferenceSession

F32 = DType.F32


def test_every_value_of_a_network_is_bound() -> None:
    plan = residual_network()
    shapes, _ = bind_shapes(plan, {"image": (7, 3, 10, 12)})
    assert shapes["scores"] == (7, 5)
    assert shapes["features"] == (7, 8, 5, 6)
    assert shapes.keys() == plan.values.keys() | plan.constants.keys()


def test_computed_shapes_are_followed() -> None:
    shapes, _ = bind_shapes(shape_arithmetic(), {"x": (4, 6), "y": (4, 6)})
    assert shapes["cubes"] == (4, 3, 2)
    assert shapes["flat"] == (4, 6)


def test_shapes_that_the_model_cannot_take() -> None:
    with pytest.raises(InvalidInput, match="cannot take these shapes"):
        bind_shapes(residual_network(), {"image": (7, 4, 10, 12)})


def test_symbols() -> None:
    plan = shape_arithmetic()
    assert symbol_sizes(plan, {"x": (4, 6), "y": (4, 6)}) == {"N": 4}
    with pytest.raises(InvalidInput, match="dimension N"):
        symbol_sizes(plan, {"x": (4, 6), "y": (5, 6)})


def test_a_depthwise_post_op_shrinks_the_destination() -> None:
    x, w = np.zeros((1, 4, 9, 9), np.uint8), np.zeros((8, 4, 1, 1), np.int8)
    attr = PrimitiveAttr(post_ops=(DepthwiseConv("dw", "", kernel=3, stride=2, padding=1),))
    args, taps = [("src", x), ("weights", w)], {"dw": np.zeros((8, 1, 3, 3), np.int8)}
    plan, step, live = one_step("convolution", "Conv", args, DType.U8, attr=attr, operands=taps)
    assert step_shapes(plan, step, {**live, "weights": w}) == {"y": (1, 8, 5, 5)}


def foreign(
    op_type: str,
    inputs: Sequence[str],
    outputs: Sequence[str],
    opset: int = 18,
    **attributes: object,
) -> Mapping[str, object]:
    node = helper.make_node(op_type, inputs, outputs, name="mine", **attributes)
    return {"op_type": op_type, "domain": "", "opset": opset, "proto": node.SerializeToString()}


def test_a_foreign_op_with_an_absent_input_and_an_absent_output() -> None:
    params = foreign("TopK", ["x", "k"], ["", "places"], axis=1)
    run = foreign_op(params, "TopK_3")
    found = run([np.array([[3.0, 9.0, 5.0]], np.float32), np.array([2])])
    np.testing.assert_array_equal(found[1], [[1, 2]])
    # Resize's optional inputs in the middle are absent.
    params = foreign("Resize", ["x", "", "scales"], ["y"], mode="nearest")
    (y,) = foreign_op(params, "Resize_1")(
        [np.ones((1, 1, 2, 2), np.float32), None, np.array([1, 1, 2, 2], np.float32)]
    )
    assert y.shape == (1, 1, 4, 4)


def test_roles_of_a_foreign_step_keep_their_places() -> None:
    from fqfuse.ir.ops import OPS

    step = Step(
        "s",
        "onnx.Resize",
        "Onnx",
        (("x_0", "a"), ("x_2", "c")),
        ("y",),
        foreign("Resize", ["a", "", "c"], ["y"]),
    )
    assert row_inputs(step, OPS["Onnx"]) == ("a", "", "c")


def test_data_dependent_shapes_are_bound_while_they_run() -> None:
    values = {
        "x": TensorType(F32, ("N",)),
        "mask": TensorType(DType.BOOL, ("N",)),
        "kept": TensorType(F32, ("?",)),
        "y": TensorType(F32, ("?",)),
    }
    steps = (
        Step("positive", "onnx.Greater", "Greater", (("a", "x"), ("b", "zero")), ("mask",)),
        Step(
            "keep",
            "onnx.Compress",
            "Onnx",
            (("x_0", "x"), ("x_1", "mask")),
            ("kept",),
            foreign("Compress", ["x", "mask"], ["kept"]),
        ),
        Step(
            "double",
            "eltwise",
            "Identity",
            (("src", "kept"),),
            ("y",),
            {"algorithm": "linear", "alpha": 2.0, "beta": 0.0},
        ),
    )
    plan = Plan(
        "data", "onednn-v3", ("x",), ("y",), values, {"zero": np.zeros((), np.float32)}, steps
    )
    assert "kept" not in bind_shapes(plan, {"x": (4,)})[0]
    session = InferenceSession(plan, backend="numpy", threads=2)
    for x, want in (([-1, 2, 3, -4], [4, 6]), ([1, 2, 3, 4], [2, 4, 6, 8]), ([-1, -1, -1, -1], [])):
        (y,) = session.run(None, {"x": np.array(x, np.float32)})
        np.testing.assert_array_equal(y, want)


@pytest.mark.parametrize("backend", ["numpy", "onednn"])
def test_a_symbol_that_a_foreign_op_contradicts_where_nobody_relies_on_it(backend: str) -> None:
    """Sizes beside an unknown one bind nobody; the oneDNN runtime took them for those of an input."""
    values = {
        "x": TensorType(F32, ("N", 4)),
        "t": TensorType(F32, ("N", "?")),  # it is [4, N]
        "u": TensorType(F32, ("?", "N")),
        "y": TensorType(F32, ("?", "?")),
    }
    steps = (
        *(
            Step(
                name,
                "onnx.Transpose",
                "Onnx",
                (("x_0", "x"),),
                (name,),
                foreign("Transpose", ["x"], [name], perm=[1, 0]),
            )
            for name in "tu"
        ),
        Step(
            "add",
            "binary",
            "Add",
            (("src_0", "t"), ("src_1", "u")),
            ("y",),
            {"algorithm": "add"},
        ),
    )
    plan = Plan("symbols", "onednn-v3", ("x",), ("y",), values, {}, steps)
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    (y,) = InferenceSession(plan, backend=backend, threads=2).run(None, {"x": x})
    np.testing.assert_array_equal(y, 2 * x.T)


def test_a_foreign_op_that_nothing_runs() -> None:
    node = helper.make_node("Frobnicate", ["x"], ["y"], domain="com.example")
    with pytest.raises(UnsupportedOp, match=r"com\.example\.Frobnicate") as caught:
        foreign_op(
            {
                "op_type": "Frobnicate",
                "domain": "com.example",
                "opset": 1,
                "proto": node.SerializeToString(),
            },
            "Frobnicate_7",
        )
    assert "Frobnicate_7" in str(caught.value)


def test_a_foreign_op_on_arrays_that_it_cannot_take() -> None:
    run = foreign_op(foreign("Det", ["x"], ["y"]), "Det_1")
    with pytest.raises(InvalidInput, match="Det cannot be computed") as caught:
        run([np.zeros((2, 3), np.float32)])
    assert "Det_1" in str(caught.value)


def test_a_foreign_op_that_asks_for_more_memory_than_there_is() -> None:
    depth = helper.make_node("OneHot", ["i", "d", "v"], ["y"]).SerializeToString()
    run = foreign_op({"op_type": "OneHot", "domain": "", "opset": 21, "proto": depth}, "here")
    arrays = [np.arange(4), np.asarray(1 << 45), np.zeros(2, np.float32)]
    with pytest.raises(
        InvalidInput, match=r"not enough memory for OneHot on int64\[4\], int64\[\], float32\[2\]"
    ) as caught:
        run(arrays)
    assert caught.value.where == "here"


@pytest.mark.parametrize("repeats", [[1, -1], [-1, 1], [-2, -1], [1, -(2**63) + 1], [1]])
def test_repeats_of_a_foreign_tile(repeats: list[int]) -> None:
    """NumPy's tile gave back memory that nobody wrote."""
    run = foreign_op(foreign("Tile", ["x", "r"], ["y"]), "Tile_1")
    with pytest.raises(InvalidInput, match="repeats must hold 2 numbers >= 0"):
        run([np.ones((2, 3), np.float32), np.array(repeats)])
    (y,) = run([np.ones((2, 3), np.float32), np.array([1, 2])])
    assert y.shape == (2, 6)


def test_repeats_of_a_tile() -> None:
    x = ("x", np.ones((2, 3), np.float32))
    plan, step, live = one_step(
        "onnx.Tile", "Tile", [x, ("repeats", np.array([1, -(2**63) + 1]))], F32
    )
    with pytest.raises(InvalidInput, match="repeats must hold 2 numbers >= 0"):
        run_step(plan, step, live)


@pytest.mark.parametrize("sizes", [[1, 1], [1, 2]], ids=["alike", "ragged"])
def test_a_sequence_is_no_tensor(sizes: list[int]) -> None:
    run = foreign_op(foreign("SplitToSequence", ["x", "s"], ["y"]), "Split_1")
    with pytest.raises(InvalidInput, match="an output is no tensor but a list"):
        run([np.ones(sum(sizes), np.float32), np.array(sizes)])


def test_a_damaged_node() -> None:
    with pytest.raises(InvalidModel, match="cannot be read"):
        foreign_op({"op_type": "Det", "domain": "", "opset": 18, "proto": b"\xff\xff\xff"}, "Det_1")


def test_a_step_of_a_row_names_the_users_node_when_it_cannot_be_computed() -> None:
    plan, step, live = one_step(
        "onnx.Gather",
        "Gather",
        [("x", np.zeros(3, np.float32)), ("indices", np.array([7]))],
        F32,
        params={"axis": 0},
    )
    with pytest.raises(InvalidInput, match="Gather cannot be computed") as caught:
        run_step(plan, step, live)
    assert caught.value.where == "step"


def test_onnx_steps_keep_their_element_type() -> None:
    codes = np.arange(6, dtype=np.int8).reshape(2, 3)
    (y,) = run_step(
        *one_step("onnx.Transpose", "Transpose", [("x", codes)], DType.S8, params={"perm": (1, 0)})
    )
    assert y.dtype == np.int8
    assert y.flags.c_contiguous
    np.testing.assert_array_equal(y, codes.T)


@pytest.mark.filterwarnings("error")
def test_infinities_of_a_model_are_no_warnings() -> None:
    """An infinite scale decodes 0 to NaN, of which NumPy would warn on the user's terminal."""
    node = helper.make_node("DequantizeLinear", ["x", "s"], ["y"])
    proto = node.SerializeToString()
    params = {"op_type": "DequantizeLinear", "domain": "", "opset": 21, "proto": proto}
    (found,) = foreign_op(params, "y")([np.array([-1, 0, 1], np.int8), np.float32(np.inf)])
    np.testing.assert_array_equal(found, [-np.inf, np.nan, np.inf])


def test_behind_a_quantizer_that_stays_an_operator_shapes_are_known() -> None:
    """By a scale that nothing can be divided by, of a value whose size a broadcast decides: else all
    that lies behind it would be bound while it runs, on NumPy.
    """
    model = parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        net (float[a, 4] x, float[b, 4] z) => (float[n, 4] y)
        <float scale = {0}, int8 zero = {0}>
        {
            sum = Add(x, z)
            codes = QuantizeLinear(sum, scale, zero)
            back = DequantizeLinear(codes, scale, zero)
            y = Add(back, x)
        }
    """)
    infinite = numpy_helper.from_array(np.array(np.inf, np.float32), "scale")
    next(item for item in model.graph.initializer if item.name == "scale").CopyFrom(infinite)
    plan = fqfuse.compile(model)
    assert {"onnx.QuantizeLinear", "onnx.DequantizeLinear"} <= {s.primitive for s in plan.steps}
    shapes, _ = bind_shapes(plan, {"x": (1, 4), "z": (3, 4)})
    assert shapes["y"] == (3, 4)
