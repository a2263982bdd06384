"""Models whose steps our kernels run, with feeds."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx

from .onnx_cases import model, node
from .packed_models import Net, Scheme

Case = tuple[onnx.ModelProto, Mapping[str, np.ndarray]]


def product(rows: int, scheme: Scheme) -> Case:
    """[rows, 160] times packed weights [160, 96]."""
    net = Net(scheme)
    proto = net.model(net.linear("x", 160, 96, bias=False), (rows, 160))
    return proto, {"x": np.random.default_rng(rows).standard_normal((rows, 160)).astype(np.float32)}


def lookup() -> Case:
    """A swish of codes, which is a table."""
    nodes = [
        node("DequantizeLinear", ["x", "s", "z"], ["d"]),
        node("Sigmoid", ["d"], ["a"]),
        node("Mul", ["d", "a"], ["m"]),
        node("QuantizeLinear", ["m", "s", "z"], ["y"]),
    ]
    constants = {"s": np.float32(0.05), "z": np.uint8(100)}
    x = np.random.default_rng(0).integers(0, 256, (9, 400)).astype(np.uint8)
    types = {"x": onnx.TensorProto.UINT8}
    return model(nodes, inputs={"x": x.shape}, constants=constants, types=types), {"x": x}


def lstm(batch: int) -> Case:
    """f32, both directions."""
    rng = np.random.default_rng(batch)
    constants = {
        "w": rng.normal(0, 0.1, (2, 4 * 40, 24)).astype(np.float32),
        "r": rng.normal(0, 0.1, (2, 4 * 40, 40)).astype(np.float32),
    }
    nodes = [node("LSTM", ["x", "w", "r"], ["y"], hidden_size=40, direction="bidirectional")]
    x = rng.standard_normal((12, batch, 24)).astype(np.float32)
    return model(nodes, inputs={"x": x.shape}, constants=constants), {"x": x}


def dynamic_lstm() -> Case:
    """Quantized as it runs, both directions."""
    rng = np.random.default_rng(5)
    constants: dict[str, np.ndarray] = {}
    for name, size in (("w", 24), ("r", 40)):
        constants[name] = rng.integers(-127, 128, (2, size, 4 * 40)).astype(np.int8)
        constants[f"{name}_scale"] = np.full(2, 0.002, np.float32)
        constants[f"{name}_zero"] = np.zeros(2, np.int8)
    inputs = ["x", "w", "r", "", "", "", "", "", "w_scale", "w_zero", "r_scale", "r_zero"]
    layer = node(
        "DynamicQuantizeLSTM",
        inputs,
        ["y"],
        domain="com.microsoft",
        hidden_size=40,
        direction="bidirectional",
    )
    x = rng.standard_normal((12, 3, 24)).astype(np.float32)
    domains = {"com.microsoft": 1}
    proto = model([layer], inputs={"x": x.shape}, constants=constants, domains=domains)
    return proto, {"x": x}
