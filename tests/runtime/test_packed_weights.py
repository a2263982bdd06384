"""Weights in blocks stay packed: plan, plan file and both runtimes, against ONNX Runtime."""

from __future__ import annotations

from itertools import product

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from support.onnx_cases import run_ort
from support.packed_models import FORMS, NAMES, Net, Scheme, network

import fqfuse
from fqfuse.ir.decision import DequantizeFate, Half
from fqfuse.onednn.block_kernels import block_kernels
from fqfuse.onednn.loading import load
from fqfuse.plan.file import plan_bytes, read_plan
from fqfuse.plan.types import Plan
from fqfuse.runtime.lowering import packed

SCHEMES = [
    Scheme(form, bits, block, symmetric)
    for form, bits, block, symmetric in product(FORMS, (4, 8), (16, 32, 128), (False, True))
    # DequantizeLinear in ONNX Runtime takes blocks of 16 and more; 128 fits no width below
    if block < 128 or form == "nbits"
]


def close(found: np.ndarray, wanted: np.ndarray) -> None:
    """Sums of f32 products in another order: 1e-5 of the largest element."""
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5 * float(np.abs(wanted).max()))


def packed_steps(plan: Plan) -> list:
    return [step for step in plan.steps if step.op == "MatMulBlocks"]


def feeds_for(proto: onnx.ModelProto, seed: int = 3) -> dict[str, np.ndarray]:
    dims = [d.dim_value for d in proto.graph.input[0].type.tensor_type.shape.dim]
    return {"x": np.random.default_rng(seed).standard_normal(dims).astype(np.float32)}


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
@pytest.mark.parametrize("kind", NAMES)
def test_networks_agree_with_onnx_runtime(kind, scheme):
    proto = network(kind, scheme)
    plan = fqfuse.compile(proto)
    products = [step for step in plan.steps if step.primitive == "matmul"]
    expected = {"product": 1, "mlp": 2, "attention": 4, "gpt2": 6, "bert": 12}[kind]
    assert len(packed_steps(plan)) == expected
    assert not [step.primitive for step in plan.steps if "MatMul" in step.primitive]
    assert len(products) == expected + {"attention": 2, "gpt2": 2, "bert": 4}.get(kind, 0)
    feeds = feeds_for(proto)
    (wanted,) = run_ort(proto, feeds)
    for backend in ("numpy", "onednn"):
        session = fqfuse.InferenceSession(plan, backend)
        first = session.run(None, feeds)[0]
        close(first, wanted)
        np.testing.assert_array_equal(session.run(None, feeds)[0], first)
    told = [p for p in session.placement() if p.step.op == "MatMulBlocks"]
    assert {p.runtime for p in told} == {"onednn"}, told


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 33])
@pytest.mark.parametrize(
    ("size", "columns", "block", "bits"),
    [
        (768, 256, 32, 4),
        (100, 33, 32, 4),
        (130, 7, 128, 4),
        (33, 1, 16, 8),
        (70, 300, 16, 2),
        (17, 65, 64, 4),
    ],
)
@pytest.mark.parametrize("symmetric", [False, True])
def test_sizes_that_are_no_multiples(size, columns, block, bits, rows, symmetric):
    net = Net(Scheme("nbits", bits, block, symmetric))
    proto = net.model(net.linear("x", size, columns), (rows, size))
    feeds = feeds_for(proto)
    (wanted,) = run_ort(proto, feeds)
    for backend, threads in (("numpy", 1), ("numpy", 2), ("onednn", 1), ("onednn", 2)):
        close(
            fqfuse.InferenceSession(fqfuse.compile(proto), backend, threads).run(None, feeds)[0],
            wanted,
        )


@pytest.mark.parametrize("rows", [2, 40])
def test_the_ways_of_the_product_agree(rows, monkeypatch):
    """By the packed rows; by decoded columns, where the bare product would take much memory beside
    the result, or there is no kernel for rows; and by NumPy's columns.
    """
    net = Net(Scheme("nbits", 4, 32, True))
    proto = net.model(net.linear("x", 96, 200), (rows, 96))
    feeds = feeds_for(proto)
    (wanted,) = run_ort(proto, feeds)
    ways = []
    for change in (
        lambda: None,
        lambda: monkeypatch.setattr(packed, "_MOST_APART", 0),
        lambda: monkeypatch.setattr(packed, "block_kernels", lambda *_: None),
    ):
        change()
        session = fqfuse.InferenceSession(proto, "onednn")
        close(session.run(None, feeds)[0], wanted)
        ways.append(session.placement()[0].implementation.split(" + ")[0])
    kernel = block_kernels(load(), 4)
    ours = ["decoded by NumPy"] * 2
    if kernel is not None:
        ours = [f"packed rows by {kernel.level}", f"decoded by {kernel.level}"]
    assert ways == [*ours, "decoded by NumPy"]


@pytest.mark.parametrize("target", ["onednn-v3", "onednn-v2", "unified"])
def test_every_target_takes_the_step_and_its_file(target):
    proto = network("gpt2", Scheme())
    plan = fqfuse.compile(proto, target=target)
    assert len(packed_steps(plan)) == 6
    data = plan_bytes(plan)
    assert read_plan(data) == plan
    feeds = feeds_for(proto)
    close(
        fqfuse.InferenceSession(read_plan(data), "numpy").run(None, feeds)[0],
        run_ort(proto, feeds)[0],
    )


def test_codes_stay_packed_in_the_plan():
    proto = network("mlp", Scheme("nbits", 4, 32, True), width=256)
    weights = 2 * 256 * 768
    plan = fqfuse.compile(proto)
    held = sum(data.nbytes for data in plan.constants.values())
    # half a byte a code, four for each scale of 32, and the biases
    assert held == weights // 2 + weights // 32 * 4 + (256 + 768) * 4
    assert len(plan_bytes(plan)) < held + 8192


def test_the_bias_and_what_follows_are_fused():
    plan = fqfuse.compile(network("mlp", Scheme()))
    first, second = packed_steps(plan)
    assert [step.primitive for step in plan.steps] == ["matmul", "matmul"]
    assert first.arg("bias")
    assert [op.kind for op in first.attr.post_ops] == ["eltwise"]
    assert second.arg("bias")


@pytest.mark.parametrize("turned", [False, True])
def test_blocks_along_the_columns_are_decoded_once(turned):
    """No step takes them packed: decoded in each run, they would cost more than the product."""
    rng = np.random.default_rng(4)
    shape = (64, 32) if turned else (32, 64)
    axis = 0 if turned else 1
    codes = rng.integers(-8, 8, shape)
    scales = rng.uniform(0.1, 1, (2, 32) if turned else (32, 2)).astype(np.float32)
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "s"], ["w"], axis=axis, block_size=32),
        helper.make_node("Gemm", ["x", "w"], ["y"], transB=int(turned)),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 32])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, 64])],
        [
            helper.make_tensor("q", TensorProto.INT4, codes.shape, codes.ravel().tolist()),
            numpy_helper.from_array(scales, "s"),
        ],
    )
    opsets = [helper.make_opsetid("", 21)]
    proto = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    plan = fqfuse.compile(proto)
    assert [(step.primitive, step.op) for step in plan.steps] == [("matmul", "MatMul")]
    feeds = {"x": rng.standard_normal((3, 32)).astype(np.float32)}
    for backend in ("numpy", "onednn"):
        close(fqfuse.InferenceSession(plan, backend).run(None, feeds)[0], run_ort(proto, feeds)[0])


def test_fates_say_that_the_codes_stay():
    plan = fqfuse.compile(network("product", Scheme("dequantize", 4, 32)))
    (fate,) = [fate for fate in plan.fate_records if fate.half is Half.DEQUANTIZE]
    assert fate.fate is DequantizeFate.WEIGHTS_SCALE
    assert "4-bit codes in blocks of 32 stay packed" in fate.reason


def nbits(inputs, constants, *, size=64, rows=8, block=32, bits=4, kind=TensorProto.FLOAT):
    node = helper.make_node(
        "MatMulNBits",
        inputs,
        ["y"],
        name="product",
        domain="com.microsoft",
        K=size,
        N=rows,
        bits=bits,
        block_size=block,
    )
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", kind, [3, size])],
        [helper.make_tensor_value_info("y", kind, [3, rows])],
        [numpy_helper.from_array(data, name) for name, data in constants.items()],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


RNG = np.random.default_rng(0)
CODES = RNG.integers(0, 256, (8, 2, 16), np.uint8)
SCALES = RNG.uniform(0.1, 0.2, (8, 2)).astype(np.float32)


def test_zero_points_of_floats_and_a_bias():
    zeros = RNG.uniform(5, 10, (8, 2)).astype(np.float32)
    bias = RNG.standard_normal(8).astype(np.float32)
    constants = {"q": CODES, "s": SCALES, "z": zeros, "b": bias}
    proto = nbits(["x", "q", "s", "z", "", "b"], constants)
    x = {"x": RNG.standard_normal((3, 64)).astype(np.float32)}
    (wanted,) = run_ort(proto, x)
    for backend in ("numpy", "onednn"):
        close(fqfuse.InferenceSession(proto, backend).run(None, x)[0], wanted)


def test_a_product_of_f16():
    constants = {"q": CODES, "s": SCALES.astype(np.float16)}
    proto = nbits(["x", "q", "s"], constants, kind=TensorProto.FLOAT16)
    x = RNG.standard_normal((3, 64)).astype(np.float16)
    plain = nbits(["x", "q", "s"], {"q": CODES, "s": SCALES.astype(np.float16).astype(np.float32)})
    (wanted,) = run_ort(plain, {"x": x.astype(np.float32)})
    found = fqfuse.InferenceSession(proto, "numpy").run(None, {"x": x})[0]
    assert found.dtype == np.float16
    np.testing.assert_allclose(found, wanted, rtol=2e-3, atol=1e-2)  # f16 has 11 bits


def test_columns_in_the_order_of_their_blocks_need_no_index():
    order = (np.arange(64) // 32).astype(np.int32)
    proto = nbits(["x", "q", "s", "", "g"], {"q": CODES, "s": SCALES, "g": order})
    assert packed_steps(fqfuse.compile(proto))


def test_columns_out_of_order_are_refused():
    order = (np.arange(64) % 2).astype(np.int32)
    proto = nbits(["x", "q", "s", "", "g"], {"q": CODES, "s": SCALES, "g": order})
    with pytest.raises(fqfuse.UnsupportedOp, match="g_idx"):
        fqfuse.compile(proto)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"q": CODES[:7]}, "the weights are"),
        ({"s": SCALES[:, :1]}, "the scales are"),
        ({"z": np.zeros((8, 2), np.uint8)}, "the zero points are"),
    ],
)
def test_sizes_that_do_not_fit_are_told(changed, message):
    inputs = ["x", "q", "s", *(["z"] if "z" in changed else [])]
    proto = nbits(inputs, {"q": CODES, "s": SCALES} | changed)
    with pytest.raises(fqfuse.InvalidModel, match=message):
        fqfuse.compile(proto)


def test_weights_that_are_fed_are_refused():
    proto = nbits(["x", "q", "s"], {"s": SCALES})
    proto.graph.input.append(helper.make_tensor_value_info("q", TensorProto.UINT8, [8, 2, 16]))
    with pytest.raises(fqfuse.UnsupportedOp, match="known at run time"):
        fqfuse.compile(proto)


def test_a_product_without_a_source_is_told():
    proto = nbits(["", "q", "s"], {"q": CODES, "s": SCALES})
    with pytest.raises(fqfuse.InvalidModel, match="lacks its input A"):
        fqfuse.compile(proto)


@pytest.mark.parametrize("block", [100, 1 << 40, 1 << 62])
def test_a_block_longer_than_its_row_takes_no_more_than_the_row(block):
    """ONNX lets one block be of any length that is no shorter than the row."""
    rng = np.random.default_rng(2)
    codes = rng.integers(-8, 8, (16, 4))
    scales = rng.uniform(0.1, 1, (1, 4)).astype(np.float32)
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "s"], ["w"], axis=0, block_size=block),
        helper.make_node("MatMul", ["x", "w"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, 4])],
        [
            helper.make_tensor("q", TensorProto.INT4, codes.shape, codes.ravel().tolist()),
            numpy_helper.from_array(scales, "s"),
        ],
    )
    opsets = [helper.make_opsetid("", 21)]
    plan = fqfuse.compile(helper.make_model(graph, opset_imports=opsets, ir_version=10))
    assert packed_steps(plan)
    assert sum(data.nbytes for data in plan.constants.values()) <= 4 * 16 + scales.nbytes
    x = rng.standard_normal((3, 16)).astype(np.float32)
    for backend in ("numpy", "onednn"):
        found = fqfuse.InferenceSession(plan, backend).run(None, {"x": x})[0]
        close(found, x @ (codes * scales))


@pytest.mark.parametrize(
    ("attrs", "message"),
    [
        ({"quantize_axis": "last"}, "quantize_axis is b?'last'"),
        ({"quantize_axis": 2}, "quantize_axis is 2"),
        ({"gather_axis": -3}, "gather_axis is -3"),
        ({"bits": 4.0}, "bits is 4.0"),
    ],
)
def test_attributes_of_a_gather_that_do_not_fit_are_told(attrs, message):
    given = {"gather_axis": 0, "quantize_axis": 1, "block_size": 32} | attrs
    inputs = ["q", "i", "s"]
    node = helper.make_node("GatherBlockQuantized", inputs, ["y"], domain="com.microsoft", **given)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("i", TensorProto.INT64, [2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 64])],
        [
            numpy_helper.from_array(np.zeros((5, 32), np.uint8), "q"),
            numpy_helper.from_array(np.ones((5, 2), np.float32), "s"),
        ],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    with pytest.raises(fqfuse.InvalidModel, match=message):
        fqfuse.compile(helper.make_model(graph, opset_imports=opsets, ir_version=10))


@pytest.mark.parametrize("kind", ["UINT8", "UINT4", "INT4"])
@pytest.mark.parametrize("zeros", [False, True])
def test_rows_are_gathered_packed(kind, zeros):
    rng = np.random.default_rng(1)
    packed = kind == "UINT8"
    low, high = (0, 256) if packed else (-8, 8) if kind == "INT4" else (0, 16)
    data = rng.integers(low, high, (20, 32 if packed else 64))
    number = TensorProto.DataType.Value(kind)
    constants = [
        helper.make_tensor("q", number, data.shape, data.ravel().tolist()),
        numpy_helper.from_array(rng.uniform(0.1, 1, (20, 2)).astype(np.float32), "s"),
    ]
    if zeros:
        points = rng.integers(low, high, (20, 1 if packed else 2))
        constants.append(helper.make_tensor("z", number, points.shape, points.ravel().tolist()))
    node = helper.make_node(
        "GatherBlockQuantized",
        ["q", "i", "s", *(["z"] if zeros else [])],
        ["y"],
        name="embed",
        domain="com.microsoft",
        gather_axis=0,
        quantize_axis=1,
        block_size=32,
    )
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("i", TensorProto.INT64, [2, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3, 64])],
        constants,
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    proto = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    feeds = {"i": rng.integers(0, 20, (2, 3))}
    plan = fqfuse.compile(proto)
    assert max(data.nbytes for data in plan.constants.values()) == 20 * 32
    for backend in ("numpy", "onednn"):
        found = fqfuse.InferenceSession(plan, backend).run(None, feeds)[0]
        np.testing.assert_array_equal(found, run_ort(proto, feeds)[0])


RANGES = {"INT4": (-8, 8), "UINT4": (0, 16), "INT8": (-128, 128), "UINT8": (0, 256)}


def decoded(kind: int, data: np.ndarray, axis: int | None, rng: np.random.Generator):
    """DequantizeLinear of a matrix, without blocks: the node, its constants."""
    low, high = RANGES[TensorProto.DataType.Name(kind)]
    shape = [] if axis is None else [data.shape[axis]]
    zeros = rng.integers(low, high, shape)
    constants = [
        helper.make_tensor("w", kind, data.shape, data.ravel().tolist()),
        numpy_helper.from_array(np.asarray(rng.uniform(0.1, 0.2, shape), np.float32), "s"),
        helper.make_tensor("z", kind, shape, np.ravel(zeros).tolist()),
    ]
    axes = {} if axis is None else {"axis": axis}
    return helper.make_node(
        "DequantizeLinear", ["w", "s", "z"], ["d"], name="dq", **axes
    ), constants


def product_of_codes(
    kind: str, shape: tuple[int, int], axis: int | None, activation: str = ""
) -> onnx.ModelProto:
    """[5, K] times codes [K, N] without blocks, and an activation."""
    rng = np.random.default_rng(0)
    number = TensorProto.DataType.Value(kind)
    node, constants = decoded(number, rng.integers(*RANGES[kind], shape), axis, rng)
    nodes = [node, helper.make_node("MatMul", ["x", "d"], ["p"], name="product")]
    if activation:
        nodes.append(helper.make_node(activation, ["p"], ["a"]))
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["M", shape[0]])],
        [helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, ["M", shape[1]])],
        constants,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize("axis", [None, 1])
@pytest.mark.parametrize(
    ("kind", "shape"),
    [
        ("INT4", (64, 37)),
        ("UINT4", (70, 37)),
        ("INT8", (300, 220)),
        ("UINT8", (256, 257)),
    ],
)
@pytest.mark.parametrize("activation", ["", "Relu"])
def test_codes_without_blocks_stay_packed_too(kind, shape, axis, activation):
    proto = product_of_codes(kind, shape, axis, activation)
    plan = fqfuse.compile(proto)
    assert len(packed_steps(plan)) == len(plan.steps) == 1
    row = -(-shape[0] // 32) * 32
    assert max(data.nbytes for data in plan.constants.values()) == shape[1] * row * (
        1 if "8" in kind else 0.5
    )
    sessions = [fqfuse.InferenceSession(plan, backend) for backend in ("numpy", "onednn")]
    for rows in (1, 2, 5, 40):
        feeds = {"x": np.random.default_rng(1).normal(size=(rows, shape[0])).astype(np.float32)}
        wanted = run_ort(proto, feeds)[0]
        for session in sessions:
            close(session.run(None, feeds)[0], wanted)


def test_few_codes_of_8_bits_are_decoded_once():
    """In f32 they fit into a cache, and decoding them in each run costs more."""
    plan = fqfuse.compile(product_of_codes("INT8", (64, 37), 1))
    assert [(step.primitive, step.op) for step in plan.steps] == [("matmul", "MatMul")]


@pytest.mark.parametrize("axis", [None, 0])
@pytest.mark.parametrize("kind", ["INT4", "UINT4", "INT8", "UINT8"])
@pytest.mark.parametrize("width", [16, 21])
def test_rows_of_a_table_are_gathered_as_codes(kind, axis, width):
    rng = np.random.default_rng(0)
    number = TensorProto.DataType.Value(kind)
    low, high = RANGES[kind]
    node, constants = decoded(number, rng.integers(low, high, (40, width)), axis, rng)
    graph = helper.make_graph(
        [node, helper.make_node("Gather", ["d", "i"], ["y"], name="embed")],
        "g",
        [helper.make_tensor_value_info("i", TensorProto.INT64, [2, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3, width])],
        constants,
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    plan = fqfuse.compile(proto)
    bits = 4 if "4" in kind else 8
    assert max(data.nbytes for data in plan.constants.values()) == 40 * -(-width * bits // 8)
    feeds = {"i": rng.integers(-40, 40, (2, 3))}
    for backend in ("numpy", "onednn"):
        found = fqfuse.InferenceSession(plan, backend).run(None, feeds)[0]
        np.testing.assert_array_equal(found, run_ort(proto, feeds)[0])
