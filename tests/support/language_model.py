"""A small language model with rotary positions, grouped heads and a cache of keys and values, in
the operators that exporters write.

Batch, sequence and past are symbols, so one session serves the prompt and every token after it. All
values are drawn from a seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, TensorProto
from support.onnx_cases import model, node

WIDTH, HEADS, GROUPS, HEAD, HIDDEN, VOCABULARY = 32, 4, 2, 8, 48, 61
CACHES = ("past_key", "past_value")

Run = Callable[[Mapping[str, np.ndarray]], Sequence[np.ndarray]]


@dataclass
class LanguageModel:
    """Writes the model, in f32."""

    nodes: list[NodeProto] = field(default_factory=list)
    constants: dict[str, Any] = field(default_factory=dict)
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(7))

    def build(self) -> onnx.ModelProto:
        """ids int64 [batch, sequence], mask int64 [batch, total], the caches f32 [batch, 2, past,
        8] -> logits, and the caches grown."""
        x = self.op("Gather", self.normal("embedding", VOCABULARY, WIDTH), "ids", name="embedded")
        x = self.op("Add", x, self.attention(self.normed(x, "before_attention")), name="attended")
        x = self.op("Add", x, self.gated(self.normed(x, "before_gate")), name="passed")
        self.op(
            "Identity",
            self.linear(self.normed(x, "last"), "head", WIDTH, VOCABULARY),
            name="logits",
        )
        cache = ["batch", GROUPS, "past", HEAD]
        inputs = {"ids": ["batch", "sequence"], "mask": ["batch", "total"]} | dict.fromkeys(
            CACHES, cache
        )
        types = dict.fromkeys(("ids", "mask"), TensorProto.INT64)
        return model(
            self.nodes,
            inputs=inputs,
            outputs=["logits", "key", "value"],
            constants=self.constants,
            types=types,
        )

    # -- layers ------------------------------------------------------------------------------------

    def attention(self, x: str) -> str:
        past = self.op(
            "Gather", self.op("Shape", "past_key"), self.constant("two", np.int64(2)), name="past"
        )
        length = self.op(
            "Gather", self.op("Shape", "ids"), self.constant("one", np.int64(1)), name="length"
        )
        total = self.op("Add", past, length, name="total")
        positions = self.op("Range", past, total, "one", name="positions")
        cos, sin = self.rotary(positions)
        query = self.rotated(self.heads(x, "query", HEADS), cos, sin)
        key = self.op(
            "Concat",
            "past_key",
            self.rotated(self.heads(x, "key", GROUPS), cos, sin),
            name="key",
            axis=2,
        )
        value = self.op(
            "Concat", "past_value", self.heads(x, "value", GROUPS), name="value", axis=2
        )
        swapped = self.op("Transpose", self.repeated(key), perm=[0, 1, 3, 2])
        scores = self.op("MatMul", query, swapped)
        scaled = self.op("Mul", scores, self.constant("root", np.float32(HEAD**-0.5)))
        weights = self.op(
            "Softmax", self.op("Add", scaled, self.allowed(positions, total)), axis=-1
        )
        context = self.op("MatMul", weights, self.repeated(value))
        joined = self.op(
            "Reshape",
            self.op("Transpose", context, perm=[0, 2, 1, 3]),
            self.constant("joined", np.array([0, 0, WIDTH])),
        )
        return self.linear(joined, "output", WIDTH, WIDTH)

    def heads(self, x: str, name: str, count: int) -> str:
        """f32 [batch, count, sequence, 8]."""
        shape = self.constant(f"{name}_shape", np.array([0, 0, count, HEAD]))
        return self.op(
            "Transpose",
            self.op("Reshape", self.linear(x, name, WIDTH, count * HEAD), shape),
            perm=[0, 2, 1, 3],
        )

    def rotary(self, positions: str) -> tuple[str, str]:
        """Cosines and sines [1, 1, sequence, 8] of the positions' angles."""
        frequencies = self.constant(
            "frequencies",
            (100.0 ** -np.tile(np.arange(HEAD // 2) / (HEAD // 2), 2)).astype(np.float32),
        )
        column = self.op(
            "Unsqueeze",
            self.op("Cast", positions, to=TensorProto.FLOAT),
            self.constant("last_axis", np.array([1])),
        )
        angles = self.op(
            "Unsqueeze",
            self.op("Mul", column, frequencies),
            self.constant("front_axes", np.array([0, 1])),
        )
        return self.op("Cos", angles), self.op("Sin", angles)

    def rotated(self, x: str, cos: str, sin: str) -> str:
        """x cos + (-second half, first half) sin: Su et al. 2021 (arXiv:2104.09864) as the
        transformers library writes it.
        """
        zero, half, end, axis = (
            self.constant(f"at_{n}", np.array([n])) for n in (0, HEAD // 2, HEAD, 3)
        )
        first, second = self.op("Slice", x, zero, half, axis), self.op("Slice", x, half, end, axis)
        turned = self.op("Concat", self.op("Neg", second), first, axis=3)
        return self.op("Add", self.op("Mul", x, cos), self.op("Mul", turned, sin))

    def repeated(self, x: str) -> str:
        """Each group for each of its heads: [batch, 2, total, 8] -> [batch, 4, total, 8]."""
        sizes = self.op("Shape", x)
        batch, total = (
            self.op("Slice", sizes, *(self.constant(f"at_{n}", np.array([n])) for n in (a, a + 1)))
            for a in (0, 2)
        )
        known = {"groups": GROUPS, "copies": HEADS // GROUPS, "every": HEADS, "head": HEAD}
        groups, copies, every, head = (
            self.constant(name, np.array([n])) for name, n in known.items()
        )
        wide = self.op("Concat", batch, groups, copies, total, head, axis=0)
        spread = self.op(
            "Expand", self.op("Unsqueeze", x, self.constant("at_2", np.array([2]))), wide
        )
        return self.op("Reshape", spread, self.op("Concat", batch, every, total, head, axis=0))

    def allowed(self, positions: str, total: str) -> str:
        """0 where a token may look, -3.4e38 elsewhere, [batch, 1, sequence, total]: nothing that
        comes later, and no padding.
        """
        rows = self.op("Unsqueeze", positions, self.constant("last_axis", np.array([1])))
        past = self.op(
            "LessOrEqual", self.op("Range", self.constant("none", np.int64(0)), total, "one"), rows
        )
        real = self.op(
            "Unsqueeze",
            self.op("Cast", "mask", to=TensorProto.BOOL),
            self.constant("middle_axes", np.array([1, 2])),
        )
        lowest = self.constant("lowest", np.float32(np.finfo(np.float32).min))
        return self.op(
            "Where", self.op("And", past, real), self.constant("nothing", np.float32(0)), lowest
        )

    def gated(self, x: str) -> str:
        gate, up = self.linear(x, "gate", WIDTH, HIDDEN), self.linear(x, "up", WIDTH, HIDDEN)
        silu = self.op("Mul", gate, self.op("Sigmoid", gate))
        return self.linear(self.op("Mul", silu, up), "down", HIDDEN, WIDTH)

    def normed(self, x: str, name: str) -> str:
        mean = self.op(
            "ReduceMean",
            self.op("Pow", x, self.constant("square", np.float32(2))),
            self.constant("at_-1", np.array([-1])),
        )
        root = self.op("Sqrt", self.op("Add", mean, self.constant("epsilon", np.float32(1e-6))))
        return self.op("Mul", self.normal(f"{name}_weight", WIDTH), self.op("Div", x, root))

    def linear(self, x: str, name: str, rows: int, columns: int) -> str:
        return self.op("MatMul", x, self.normal(f"{name}_matrix", rows, columns, scale=rows**-0.5))

    # -- pieces ------------------------------------------------------------------------------------

    def op(self, op: str, *inputs: str, name: str = "", **attributes: Any) -> str:
        output = name or f"{op}_{len(self.nodes)}"
        self.nodes.append(node(op, inputs, [output], name=f"node_{output}", **attributes))
        return output

    def constant(self, name: str, value: Any) -> str:
        self.constants[name] = value
        return name

    def normal(self, name: str, *shape: int, scale: float = 1.0) -> str:
        return self.constant(name, self.rng.normal(size=shape, scale=scale).astype(np.float32))


def decode(
    run: Run, tokens: np.ndarray, prompt: int
) -> Iterator[tuple[Mapping[str, np.ndarray], Sequence[np.ndarray]]]:
    """Feeds and outputs of the prompt and of each token after it; the first token of the last row
    is padding.
    """
    batch = len(tokens)
    caches: Sequence[np.ndarray] = [np.zeros((batch, GROUPS, 0, HEAD), np.float32) for _ in CACHES]
    for end in range(prompt, tokens.shape[1] + 1):
        mask = np.ones((batch, end), np.int64)
        mask[1:, 0] = 0
        feeds = {
            "ids": tokens[:, caches[0].shape[2] : end],
            "mask": mask,
            **dict(zip(CACHES, caches, strict=True)),
        }
        outputs = run(feeds)
        yield feeds, outputs
        caches = outputs[1:]
