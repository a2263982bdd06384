"""Weights in blocks at the edges: no rows, one dimension, several readers, readers that take no codes."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from support.onnx_cases import run_ort

import fqfuse

RNG = np.random.default_rng(3)
FLOAT = TensorProto.FLOAT


def blocks(name: str, rows: int = 24, size: int = 64) -> tuple[onnx.NodeProto, list]:
    """DequantizeLinear of u4 [rows, size] in blocks of 32."""
    constants = [
        helper.make_tensor(
            f"{name}_q", TensorProto.UINT4, [rows, size], RNG.integers(0, 16, rows * size).tolist()
        ),
        numpy_helper.from_array(
            RNG.uniform(0.1, 0.2, (rows, size // 32)).astype(np.float32), f"{name}_s"
        ),
        helper.make_tensor(
            f"{name}_z",
            TensorProto.UINT4,
            [rows, size // 32],
            RNG.integers(0, 16, rows * size // 32).tolist(),
        ),
    ]
    node = helper.make_node(
        "DequantizeLinear",
        [f"{name}_q", f"{name}_s", f"{name}_z"],
        [name],
        name=f"dq_{name}",
        axis=1,
        block_size=32,
    )
    return node, constants


def model(nodes, inputs: dict, outputs: list[str], constants: list, kinds: dict | None = None):
    graph = helper.make_graph(
        nodes,
        "edges",
        [
            helper.make_tensor_value_info(k, (kinds or {}).get(k, FLOAT), s)
            for k, s in inputs.items()
        ],
        [helper.make_tensor_value_info(name, FLOAT, None) for name in outputs],
        constants,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def check(proto: onnx.ModelProto, feeds: dict, packed: int) -> None:
    plan = fqfuse.compile(proto)
    assert [step.op for step in plan.steps].count("MatMulBlocks") == packed
    for backend in ("numpy", "onednn"):
        for found, wanted in zip(
            fqfuse.InferenceSession(plan, backend).run(None, feeds),
            run_ort(proto, feeds),
            strict=True,
        ):
            # sums of f32 products in another order
            scale = float(np.abs(wanted).max(initial=0))
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5 * scale)


def x(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("rows", [0, 1, 40])
def test_any_number_of_rows(rows):
    node, constants = blocks("w")
    turn = helper.make_node("Transpose", ["w"], ["t"], perm=[1, 0])
    product = helper.make_node("MatMul", ["x", "t"], ["y"])
    proto = model([node, turn, product], {"x": ["N", 64]}, ["y"], constants)
    check(proto, {"x": x(rows, 64)}, 1)


def test_a_vector_is_multiplied_by_packed_weights():
    node, constants = blocks("w")
    turn = helper.make_node("Transpose", ["w"], ["t"], perm=[1, 0])
    product = helper.make_node("MatMul", ["x", "t"], ["y"])
    check(model([node, turn, product], {"x": [64]}, ["y"], constants), {"x": x(64)}, 1)


def test_weights_that_are_not_turned_are_decoded():
    node, constants = blocks("w")
    product = helper.make_node("MatMul", ["x", "w"], ["y"])
    check(model([node, product], {"x": [3, 24]}, ["y"], constants), {"x": x(3, 24)}, 0)


def test_one_table_for_embedding_and_projection():
    node, constants = blocks("w")
    nodes = [
        node,
        helper.make_node("Gather", ["w", "i"], ["e"]),
        helper.make_node("Gemm", ["e", "w"], ["y"], transB=1),
    ]
    proto = model(nodes, {"i": [5]}, ["y"], constants, {"i": TensorProto.INT64})
    check(proto, {"i": RNG.integers(0, 24, 5)}, 1)
    plan = fqfuse.compile(proto)
    assert max(data.nbytes for data in plan.constants.values()) == 24 * 32


def test_two_products_and_an_output_read_one_table():
    node, constants = blocks("w")
    nodes = [
        node,
        helper.make_node("Gemm", ["x", "w"], ["a"], transB=1),
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Gemm", ["r", "w"], ["b"], transB=1),
    ]
    check(model(nodes, {"x": [3, 64]}, ["a", "b", "w"], constants), {"x": x(3, 64)}, 2)


def test_a_convolution_reads_decoded_weights():
    node, constants = blocks("w", 8, 64)
    shape = numpy_helper.from_array(np.array([8, 64, 1, 1]), "shape")
    nodes = [
        node,
        helper.make_node("Reshape", ["w", "shape"], ["k"]),
        helper.make_node("Conv", ["x", "k"], ["y"]),
    ]
    check(model(nodes, {"x": [1, 64, 4, 4]}, ["y"], [*constants, shape]), {"x": x(1, 64, 4, 4)}, 0)


def test_codes_in_front_of_the_product_are_decoded_for_it():
    node, constants = blocks("w")
    numbers = [
        numpy_helper.from_array(np.float32(0.05), "s"),
        numpy_helper.from_array(np.uint8(128), "z"),
    ]
    nodes = [
        node,
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node("Gemm", ["d", "w"], ["y"], transB=1),
    ]
    check(model(nodes, {"x": [3, 64]}, ["y"], [*constants, *numbers]), {"x": x(3, 64)}, 1)


def test_batches_of_rows():
    node, constants = blocks("w")
    turn = helper.make_node("Transpose", ["w"], ["t"], perm=[1, 0])
    nodes = [
        node,
        turn,
        helper.make_node("MatMul", ["x", "t"], ["m"]),
        helper.make_node("Add", ["m", "r"], ["y"]),
    ]
    proto = model(nodes, {"x": [2, 3, 7, 64], "r": [2, 1, 7, 24]}, ["y"], constants)
    check(proto, {"x": x(2, 3, 7, 64), "r": x(2, 1, 7, 24)}, 1)


def test_rows_near_the_largest_float_in_the_trips_of_a_scan() -> None:
    """Each trip goes on behind a product that is made again."""
    codes = RNG.integers(0, 256, (24, 2, 16)).astype(np.uint8)
    scales = np.full(48, 2.0**-20, np.float32)
    body = helper.make_graph(
        [
            helper.make_node("Add", ["state", "row"], ["sum"]),
            helper.make_node(
                "MatMulNBits", ["sum", "q", "s"], ["y"], domain="com.microsoft",
                K=64, N=24, bits=4, block_size=32,
            ),
            helper.make_node("Identity", ["state"], ["next"]),
        ],
        "trip",
        [helper.make_tensor_value_info(name, FLOAT, [1, 64]) for name in ("state", "row")],
        [
            helper.make_tensor_value_info("next", FLOAT, [1, 64]),
            helper.make_tensor_value_info("y", FLOAT, [1, 24]),
        ],
    )  # fmt: skip
    scan = helper.make_node("Scan", ["zero", "rows"], ["last", "ys"], num_scan_inputs=1, body=body)
    tensors = [numpy_helper.from_array(a, n) for n, a in (("q", codes), ("s", scales))]
    proto = model([scan], {"zero": [1, 64], "rows": [5, 1, 64]}, ["ys"], tensors)
    proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    rows = RNG.integers(-4, 5, (5, 1, 64)).astype(np.float32)
    rows[1::2] *= np.float32(2.0**124)
    feeds = {"zero": np.zeros((1, 64), np.float32), "rows": rows}
    weights = np.stack([codes & 15, codes >> 4], -1).reshape(24, 64) - 8.0
    wanted = (rows[:, 0].astype(np.float64) @ weights.T * 2.0**-20)[:, None]
    for backend in ("numpy", "onednn"):
        session = fqfuse.InferenceSession(fqfuse.compile(proto), backend)
        for _ in range(2):
            np.testing.assert_array_equal(session.run(None, feeds)[0], wanted)
