"""Rules that rewrite a formula: small objects, each named by its equation.

A rule looks at two neighbours `(a, b)` of the chain (b behind a) and returns what replaces them, a
`Refusal` when its anchor matched but a guard failed, or None when it has nothing to say. `simplify`
applies the rules that always pay; `hoisting.py` moves scales and shifts to the front of the chain
by the others, where weights and bias take them for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ...ir.rule import Refusal
from .formula import (
    Add,
    BasicOp,
    BinaryOp,
    Clip,
    EltwiseOp,
    PreluOp,
    Round,
    ScaleBy,
    Shift,
    Vec,
    vec,
)

__all__ = [
    "COMMUTING",
    "SIMPLIFYING",
    "Rule",
    "does_nothing",
    "is_normal",
    "merged",
    "push",
    "simplify",
]

_SMALLEST = 2.0**-126  # the smallest normal f32; its reciprocal is an f32 too

Rewrite = Callable[[BasicOp, BasicOp], "tuple[BasicOp, ...] | Refusal | None"]


@dataclass(frozen=True)
class Rule:
    """One equation.

    Attributes:
        name: the equation itself.
        apply: the rewrite of two neighbours; its docstring says why it is legal and when it
            refuses.
        real: `identity` or `approximation` of real numbers.
        float: `bitwise`, `ties` or `ulp`: what holds in f32 when the constants are formed in f64
            and rounded once; see `Contract`.
    """

    name: str
    apply: Rewrite
    real: Literal["identity", "approximation"] = "identity"
    float: Literal["bitwise", "ties", "ulp"] = "ulp"


def _scale_scale(a: BasicOp, b: BasicOp) -> tuple[BasicOp, ...] | Refusal | None:
    """Two factors in a row are one.

    Legal because: multiplication is associative; A*C is formed in f64 and rounded once.
    Refuses when: f32 does not hold the product.
    """
    if isinstance(a, ScaleBy) and isinstance(b, ScaleBy):
        product = vec(a.values * b.values)
        return (ScaleBy(product),) if is_normal(product) else None
    return None


def is_normal(values: Vec) -> bool:
    """True when f32 holds every value, and its reciprocal, to full precision."""
    magnitude = np.abs(values)
    return bool(((magnitude >= _SMALLEST) & (magnitude <= 1 / _SMALLEST)).all())


def _shift_shift(a: BasicOp, b: BasicOp) -> tuple[BasicOp, ...] | Refusal | None:
    """Two shifts in a row are one.

    Legal because: addition is associative; A+C is formed in f64 and rounded once.
    Refuses when: never.
    """
    if isinstance(a, Shift) and isinstance(b, Shift):
        return (Shift(vec(a.values + b.values)),)
    return None


def _shift_scale(a: BasicOp, b: BasicOp) -> tuple[BasicOp, ...] | Refusal | None:
    """A factor moves in front of a shift, towards the weights.

    Legal because: multiplication distributes over addition.
    Refuses when: f32 does not hold a product.
    """
    if isinstance(a, Shift) and isinstance(b, ScaleBy):
        return _unless_beyond_f32(a.values * b.values, b)
    return None


def _unless_beyond_f32(shift: Vec, scale: ScaleBy) -> tuple[BasicOp, ...] | None:
    return (scale, Shift(vec(shift))) if bool((np.abs(shift) <= 1 / _SMALLEST).all()) else None


def _clip_clip(a: BasicOp, b: BasicOp) -> tuple[BasicOp, ...] | Refusal | None:
    """Two clips in a row are one.

    Legal because: clip is non-decreasing, so the outer bounds clip the inner ones; comparisons
    alone, no rounding.
    Refuses when: never.
    """
    if isinstance(a, Clip) and isinstance(b, Clip):
        return (Clip(vec(np.clip(a.low, b.low, b.high)), vec(np.clip(a.high, b.low, b.high))),)
    return None


def _relu_clip(a: BasicOp, b: BasicOp) -> tuple[BasicOp, ...] | Refusal | None:
    """A relu in front of a clip joins it.

    Legal because: relu is a clip to [0, inf).
    Refuses when: never; a leaky relu does not match.
    """
    if a == EltwiseOp("relu") and isinstance(b, Clip):
        return (Clip(vec(np.clip(0.0, b.low, b.high)), vec(np.clip(np.inf, b.low, b.high))),)
    return None


def _relu_relu(a: BasicOp, b: BasicOp) -> tuple[BasicOp, ...] | Refusal | None:
    """The second of two relus goes.

    Legal because: relu is idempotent.
    Refuses when: never; a leaky relu does not match.
    """
    return (a,) if isinstance(a, EltwiseOp) and a == EltwiseOp("relu") and a == b else None


def _round_round(a: BasicOp, b: BasicOp) -> tuple[BasicOp, ...] | Refusal | None:
    """The second of two roundings goes.

    Legal because: rounding leaves integers as they are.
    Refuses when: never.
    """
    return (a,) if isinstance(a, Round) and isinstance(b, Round) else None


def _clip_round(a: BasicOp, b: BasicOp) -> tuple[BasicOp, ...] | Refusal | None:
    """A clip moves behind a rounding, where bounds of the channels that round alike become one, and
    the store may take it.

    Legal because: rounding is non-decreasing; comparisons and rounding alone, nothing else rounds.
    Refuses when: a bound rounds to another integer once it is an f32, being so close to a tie.
    """
    if not (isinstance(a, Clip) and isinstance(b, Round)):
        return None
    low, high = np.rint(a.low), np.rint(a.high)
    kept = np.array_equal(low, np.rint(a.low.astype(np.float32))) and np.array_equal(
        high, np.rint(a.high.astype(np.float32))
    )
    return (b, Clip(vec(low), vec(high))) if kept else None


def _times_one(a: BasicOp, b: BasicOp) -> tuple[BasicOp, ...] | Refusal | None:
    """A factor of 1 goes.

    Legal because: x*1 is x, in f32 too.
    Refuses when: never; a factor for each channel goes when all are 1.
    """
    return (a,) if isinstance(b, ScaleBy) and bool((b.values == 1).all()) else None


def _plus_zero(a: BasicOp, b: BasicOp) -> tuple[BasicOp, ...] | Refusal | None:
    """A shift by 0 goes.

    Legal because: x+0 is x, in f32 too (-0 becomes 0, which no comparison tells).
    Refuses when: never; a shift for each channel goes when all are 0.
    """
    return (a,) if isinstance(b, Shift) and not b.values.any() else None


SIMPLIFYING: tuple[Rule, ...] = (
    Rule("x*1 = x", _times_one, float="bitwise"),
    Rule("x+0 = x", _plus_zero, float="bitwise"),
    Rule("x*A*C = x*(A*C)", _scale_scale),
    Rule("x+A+C = x+(A+C)", _shift_shift),
    Rule("(x+B)*C = x*C + B*C", _shift_scale),
    Rule("clip(clip(x,a,b),c,d) = clip(x,clip(a,c,d),clip(b,c,d))", _clip_clip, float="bitwise"),
    Rule("clip(relu(x),c,d) = clip(x,clip(0,c,d),d)", _relu_clip, float="bitwise"),
    Rule("relu(relu(x)) = relu(x)", _relu_relu, float="bitwise"),
    Rule("round(round(x)) = round(x)", _round_round, float="bitwise"),
    Rule("round(clip(x,a,b)) = clip(round(x),round(a),round(b))", _clip_round, float="bitwise"),
)


def merged(a: BasicOp, b: BasicOp) -> tuple[BasicOp, ...] | None:
    """What two neighbours become by the first simplifying rule that fires; None when none does."""
    for rule in SIMPLIFYING:
        found = rule.apply(a, b)
        if isinstance(found, tuple):
            return found
    return None


def does_nothing(op: BasicOp) -> bool:
    """True of a factor of 1 and a shift by 0, which go at the front, too, where nothing stands
    before them.
    """
    return _times_one(op, op) is not None or _plus_zero(op, op) is not None


def push(done: list[BasicOp], op: BasicOp) -> None:
    """Puts an operation behind a simplified chain, which stays one: the rules are applied until
    none fires.

    Terminates because every rule shortens the chain, or moves a scale one place forward past a
    shift, or a rounding past a clip.
    """
    pending = [op]
    while pending:
        op = pending.pop()
        if not done:
            if not does_nothing(op):
                done.append(op)
            continue
        found = merged(done[-1], op)
        if found is None:
            done.append(op)
        else:
            done.pop()
            pending.extend(reversed(found))


def simplify(ops: Sequence[BasicOp], behind: Sequence[BasicOp] = ()) -> list[BasicOp]:
    """Applies the simplifying rules until none fires; scales end up in front of shifts, at most one
    of each in a row.

    `behind`: a simplified chain in front of the operations.
    """
    done = list(behind)
    for op in ops:
        push(done, op)
    return done


# -- moving a scale or shift one place towards the front -------------------------------------------


def _relu_scale(a: BasicOp, b: BasicOp) -> tuple[BasicOp, ...] | Refusal | None:
    """A factor moves in front of relu, leaky or not.

    Legal because: s > 0 keeps the sign that relu tests. With s < 0 it would turn around: relu(x)*-1
    is not relu(-x).
    Refuses when: an s is not positive.
    """
    if isinstance(a, EltwiseOp) and a.algorithm == "relu" and isinstance(b, ScaleBy):
        return (b, a) if bool((b.values > 0).all()) else _needs_positive("relu(x)*s = relu(x*s)", b)
    return None


def _prelu_scale(a: BasicOp, b: BasicOp) -> tuple[BasicOp, ...] | Refusal | None:
    """A factor moves in front of prelu.

    Legal because: s > 0 keeps the sign that prelu tests, and the slope multiplies either way.
    Refuses when: an s is not positive.
    """
    if isinstance(a, PreluOp) and isinstance(b, ScaleBy):
        return (
            (b, a) if bool((b.values > 0).all()) else _needs_positive("prelu(x)*s = prelu(x*s)", b)
        )
    return None


def _clip_scale(a: BasicOp, b: BasicOp) -> tuple[BasicOp, ...] | Refusal | None:
    """A factor moves in front of a clip, whose bounds it multiplies.

    Legal because: multiplying by s > 0 keeps the order of value and bounds.
    Refuses when: an s is not positive.
    """
    if isinstance(a, Clip) and isinstance(b, ScaleBy):
        if not bool((b.values > 0).all()):
            return _needs_positive("clip(x,l,h)*s = clip(x*s,l*s,h*s)", b)
        return (b, Clip(vec(a.low * b.values), vec(a.high * b.values)))
    return None


def _sum_scale(a: BasicOp, b: BasicOp) -> tuple[BasicOp, ...] | Refusal | None:
    """A factor moves in front of a residual sum, into the sum's scale.

    Legal because: multiplication distributes over addition.
    Refuses when: there is one s for each channel: a sum has one scale.
    """
    if isinstance(a, Add) and isinstance(b, ScaleBy):
        if b.values.size != 1:
            return Refusal(
                "(x + k*dst)*s = x*s + k*s*dst needs one s",
                "one scale for the tensor",
                f"{b.values.size} scales",
            )
        return (
            b,
            Add(
                a.operand,
                a.dtype,
                a.scale * float(b.values[0]),
                a.zero_point,
                a.in_place,
                a.why_not,
            ),
        )
    return None


def _sum_shift(a: BasicOp, b: BasicOp) -> tuple[BasicOp, ...] | Refusal | None:
    """A shift moves in front of a residual sum.

    Legal because: addition commutes and is associative.
    Refuses when: never.
    """
    return (b, a) if isinstance(a, Add) and isinstance(b, Shift) else None


def _add_shift(a: BasicOp, b: BasicOp) -> tuple[BasicOp, ...] | Refusal | None:
    """A shift moves in front of a binary addition or subtraction of another tensor.

    Legal because: addition commutes and is associative.
    Refuses when: never.
    """
    return (
        (b, a)
        if isinstance(a, BinaryOp) and a.algorithm in ("add", "sub") and isinstance(b, Shift)
        else None
    )


def _operand_scale(a: BasicOp, b: BasicOp) -> tuple[BasicOp, ...] | Refusal | None:
    """A factor moves in front of a binary addition whose operand has a scale, into that scale.

    Legal because: multiplication distributes over addition.
    Refuses when: the operand has no scale (every target but `unified`), or there is one s for each
    channel.
    """
    if (
        isinstance(a, BinaryOp)
        and a.algorithm in ("add", "sub")
        and isinstance(b, ScaleBy)
        and a.scale != 1
    ):
        if b.values.size != 1:
            return Refusal(
                "(x + k*t)*s = x*s + k*s*t needs one s",
                "one scale for the tensor",
                f"{b.values.size} scales",
            )
        return (b, BinaryOp(a.algorithm, a.operand, a.scale * float(b.values[0])))
    return None


def _mul_scale(a: BasicOp, b: BasicOp) -> tuple[BasicOp, ...] | Refusal | None:
    """A factor moves in front of a binary multiplication or division by another tensor.

    Legal because: multiplication commutes and is associative.
    Refuses when: never.
    """
    return (
        (b, a)
        if isinstance(a, BinaryOp) and a.algorithm in ("mul", "div") and isinstance(b, ScaleBy)
        else None
    )


def _scale_shift(a: BasicOp, b: BasicOp) -> tuple[BasicOp, ...] | Refusal | None:
    """A shift moves in front of a factor.

    Legal because: (x + B/A)*A = x*A + B for A != 0.
    Refuses when: an A is 0, or f32 does not hold a quotient.
    """
    if isinstance(a, ScaleBy) and isinstance(b, Shift):
        if not bool(a.values.all()):
            return Refusal("x*A + B = (x + B/A)*A needs A != 0", "A != 0", "A = 0")
        moved = _unless_beyond_f32(b.values / a.values, a)
        return None if moved is None else (moved[1], a)
    return None


def _clip_shift(a: BasicOp, b: BasicOp) -> tuple[BasicOp, ...] | Refusal | None:
    """A shift moves in front of a clip, whose bounds it shifts.

    Legal because: adding the same to value and bounds keeps their order.
    Refuses when: never.
    """
    if isinstance(a, Clip) and isinstance(b, Shift):
        return (b, Clip(vec(a.low + b.values), vec(a.high + b.values)))
    return None


def _round_shift(a: BasicOp, b: BasicOp) -> tuple[BasicOp, ...] | Refusal | None:
    """A shift by an even integer moves in front of a rounding.

    Legal because: round half even of x + n is n more than that of x for even n; an odd n would turn
    ties the other way.
    Refuses when: a shift is not an even integer.
    """
    if isinstance(a, Round) and isinstance(b, Shift):
        if bool((b.values % 2 == 0).all()):
            return (b, a)
        return Refusal(
            "round(x) + n = round(x + n) needs even n",
            "even integers",
            f"{b.values[b.values % 2 != 0][0]:g}",
        )
    return None


def _needs_positive(name: str, scale: ScaleBy) -> Refusal:
    return Refusal(f"{name} needs s > 0", "s > 0", f"smallest s {scale.values.min():g}")


COMMUTING: tuple[Rule, ...] = (
    Rule("relu(x)*s = relu(x*s), s > 0", _relu_scale),
    Rule("prelu(x)*s = prelu(x*s), s > 0", _prelu_scale),
    Rule("clip(x,l,h)*s = clip(x*s,l*s,h*s), s > 0", _clip_scale),
    Rule("(x + k*(dst-z))*s = x*s + k*s*(dst-z)", _sum_scale),
    Rule("(x + k*(dst-z)) + b = (x + b) + k*(dst-z)", _sum_shift),
    Rule("(x + t) + b = (x + b) + t", _add_shift),
    Rule("(x + k*t)*s = x*s + k*s*t", _operand_scale),
    Rule("(x * t) * s = (x * s) * t", _mul_scale),
    Rule("clip(x,l,h) + b = clip(x+b,l+b,h+b)", _clip_shift),
    Rule("round(x) + n = round(x + n), n even", _round_shift, float="ties"),
    Rule("x*A + B = (x + B/A)*A", _scale_shift),
    Rule("(x+B)*C = x*C + B*C", _shift_scale),
)
