"""The QOperator form, ONNX's own and ONNX Runtime's, held against ONNX Runtime's integer
kernels.
"""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from support.onnx_cases import model, node, ops, random, run_import, run_ort

import fqfuse
from fqfuse.errors import InvalidModel
from fqfuse.frontend import graph_from_onnx
from fqfuse.ir.cleanup import erase_dead
from fqfuse.ir.decision import Quantizer
from fqfuse.ir.types import DType

MS = "com.microsoft"
RNG = np.random.default_rng(0)


def codes(shape, dtype=np.uint8, seed=0):
    limits = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(limits.min, limits.max + 1, shape).astype(dtype)


def q(
    op,
    inputs,
    constants,
    *,
    shapes,
    domain=MS,
    types=None,
    opset=13,
    outputs=("y",),
    softmax=None,
    **attributes,
):
    kinds = dict.fromkeys(shapes, TensorProto.UINT8) | (types or {})
    if softmax is not None:
        attributes["opset"] = softmax
    nodes = [node(op, inputs, outputs, name="q", domain=domain, **attributes)]
    return model(
        nodes,
        inputs=shapes,
        outputs=outputs,
        constants=constants,
        domains={MS: 1},
        types=kinds,
        opset=opset,
    )


def agree(proto, feeds, *, share=0.01):
    """At most 1 apart, and for at most `share` of the elements: ONNX Runtime rounds once, from
    another float product.
    """
    graph, (found,) = run_import(proto, feeds)
    (wanted,) = run_ort(proto, feeds)
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    gap = np.abs(found.astype(np.float64) - wanted)
    assert gap.max() <= 1
    assert (gap > 0).mean() <= share
    return graph


S = {
    "xs": np.float32(0.031),
    "xz": np.uint8(120),
    "ys": np.float32(0.27),
    "yz": np.uint8(131),
    "bs": np.float32(0.013),
    "bz": np.uint8(99),
}
X = codes((2, 3, 8, 9))


def pick(*names):
    return {name: S[name] for name in names}


# -- convolution and matrix products ---------------------------------------------------------------

CONV = ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz"]


def convolution(*, channels=False, bias=False, weights=np.int8, domain="", **attributes):
    scale = np.float32([0.01, 0.02, 0.03, 0.04]) if channels else np.float32(0.02)
    constants = pick("xs", "xz", "ys", "yz") | {
        "w": codes((4, 3, 3, 3), weights, 1),
        "ws": scale,
        "wz": np.zeros(scale.shape, weights),
    }
    if bias:
        constants["b"] = RNG.integers(-3000, 3000, 4).astype(np.int32)
    inputs = CONV + (["b"] if bias else [])
    return q(
        "QLinearConv", inputs, constants, shapes={"x": [2, 3, 8, 9]}, domain=domain, **attributes
    )


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("channels", [False, True])
def test_convolution(channels, bias):
    graph = agree(
        convolution(channels=channels, bias=bias, pads=[1, 1, 1, 1], strides=[2, 1]), {"x": X}
    )
    assert ops(graph) == ["Dequantize"] * (2 + bias) + ["Conv", "Quantize"]
    assert graph.node("q").op == "Conv"
    assert graph.quantizers["q"] == Quantizer("q", "QLinearConv", "y")
    assert {name: found.form for name, found in graph.quantizers.items() if name != "q"} == {
        "x": "QLinearConv of codes",
        "w": "QLinearConv of codes",
        **({"b": "QLinearConv of codes"} if bias else {}),
    }
    assert all(found.origin == ("q",) for found in graph.nodes())


def test_convolution_pads_with_the_zero_point():
    agree(convolution(auto_pad="SAME_UPPER"), {"x": X})


def test_convolution_with_unsigned_weights():
    agree(convolution(weights=np.uint8), {"x": X})


def test_bias_has_the_product_of_the_scales():
    graph = graph_from_onnx(convolution(channels=True, bias=True))
    quant = graph.node("q.bias").attrs["quant"]
    np.testing.assert_array_equal(
        quant.scales, np.float32(0.031) * np.float32([0.01, 0.02, 0.03, 0.04])
    )
    assert quant.axis == 0


def test_convolution_of_a_chain_shares_quantizers():
    first = convolution().graph
    nodes = [
        node("QLinearConv", CONV, ["m"], name="c1"),
        node("MaxPool", ["m"], ["p"], kernel_shape=[2, 2]),
        node("QLinearConv", ["p", "ys", "yz", "w2", "ws", "wz", "ys", "yz"], ["y"], name="c2"),
        node(
            "QLinearAdd",
            ["y", "ys", "yz", "y", "ys", "yz", "ys", "yz"],
            ["z"],
            name="add",
            domain=MS,
        ),
    ]
    constants = {
        tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in first.initializer
    } | {"w2": codes((5, 4, 1, 1), np.int8, 2)}
    options = {"domains": {MS: 1}, "types": {"x": TensorProto.UINT8}, "opset": 13}
    proto = model(nodes, inputs={"x": [2, 3, 8, 9]}, outputs=["z"], constants=constants, **options)
    graph = agree(proto, {"x": X}, share=0.05)
    assert graph.node("c2.x").quantizer == ("c1",)  # through the pool, which only moves codes
    assert len(set(graph.node("add").inputs)) == 1  # decoded once
    assert graph.node("add.a").quantizer == ("c2",)
    assert set(graph.quantizers) == {"x", "w", "c1", "w2", "c2", "add"}


def test_microsofts_convolution_may_have_its_channels_last():
    proto = convolution(domain=MS, channels=True, bias=True, channels_last=1, pads=[1, 1, 1, 1])
    proto.graph.input[0].type.CopyFrom(
        onnx.helper.make_tensor_type_proto(TensorProto.UINT8, [2, 8, 9, 3])
    )
    graph = agree(proto, {"x": codes((2, 8, 9, 3))})
    assert ops(graph).count("Transpose") == 2


def test_operators_between_convolutions_with_channels_last_need_no_transpositions():
    first = convolution(domain=MS, channels_last=1).graph
    constants = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in first.initializer}
    constants["w2"] = codes((5, 8, 1, 1), np.int8, 2)
    quant = ["ys", "yz"]
    nodes = [
        node("QLinearConv", CONV, ["c"], name="c1", domain=MS, channels_last=1),
        node("QLinearSigmoid", ["c", *quant, *quant], ["s"], name="s", domain=MS),
        node("QLinearMul", ["c", *quant, "s", *quant, *quant], ["m"], name="m", domain=MS),
        node(
            "QLinearConcat", [*quant, "c", *quant, "m", *quant], ["j"], name="j", domain=MS, axis=-1
        ),
        node(
            "QLinearConv",
            ["j", *quant, "w2", "ws", "wz", *quant],
            ["y"],
            name="c2",
            domain=MS,
            channels_last=1,
        ),
    ]
    types = {"x": TensorProto.UINT8}
    proto = model(
        nodes,
        inputs={"x": [2, 8, 9, 3]},
        constants=constants,
        domains={MS: 1},
        types=types,
        opset=13,
    )
    agree(proto, {"x": codes((2, 8, 9, 3))}, share=0.05)
    graph = graph_from_onnx(proto)
    erase_dead(graph)
    assert ops(graph).count("Transpose") == 2  # in front of the first convolution, behind the last


@pytest.mark.parametrize("opset", [10, 13, 21])
def test_matrix_product(opset):
    constants = pick("xs", "xz", "bs", "bz", "ys", "yz") | {"w": codes((9, 7), np.uint8, 3)}
    inputs = ["x", "xs", "xz", "w", "bs", "bz", "ys", "yz"]
    proto = q(
        "QLinearMatMul", inputs, constants, shapes={"x": [2, 3, 8, 9]}, domain="", opset=opset
    )
    assert ops(agree(proto, {"x": X})) == ["Dequantize", "Dequantize", "MatMul", "Quantize"]


def test_matrix_product_by_column():
    scale = np.linspace(0.01, 0.05, 7, dtype=np.float32)
    constants = pick("xs", "xz", "ys", "yz") | {
        "w": codes((9, 7), np.int8, 3),
        "ws": scale,
        "wz": np.zeros(7, np.int8),
    }
    proto = q(
        "QLinearMatMul",
        ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz"],
        constants,
        shapes={"x": [4, 9]},
        domain="",
    )
    graph = agree(proto, {"x": codes((4, 9))})
    assert graph.node("q.b").attrs["quant"].axis == 1


def test_matrix_product_by_row_of_the_first():
    scale = np.float32([0.01, 0.02, 0.03, 0.04])
    constants = {"as": scale, "az": np.uint8([1, 2, 3, 4]), "w": codes((9, 7), np.uint8, 3)} | pick(
        "bs", "bz", "ys", "yz"
    )
    proto = q(
        "QLinearMatMul",
        ["x", "as", "az", "w", "bs", "bz", "ys", "yz"],
        constants,
        shapes={"x": [4, 9]},
        domain="",
    )
    x = codes((4, 9))
    graph, (found,) = run_import(proto, {"x": x})  # ONNX Runtime does not take scales for rows
    real = ((x.astype(np.float64) - [[1], [2], [3], [4]]) * scale[:, None]) @ (
        (constants["w"].astype(np.float64) - 99) * S["bs"]
    )
    assert np.abs(found - np.clip(np.rint(real / S["ys"]) + 131, 0, 255)).max() <= 1
    assert graph.node("q.a").attrs["quant"].axis == 0


def test_a_matrix_product_by_computed_numbers_is_one_of_what_the_codes_stand_for():
    inputs = ["x", "xs", "xz", "w", "bs", "bz", "ys", "yz"]
    constants = pick("bs", "bz", "ys") | {"w": codes((9, 7), np.uint8, 3)}
    fed = pick("xs", "xz", "yz")
    kinds = {name: helper.np_dtype_to_tensor_dtype(data.dtype) for name, data in fed.items()}
    proto = q(
        "QLinearMatMul",
        inputs,
        constants,
        shapes={"x": [8, 9], **{name: [] for name in fed}},
        domain="",
        types=kinds,
    )
    graph, (found,) = run_import(proto, {"x": codes((8, 9)), **fed})
    assert "Onnx" not in ops(graph)
    (expected,) = run_ort(proto, {"x": codes((8, 9)), **fed})
    assert np.abs(found.astype(int) - expected.astype(int)).max() <= 1  # at a tie


def test_matrix_products_take_computed_scales_of_columns():
    constants = pick("xs", "xz", "ys", "yz") | {"w": codes((9, 7), np.uint8, 3)}
    constants["bz"] = np.full(7, 3, np.uint8)
    inputs = ["x", "xs", "xz", "w", "bs", "bz", "ys", "yz"]
    proto = q(
        "QLinearMatMul",
        inputs,
        constants,
        shapes={"x": [8, 9], "bs": [7]},
        domain="",
        types={"bs": TensorProto.FLOAT},
    )
    graph = agree(proto, {"x": codes((8, 9)), "bs": np.full(7, 0.1, np.float32)})
    assert "Onnx" not in ops(graph)


@pytest.mark.parametrize("real_result", [False, True])
@pytest.mark.parametrize("transposed", [False, True])
def test_gemm(transposed, real_result):
    scale = np.linspace(0.01, 0.05, 7, dtype=np.float32)
    constants = pick("xs", "xz", "ys", "yz") | {
        "b": codes((7, 9) if transposed else (9, 7), np.int8, 4),
        "bs": scale,
        "bz": np.zeros(7, np.int8),
        "c": RNG.integers(-5000, 5000, 7).astype(np.int32),
    }
    inputs = ["x", "xs", "xz", "b", "bs", "bz", "c", *([] if real_result else ["ys", "yz"])]
    proto = q("QGemm", inputs, constants, shapes={"x": [4, 9]}, transB=int(transposed), alpha=0.5)
    feeds = {"x": codes((4, 9))}
    if real_result:
        _, (found,) = run_import(proto, feeds)
        np.testing.assert_allclose(found, run_ort(proto, feeds)[0], rtol=1e-5, atol=1e-5)
    else:
        agree(proto, feeds)


# -- the rest of ONNX Runtime's --------------------------------------------------------------------

UNARY = ["x", "xs", "xz", "ys", "yz"]
FINE = {"ys": np.float32(0.0125), "yz": np.uint8(3)}


@pytest.mark.parametrize("op", ["QLinearAdd", "QLinearMul"])
def test_elementwise(op):
    constants = pick("xs", "xz", "bs", "bz", "ys", "yz")
    inputs = ["x", "xs", "xz", "b", "bs", "bz", "ys", "yz"]
    proto = q(op, inputs, constants, shapes={"x": [2, 3, 8, 9], "b": [3, 1, 9]})
    assert ops(agree(proto, {"x": X, "b": codes((3, 1, 9), seed=5)}))[2:] == [
        op.removeprefix("QLinear"),
        "Quantize",
    ]


def test_elementwise_without_zero_points():
    constants = pick("xs", "bs", "ys", "yz")
    proto = q(
        "QLinearAdd",
        ["x", "xs", "", "b", "bs", "", "ys", "yz"],
        constants,
        shapes={"x": [8], "b": [8]},
    )
    a, b = codes((8,)), codes((8,), seed=5)
    # ONNX Runtime's schema allows it, and its type inference does not
    _, (found,) = run_import(proto, {"x": a, "b": b})
    real = a * np.float64(S["xs"]) + b * np.float64(S["bs"])
    np.testing.assert_array_equal(found, np.clip(np.rint(real / S["ys"]) + 131, 0, 255))
    kinds = {"x": TensorProto.INT8, "b": TensorProto.INT8}
    signed = q(
        "QLinearAdd",
        ["x", "xs", "", "b", "bs", "", "ys"],
        pick("xs", "bs", "ys"),
        shapes={"x": [8], "b": [8]},
        types=kinds,
    )
    # the type of the operands, not the u8 of QuantizeLinear
    assert graph_from_onnx(signed).type("y").dtype is DType.S8


@pytest.mark.parametrize(
    ("op", "attributes"),
    [
        ("QLinearLeakyRelu", {"alpha": 0.2}),
        ("QLinearSigmoid", {}),
        (
            "QLinearAveragePool",
            {
                "kernel_shape": [3, 3],
                "pads": [1, 1, 1, 1],
                "strides": [2, 2],
                "count_include_pad": 1,
            },
        ),
        ("QLinearAveragePool", {"kernel_shape": [2, 2], "auto_pad": "SAME_LOWER"}),
        ("QLinearGlobalAveragePool", {"channels_last": 0}),
    ],
)
def test_unary(op, attributes):
    constants = pick("xs", "xz") | (FINE if op == "QLinearSigmoid" else pick("ys", "yz"))
    agree(q(op, UNARY, constants, shapes={"x": [2, 3, 8, 9]}, **attributes), {"x": X})


def test_global_average_pool_with_channels_last():
    constants = pick("xs", "xz", "ys", "yz")
    agree(
        q(
            "QLinearGlobalAveragePool",
            UNARY,
            constants,
            shapes={"x": [2, 8, 9, 3]},
            channels_last=1,
        ),
        {"x": codes((2, 8, 9, 3))},
    )


@pytest.mark.parametrize(("opset", "axis"), [(11, 1), (13, 1), (13, -1)])
def test_softmax_of_its_opset(opset, axis):
    constants = pick("xs", "xz") | {"ys": np.float32(1 / 256), "yz": np.uint8(0)}
    agree(
        q("QLinearSoftmax", UNARY, constants, shapes={"x": [4, 3, 6]}, axis=axis, softmax=opset),
        {"x": codes((4, 3, 6))},
    )


def test_concat():
    constants = pick("xs", "xz", "bs", "bz", "ys", "yz")
    proto = q(
        "QLinearConcat",
        ["ys", "yz", "x", "xs", "xz", "b", "bs", "bz"],
        constants,
        shapes={"x": [2, 3], "b": [2, 5]},
        axis=1,
    )
    agree(proto, {"x": codes((2, 3)), "b": codes((2, 5), seed=5)})


def test_where():
    constants = pick("xs", "xz", "bs", "bz", "ys", "yz")
    inputs = ["c", "x", "xs", "xz", "b", "bs", "bz", "ys", "yz"]
    proto = q(
        "QLinearWhere",
        inputs,
        constants,
        shapes={"c": [2, 3], "x": [2, 3], "b": [2, 3]},
        types={"c": TensorProto.BOOL},
    )
    feeds = {"c": RNG.random((2, 3)) > 0.5, "x": codes((2, 3)), "b": codes((2, 3), seed=5)}
    agree(proto, feeds)


# -- integer arithmetic with float results ---------------------------------------------------------


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("columns", [False, True])
def test_matmul_integer_to_float(columns, bias):
    scale = np.linspace(0.01, 0.05, 7, dtype=np.float32) if columns else np.float32(0.02)
    constants = {
        "b": codes((9, 7), np.int8, 3),
        "as": S["xs"],
        "bs": scale,
        "az": S["xz"],
        "bz": np.zeros(scale.shape, np.int8),
    }
    if bias:
        constants["bias"] = random([7])
    proto = q("MatMulIntegerToFloat", ["x", *constants], constants, shapes={"x": [4, 9]})
    feeds = {"x": codes((4, 9))}
    _, (found,) = run_import(proto, feeds)
    np.testing.assert_allclose(found, run_ort(proto, feeds)[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("bias", [False, True])
def test_dynamic_quantize_matmul(bias):
    constants = {
        "b": codes((9, 7), np.int8, 3),
        "bs": np.linspace(0.01, 0.05, 7, dtype=np.float32),
        "bz": np.zeros(7, np.int8),
    }
    if bias:
        constants["bias"] = random([7])
    proto = q(
        "DynamicQuantizeMatMul",
        ["x", *constants],
        constants,
        shapes={"x": [4, 9]},
        types={"x": TensorProto.FLOAT},
    )
    feeds = {"x": random([4, 9], 8)}
    graph, (found,) = run_import(proto, feeds)
    np.testing.assert_allclose(found, run_ort(proto, feeds)[0], rtol=1e-5, atol=1e-5)
    assert ops(graph)[-4 if bias else -3 :][:3] == ["RunTimeDequantize", "Dequantize", "MatMul"]


@pytest.mark.parametrize("zero_points", [False, True])
def test_integer_ops_of_onnx(zero_points):
    constants = {"b": codes((9, 7), np.int8, 3)} | (
        {"az": np.uint8(120), "bz": np.int8(3)} if zero_points else {}
    )
    agree(
        q("MatMulInteger", ["x", *constants], constants, shapes={"x": [4, 9]}, domain=""),
        {"x": codes((4, 9))},
        share=0,
    )
    constants = {"w": codes((4, 3, 3, 3), np.uint8, 3)} | (
        {"az": np.uint8(120), "bz": np.uint8(3)} if zero_points else {}
    )
    attributes = {"auto_pad": "SAME_UPPER", "strides": [2, 2]}
    agree(
        q(
            "ConvInteger",
            ["x", *constants],
            constants,
            shapes={"x": [2, 3, 8, 9]},
            domain="",
            **attributes,
        ),
        {"x": X},
        share=0,
    )


# -- what is wrong ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "inputs", "text"),
    [
        ("QLinearAdd", ["x", "xs", "xz", "x", "", "xz", "ys"], "lacks a scale"),
        ("QLinearAdd", ["x", "xs", "xz", "", "bs", "xz", "ys"], "lacks a tensor"),
        ("QLinearSigmoid", ["x", "xs", "xz"], "lacks the scale of its output"),
        (
            "QLinearConcat",
            ["ys", "yz", "x", "xs"],
            "a tensor, a scale and a zero point for each part",
        ),
        ("QLinearSoftmax", UNARY, "needs the attribute opset"),
        ("DynamicQuantizeMatMul", ["x"], "needs A, B and the scale of B"),
    ],
)
def test_missing_inputs(op, inputs, text):
    with pytest.raises(InvalidModel, match=text):
        graph_from_onnx(q(op, inputs, pick("xs", "xz", "bs", "ys", "yz"), shapes={"x": [2, 3]}))


def test_attributes_of_a_wrong_kind():
    proto = q(
        "QLinearAveragePool",
        UNARY,
        pick("xs", "xz", "ys", "yz"),
        shapes={"x": [2, 3, 8, 9]},
        kernel_shape=3,
    )
    with pytest.raises(InvalidModel, match="the attribute 'kernel_shape' has the wrong kind"):
        graph_from_onnx(proto)


@pytest.mark.parametrize("seed", range(24))
def test_a_convolution_whose_parameters_are_fed(seed):
    """Of one to three spatial dimensions, with any of scales, zero points, weights and bias fed: the
    integers of the definition, whose scales are powers of two.
    """
    rng = np.random.default_rng(seed)
    rank, many = 1 + seed % 3, int(rng.integers(2, 5))
    size = (many, *rng.integers(1, 4, rank - 1))  # as long as there are channels
    of_channels = (many,) if rng.integers(2) else ()
    given = {
        "x": rng.integers(0, 256, (2, 3, *size)).astype(np.uint8),
        "xs": np.float32(0.5),
        "xz": rng.integers(0, 256, ()).astype(np.uint8),
        "w": rng.integers(-128, 128, (many, 3, *(1,) * rank)).astype(np.int8),
        "ws": (2.0 ** rng.integers(-3, 3, of_channels)).astype(np.float32),
        "wz": rng.integers(-128, 128, of_channels).astype(np.int8),
        "ys": np.float32(128),
        "yz": np.uint8(100),
        "b": rng.integers(-3000, 3001, many).astype(np.int32),
    }
    names = list(given)[: 8 + int(rng.integers(2))]
    fed = ["x", "ws", *(name for name in names[1:] if name != "ws" and rng.integers(2))]
    graph = helper.make_graph(
        [helper.make_node("QLinearConv", names, ["y"])],
        "fed",
        [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(given[name].dtype), given[name].shape
            )
            for name in fed
        ],
        [helper.make_tensor_value_info("y", TensorProto.UINT8, None)],
        [numpy_helper.from_array(given[name], name) for name in names if name not in fed],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    along = (-1, *(1,) * rank)
    codes = given["x"].astype(np.int64) - given["xz"]
    weights = given["w"].reshape(many, 3) - given["wz"].astype(np.int64).reshape(-1, 1)
    sums = np.einsum("oi,ni...->no...", weights, codes)
    if "b" in names:
        sums += given["b"].reshape(along)
    real = sums * (0.5 * given["ws"].astype(np.float64)).reshape(along if of_channels else ())
    wanted = np.clip(np.rint(real / 128) + 100, 0, 255)
    for backend in ("numpy", "onednn"):
        session = fqfuse.InferenceSession(fqfuse.compile(proto), backend)
        (found,) = session.run(None, {name: given[name] for name in fed})
        np.testing.assert_array_equal(found, wanted, err_msg=backend)


def test_a_bias_whose_scales_are_computed():
    """It has their product, and the factor in front."""
    constants = pick("bs", "bz") | {"xz": np.uint8(3), "c": np.int32([40, -8, 0])}
    inputs = ["x", "xs", "xz", "w", "bs", "bz", "c"]
    constants |= {"w": np.eye(3, dtype=np.int8), "bs": np.float32(0.5), "bz": np.int8(0)}
    shapes, types = {"x": [3, 3], "xs": []}, {"xs": TensorProto.FLOAT}
    proto = q("QGemm", inputs, constants, shapes=shapes, types=types, alpha=0.25)
    x = np.arange(9, dtype=np.uint8).reshape(3, 3)
    wanted = (x - 3.0 + [40, -8, 0]) * (2.0 * 0.5 * 0.25)
    for backend in ("numpy", "onednn"):
        session = fqfuse.InferenceSession(fqfuse.compile(proto), backend)
        (found,) = session.run(None, {"x": x, "xs": np.float32(2)})
        np.testing.assert_array_equal(found, wanted, err_msg=backend)


def test_windows_of_a_wrong_kind():
    inputs, given = ["x", "xs", "xz", "ys", "yz"], pick("xs", "xz", "ys", "yz")
    attributes = {"kernel_shape": 0, "ceil_mode": 1, "count_include_pad": 1}
    proto = q("QLinearAveragePool", inputs, given, shapes={"x": [2, 3, 8, 9]}, **attributes)
    with pytest.raises(InvalidModel, match="'kernel_shape' has the wrong kind: 0"):
        graph_from_onnx(proto)
