"""QuantizeLinear and DequantizeLinear in every form that quantizers write."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper
from support.onnx_cases import NEWEST_OF_ORT, compare, model, node, ops, random, run_import

import fqfuse
from fqfuse.errors import InvalidModel
from fqfuse.frontend import graph_from_onnx
from fqfuse.ir.decision import Outcome, Quantizer
from fqfuse.ir.types import DType, Quantization

X = random([2, 3, 4, 5], scale=3)
# x / 0.5 lies on a tie for every odd multiple of 1/4
TIES = np.arange(-60, 60, dtype=np.float32).reshape(2, 3, 4, 5) / 4


def pair(
    scale, zero_point=None, *, opset=13, domain="", x_shape=(2, 3, 4, 5), domains=None, **attributes
):
    """x -> QuantizeLinear -> DequantizeLinear -> y."""
    constants = {"s": scale} | ({} if zero_point is None else {"z": zero_point})
    nodes = [
        node(
            "QuantizeLinear", ["x", *constants], ["q"], name="quantize", domain=domain, **attributes
        ),
        node(
            "DequantizeLinear",
            ["q", *constants],
            ["y"],
            name="dequantize",
            domain=domain,
            **attributes,
        ),
    ]
    return model(
        nodes,
        inputs={"x": list(x_shape)},
        outputs=["q", "y"],
        constants=constants,
        opset=opset,
        domains=domains,
    )


def int4(kind, values):
    return helper.make_tensor("t", kind, np.shape(values), np.ravel(values))


@pytest.mark.parametrize("opset", range(10, NEWEST_OF_ORT + 1))
@pytest.mark.parametrize(("dtype", "zero"), [(np.uint8, 131), (np.int8, -7)])
def test_per_tensor_of_every_opset(opset, dtype, zero):
    for data, scale in ((X, 0.037), (TIES, 0.5)):
        graph = compare(pair(np.float32(scale), dtype(zero), opset=opset), {"x": data})
        assert ops(graph) == ["Quantize", "Dequantize"]


@pytest.mark.parametrize("opset", range(13, NEWEST_OF_ORT + 1))
def test_per_axis_of_every_opset(opset):
    scale, zero = np.float32([0.05, 0.1, 0.02]), np.uint8([3, 128, 200])
    graph = compare(pair(scale, zero, opset=opset, axis=-3), {"x": X})
    assert graph.nodes()[0].attrs["quant"] == Quantization.of(scale, zero, 1)


@pytest.mark.parametrize(
    ("dtype", "kind", "zero"),
    [
        (DType.U16, np.uint16, 30000),
        (DType.S16, np.int16, -5),
        (DType.U8, np.uint8, 0),
        (DType.S8, np.int8, 127),
    ],
)
def test_sixteen_and_eight_bits(dtype, kind, zero):
    graph = compare(pair(np.float32(0.001), kind(zero), opset=21), {"x": X})
    assert graph.nodes()[0].attrs["dtype"] is dtype
    assert (graph.nodes()[0].attrs["lo"], graph.nodes()[0].attrs["hi"]) == dtype.range


@pytest.mark.parametrize(
    ("kind", "dtype", "zero"), [(TensorProto.INT4, DType.S4, -3), (TensorProto.UINT4, DType.U4, 9)]
)
def test_four_bits(kind, dtype, zero):
    proto = pair(np.float32(0.5), int4(kind, zero), opset=21)
    del proto.graph.output[0]  # NumPy has no 4-bit integers to compare
    graph = compare(proto, {"x": X})
    assert graph.type("q").dtype is dtype


@pytest.mark.parametrize("kind", [TensorProto.INT4, TensorProto.UINT4])
def test_four_bit_weights(kind):
    low = -8 if kind == TensorProto.INT4 else 0
    codes = np.random.default_rng(0).integers(low, low + 16, (3, 5))
    constants = {
        "w": int4(kind, codes),
        "s": np.float32([0.1, 0.2, 0.3]),
        "z": int4(kind, [1, 2, 3]),
    }
    nodes = [node("DequantizeLinear", list(constants), ["d"], axis=0), node("MatMul", ["x", "d"])]
    graph = compare(
        model(nodes, inputs={"x": [2, 3]}, constants=constants),
        {"x": random([2, 3])},
        rtol=1e-6,
        atol=1e-6,
    )
    np.testing.assert_array_equal(graph.constants["w"], codes)


def test_microsofts_twins_mean_the_same():
    proto = pair(
        np.float32(0.05), np.uint16(1000), domain="com.microsoft", domains={"com.microsoft": 1}
    )
    graph = compare(proto, {"x": X})
    assert ops(graph) == ["Quantize", "Dequantize"]
    assert graph.quantizers == {"quantize": Quantizer("quantize", "QuantizeLinear", "x")}


def test_without_a_zero_point_codes_are_u8():
    graph = compare(pair(np.float32(0.05)), {"x": X})
    assert graph.type("q").dtype is DType.U8


def test_output_dtype_decides_without_a_zero_point():
    nodes = [node("QuantizeLinear", ["x", "s"], ["y"], output_dtype=TensorProto.INT16)]
    graph = compare(model(nodes, constants={"s": np.float32(0.01)}, opset=21), {"x": X})
    assert graph.type("y").dtype is DType.S16


def test_scale_of_one_entry_is_per_tensor():
    graph = compare(pair(np.float32([0.05]), np.int8([4])), {"x": X})
    assert graph.nodes()[0].attrs["quant"].per_tensor


def test_saturation_infinities_and_nan():
    x = np.asarray([np.inf, -np.inf, 1e30, -1e30, 0.0, -0.0], np.float32)
    compare(pair(np.float32(0.05), np.int8(3), x_shape=(6,)), {"x": x})
    _, (codes, _) = run_import(
        pair(np.float32(0.05), np.int8(3), x_shape=(1,)), {"x": np.float32([np.nan])}
    )
    assert codes[0] == -128  # the smallest code, as ONNX Runtime has it on x86


def test_half_precision_divides_in_f32_as_onnx_runtime_does():
    x = random([2, 3, 4, 5], scale=3).astype(np.float16)
    scale, zero = np.float16(0.0837), np.uint8(120)
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        node("DequantizeLinear", ["q", "s", "z"], ["y"]),
    ]
    proto = model(
        nodes,
        outputs=["q", "y"],
        constants={"s": scale, "z": zero},
        opset=21,
        types={"x": TensorProto.FLOAT16},
    )
    graph = compare(proto, {"x": x})
    assert ops(graph) == ["Cast", "Quantize", "Dequantize", "Cast"]
    assert graph.type("y").dtype is DType.F16


# -- weights and biases ----------------------------------------------------------------------------


def conv_with(weight_nodes, constants):
    nodes = [
        node("QuantizeLinear", ["x", "xs", "xz"], ["xq"], name="in.q"),
        node("DequantizeLinear", ["xq", "xs", "xz"], ["xd"], name="in.dq"),
        *weight_nodes,
        node("DequantizeLinear", ["b", "bs"], ["bd"], name="bias.dq", axis=0),
        node("Conv", ["xd", "wd", "bd"], ["c"], name="conv"),
        node("QuantizeLinear", ["c", "ys", "yz"], ["yq"], name="out.q"),
        node("DequantizeLinear", ["yq", "ys", "yz"], ["y"], name="out.dq"),
    ]
    scale = constants["ws"] * np.float32(0.05)
    shared = {
        "xs": np.float32(0.05),
        "xz": np.uint8(128),
        "ys": np.float32(0.3),
        "yz": np.uint8(100),
    }
    bias = {"b": np.int32([100, -2000, 30, 7]), "bs": scale}
    return model(nodes, constants=constants | shared | bias, opset=13)


def test_integer_weights_and_int32_bias():
    rng = np.random.default_rng(0)
    constants = {
        "w": rng.integers(-127, 128, (4, 3, 3, 3)).astype(np.int8),
        "ws": np.float32([0.01, 0.02, 0.03, 0.04]),
    }
    graph = compare(
        conv_with([node("DequantizeLinear", ["w", "ws"], ["wd"], name="w.dq", axis=0)], constants),
        {"x": X},
    )
    assert graph.node("bias.dq").attrs["quant"].axis == 0
    assert graph.quantizers["w.dq"].form == "DequantizeLinear on a constant"
    assert {name: quantizer.value for name, quantizer in graph.quantizers.items()} == {
        "in.q": "x",
        "w.dq": "w",
        "bias.dq": "b",
        "out.q": "c",
    }
    assert graph.node("in.dq").quantizer == ("in.q",)
    assert graph.node("w.dq").quantizer == ("w.dq",)


def test_float_weights_behind_a_pair_of_their_own():
    constants = {
        "w": random([4, 3, 3, 3], 1),
        "ws": np.float32([0.01, 0.02, 0.03, 0.04]),
        "wz": np.zeros(4, np.int8),
    }
    weights = [
        node("QuantizeLinear", ["w", "ws", "wz"], ["wq"], name="w.q", axis=0),
        node("DequantizeLinear", ["wq", "ws", "wz"], ["wd"], name="w.dq", axis=0),
    ]
    graph = compare(conv_with(weights, constants), {"x": X})
    assert graph.node("w.dq").quantizer == ("w.q",)
    assert graph.quantizers["w.q"].form == "QuantizeLinear"


def test_scale_by_channel_of_a_vector_needs_no_axis():
    # axis is 1 by default, and there is none
    nodes = [
        node("DequantizeLinear", ["b", "s"], ["d"]),
        node("Add", ["x", "d"]),
    ]
    constants = {"b": np.int32([10, -20, 30]), "s": np.float32([0.1, 0.2, 0.3])}
    _, (found,) = run_import(
        model(nodes, inputs={"x": [3]}, constants=constants), {"x": np.zeros(3, np.float32)}
    )
    np.testing.assert_array_equal(found, constants["b"].astype(np.float32) * constants["s"])


def test_several_readers_share_one_quantizer():
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["q"], name="q"),
        node("DequantizeLinear", ["q", "s", "z"], ["a"], name="d1"),
        node("DequantizeLinear", ["q", "s", "z"], ["b"], name="d2"),
        node("Transpose", ["q"], ["t"]),
        node("DequantizeLinear", ["t", "s", "z"], ["c"], name="d3"),
    ]
    proto = model(nodes, outputs=["a", "b", "c"], constants={"s": np.float32(0.1), "z": np.int8(0)})
    graph = compare(proto, {"x": X})
    assert list(graph.quantizers) == ["q"]
    assert all(graph.node(name).quantizer == ("q",) for name in ("q", "d1", "d2", "d3"))


def test_codes_that_come_in_have_quantizers_of_their_own():
    nodes = [node("DequantizeLinear", ["x", "s"], ["y"], name="in")]
    proto = model(nodes, constants={"s": np.float32(0.1)}, types={"x": TensorProto.UINT8})
    graph = compare(proto, {"x": np.arange(120, dtype=np.uint8).reshape(2, 3, 4, 5)})
    assert graph.quantizers == {"in": Quantizer("in", "DequantizeLinear on an input", "x")}


# -- parameters that are computed from constants ---------------------------------------------------


def test_parameters_may_come_from_constant_nodes_and_casts():
    nodes = [
        node(
            "Constant", [], ["s64"], value=helper.make_tensor("v", TensorProto.DOUBLE, [], [0.05])
        ),
        node("Cast", ["s64"], ["s"], to=TensorProto.FLOAT),
        node("Constant", [], ["z64"], value_int=7),
        node("Cast", ["z64"], ["z"], to=TensorProto.UINT8),
        node("Identity", ["s"], ["s2"]),
        node("QuantizeLinear", ["x", "s2", "z"], ["q"]),
        node("DequantizeLinear", ["q", "s2", "z"]),
    ]
    graph = compare(model(nodes), {"x": X})
    assert ops(graph).count("Quantize") == ops(graph).count("Dequantize") == 1


# -- a Clip of the codes ---------------------------------------------------------------------------


def clipped(low, high, **more):
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["q"], name="q"),
        node("Clip", ["q", "low" if low is not None else "", "high"], ["c"], name="clip"),
        node("DequantizeLinear", ["c", "s", "z"], name="dq"),
    ]
    constants = {"s": np.float32(0.1), "z": np.int8(0), "high": np.int8(high)}
    if low is not None:
        constants["low"] = np.int8(low)
    return model(nodes, constants=constants, **more)


@pytest.mark.parametrize(
    ("low", "high", "expected"), [(-7, 7, (-7, 7)), (None, 3, (-128, 3)), (-127, 127, (-127, 127))]
)
def test_clip_between_the_two_narrows_the_range(low, high, expected):
    graph = compare(clipped(low, high), {"x": X})
    assert ops(graph) == ["Quantize", "Dequantize"]
    quantize = graph.node("q")
    assert (quantize.attrs["lo"], quantize.attrs["hi"]) == expected
    assert quantize.origin == ("q", "clip")
    assert graph.node("dq").quantizer == ("q",)


def test_clip_stays_where_the_codes_are_read_elsewhere():
    graph = compare(clipped(-7, 7, outputs=["y", "q"]), {"x": X})
    assert ops(graph) == ["Quantize", "Clip", "Dequantize"]
    assert graph.node("dq").quantizer == ("q",)


def test_clip_stays_where_its_bounds_are_computed():
    proto = clipped(-7, 7)
    proto.graph.node[1].input[2] = "bound"
    proto.graph.input.append(helper.make_tensor_value_info("bound", TensorProto.INT8, []))
    graph = compare(proto, {"x": X, "bound": np.int8(5)})
    assert ops(graph) == ["Quantize", "Clip", "Dequantize"]


# -- what stays foreign ----------------------------------------------------------------------------


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("kind", [TensorProto.INT4, TensorProto.UINT4, TensorProto.INT8])
@pytest.mark.parametrize("real", [np.float32, np.float16])
def test_constants_in_blocks_are_decoded_and_say_why(kind, real, zeros):
    # the last block of each row is shorter
    scale = np.asarray([[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]], real)
    codes = np.asarray([[0, 1, 2, 3], [4, 5, 6, 7], [7, 3, 2, 1]])
    zero = np.asarray([[1, 2], [3, 4], [5, 6]])
    constants = {"w": helper.make_tensor("w", kind, (3, 4), codes.ravel()), "s": scale}
    if zeros:
        constants["z"] = helper.make_tensor("z", kind, (3, 2), zero.ravel())
    names = ["w", "s", *(["z"] if zeros else [])]
    nodes = [
        node("DequantizeLinear", names, ["d"], name="blocks", axis=1, block_size=3),
        node("MatMul", ["x", "d"], name="product"),
    ]
    x = random([2, 3]).astype(real)
    weights = (codes - (np.repeat(zero, 3, 1)[:, :4] if zeros else 0)) * np.repeat(scale, 3, 1)[
        :, :4
    ].astype(np.float32)
    kinds = {np.float32: TensorProto.FLOAT, np.float16: TensorProto.FLOAT16}
    proto = model(
        nodes, inputs={"x": [2, 3]}, constants=constants, opset=21, types={"x": kinds[real]}
    )
    tolerance = 1e-6 if real is np.float32 else 2e-3  # sums of f16 are rounded to 11 bits
    graph = compare(
        proto, {"x": x}, expected=[x @ weights.astype(real)], rtol=tolerance, atol=tolerance
    )
    assert "Onnx" not in ops(graph)
    (decision,) = (d for d in graph.decisions if d.rule != "import_half_floats")
    assert (decision.subject, decision.outcome, decision.found) == (
        "blocks",
        Outcome.REFUSED,
        "blocks of 3",
    )
    plan = fqfuse.compile(proto)
    assert {(fate.quantizer, fate.fate.value, fate.consumer) for fate in plan.fate_records} == {
        ("blocks", "constant", ""),
        ("blocks", "constant", "product"),
    }


def weights_in_blocks(w, scale, zero, kind, *, axis, block):
    """As AIMET exports weights: f32 behind a QuantizeLinear with a scale for each block."""
    zeros = helper.make_tensor("z", kind, zero.shape, zero.ravel())
    attributes = {"axis": axis, "block_size": block}
    nodes = [
        node("QuantizeLinear", ["w", "s", "z"], ["q"], name="weights", **attributes),
        node("DequantizeLinear", ["q", "s", "z"], ["d"], name="decoded", **attributes),
    ]
    return nodes, {"w": w, "s": scale, "z": zeros}


def test_constants_that_the_model_quantizes_in_blocks_are_stored_as_codes():
    rng = np.random.default_rng(0)
    kinds = {
        TensorProto.INT4: (-8, 7),
        TensorProto.UINT4: (0, 15),
        TensorProto.INT8: (-128, 127),
        TensorProto.UINT8: (0, 255),
    }
    for trial in range(16):
        kind, (low, high) = list(kinds.items())[trial % 4]
        shape = tuple(map(int, rng.integers(2, 7, rng.integers(2, 4))))
        axis, block = int(rng.integers(-len(shape), len(shape))), int(rng.integers(1, 5))
        blocks = [*shape]
        blocks[axis] = -(-shape[axis] // block)
        scale = np.exp2(rng.integers(-3, 1, blocks)).astype(np.float32)
        zero = rng.integers(low, high + 1, blocks)
        # ties of some scales, and beyond the range of the codes
        w = (rng.integers(-9, 10, shape) * (high - low) / 64).astype(np.float32)
        nodes, constants = weights_in_blocks(w, scale, zero, kind, axis=axis, block=block)
        nodes.append(node("Add", ["x", "d"]))
        proto = model(nodes, inputs={"x": shape}, constants=constants)
        graph = compare(proto, {"x": np.zeros(shape, np.float32)})
        assert not {"Onnx", "Quantize"} & set(ops(graph))


@pytest.mark.parametrize("kind", [TensorProto.INT4, TensorProto.INT8])
def test_weights_that_the_model_quantizes_in_blocks_stay_packed(kind):
    w, scale = random([64, 16]), np.abs(random([2, 16], 1)) + np.float32(0.1)
    zero = np.zeros((2, 16), np.int64)
    nodes, constants = weights_in_blocks(w, scale, zero, kind, axis=0, block=32)
    nodes.append(node("MatMul", ["x", "d"], name="product"))
    plan = fqfuse.compile(model(nodes, inputs={"x": ["n", 64]}, constants=constants))
    assert [step.primitive for step in plan.steps] == ["matmul"]
    assert {(fate.quantizer, fate.fate.value, fate.consumer) for fate in plan.fate_records} == {
        ("weights", "constant", ""),
        ("weights", "weights_scale", "product"),
    }
    assert sum(data.nbytes for data in plan.constants.values()) < w.nbytes / 3


def test_codes_in_blocks_of_an_input_stay_an_operation_and_say_why():
    scale = np.float32([[0.1, 0.2], [0.3, 0.4]])
    nodes = [
        node("DequantizeLinear", ["x", "s"], ["d"], name="blocks", axis=1, block_size=2),
        node("Relu", ["d"]),
    ]
    proto = model(
        nodes, inputs={"x": [2, 4]}, constants={"s": scale}, types={"x": TensorProto.INT8}
    )
    x = np.arange(-4, 4, dtype=np.int8).reshape(2, 4)
    graph = compare(
        proto, {"x": x}, expected=[np.maximum(x * np.repeat(scale, 2, 1), 0)], rtol=1e-6, atol=1e-6
    )
    assert ops(graph) == ["DequantizeLinear", "Relu"]
    (decision,) = graph.decisions
    assert (decision.subject, decision.outcome, decision.found) == (
        "blocks",
        Outcome.REFUSED,
        "blocks of 2",
    )
    assert graph.node("blocks").quantizer == ("blocks",)


@pytest.mark.parametrize("opset", [10, 13, 19, 21])
def test_a_scale_known_at_run_time_is_an_operand(opset):
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["q"], name="q"),
        node("DequantizeLinear", ["q", "s", "z"], name="dq"),
    ]
    proto = model(
        nodes, inputs={"x": [2, 3, 4, 5], "s": []}, constants={"z": np.uint8(100)}, opset=opset
    )
    graph = compare(proto, {"x": X, "s": np.float32(0.05)})
    assert ops(graph) == [
        "Div",
        "Round",
        "Add",
        "Quantize",
        "RunTimeDequantize",
    ]
    assert graph.node("q").quantizer == graph.node("dq").quantizer == ("q",)


def test_twin_with_a_scale_known_at_run_time():
    nodes = [node("QuantizeLinear", ["x", "s", "z"], name="q", domain="com.microsoft")]
    proto = model(
        nodes,
        inputs={"x": [2, 3], "s": []},
        constants={"z": np.uint8(100)},
        domains={"com.microsoft": 1},
        opset=13,
    )
    graph = compare(proto, {"x": random([2, 3]), "s": np.float32(0.05)})
    assert ops(graph) == ["Div", "Round", "Add", "Quantize"]


def test_a_scale_for_each_channel_known_at_run_time():
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["q"], name="q"),
        node("DequantizeLinear", ["q", "s", "z"], name="dq"),
    ]
    proto = model(
        nodes,
        inputs={"x": [2, 3, 4, 5], "s": [3]},
        constants={"z": np.array([0, 100, 255], np.uint8)},
    )
    graph = compare(proto, {"x": X, "s": np.array([0.05, 0.1, 0.01], np.float32)})
    decode = graph.nodes()[-1]
    assert (decode.op, decode.attrs["axis"]) == ("RunTimeDequantize", 1)


def test_computed_scales_of_a_tensor_without_dimensions_stay_an_operation():
    nodes = [node("QuantizeLinear", ["x", "s", "z"], name="q")]
    zero = np.full([], 100, np.uint8)
    proto = model(nodes, inputs={"x": [], "s": []}, constants={"z": zero}, opset=13)
    graph = compare(proto, {"x": random([]), "s": np.full([], 0.05, np.float32)})
    assert ops(graph) == ["QuantizeLinear"]
    assert [decision.subject for decision in graph.decisions] == ["q"]


def test_quantizing_to_four_bits_with_a_computed_scale():
    nodes = [node("QuantizeLinear", ["x", "s", "z"], name="q")]
    proto = model(nodes, inputs={"x": [2, 3], "s": []}, constants={"z": int4(TensorProto.INT4, 0)})
    (quantize,) = graph_from_onnx(proto).each("Quantize")
    assert (quantize.attrs["dtype"], quantize.attrs["lo"], quantize.attrs["hi"]) == (
        DType.S4,
        -8,
        7,
    )


def test_quantizing_to_four_bits_in_blocks():
    nodes = [node("QuantizeLinear", ["x", "s", "z"], name="q", block_size=2, axis=1)]
    proto = model(
        nodes,
        inputs={"x": [2, 4], "s": [2, 2]},
        constants={"z": int4(TensorProto.INT4, [[0, 0]] * 2)},
    )
    (quantize,) = graph_from_onnx(proto).each("QuantizeLinear")
    assert quantize.attrs["output_dtype"] is DType.S4


@pytest.mark.parametrize("scale", [0.0, np.nan, np.inf])
def test_a_scale_that_divides_nothing_stays_an_operation(scale):
    nodes = [node("DequantizeLinear", ["w", "s"], name="dead", axis=0)]
    proto = model(
        nodes, inputs={}, constants={"w": np.int8([[0, 0], [1, 2]]), "s": np.float32([scale, 1])}
    )
    graph = graph_from_onnx(proto)
    assert ops(graph) == ["DequantizeLinear"]
    assert graph.decisions[0].reason == "a scale is zero or not finite"


@pytest.mark.parametrize("scale", [-0.1, 1e-30, 1e36])
def test_a_scale_that_no_calibration_gives_is_taken_and_told(scale):
    graph = graph_from_onnx(pair(np.float32(scale)))
    assert "Onnx" not in ops(graph)
    (told, _) = graph.decisions
    assert told.outcome is Outcome.FIRED
    assert told.reason.startswith("taken as it is: a scale is negative, or so small or large")
    assert told.found == f"1 of 1 scales, the first {np.float32(scale)}"
    assert not graph_from_onnx(pair(np.float32(0.1))).decisions


# -- what is wrong ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("proto", "text"),
    [
        (pair(np.float32([0.1, 0.2])), "2 scales do not fit dimension 1 of size 3"),
        (pair(np.float32([0.1, 0.2, 0.3]), axis=4), "axis 4 is out of range for 4 dimensions"),
        (pair(np.float32([0.1, 0.2, 0.3]), np.uint8([1, 2])), r"shapes \[3\] and \[2\]"),
        (pair(np.float32([[0.1, 0.2, 0.3]])), r"shapes \[1, 3\] and \[\]"),
        (
            pair(np.float32(0.1), block_size=-1, opset=21),
            "block_size is -1, and ONNX demands a positive one",
        ),
    ],
)
def test_parameters_that_do_not_fit_are_named(proto, text):
    with pytest.raises(InvalidModel, match=text) as caught:
        graph_from_onnx(proto)
    assert "QuantizeLinear node 'quantize'" in caught.value.where
    assert caught.value.hint


def test_codes_of_a_float_type_are_refused():
    with pytest.raises(InvalidModel, match="codes cannot be of type f32"):
        graph_from_onnx(
            model(
                [node("QuantizeLinear", ["x", "s"], output_dtype=TensorProto.FLOAT)],
                constants={"s": np.float32(1)},
            )
        )


def test_twin_without_a_scale_is_refused():
    with pytest.raises(InvalidModel, match="needs a tensor, a scale"):
        graph_from_onnx(
            model(
                [node("QuantizeLinear", ["x"], domain="com.microsoft")],
                domains={"com.microsoft": 1},
            )
        )


def test_texts_are_no_scales():
    constants = {"s": np.array("abc", np.object_)}
    proto = model(
        [node("DequantizeLinear", ["x", "s"], ["y"])], inputs={"x": [3]}, constants=constants
    )
    proto.graph.input[0].type.tensor_type.elem_type = TensorProto.UINT8
    with pytest.raises(InvalidModel, match="takes no texts"):
        graph_from_onnx(proto)
