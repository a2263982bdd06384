"""Random models as exporters write them with symbolic sizes: attention whose shapes, masks and
positions are computed from Shape ops.

One model has inputs of sizes N (batch), S (length), P (length of the cache) and T (P + S).
`Exported.model` builds it with any of them
symbolic: the nodes stay the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

HEADS, DEPTH = 2, 4
WIDTH = HEADS * DEPTH
LONGEST = 40

Sizes = Mapping[str, int]


@dataclass
class Exported:
    """A model in the making; every method returns the name of a value.

    Attributes:
        random: where choices come from.
        quantized: how often a value gets a quantizer, 0 to 1.
        inputs: name -> element type and dimensions.
        outputs: name -> rank.
    """

    random: Random
    quantized: float
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    inputs: dict[str, tuple[int, tuple[str | int, ...]]] = field(default_factory=dict)
    outputs: dict[str, int] = field(default_factory=dict)
    constants: list[onnx.TensorProto] = field(default_factory=list)

    # -- parts -------------------------------------------------------------------------------------

    def op(self, kind: str, *inputs: str, outputs: int = 1, **attrs: object) -> str:
        name = f"{kind.lower()}{len(self.nodes)}"
        made = [name, *(f"{name}_{index}" for index in range(1, outputs))]
        self.nodes.append(helper.make_node(kind, inputs, made, name=f"/{name}", **attrs))
        return name

    def const(self, data: object, dtype: type = np.float32) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(data, dtype), name))
        return name

    def ints(self, *values: int) -> str:
        return self.const(values, np.int64)

    def input(self, name: str, dtype: int, *dims: str | int) -> str:
        self.inputs[name] = (dtype, dims)
        return name

    def drawn(self, *shape: int) -> np.ndarray:
        return np.random.default_rng(self.random.randrange(1 << 30)).integers(-16, 17, shape) / 32

    def yes(self, chance: float = 0.5) -> bool:
        return self.random.random() < chance

    def maybe_quantized(self, value: str) -> str:
        return self.qdq(value) if self.yes(self.quantized) else value

    def qdq(self, value: str) -> str:
        kind, zero = self.random.choice([(np.uint8, 128), (np.uint8, 100), (np.int8, 0)])
        made = [self.const(self.random.choice([2.0**-6, 2.0**-5, 0.03])), self.const(zero, kind)]
        return self.op("DequantizeLinear", self.op("QuantizeLinear", value, *made), *made)

    def weights(self, rows: int, columns: int) -> str:
        if self.yes(1 - self.quantized):
            return self.const(self.drawn(rows, columns))
        codes = (
            np.random.default_rng(self.random.randrange(1 << 30))
            .integers(-127, 128, (rows, columns))
            .astype(np.int8)
        )
        if self.yes():
            return self.op(
                "DequantizeLinear",
                self.const(codes, np.int8),
                self.const(2.0**-8),
                self.const(0, np.int8),
            )
        scales = [2.0**-8 * (1 + index % 3) for index in range(columns)]
        return self.op(
            "DequantizeLinear",
            self.const(codes, np.int8),
            self.const(scales),
            self.const([0] * columns, np.int8),
            axis=1,
        )

    def linear(self, x: str, rows: int, columns: int) -> str:
        y = self.op("MatMul", self.maybe_quantized(x), self.weights(rows, columns))
        return self.op("Add", self.const(self.drawn(columns)), y) if self.yes() else y

    # -- shapes as exporters compute them ----------------------------------------------------------

    def size(self, value: str, axis: int, rank: int = 1) -> str:
        """The size of one dimension as s64[1] (rank 1) or s64[] (rank 0)."""
        if rank == 1 and self.yes():
            return self.op("Shape", value, start=axis, end=axis + 1)
        found = self.op("Gather", self.op("Shape", value), self.const(axis, np.int64), axis=0)
        return found if rank == 0 else self.op("Unsqueeze", found, self.ints(0))

    def reshaped(self, value: str, source: str, *target: int | str) -> str:
        """`value` in another shape: numbers, or `N`, `S` for the sizes of the first two dimensions
        of `source`.
        """
        axes = {"N": 0, "S": 1}
        parts = [self.size(source, axes[t]) if isinstance(t, str) else self.ints(t) for t in target]
        return self.op("Reshape", value, self.op("Concat", *parts, axis=0))

    def expanded(self, value: str, *sizes: str) -> str:
        """`value` expanded to sizes s64[1], over the comparison with -1 that the exporter writes
        around each.
        """
        target = self.op("Concat", *sizes, axis=0)
        if self.yes():
            ones = self.op(
                "ConstantOfShape",
                self.ints(len(sizes)),
                value=numpy_helper.from_array(np.asarray([1], np.int64)),
            )
            hidden = self.op("Equal", target, self.ints(*[-1] * len(sizes)))
            target = self.op("Where", hidden, ones, target)
        return self.op("Expand", value, target)

    # -- attention ---------------------------------------------------------------------------------

    def heads(self, x: str, source: str) -> str:
        """[N, S, WIDTH] -> [N, HEADS, S, DEPTH]."""
        forms: list[Callable[[], str]] = [
            lambda: self.reshaped(x, source, "N", "S", HEADS, DEPTH),
            lambda: self.reshaped(x, source, "N", "S", -1, DEPTH),
            lambda: self.op("Reshape", x, self.ints(0, 0, HEADS, DEPTH)),
        ]
        return self.op("Transpose", self.random.choice(forms)(), perm=[0, 2, 1, 3])

    def merged(self, x: str, source: str) -> str:
        """[N, HEADS, S, DEPTH] -> [N, S, WIDTH]."""
        x = self.op("Transpose", x, perm=[0, 2, 1, 3])
        return (
            self.reshaped(x, source, "N", "S", WIDTH)
            if self.yes()
            else self.op("Reshape", x, self.ints(0, 0, WIDTH))
        )

    def repeated(self, x: str, source: str, total: str) -> str:
        """One head [N, 1, T, DEPTH] read as HEADS."""
        five = self.op("Unsqueeze", x, self.ints(2))
        five = self.expanded(
            five, self.size(source, 0), self.ints(1), self.ints(HEADS), total, self.ints(DEPTH)
        )
        target = self.op(
            "Concat", self.size(source, 0), self.ints(HEADS), total, self.ints(DEPTH), axis=0
        )
        return self.op("Reshape", five, target, allowzero=1)

    def turned(self, x: str, first: str, last: str) -> str:
        """Rotary positions `first` to `last` (s64[]) for [N, H, S, DEPTH]."""
        places = self.op(
            "Cast", self.op("Range", first, last, self.const(1, np.int64)), to=TensorProto.FLOAT
        )
        angles = self.op(
            "Mul", self.op("Unsqueeze", places, self.ints(1)), self.const([[1.0, 0.25]])
        )
        angles = self.op("Concat", angles, angles, axis=-1)
        cos, sin = self.op("Cos", angles), self.op("Sin", angles)
        half = self.op("Slice", x, self.ints(0), self.ints(DEPTH // 2), self.ints(3))
        rest = self.op("Slice", x, self.ints(DEPTH // 2), self.ints(1 << 62), self.ints(-1))
        turned = self.op("Concat", self.op("Neg", rest), half, axis=-1)
        return self.op("Add", self.op("Mul", x, cos), self.op("Mul", turned, sin))

    def masked(self, scores: str, source: str, past: str | None) -> str:
        """Scores [N, HEADS, S, T] with what hides some of them."""
        kind = self.random.choice(
            ["none", "rows", "float N1ST", "float 11ST", "float N11T", "ranges", "trilu", "where"]
        )
        if kind == "none":
            return scores
        if kind in ("where", "ranges"):
            mask = self.seen(source, scores, past)
            if kind == "where":
                return self.op(
                    "Where", mask, scores, self.const(-3.4028235e38 if self.yes() else -1e4)
                )
            added = self.op("Where", mask, self.const(0.0), self.const(-1e4))
        elif kind == "rows":
            mask = self.op(
                "Cast", self.input("mask", TensorProto.INT64, "N", "T"), to=TensorProto.FLOAT
            )
            mask = self.op("Unsqueeze", mask, self.ints(1, 2))
            added = self.op("Mul", self.op("Sub", self.const(1.0), mask), self.const(-1e4))
            if self.yes():
                added = self.expanded(
                    added,
                    self.size(source, 0),
                    self.ints(1),
                    self.size(scores, 2),
                    self.size(scores, 3),
                )
        elif kind == "trilu":
            shape = self.op("Concat", self.size(scores, 2), self.size(scores, 3), axis=0)
            full = self.op(
                "ConstantOfShape",
                shape,
                value=numpy_helper.from_array(np.asarray([-1e4], np.float32)),
            )
            first = self.size(past, 2, 0) if past else self.const(0, np.int64)
            added = self.op("Trilu", full, self.op("Add", first, self.const(1, np.int64)), upper=1)
            added = self.op("Unsqueeze", added, self.ints(0, 1)) if self.yes() else added
        else:
            dims = {"N1ST": ("N", 1, "S", "T"), "11ST": (1, 1, "S", "T"), "N11T": ("N", 1, 1, "T")}[
                kind.split()[1]
            ]
            added = self.input("mask", TensorProto.FLOAT, *dims)
        return self.op("Add", *([scores, added] if self.yes() else [added, scores]))

    def seen(self, source: str, scores: str, past: str | None) -> str:
        """Which of T keys each of S queries sees, bool[N, 1, S, T]: the earlier ones that the rows
        of a mask let through.
        """
        zero, one = self.const(0, np.int64), self.const(1, np.int64)
        first, last = (
            (self.size(past, 2, 0), self.size(scores, 3, 0))
            if past
            else (zero, self.size(scores, 3, 0))
        )
        keys = self.op("Reshape", self.op("Range", zero, last, one), self.ints(1, 1, 1, -1))
        queries = self.op("Unsqueeze", self.op("Range", first, last, one), self.ints(0, 1, 3))
        mask = self.op("LessOrEqual", keys, queries)
        if self.yes():
            rows = self.op(
                "Cast", self.input("mask", TensorProto.INT64, "N", "T"), to=TensorProto.BOOL
            )
            mask = self.op("And", mask, self.op("Unsqueeze", rows, self.ints(1, 2)))
        if self.yes():
            mask = self.expanded(
                mask, self.size(source, 0), self.ints(1), self.size(scores, 2), self.size(scores, 3)
            )
        return mask

    def attended(self, x: str, source: str) -> str:
        """Self attention over x [N, S, WIDTH], sometimes with a cache, with one head of keys, with
        rotary positions.
        """
        single, turns, cached = self.yes(0.3), self.yes(0.3), self.yes()
        query, keys, values = self.heads(self.linear(x, WIDTH, WIDTH), source), "", ""
        width, count = (DEPTH, 1) if single else (WIDTH, HEADS)
        for role in ("key", "value"):
            y = self.linear(x, WIDTH, width)
            y = (
                self.op(
                    "Transpose", self.reshaped(y, source, "N", "S", 1, DEPTH), perm=[0, 2, 1, 3]
                )
                if single
                else self.heads(y, source)
            )
            keys, values = (y, values) if role == "key" else (keys, y)
        past = (
            self.input("past_keys", TensorProto.FLOAT, "N", count, "P", DEPTH) if cached else None
        )
        if turns:
            first = self.size(past, 2, 0) if past else self.const(0, np.int64)
            last = self.op("Add", first, self.size(source, 1, 0))
            query, keys = self.turned(query, first, last), self.turned(keys, first, last)
        if past is not None:
            keys = self.op("Concat", past, keys, axis=2)
            values = self.op(
                "Concat",
                self.input("past_values", TensorProto.FLOAT, "N", count, "P", DEPTH),
                values,
                axis=2,
            )
            self.outputs |= {keys: 4, values: 4}
        if single:
            total = self.size(keys, 2)
            keys, values = self.repeated(keys, source, total), self.repeated(values, source, total)
        turned = self.op("Transpose", self.maybe_quantized(keys), perm=[0, 1, 3, 2])
        scores = self.op("MatMul", self.maybe_quantized(query), turned)
        scores = self.op(
            *(("Mul", scores, self.const(0.5)) if self.yes() else ("Div", scores, self.const(2.0)))
        )
        scores = self.masked(self.maybe_quantized(scores), source, past)
        weights = self.maybe_quantized(self.op("Softmax", scores, axis=-1))
        y = self.merged(self.op("MatMul", weights, self.maybe_quantized(values)), source)
        return self.linear(y, WIDTH, WIDTH)

    def block(self) -> None:
        """Positions, attention, residual adds, normalization, a layer behind."""
        source = self.input("x", TensorProto.FLOAT, "N", "S", WIDTH)
        x = source
        if self.yes(0.3):
            table = self.const(self.drawn(1, LONGEST, WIDTH))
            x = self.op(
                "Add", x, self.op("Slice", table, self.ints(0), self.size(source, 1), self.ints(1))
            )
        x = self.maybe_quantized(x)
        y = self.maybe_quantized(self.attended(x, source))
        y = self.op("Add", *([x, y] if self.yes() else [y, x]))
        if self.yes():
            scale, shift = self.const(1 + self.drawn(WIDTH)), self.const(self.drawn(WIDTH))
            y = self.op("LayerNormalization", y, scale, shift, axis=-1)
        if self.yes():
            inner = self.maybe_quantized(self.op("Relu", self.linear(y, WIDTH, 2 * WIDTH)))
            y = self.op("Add", self.linear(inner, 2 * WIDTH, WIDTH), y)
        self.outputs[self.maybe_quantized(y)] = 3

    # -- the model ---------------------------------------------------------------------------------

    def model(self, dims: Mapping[str, int | str | None]) -> onnx.ModelProto:
        """The model with these dimensions: a size, a name, or None where it has neither."""
        shapes = {
            name: [dims[d] if isinstance(d, str) else d for d in shape]
            for name, (_, shape) in self.inputs.items()
        }
        inputs = [
            helper.make_tensor_value_info(name, kind, shapes[name])
            for name, (kind, _) in self.inputs.items()
        ]
        outputs = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, [None] * rank)
            for name, rank in self.outputs.items()
        ]
        graph = helper.make_graph(self.nodes, "exported", inputs, outputs, self.constants)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
        made.ir_version = 10
        return made

    def feeds(self, sizes: Sizes, seed: int) -> dict[str, np.ndarray]:
        """Numbers on the grid of 1/32; the first key is seen by everyone."""
        rng = np.random.default_rng(seed)
        found: dict[str, np.ndarray] = {}
        for name, (kind, dims) in self.inputs.items():
            shape = tuple(sizes[d] if isinstance(d, str) else d for d in dims)
            if kind == TensorProto.INT64:
                found[name] = rng.integers(0, 2, shape)
                found[name][:, :1] = 1
            elif name == "mask":
                found[name] = np.where(rng.random(shape) < 0.3, np.float32(-1e4), np.float32(0))
                found[name][..., :1] = 0
            else:
                found[name] = (rng.integers(-64, 65, shape) / 32).astype(np.float32)
        return found

    def symbols(self) -> Sequence[str]:
        """The dimensions that inputs have."""
        return sorted({d for _, dims in self.inputs.values() for d in dims if isinstance(d, str)})


def exported(random: Random) -> Exported:
    """A random model."""
    made = Exported(random, random.choice([0.0, 0.5, 0.9]))
    made.block()
    return made
