"""Small quantized networks, node by node: what provokes a finding, and what its remedy makes of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from support.onnx_cases import model, node

U8 = np.uint8
MIDDLE = U8(128)


class Net:
    """Collects nodes and constants; each method gives the name of what it made."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, Any] = {}

    def constant(self, value: Any) -> str:
        """A constant."""
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(value)
        return name

    def op(self, op: str, *inputs: str, name: str = "", out: str = "", **attributes: Any) -> str:
        """A node, called `name`, and its output `out`."""
        output = out or f"{name or op}_{len(self.nodes)}"
        called = name or f"{op}_{len(self.nodes)}"
        self.nodes.append(node(op, inputs, [output], name=called, **attributes))
        return output

    def quantized(
        self, value: str, scale: Any = 0.1, zero: Any = MIDDLE, axis: int | None = None
    ) -> str:
        """The value behind QuantizeLinear and DequantizeLinear, named as ONNX Runtime names them."""
        along = {} if axis is None else {"axis": axis}
        parameters = (self.constant(np.float32(scale)), self.constant(zero))
        codes = self.op(
            "QuantizeLinear", value, *parameters, name=f"{value}_QuantizeLinear", **along
        )
        return self.op(
            "DequantizeLinear", codes, *parameters, name=f"{value}_DequantizeLinear", **along
        )

    def fake_quantized(self, value: str, low: float, high: float) -> str:
        """The value behind a FakeQuantize of 256 levels."""
        ends = [self.constant(np.float32(end)) for end in (low, high)] * 2
        return self.op(
            "FakeQuantize",
            value,
            *ends,
            name=f"{value}/fq",
            levels=256,
            domain="org.openvinotoolkit",
        )

    def weights(self, codes: Any, scale: Any = 0.01, axis: int = 0) -> str:
        """s8 codes behind a DequantizeLinear: one scale for each channel, or one if it is an array
        of no dimension.
        """
        codes = np.asarray(codes, np.int8)
        if isinstance(scale, float):
            scale = np.full(codes.shape[axis], scale, np.float32)
        zero = np.zeros(np.shape(scale), np.int8)
        along = {"axis": axis} if np.ndim(scale) else {}
        return self.op(
            "DequantizeLinear",
            self.constant(codes),
            self.constant(scale),
            self.constant(zero),
            **along,
        )

    def conv(
        self, value: str, name: str, out: str = "", weights: str = "", channels: int = 8
    ) -> str:
        """A 3x3 convolution to 8 channels."""
        weights = weights or self.weights(codes((8, channels, 3, 3)))
        return self.op("Conv", value, weights, name=name, out=out, pads=[1] * 4)

    def matmul(self, value: str, name: str, out: str = "") -> str:
        """A product with 16x16 weights."""
        return self.op("MatMul", value, self.weights(codes((16, 16)), axis=1), name=name, out=out)

    def loop(
        self, value: str, weights: str, trips: int | str, name: str, shape: Any, out: str
    ) -> str:
        """The value times weights of [n, n], in a Loop of so many trips, or as many as an input says;
        `shape`: of the value, as the body declares it, None where it does not.
        """
        kinds = {"trip": (onnx.TensorProto.INT64, []), "going": (onnx.TensorProto.BOOL, [])}
        inputs = [onnx.helper.make_tensor_value_info(k, *kinds[k]) for k in kinds]
        state = onnx.helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, shape)
        inputs.append(onnx.helper.make_value_info("state", state))
        nodes = [
            node("Identity", ["going"], ["on"]),
            node("MatMul", ["state", weights], ["next"], name="inside"),
        ]
        outputs = [
            onnx.helper.make_tensor_value_info("on", *kinds["going"]),
            onnx.helper.make_value_info("next", state),
        ]
        body = onnx.helper.make_graph(nodes, "body", inputs, outputs)
        count = trips if isinstance(trips, str) else self.constant(np.int64(trips))
        return self.op("Loop", count, "", value, name=name, out=out, body=body)

    def proto(self, **told: Any) -> onnx.ModelProto:
        """The model; its input x is [1, 8, 16, 16] unless told otherwise."""
        told.setdefault("inputs", {"x": [1, 8, 16, 16]})
        told.setdefault("domains", {"org.openvinotoolkit": 1})
        return model(self.nodes, constants=self.constants, **told)


def codes(shape: tuple[int, ...], largest: int = 127) -> np.ndarray[Any, np.dtype[np.int8]]:
    """Random codes up to `largest` on both sides of 0."""
    drawn = np.random.default_rng(1).integers(-largest, largest + 1, shape)
    return drawn.astype(np.int8)
