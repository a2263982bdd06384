"""The normal form of a chain: affine maps, a scale in front of a shift, between what is not affine.

Composing affine maps is arithmetic, with f64 constants that are rounded to f32 once (`composed`).
What needs a guard is a rule: an object named by its equation, which looks at two neighbours `(a,
b)` of the chain, b behind a, and returns what replaces them, a `Refusal` when it matched but the
guard failed, or None when it has nothing to say. `SIMPLIFYING` always pays; `COMMUTING` moves a
scale or shift one place towards the front, where weights and bias take it for nothing
(`scale_propagation.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from ...ir.rule import Refusal, Rule, first_fired
from .formula import (
    SMALLEST_NORMAL,
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

_LOST = 2.0**-22
"""Of a number in f64, what f32 hardly tells: its own rounding and one more."""

Neighbours = tuple[BasicOp, ...]
Rewrite = Callable[[BasicOp, BasicOp], Neighbours | Refusal | None]


def is_normal(values: Vec) -> bool:
    """True when f32 holds every value, and its reciprocal, to full precision."""
    magnitude = np.abs(values)
    return bool(((magnitude >= SMALLEST_NORMAL) & (magnitude <= 1 / SMALLEST_NORMAL)).all())


def holds(values: Vec) -> bool:
    """True when f32 holds every value, zeros among them."""
    return bool((np.abs(values) <= 1 / SMALLEST_NORMAL).all())


_RELU = EltwiseOp("relu")


def as_clip(op: BasicOp) -> BasicOp:
    """A relu as the clip to [0, inf) that it is; anything else as it is."""
    return Clip(vec(0.0), vec(np.inf)) if isinstance(op, EltwiseOp) and op == _RELU else op


# -- arithmetic ------------------------------------------------------------------------------------


def _is_identity(op: BasicOp) -> bool:
    """True of a factor of 1 and a shift by 0 (-0 becomes 0 by it, which no comparison tells)."""
    if isinstance(op, ScaleBy):
        return bool((op.values == 1).all())
    return isinstance(op, Shift) and not op.values.any()


def composed(a: BasicOp, b: BasicOp) -> Neighbours | None:
    """Two affine maps in a row as one, a scale in front of a shift::

        x*1 = x, x+0 = x        x*A*C = x*(A*C)        x+A+C = x+(A+C)        (x+B)*C = x*C + B*C

    None where `b` is no affine map, or `a` is none and `b` not the identity; where f32 does not
    hold what comes out; and where a sum in f64 would lose what is added behind the first shift.
    """
    if _is_identity(b):
        return (a,)
    if isinstance(a, ScaleBy) and isinstance(b, ScaleBy):
        product = vec(a.values * b.values)
        return (ScaleBy(product),) if is_normal(product) else None
    if isinstance(a, Shift) and isinstance(b, Shift):
        both = a.then(b)
        first, behind = both.parts
        lost = np.abs(both.values - first - behind)
        return (both,) if bool((lost <= _LOST * np.abs(behind)).all()) else None
    return _distributed(a, b)


def _distributed(a: BasicOp, b: BasicOp) -> Neighbours | None:
    """(x+B)*C = x*C + B*C: the factor in front of the shift, where f32 holds the product."""
    if isinstance(a, Shift) and isinstance(b, ScaleBy) and holds(a.values * b.values):
        return b, a.scaled(b.values)
    return None


# -- simplifying -----------------------------------------------------------------------------------


def _clip_clip(a: BasicOp, b: BasicOp) -> Neighbours | None:
    """Two clips in a row are one; so are a relu and a clip.

    Legal because: clip is non-decreasing, so the outer bounds clip the inner ones; comparisons
    alone, no rounding. relu is a clip to [0, inf).
    Refuses when: never; a leaky relu does not match.
    """
    a = as_clip(a)
    if isinstance(a, Clip) and isinstance(b, Clip):
        return (Clip(vec(np.clip(a.low, b.low, b.high)), vec(np.clip(a.high, b.low, b.high))),)
    return None


def _same_again(a: BasicOp, b: BasicOp) -> Neighbours | None:
    """The second of two relus, or of two roundings, goes.

    Legal because: relu leaves what is not negative as it is, rounding integers.
    Refuses when: a quantizer rounds what the model rounded by itself: codes of -0 decode to +0. A
    leaky relu does not match.
    """
    if isinstance(a, Round) and isinstance(b, Round):
        return (a,) if a.to_codes or not b.to_codes else None
    return (a,) if a == b and a == EltwiseOp("relu") else None


def _clip_round(a: BasicOp, b: BasicOp) -> Neighbours | None:
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


SIMPLIFYING: tuple[Rule[Rewrite], ...] = (
    Rule("clip(clip(x,a,b),c,d) = clip(x,clip(a,c,d),clip(b,c,d))", _clip_clip, float="bitwise"),
    Rule("f(f(x)) = f(x), f = relu, round", _same_again, float="bitwise"),
    Rule("round(clip(x,a,b)) = clip(round(x),round(a),round(b))", _clip_round, float="bitwise"),
)


def merged(a: BasicOp, b: BasicOp) -> Neighbours | None:
    """What two neighbours become by arithmetic, or by the first simplifying rule that fires; None
    when nothing does.
    """
    found = _credited(composed(a, b) or first_fired(SIMPLIFYING, a, b), a, b)
    return None if isinstance(found, Refusal) else found


def _credited(
    found: Neighbours | Refusal | None, a: BasicOp, b: BasicOp
) -> Neighbours | Refusal | None:
    """What two neighbours become, with the parts whose work it does: one does that of both, where
    both do something; two have changed places.
    """
    if not isinstance(found, tuple):
        return found
    both = a.of if _is_identity(b) else a.of | b.of
    parts = (both,) if len(found) == 1 else (b.of, a.of)
    pairs = zip(found, parts, strict=True)
    return tuple(op if op.of == of else replace(op, of=of) for op, of in pairs)


def joined(done: list[BasicOp], op: BasicOp) -> Neighbours | None:
    """What an operation and the last one of a chain become, which leaves the chain; None when both
    stay.
    """
    if not done:
        return () if _is_identity(op) else None
    found = merged(done[-1], op)
    if found is not None:
        done.pop()
    return found


def simplify(ops: Sequence[BasicOp], behind: Sequence[BasicOp] = ()) -> list[BasicOp]:
    """Merges neighbours until none do; scales end up in front of shifts, at most one of each in a
    row.

    Terminates because merging shortens the chain, or moves a scale one place forward past a shift,
    or a rounding past a clip.

    `behind`: a simplified chain in front of the operations.
    """
    done, pending = list(behind), [*reversed(ops)]
    while pending:
        op = pending.pop()
        found = joined(done, op)
        if found is None:
            done.append(op)
        else:
            pending.extend(reversed(found))
    return done


# -- moving a scale or shift one place towards the front -------------------------------------------


def in_front(a: BasicOp, b: BasicOp) -> Neighbours | Refusal | None:
    """As `_in_front`, with the parts whose work each does."""
    return _credited(_in_front(a, b), a, b)


def _in_front(a: BasicOp, b: BasicOp) -> Neighbours | Refusal | None:
    """Two neighbours with the second, a scale or shift, in front; or why it stays, as far as a user
    could change that.

    Arithmetic, where addition or multiplication commutes and is associative::

        (x+B)*C = x*C + B*C                  (x + k*(dst-z)) + b = (x + b) + k*(dst-z)
        (x + t) + b = (x + b) + t            (x * t) * s = (x * s) * t
        clip(x,l,h) + b = clip(x+b,l+b,h+b)

    else by `COMMUTING`.
    """
    if isinstance(b, Shift):
        if isinstance(a, Clip):
            return b, Clip(vec(a.low + b.values), vec(a.high + b.values))
        if isinstance(a, Add) or (isinstance(a, BinaryOp) and a.algorithm in ("add", "sub")):
            return b, a
    if isinstance(b, ScaleBy) and isinstance(a, BinaryOp) and a.algorithm in ("mul", "div"):
        return b, a
    return _distributed(a, b) or first_fired(COMMUTING, a, b)


def _positive_scale(a: BasicOp, b: BasicOp) -> Neighbours | Refusal | None:
    """A factor moves in front of relu, leaky or not, of prelu, and of a clip, whose bounds it
    multiplies.

    Legal because: s > 0 keeps the sign that is tested, and the order of value and bounds. With s <
    0 it would turn around: relu(x)*-1 is not relu(-x).
    Refuses when: an s is not positive.
    """
    if not isinstance(b, ScaleBy):
        return None
    if isinstance(a, Clip):
        equation = "clip(x,l,h)*s = clip(x*s,l*s,h*s)"
    elif isinstance(a, PreluOp):
        equation = "prelu(x)*s = prelu(x*s)"
    elif isinstance(a, EltwiseOp) and a.algorithm == "relu":
        equation = "relu(x)*s = relu(x*s)"
    else:
        return None
    if not bool((b.values > 0).all()):
        return Refusal(
            f"{equation} needs s > 0",
            "s > 0",
            f"smallest s {b.values.min():g}",
            "nothing to change: behind a factor that is not positive the operation is a post-op of its own",
        )
    return b, Clip(vec(a.low * b.values), vec(a.high * b.values)) if isinstance(a, Clip) else a


def _operand_scale(a: BasicOp, b: BasicOp) -> Neighbours | Refusal | None:
    """A factor moves in front of a residual sum, and of a binary addition whose operand has a
    scale, into the scale of the operand.

    Legal because: multiplication distributes over addition.
    Refuses when: there is one s for each channel, and a sum, which has one scale, or an operand that
    is broadcast along the channels. (The operand of a binary has none on every target but `unified`.)
    """
    if isinstance(a, Add):
        equation = "(x + k*dst)*s = x*s + k*s*dst"
    elif isinstance(a, BinaryOp) and a.algorithm in ("add", "sub") and a.scale != 1:
        equation = "(x + k*t)*s = x*s + k*s*t"
    else:
        return None
    if not isinstance(b, ScaleBy):
        return None
    if isinstance(a, BinaryOp) and (a.channels or b.values.size == 1):
        return b, a.scaled(b.values)
    if b.values.size != 1:
        many = f"{b.values.size} scales"
        return Refusal(
            f"{equation} needs one s",
            "one scale for the tensor",
            many,
            "quantize per tensor, or leave it: a post-op multiplies by one factor for each channel",
        )
    assert isinstance(a, Add)
    return b, replace(a, scale=a.scale * float(b.values[0]))


def _even_shift(a: BasicOp, b: BasicOp) -> Neighbours | Refusal | None:
    """A shift by an even integer moves in front of a rounding.

    Legal because: round half even of x + n is n more than that of x for even n; an odd n would turn
    ties the other way.
    Refuses when: a shift is not an even integer.
    """
    if not (isinstance(a, Round) and isinstance(b, Shift)):
        return None
    odd = b.values[b.values % 2 != 0]
    if odd.size:
        return Refusal(
            "round(x) + n = round(x + n) needs even n",
            "even integers",
            f"{odd[0]:g}",
            "nothing to change: an odd shift moves ties, and stays behind the rounding",
        )
    return b, a


def _shift_before_scale(a: BasicOp, b: BasicOp) -> Neighbours | Refusal | None:
    """A shift moves in front of a factor.

    Legal because: (x + B/A)*A = x*A + B for A != 0.
    Refuses when: an A is 0, or f32 does not hold a quotient to full precision.
    """
    if not (isinstance(a, ScaleBy) and isinstance(b, Shift)):
        return None
    if not bool(a.values.all()):
        return Refusal(
            "x*A + B = (x + B/A)*A needs A != 0",
            "A != 0",
            "A = 0",
            "nothing to change: a factor of 0 leaves the shift alone, which stays where it is",
        )
    quotient = vec(b.values / a.values)
    return (Shift(quotient), a) if is_normal(quotient[quotient != 0]) else None


COMMUTING: tuple[Rule[Rewrite], ...] = (
    Rule("f(x)*s = f(x*s), f = relu, prelu, clip, s > 0", _positive_scale),
    Rule("(x + k*t)*s = x*s + k*s*t", _operand_scale),
    Rule("round(x) + n = round(x + n), n even", _even_shift, float="ties"),
    Rule("x*A + B = (x + B/A)*A", _shift_before_scale),
)
