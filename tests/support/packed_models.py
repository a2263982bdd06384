"""Transformer parts whose weights are codes in blocks, in every form that quantizers write."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

FORMS = ("nbits", "dequantize", "dequantize rows", "cast", "cast columns")
"""MatMulNBits; DequantizeLinear with block_size of [K, N], and of [N, K] for a Gemm; NNCF's Cast,
Sub, Mul and Reshape of [N, blocks, block] and of [blocks, block, N].
"""


@dataclass(frozen=True)
class Scheme:
    """How weights are quantized."""

    form: str = "nbits"
    bits: int = 4
    block: int = 32
    symmetric: bool = False

    def __str__(self) -> str:
        kind = "sym" if self.symmetric else "asym"
        return f"{self.form}-{self.bits}-{self.block}-{kind}"


@dataclass
class Net:
    """A model that is being written."""

    scheme: Scheme
    seed: int = 0
    nodes: list[NodeProto] = field(default_factory=list)
    constants: list[TensorProto] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)

    def op(self, kind: str, *inputs: str, domain: str = "", **attrs: object) -> str:
        name = f"{kind}_{len(self.nodes)}"
        self.nodes.append(
            helper.make_node(kind, inputs, [f"{name}_out"], name=name, domain=domain, **attrs)
        )
        return f"{name}_out"

    def const(self, data: object, dtype: type = np.float32) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(data, dtype), name))
        return name

    def codes(self, data: np.ndarray, kind: int) -> str:
        name = f"c{len(self.constants)}"
        flat = data.ravel().astype(np.int16)
        if kind in (TensorProto.INT4, TensorProto.UINT4):
            flat = np.pad(flat & 15, (0, flat.size % 2)).reshape(-1, 2)
            flat = flat[:, 0] | flat[:, 1] << 4
        raw = flat.astype(np.uint8).tobytes()
        self.constants.append(helper.make_tensor(name, kind, data.shape, raw, raw=True))
        return name

    def ints(self, *values: int) -> str:
        return self.const(values, np.int64)

    # -- weights -----------------------------------------------------------------------------------

    def drawn(self, rows: int, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Codes [rows, size], scales and zero points [rows, blocks], codes unsigned."""
        bits, block = self.scheme.bits, self.scheme.block
        blocks = -(-size // block)
        codes = self.rng.integers(0, 1 << bits, (rows, size))
        scales = self.rng.uniform(0.5, 1.5, (rows, blocks)) / math.sqrt(size) / (1 << (bits - 1))
        middle = 1 << (bits - 1)
        zeros = self.rng.integers(middle - 2, middle + 2, (rows, blocks))
        return (
            codes,
            scales.astype(np.float32),
            np.full_like(zeros, middle) if self.scheme.symmetric else zeros,
        )

    def linear(self, x: str, size: int, rows: int, *, bias: bool = True) -> str:
        """x [..., size] times weights [rows, size] transposed."""
        codes, scales, zeros = self.drawn(rows, size)
        form, shift = self.scheme.form, None
        if bias:
            shift = self.const(self.rng.standard_normal(rows))
        if form == "nbits":
            return self._nbits(x, codes, scales, zeros, shift)
        if form == "dequantize rows":
            flat = self.op("Reshape", x, self.ints(-1, size))
            y = self.op(
                "Gemm",
                flat,
                self._dequantized(codes, scales, zeros, 1),
                *([shift] if shift else []),
                transB=1,
            )
            front = self.op("Slice", self.op("Shape", x), self.ints(0), self.ints(-1))
            return self.op("Reshape", y, self.op("Concat", front, self.ints(rows), axis=0))
        weights = (
            self._dequantized(codes.T, scales.T, zeros.T, 0)
            if form == "dequantize"
            else self._cast(codes, scales, zeros, columns=form == "cast columns")
        )
        y = self.op("MatMul", x, weights)
        return self.op("Add", y, shift) if shift else y

    def _nbits(
        self, x: str, codes: np.ndarray, scales: np.ndarray, zeros: np.ndarray, bias: str | None
    ) -> str:
        bits, block = self.scheme.bits, self.scheme.block
        rows, size = codes.shape
        blocks = scales.shape[1]
        whole = np.zeros((rows, blocks * block), np.uint8)
        whole[:, :size] = codes
        inputs = [
            x,
            self.const(_packed(whole, bits).reshape(rows, blocks, -1), np.uint8),
            self.const(scales),
        ]
        if not self.scheme.symmetric:
            several = 8 // bits
            odd = np.zeros((rows, -(-blocks // several) * several), np.uint8)
            odd[:, :blocks] = zeros
            inputs.append(self.const(_packed(odd, bits), np.uint8))
        y = self.op(
            "MatMulNBits",
            *inputs,
            domain="com.microsoft",
            K=size,
            N=rows,
            bits=bits,
            block_size=block,
        )
        return self.op("Add", y, bias) if bias else y

    def _dequantized(
        self, codes: np.ndarray, scales: np.ndarray, zeros: np.ndarray, axis: int
    ) -> str:
        signed, bits = self.scheme.symmetric, self.scheme.bits
        low = 1 << (bits - 1) if signed else 0
        kind = TensorProto.DataType.Value(f"{'' if signed else 'U'}INT{bits}")
        inputs = [self.codes(codes - low, kind), self.const(scales)]
        if not signed:
            inputs.append(self.codes(zeros, kind))
        return self.op("DequantizeLinear", *inputs, axis=axis, block_size=self.scheme.block)

    def _cast(
        self, codes: np.ndarray, scales: np.ndarray, zeros: np.ndarray, *, columns: bool
    ) -> str:
        """NNCF's; the size is a multiple of the block."""
        rows, size = codes.shape
        bits, low = self.scheme.bits, (1 << (self.scheme.bits - 1)) if self.scheme.symmetric else 0
        kind = TensorProto.DataType.Value(f"{'' if low else 'U'}INT{bits}")
        parts = [
            codes.reshape(rows, -1, self.scheme.block) - low,
            scales[..., None],
            zeros[..., None],
        ]
        if columns:
            parts = [part.transpose(1, 2, 0) for part in parts]
        value = self.op("Cast", self.codes(parts[0], kind), to=TensorProto.FLOAT)
        if not low:
            value = self.op(
                "Sub", value, self.op("Cast", self.codes(parts[2], kind), to=TensorProto.FLOAT)
            )
        value = self.op("Mul", value, self.const(parts[1]))
        if columns:
            return self.op("Reshape", value, self.ints(size, rows))
        return self.op("Transpose", self.op("Reshape", value, self.ints(rows, size)), perm=[1, 0])

    # -- networks ----------------------------------------------------------------------------------

    def norm(self, x: str, size: int) -> str:
        scale, shift = (self.const(self.rng.standard_normal(size)) for _ in range(2))
        return self.op("LayerNormalization", x, scale, shift, axis=-1)

    def gelu(self, x: str) -> str:
        cube = self.op("Mul", self.op("Mul", x, x), x)
        inner = self.op("Add", x, self.op("Mul", cube, self.const(0.044715)))
        tanh = self.op("Tanh", self.op("Mul", inner, self.const(math.sqrt(2 / math.pi))))
        return self.op(
            "Mul", self.op("Mul", x, self.const(0.5)), self.op("Add", tanh, self.const(1.0))
        )

    def attention(self, x: str, width: int, heads: int, *, causal: int = 0) -> str:
        depth = width // heads

        def split(y: str, perm: Sequence[int]) -> str:
            return self.op(
                "Transpose", self.op("Reshape", y, self.ints(0, 0, heads, depth)), perm=perm
            )

        query, key, value = (
            split(self.linear(x, width, width), perm)
            for perm in ((0, 2, 1, 3), (0, 2, 3, 1), (0, 2, 1, 3))
        )
        scores = self.op("Mul", self.op("MatMul", query, key), self.const(1 / math.sqrt(depth)))
        if causal:
            mask = np.triu(np.full((causal, causal), -1e4), 1)
            scores = self.op("Add", scores, self.const(mask[None, None]))
        mixed = self.op("MatMul", self.op("Softmax", scores, axis=-1), value)
        merged = self.op(
            "Reshape", self.op("Transpose", mixed, perm=(0, 2, 1, 3)), self.ints(0, 0, width)
        )
        return self.linear(merged, width, width)

    def mlp(self, x: str, width: int, inner: int) -> str:
        return self.linear(self.gelu(self.linear(x, width, inner)), inner, width)

    def gpt2_block(self, x: str, width: int, heads: int, tokens: int) -> str:
        y = self.op("Add", x, self.attention(self.norm(x, width), width, heads, causal=tokens))
        return self.op("Add", y, self.mlp(self.norm(y, width), width, 4 * width))

    def bert_layer(self, x: str, width: int, heads: int) -> str:
        y = self.norm(self.op("Add", x, self.attention(x, width, heads)), width)
        return self.norm(self.op("Add", y, self.mlp(y, width, 2 * width)), width)

    def model(self, output: str, shape: Sequence[int | str]) -> onnx.ModelProto:
        graph = helper.make_graph(
            self.nodes,
            "packed",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)],
            self.constants,
        )
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def _packed(codes: np.ndarray, bits: int) -> np.ndarray:
    """Codes of a row side by side in bytes, the first one lowest."""
    apart = codes.astype(np.uint32).reshape(*codes.shape[:-1], -1, 8 // bits)
    return (apart << (np.arange(8 // bits) * bits).astype(np.uint32)).sum(-1).astype(np.uint8)


def network(kind: str, scheme: Scheme, *, width: int = 64, tokens: int = 5) -> onnx.ModelProto:
    """A part of a transformer, or one product: `NAMES`."""
    net = Net(scheme)
    shape: tuple[int | str, ...] = (1, tokens, width)
    if kind == "product":
        y = net.linear("x", width, 37, bias=False)
    elif kind == "mlp":
        y = net.mlp("x", width, 3 * width)
    elif kind == "attention":
        y = net.attention("x", width, 4)
    elif kind == "gpt2":
        y = net.gpt2_block("x", width, 4, tokens)
    else:
        y = net.bert_layer(net.bert_layer("x", width, 4), width, 4)
    return net.model(y, shape)


NAMES = ("product", "mlp", "attention", "gpt2", "bert")
