"""Hypothesis draws the operations of a chain: every unary and binary operation of oneDNN's post-op
set, prelu and FakeQuantize.

A link appends operations to a chain and says how many post-ops they are when each is written out by
itself, with nothing folded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from hypothesis import strategies as st
from laws.build import Net, Value
from laws.drafts import factors, scales, shifts

from fqfuse.ir.types import DType, Quantization

DIVISOR = "divisor"
"""Inputs of such names are divided by: they are fed numbers away from 0."""

rational_scales = scales | st.sampled_from(
    [1.0, 2.0, 0.25, 0.75, 3 / 8, 1 / 3, 1 / 6, 5 / 16, 1 / 255]
)
"""Powers of two, halves and small rational numbers, beside some that are neither."""

_pattern = st.lists(factors, min_size=2, max_size=3)


@dataclass
class ChainDraft:
    """A chain in the making.

    Attributes:
        draw, net: what draws, and the graph.
        value: the end of the chain so far.
        axis: the axis of its channels.
        expansion: how many post-ops the operations behind the anchor are, each written out by
            itself.
        skips: how many other operands a primitive of their own computes.
    """

    draw: st.DrawFn
    net: Net
    value: Value
    axis: int
    expansion: int = 0
    skips: int = field(default=0)

    @property
    def shape(self) -> tuple[int | str, ...]:
        shape = self.net.graph.type(self.value).shape
        assert shape is not None
        return shape

    @property
    def channels(self) -> int:
        return int(self.shape[self.axis])

    def coin(self, one_in: int = 2) -> bool:
        return self.draw(st.integers(0, one_in - 1)) == 0

    def along(self, values: np.ndarray | list[float]) -> np.ndarray:
        """One entry for each channel: the values, repeated as needed, in the rank of the chain."""
        return np.resize(np.asarray(values), self.channels).reshape(
            [-1 if axis == self.axis else 1 for axis in range(len(self.shape))]
        )

    def vector(self, entries: st.SearchStrategy[float]) -> np.ndarray:
        """One number, or one for each channel."""
        return (
            np.asarray(self.draw(entries))
            if self.coin()
            else self.along(self.draw(st.lists(entries, min_size=2, max_size=3)))
        )

    def apply(
        self,
        op: str,
        *others: Value | np.ndarray | float,
        turned: bool = False,
        post_ops: int = 1,
        **attrs: object,
    ) -> None:
        """Appends an operation; `turned`: the chain is its second operand."""
        operands = [*others, self.value] if turned else [self.value, *others]
        self.value = self.net.op(op, *operands, **attrs)
        self.expansion += post_ops


# -- one operand -----------------------------------------------------------------------------------

_UNARY: list[tuple[str, dict[str, object]]] = [
    *[("Relu", {})] * 3,
    ("LeakyRelu", {"alpha": 0.125}),
    ("LeakyRelu", {"alpha": -0.5}),
    ("Elu", {"alpha": 0.75}),
    ("Sigmoid", {}),
    ("Tanh", {}),
    ("Softplus", {}),
    ("Gelu", {}),
    ("Gelu", {"approximate": "tanh"}),
    ("Swish", {"alpha": 1.0}),
    ("Swish", {"alpha": 1.702}),
    ("HardSigmoid", {"alpha": 0.25, "beta": 0.5}),
    ("HardSwish", {}),
    ("Mish", {}),
    ("Abs", {}),
    ("Neg", {}),
    ("Round", {}),
]


def _unary(c: ChainDraft) -> None:
    op, attrs = c.draw(st.sampled_from(_UNARY))
    c.apply(op, **attrs)


def _guarded(c: ChainDraft) -> None:
    """A function with a domain, or one that grows fast, behind what keeps its argument in
    bounds.
    """
    kind = c.draw(st.sampled_from(["Exp", "Log", "Sqrt", "square", "cube", "root", "reciprocal"]))
    if kind == "Exp":
        c.apply("Min", c.draw(st.sampled_from([4.0, 2.5]))) if c.coin() else c.apply(
            "Clip", -8.0, 3.0
        )
        c.apply("Exp")
    elif kind == "Sqrt":
        c.apply(c.draw(st.sampled_from(["Relu", "Abs", "Sigmoid"])))
        c.apply("Sqrt")
    elif kind in ("square", "cube"):
        c.apply("Clip", -20.0, c.draw(st.sampled_from([20.0, 6.0])))
        c.apply("Pow", 2.0 if kind == "square" else 3.0)
    else:
        c.apply("Max", 0.25) if c.coin() else c.apply("Clip", 0.5, 8.0)
        if kind == "Log":
            c.apply("Log")
        else:
            c.apply("Pow", 0.5 if kind == "root" else -1.0)


def _clip(c: ChainDraft) -> None:
    low = c.draw(st.sampled_from([0.0, -1.0, 0.5]))
    c.apply("Clip", low, low + c.draw(st.sampled_from([1.0, 6.0, 0.25])))


def _with_itself(c: ChainDraft) -> None:
    """x + x, or x * x of a bounded x."""
    if c.coin():
        c.apply("Add", c.value)
    else:
        c.apply("Clip", -16.0, 16.0)
        c.apply("Mul", c.value)


def _prelu(c: ChainDraft) -> None:
    c.apply("PRelu", c.vector(factors))


# -- two operands ----------------------------------------------------------------------------------


def _constant(c: ChainDraft) -> None:
    op = c.draw(st.sampled_from(["Add", "Sub", "Mul", "Mul", "Div", "Max", "Min"]))
    constant = c.vector(factors if op in ("Mul", "Div") else shifts)
    turned = op != "Div" and c.coin()
    c.apply(op, constant, turned=turned, post_ops=2 if turned and op == "Sub" else 1)


def _divided(c: ChainDraft) -> None:
    """A constant over the chain, which is kept away from 0."""
    c.apply("Max", c.draw(st.sampled_from([0.25, 0.5])))
    c.apply("Div", c.vector(factors), turned=True, post_ops=2)


def _zero(c: ChainDraft) -> None:
    """A factor of 0: a dead channel."""
    c.apply("Mul", c.along([0.0, *c.draw(_pattern)]) if c.coin() else np.asarray(0.0))


def _operand(c: ChainDraft, name: str = "") -> tuple[Value, int]:
    """Another tensor of the chain's shape, or one that broadcasts to it, and how many post-ops
    decode it inside the chain.
    """
    per_channel = tuple(size if axis == c.axis else 1 for axis, size in enumerate(c.shape))
    shape = c.draw(st.sampled_from([c.shape, c.shape, per_channel, (1,) * len(c.shape)]))
    label = f"{name}{len(c.net.graph.inputs)}" if name else ""
    if c.coin():
        return c.net.input(shape, label), 0
    dtype, zero = (
        c.draw(st.sampled_from([DType.U8, DType.S8])),
        0 if name == DIVISOR else c.draw(st.sampled_from([0, 0, 7, 100])),
    )
    return c.net.dq(c.net.input(shape, label, dtype, Quantization.of(_near(c, zero), zero))), 2


def _near(c: ChainDraft, zero: int) -> float:
    """A scale of an operand that is decoded inside the chain: its zero point is not far from 0 (see
    `ir.telling.zero_is_far`).
    """
    return c.draw(rational_scales.filter(lambda scale: scale * zero <= 16))


def _sum(c: ChainDraft) -> None:
    operand, decoding = _operand(c)
    op, turned = c.draw(st.sampled_from(["Add", "Add", "Sub"])), c.coin(3)
    c.apply(op, operand, turned=turned, post_ops=1 + decoding + (turned and op == "Sub"))


def _product(c: ChainDraft) -> None:
    """By another tensor. No attribute decodes a factor with a zero point: that would multiply the
    chain twice.
    """
    symmetric = c.net.dq(
        c.net.input(c.shape, dtype=DType.S8, quant=Quantization.of(c.draw(rational_scales), 0))
    )
    operand, decoding = (symmetric, 1) if c.coin() else (c.net.input(c.shape), 0)
    c.apply("Mul", operand, turned=c.coin(3), post_ops=1 + decoding)


def _quotient(c: ChainDraft) -> None:
    operand, decoding = _operand(c, DIVISOR)
    c.apply("Div", operand, post_ops=1 + min(decoding, 1))


def _largest(c: ChainDraft) -> None:
    operand, decoding = _operand(c)
    c.apply(
        c.draw(st.sampled_from(["Max", "Min"])), operand, turned=c.coin(3), post_ops=1 + decoding
    )


def _compared(c: ChainDraft) -> None:
    """A comparison, as 0 and 1 in f32."""
    op = c.draw(st.sampled_from(["Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Equal"]))
    operand: Value | np.ndarray
    operand, decoding = (c.vector(shifts), 0) if c.coin() else _operand(c)
    c.apply(op, operand, turned=c.coin(3), post_ops=1 + min(decoding, 1))
    c.apply("Cast", to=DType.F32, post_ops=0)


def _skip(c: ChainDraft) -> None:
    """A residual whose buffer dies at the add: codes, or f32, that a primitive of their own
    computes.
    """
    x = c.net.op("Relu", c.net.input(c.shape))
    if c.coin():
        zero = c.draw(st.sampled_from([0, 3, 128]))
        x = c.net.qdq(x, _near(c, zero), zero, DType.U8)
    c.skips += 1
    c.apply("Add", x, turned=c.coin(3), post_ops=3)


# -- FakeQuantize ----------------------------------------------------------------------------------


def _fake_quantize(c: ChainDraft) -> None:
    levels = c.draw(st.sampled_from([256, 256, 255, 16, 15, 4, 3, 2]) | st.integers(2, 256))
    scale, zero = c.draw(rational_scales), c.draw(st.integers(0, levels - 1))
    low, high = -zero * scale, (levels - 1 - zero) * scale
    kind = c.draw(st.integers(0, 9))
    if kind < 2:  # per-channel ranges
        spread = c.along(c.draw(st.lists(st.sampled_from([1.0, 2.0, 0.5]), min_size=2, max_size=3)))
        ranges, post_ops = (low * spread, high * spread), 6
    elif kind < 4:  # another output range
        ranges, post_ops = (
            (low, high, -1.0, c.draw(st.sampled_from([3.0, -1.0, 0.25, levels - 2.0]))),
            4,
        )
    elif kind == 4:  # inverted
        ranges, post_ops = (high, low, low, high), 8
    elif kind == 5:  # a threshold
        at = c.draw(shifts)
        ranges, post_ops = (at, at, 0.0, 1.0), 4
    elif kind == 6:  # a shift too small to matter
        ranges, post_ops = (low + 1e-7 * scale, high + 1e-7 * scale), 4
    elif kind == 7:  # zero points that are no integers
        ranges, post_ops = (-(levels - 1) * scale / 2, (levels - 1) * scale / 2), 4
    else:
        ranges, post_ops = (low, high), 4
    c.value = c.net.fq(c.value, *ranges, levels=levels)
    c.expansion += post_ops


LINKS: tuple[Callable[[ChainDraft], None], ...] = (
    *(_unary,) * 7,
    *(_guarded,) * 3,
    *(_constant,) * 5,
    *(_fake_quantize,) * 4,
    *(_sum,) * 2,
    *(
        _clip,
        _with_itself,
        _prelu,
        _divided,
        _zero,
        _product,
        _quotient,
        _largest,
        _compared,
        _skip,
    ),
)
