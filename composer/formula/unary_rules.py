"""Rules for operations of one operand: halves of quantizers, negations, powers, clips and prelus,
as operations of the chain.

The first rule of `UNARY` that fires is taken. Elementwise functions that oneDNN has by the same
definition need no rule: `chain.py` has the table of their names and parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...ir.rule import Equation, Refusal
from .formula import ChainOp, Clip, EltwiseOp, PreluOp, Round, ScaleBy, Shift, Store, Vec, vec

__all__ = [
    "UNARY",
    "Bounds",
    "Decoding",
    "Negation",
    "Power",
    "RoundedFirst",
    "Slopes",
    "Unary",
    "UnaryRule",
    "written_alone",
]


@dataclass(frozen=True)
class Negation:
    """-x."""


@dataclass(frozen=True)
class Power:
    """x ** exponent."""

    exponent: float


@dataclass(frozen=True)
class Bounds:
    """min(max(x, low), high)."""

    low: float
    high: float


@dataclass(frozen=True, eq=False)
class Slopes:
    """x where x >= 0, else values * x; `operand` files them as a constant of the step, `mask`
    selects their dimension.
    """

    values: Vec
    operand: Callable[[], str]
    mask: int


@dataclass(frozen=True, eq=False)
class Decoding:
    """(x - zero_point) * scale."""

    scale: Vec
    zero_point: Vec


@dataclass(frozen=True, eq=False)
class RoundedFirst:
    """clip(round(x / scale) + zero_point, low, high): the store's parameters, with the zero point
    added behind the rounding.
    """

    store: Store


Unary = Negation | Power | Bounds | Slopes | Decoding | RoundedFirst


class UnaryRule(Equation[Callable[[Unary], "tuple[ChainOp, ...] | Refusal | None"]]):
    """One equation about an operation on the chain x alone."""


def written_alone(op: Unary) -> tuple[ChainOp, ...]:
    """What the first rule that fires makes of an operation; the last one of each kind does not
    refuse.
    """
    return next(found for rule in UNARY if isinstance(found := rule.apply(op), tuple))


def _negation(op: Unary) -> tuple[ChainOp, ...] | Refusal | None:
    """A negation is a factor.

    Legal because: -x = x*(-1), in f32 too.
    Refuses when: never.
    """
    return (ScaleBy(vec(-1.0)),) if isinstance(op, Negation) else None


def _square(op: Unary) -> tuple[ChainOp, ...] | Refusal | None:
    """The second power is a square.

    Legal because: x^2 = x*x, which is eltwise_square's definition.
    Refuses when: the exponent is another.
    """
    if not isinstance(op, Power):
        return None
    if op.exponent != 2:
        return Refusal(
            "x^2 = square(x) is about the second power", "exponent 2", f"{op.exponent:g}"
        )
    return (EltwiseOp("square"),)


def _power(op: Unary) -> tuple[ChainOp, ...] | Refusal | None:
    """A power with one constant exponent is an eltwise.

    Legal because: pow(x, a, p) = a*x^p is eltwise_pow's definition.
    Refuses when: never.
    """
    return (EltwiseOp("pow", 1.0, op.exponent),) if isinstance(op, Power) else None


def _ordered_bounds(op: Unary) -> tuple[ChainOp, ...] | Refusal | None:
    """A clip whose bounds are in the wrong order gives the upper one.

    Legal because: min(max(x, l), h) = h for l >= h; comparisons alone, no rounding.
    Refuses when: never.
    """
    return (Clip(vec(min(op.low, op.high)), vec(op.high)),) if isinstance(op, Bounds) else None


def _one_slope(op: Unary) -> tuple[ChainOp, ...] | Refusal | None:
    """A prelu with one slope is a leaky relu.

    Legal because: it is relu's definition, whose alpha is the slope.
    Refuses when: there is one slope for each channel.
    """
    if not isinstance(op, Slopes):
        return None
    if op.values.size != 1:
        return Refusal(
            "prelu(x, a) = relu(x, a) needs one slope", "one for the tensor", "one for each channel"
        )
    return (EltwiseOp("relu", float(op.values[0])),)


def _slopes(op: Unary) -> tuple[ChainOp, ...] | Refusal | None:
    """A prelu with a slope for each channel names the constant that they are filed as.

    Legal because: the constant has the destination's rank, and 1 where it is broadcast.
    Refuses when: never.
    """
    return (PreluOp(op.operand(), op.mask),) if isinstance(op, Slopes) else None


def _decoding(op: Unary) -> tuple[ChainOp, ...] | Refusal | None:
    """Codes are decoded by a shift and a factor behind it, each with a home of its own.

    Legal because: (q - z)*s = (q + (-z))*s, in f32 too.
    Refuses when: never.
    """
    return (Shift(-op.zero_point), ScaleBy(op.scale)) if isinstance(op, Decoding) else None


def _rounded_first(op: Unary) -> tuple[ChainOp, ...] | Refusal | None:
    """A quantizer that adds an odd zero point behind its rounding rounds in front of the store,
    which has no scale then.

    Legal because: the store adds z to whole numbers, which it need not round again.
    Refuses when: all zero points are even: round(x/s) + z = round(x/s + z) is a store.
    """
    if not isinstance(op, RoundedFirst):
        return None
    end = op.store
    if not (end.zero_point % 2).any():
        return Refusal(
            "round(x/s) + z = round(x/s + z) for even z",
            "an odd zero point",
            f"{end.zero_point[0]:g}",
        )
    return (
        ScaleBy(vec(1.0 / end.scale)),
        Round(),
        Store(end.dtype, vec(1.0), end.zero_point, end.low, end.high),
    )


def _rounded_once(op: Unary) -> tuple[ChainOp, ...] | Refusal | None:
    """A quantizer that adds an even zero point behind its rounding is a store.

    Legal because: round half even of x + n is n more than that of x for even n.
    Refuses when: a zero point is not even: ties would part.
    """
    if not isinstance(op, RoundedFirst):
        return None
    odd = op.store.zero_point[op.store.zero_point % 2 != 0]
    if odd.size:
        return Refusal(
            "round(x/s) + z = round(x/s + z) needs an even z", "even integers", f"{odd[0]:g}"
        )
    return (op.store,)


UNARY: tuple[UnaryRule, ...] = (
    UnaryRule("(q-z)*s = (q + (-z))*s", _decoding, float="bitwise"),
    UnaryRule("-x = x*(-1)", _negation, float="bitwise"),
    UnaryRule("x^2 = square(x)", _square),
    UnaryRule("x^p = pow(x, 1, p)", _power),
    UnaryRule("min(max(x, l), h) = clip(x, min(l, h), h)", _ordered_bounds, float="bitwise"),
    UnaryRule("prelu(x, a) = relu(x, a)", _one_slope),
    UnaryRule("prelu(x, [a, ...]) = prelu(x, t), t = [a, ...]", _slopes),
    UnaryRule("round(x/s) + z = store(x, s, z), z even", _rounded_once, float="ties"),
    UnaryRule("round(x/s) + z = store(round(x*(1/s)), 1, z), z odd", _rounded_first, float="ties"),
)
