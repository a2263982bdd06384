"""What is exported loads in ONNX Runtime, and gives its numbers, whatever the codes' type and rank: types of 8 and
16 bits, values whose rank no model says, tables in blocks of which rows are picked.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from support.finding_networks import Net
from support.onnx_cases import run_ort

import fqfuse
from fqfuse.exporter import FORMS

SHAPE = [2, 3, 4, 4]
KINDS = [np.uint8, np.int8, np.uint16, np.int16]


def written(model: onnx.ModelProto, feeds: dict[str, np.ndarray], path: Path, error: float) -> None:
    """Exports in each form, and holds what ONNX Runtime makes of it to the file itself without optimizations."""
    (wanted,) = run_ort(model, feeds)
    for form in FORMS:
        exported = fqfuse.export(model, path / "out.onnx", to=form).model
        for optimized in (False, True):
            (found,) = run_ort(exported, feeds, optimized=optimized)
            assert found.shape == wanted.shape
            assert np.abs(found - wanted).max() <= error, (form, optimized)


def drawn(rng: np.random.Generator, ranked: bool) -> tuple[onnx.ModelProto, float]:
    """A quantizer, an operator, a quantizer, each of a drawn type; and a step of the last one."""
    net = Net()
    steps = rng.uniform(0.01, 0.05, 2)
    kinds = [KINDS[rng.integers(4)] for _ in range(2)]
    zeros = [kind(rng.integers(0, 100)) for kind in kinds]
    value = net.quantized("x", steps[0], zeros[0])
    plain = ["Relu", "Clip", "LeakyRelu", "Sigmoid", "HardSwish", "Neg", "Add", "Flatten"]
    op = str(rng.choice([*plain, "Conv", "MatMul", "MaxPool", "Concat"] if ranked else plain))
    if op == "Clip":
        value = net.op(op, value, *(net.constant(np.float32(end)) for end in (-0.5, 0.9)))
    elif op in ("Add", "Concat"):
        value = net.op(op, value, value, **({"axis": 1} if op == "Concat" else {}))
    elif op in ("Conv", "MatMul"):
        shape = (5, 3, 3, 3) if op == "Conv" else (4, 6)
        codes = rng.integers(-63, 64, shape)
        value = net.op(op, value, net.weights(codes, 0.01, axis=0 if op == "Conv" else 1))
        value = net.op("Relu", value) if rng.random() < 0.5 else value
    else:
        value = net.op(op, value, **({"kernel_shape": [2, 2]} if op == "MaxPool" else {}))
    net.op("Identity", net.quantized(value, steps[1], zeros[1]), out="y")
    model = net.proto(inputs={"x": SHAPE}, opset=21)
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT
    if not ranked:
        model.graph.input[0].type.tensor_type.ClearField("shape")
    return model, float(steps[1])


@pytest.mark.parametrize("ranked", [True, False])
@pytest.mark.parametrize("draws", [8, pytest.param(100, marks=pytest.mark.slow)])
def test_exports_of_every_type_load_and_agree(draws: int, ranked: bool, tmp_path: Path) -> None:
    rng = np.random.default_rng(draws)
    for _ in range(draws):
        model, step = drawn(rng, ranked)
        x = rng.normal(0, 1, SHAPE).astype(np.float32)
        # one code: a product's sum in another order may lie on the other side of a tie
        written(model, {"x": x}, tmp_path, 1.001 * step)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("points", ["none", "codes"])
def test_tables_in_blocks_of_which_rows_are_picked(bits: int, points: str, tmp_path: Path) -> None:
    """An embedding that decodes its rows, and products whose zero points are floats."""
    rng = np.random.default_rng(bits)
    rows, width, block = 24, 40, 16  # the last block is half full
    blocks = -(-width // block)
    kind = TensorProto.UINT4 if bits == 4 else TensorProto.UINT8
    codes = rng.integers(0, 1 << bits, (rows, width))
    scales = rng.uniform(0.01, 0.1, (rows, blocks)).astype(np.float32)
    tensors = [helper.make_tensor("w", kind, codes.shape, codes.ravel().tolist())]
    tensors.append(numpy_helper.from_array(scales, "s"))
    given = ["w", "s"]
    if points == "codes":
        zeros = rng.integers(0, 1 << bits, (rows, blocks))
        tensors.append(helper.make_tensor("z", kind, zeros.shape, zeros.ravel().tolist()))
        given.append("z")
    nodes = [
        helper.make_node("DequantizeLinear", given, ["table"], axis=1, block_size=block),
        helper.make_node("Gather", ["table", "ids"], ["y"]),
    ]
    ids = np.array([[0, -1, 5], [19, 3, 3]])
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, [2, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3, width])],
        tensors,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    written(model, {"ids": ids}, tmp_path, 0)


@pytest.mark.parametrize("size", [64, 48])
def test_products_whose_zero_points_are_no_codes(size: int, tmp_path: Path) -> None:
    """MatMulNBits with zero points in floats."""
    rng = np.random.default_rng(size)
    rows, block = 6, 32
    blocks = -(-size // block)
    tensors = {
        "B": rng.integers(0, 256, (rows, blocks, block // 2)).astype(np.uint8),
        "s": rng.uniform(0.01, 0.1, (rows, blocks)).astype(np.float32),
        "z": rng.uniform(0, 15, (rows, blocks)).astype(np.float32),
    }
    told = {"K": size, "N": rows, "bits": 4, "block_size": block}
    node = helper.make_node(
        "MatMulNBits", ["x", "B", "s", "z"], ["y"], domain="com.microsoft", **told
    )
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, size])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, rows])],
        [numpy_helper.from_array(data, name) for name, data in tensors.items()],
    )
    domains = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=domains, ir_version=10)
    x = rng.normal(0, 1, (2, size)).astype(np.float32)
    # sums of 64 products of numbers up to 4 by 1.6 in f32, in any order
    written(model, {"x": x}, tmp_path, 64 * 64 * 6.4 * 2.0**-24)
