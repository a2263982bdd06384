"""A builder of small graphs for tests: names are short, origins and quantizers are recorded as the
frontend does it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fqfuse.ir.decision import Quantizer
from fqfuse.ir.graph import Graph
from fqfuse.ir.types import Dim, DType, Quantization, TensorType

Value = str


class Net:
    """A graph in the making. Every method returns the name of a value; constants are given as
    arrays.
    """

    def __init__(self, name: str = "net", seed: int = 0) -> None:
        self.graph = Graph(name)
        self.rng = np.random.default_rng(seed)
        self._count = 0

    # -- values ------------------------------------------------------------------------------------

    def input(
        self,
        shape: Sequence[Dim],
        name: str = "",
        dtype: DType = DType.F32,
        quant: Quantization | None = None,
    ) -> Value:
        """An input of the graph."""
        default = "x" if not self.graph.inputs else f"x{len(self.graph.inputs)}"
        return self.graph.add_input(name or default, TensorType(dtype, tuple(shape), quant))

    def const(self, data: npt.ArrayLike, name: str = "c", dtype: DType | None = None) -> Value:
        """A constant; numbers become f32."""
        array = np.asarray(data)
        return self.graph.add_constant(
            self.graph.fresh(name),
            array if array.dtype == bool else array.astype(np.float32),
            dtype,
        )

    def ints(self, *values: int) -> Value:
        """A 1-D int64 constant: shapes, axes, starts."""
        return self.graph.add_constant(self.graph.fresh("i"), np.asarray(values, np.int64))

    def op(
        self,
        op: str,
        *inputs: Value | npt.ArrayLike,
        outputs: int = 1,
        name: str = "",
        **attrs: object,
    ) -> Value:
        """An operation; arrays and numbers among the inputs become f32 constants. Returns its first
        output.
        """
        values = [value if isinstance(value, str) else self.const(value) for value in inputs]
        self._count += 1
        node = name or f"{op.lower()}{self._count}"
        names = [node + "_y" if index == 0 else f"{node}_y{index}" for index in range(outputs)]
        return self.graph.add(
            op, values, attrs, name=node, outputs=names, origin=[node], after_all=True
        ).output  # type: ignore[arg-type]

    # -- quantizers --------------------------------------------------------------------------------

    def fq(
        self,
        x: Value,
        low: Value | npt.ArrayLike,
        high: Value | npt.ArrayLike,
        out_low: Value | npt.ArrayLike | None = None,
        out_high: Value | npt.ArrayLike | None = None,
        levels: int = 256,
        name: str = "",
    ) -> Value:
        """A FakeQuantize by numbers or values; the output range is the input range unless given."""
        self._count += 1
        node = name or f"fq{self._count}"
        ranges = [
            low,
            high,
            low if out_low is None else out_low,
            high if out_high is None else out_high,
        ]
        values = [
            data if isinstance(data, str) else self.const(data, f"{node}_{end}")
            for data, end in zip(ranges, ("il", "ih", "ol", "oh"), strict=True)
        ]
        self.graph.quantizers[node] = Quantizer(node, "FakeQuantize", x)
        given = {
            "name": node,
            "outputs": [f"{node}_y"],
            "origin": [node],
            "quantizer": [node],
            "after_all": True,
        }
        return self.graph.add("FakeQuantize", [x, *values], {"levels": levels}, **given).output  # type: ignore[arg-type]

    def q(
        self,
        x: Value,
        scale: npt.ArrayLike,
        zero: npt.ArrayLike = 0,
        dtype: DType = DType.U8,
        axis: int | None = None,
        order: str = "round_first",
        low: int | None = None,
        high: int | None = None,
        name: str = "",
    ) -> Value:
        """A QuantizeLinear: codes."""
        self._count += 1
        node = name or f"q{self._count}"
        self.graph.quantizers[node] = Quantizer(node, "QuantizeLinear", x)
        bounds = dtype.range
        attrs = {
            "quant": Quantization.of(scale, zero, axis),
            "dtype": dtype,
            "lo": bounds[0] if low is None else low,
            "hi": bounds[1] if high is None else high,
            "order": order,
        }
        given = {
            "name": node,
            "outputs": [f"{node}_y"],
            "origin": [node],
            "quantizer": [node],
            "after_all": True,
        }
        return self.graph.add("Quantize", [x], attrs, **given).output  # type: ignore[arg-type]

    def dq(self, codes: Value, quant: Quantization | None = None, name: str = "") -> Value:
        """A DequantizeLinear, by default with the parameters of the codes' type; it belongs to the
        quantizer that made them.
        """
        self._count += 1
        node = name or f"dq{self._count}"
        producer = self.graph.producer(codes)
        if producer is not None and producer.quantizer:
            names = producer.quantizer
        else:
            constant = self.graph.constant(codes) is not None
            names = (node,)
            form = "DequantizeLinear on a constant" if constant else "DequantizeLinear on an input"
            self.graph.quantizers[node] = Quantizer(node, form, codes)
        chosen = quant or self.graph.type(codes).quant
        assert chosen is not None
        given = {
            "name": node,
            "outputs": [f"{node}_y"],
            "origin": [node],
            "quantizer": names,
            "after_all": True,
        }
        return self.graph.add("Dequantize", [codes], {"quant": chosen}, **given).output  # type: ignore[arg-type]

    def qdq(
        self,
        x: Value,
        scale: npt.ArrayLike,
        zero: npt.ArrayLike = 0,
        dtype: DType = DType.U8,
        **options: object,
    ) -> Value:
        """QuantizeLinear and DequantizeLinear."""
        return self.dq(self.q(x, scale, zero, dtype, **options))  # type: ignore[arg-type]

    # -- layers with quantized weights -------------------------------------------------------------

    def codes(
        self, shape: Sequence[int], low: int = -127, high: int = 127, dtype: DType = DType.S8
    ) -> np.ndarray:
        """Random integer weights."""
        return self.rng.integers(low, high + 1, tuple(shape)).astype(dtype.numpy)

    def weights(
        self,
        shape: Sequence[int],
        scale: npt.ArrayLike = 0.0078125,
        axis: int | None = None,
        style: str = "qdq",
    ) -> Value:
        """Quantized weights: `qdq` s8 codes behind DequantizeLinear, `fq` f32 behind FakeQuantize
        with 255 levels, `float` as they are.

        `scale` has one entry, or one for each index along `axis`.
        """
        scales = np.asarray(scale, np.float32)
        codes = self.codes(shape)
        if style == "qdq":
            constant = self.graph.add_constant(self.graph.fresh("w"), codes)
            return self.dq(constant, Quantization.of(scales, 0, axis))
        along = [1] * len(shape)
        if scales.size > 1:
            assert axis is not None
            along[axis] = -1
        shaped = scales.reshape(along) if scales.size > 1 else scales.reshape(())
        data = (codes.astype(np.float32) * shaped).astype(np.float32)
        if style == "float":
            return self.const(data, "w")
        return self.fq(self.const(data, "w"), -127 * shaped, 127 * shaped, levels=255)

    def conv(
        self,
        x: Value,
        channels: int,
        kernel: int | Sequence[int] = 3,
        *,
        scale: npt.ArrayLike = 0.0078125,
        style: str = "qdq",
        bias: npt.ArrayLike | None = None,
        group: int = 1,
        name: str = "",
        weights: Value = "",
        **attrs: object,
    ) -> Value:
        """A 2-D convolution with quantized weights; padded to keep the size unless `pads` says
        otherwise.
        """
        shape = self.graph.type(x).shape
        assert shape is not None
        spatial = (kernel, kernel) if isinstance(kernel, int) else tuple(kernel)
        inner = int(shape[1]) // group
        w = weights or self.weights((channels, inner, *spatial), scale, 0, style)
        attrs.setdefault("pads", tuple(k // 2 for k in spatial) * 2)
        inputs = [x, w] if bias is None else [x, w, bias]
        return self.op("Conv", *inputs, name=name, kernel_shape=spatial, group=group, **attrs)

    def done(self, *outputs: Value) -> Graph:
        """The finished graph."""
        self.graph.set_outputs(outputs)
        return self.graph
