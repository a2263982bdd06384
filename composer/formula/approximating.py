"""Rules that change numbers, each by no more than a bound: applied only where a compilation is asked
for them by name.

A rule looks at the end of a chain and at the operation behind it, and says what replaces the end. What
is behind alone makes a quantizer one in the middle: a last one gives the values that the model wants.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ...ir.approximations import MIDDLE_ROUNDING, RESIDUAL_ROUNDING
from ...ir.rule import Refusal, Rule
from ...ir.telling import Told
from .exact_zeros import tells
from .formula import (
    Add,
    BasicOp,
    BinaryOp,
    ChainOp,
    Clip,
    CodesOp,
    EltwiseOp,
    Round,
    ScaleBy,
    Shift,
    Vec,
    vec,
)
from .writing import Written

ApproximatingRule = Rule[Callable[[Sequence[BasicOp], ChainOp], Written | Refusal | None]]


def _middle_rounding(chain: Sequence[BasicOp], behind: ChainOp) -> Written | Refusal | None:
    """A quantizer that the chain goes on behind does not round.

    Legal because: it was asked for. |round(x) - x| <= 1/2; neither a shift nor a clip makes two values
    differ by more, and a factor a makes |a| of it: at most half a step, |a|/2, for each rounding.
    Refuses when: what is behind tells a number from those next to it, such as a comparison: half a
    step would become any difference.
    """
    start = _first_rounding(chain)
    if start is None or isinstance(behind, ScaleBy | Shift):
        return None
    if isinstance(behind, CodesOp) or tells(behind) is Told.ANY:
        return Refusal(
            "half a step becomes any difference where a number is told from those next to it",
            "no comparison behind the quantizer",
            _name(behind),
            "nothing to change: the quantizer in front of it rounds, as the model says",
        )
    end = chain[start:]
    kept = tuple(op for op in end if not isinstance(op, Round))
    return Written(len(end), kept, _rounded_off(end))


def _residual_rounding(chain: Sequence[BasicOp], behind: ChainOp) -> Written | Refusal | None:
    """A quantizer in front of a residual addition neither rounds nor clips; where its range begins or
    ends at 0, it is a relu too, which stays.

    Legal because: it was asked for. Within the range the difference is half a step, |a|/2, as without
    the rounding alone; beyond it the clip made the bound of a value, so that they differ by how far it
    lies beyond, too.
    Refuses when: ranges begin or end at 0 in some channels only, or some are turned around there.
    """
    is_add = isinstance(behind, Add) or (
        isinstance(behind, BinaryOp) and behind.algorithm in ("add", "sub")
    )
    found = _quantizer(chain) if is_add else None
    if found is None:
        return None
    start, clip = found
    end = chain[start:]
    kept = tuple(op for op in end if op is not clip and not isinstance(op, Round))
    decode = [op for op in end[end.index(clip) + 1 :] if isinstance(op, ScaleBy | Shift)]
    low, high, turned = np.broadcast_arrays(
        *(_decoded(bound, decode) == 0 for bound in (clip.low, clip.high)), _slope(decode) < 0
    )
    mixed = any(each.any() and not each.all() for each in (low, high, turned))
    if mixed and (low | high).any():
        return Refusal(
            "a range that begins or ends at 0 is a relu, in every channel or in none",
            "ranges of one kind",
            "different ones",
            "calibrate the quantizer per tensor, or leave it: it rounds and clips, as the model says",
        )
    relu = _relu(below=bool(low.all()), above=bool(high.all()), turned=bool(turned.all()))
    return Written(len(end), (*kept, *relu), _rounded_off(end))


def _first_rounding(chain: Sequence[BasicOp]) -> int | None:
    """Where roundings to codes begin, behind which affine maps and clips alone follow."""
    first = None
    for place in range(len(chain) - 1, -1, -1):
        op = chain[place]
        if isinstance(op, Round) and op.to_codes:
            first = place
        elif not isinstance(op, ScaleBy | Shift | Clip):
            break
    return first


def _quantizer(chain: Sequence[BasicOp]) -> tuple[int, Clip] | None:
    """Where a quantizer begins, behind which affine maps alone follow, and its clip: next to its
    rounding, on either side.
    """
    start, place = _first_rounding(chain), len(chain) - 1
    while place >= 0 and isinstance(chain[place], ScaleBy | Shift):
        place -= 1
    if start is None or place < 1:
        return None
    last, before = chain[place], chain[place - 1]
    if isinstance(last, Clip) and isinstance(before, Round):
        return start, last
    if place == start and isinstance(before, Clip):
        return start - 1, before
    return None


def _decoded(values: Vec, affine: Sequence[BasicOp]) -> Vec:
    """Values behind affine maps; roundings and the clip among them leave a bound as it is."""
    for op in affine:
        values = values * op.values if isinstance(op, ScaleBy) else values
        values = values + op.values if isinstance(op, Shift) else values
    return values


def _slope(ops: Sequence[BasicOp]) -> Vec:
    """The product of all factors."""
    slope = vec(1.0)
    for op in ops:
        slope = slope * op.values if isinstance(op, ScaleBy) else slope
    return slope


def _rounded_off(ops: Sequence[BasicOp]) -> Vec:
    """The most that their roundings change: 1/2 each, times the factors behind it."""
    error = vec(0.0)
    for op in ops:
        if isinstance(op, Round):
            error = error + 0.5
        elif isinstance(op, ScaleBy):
            error = error * np.abs(op.values)
    return vec(error)


def _relu(*, below: bool, above: bool, turned: bool) -> tuple[BasicOp, ...]:
    """What stays of a clip whose bounds decode to 0, behind a factor that may have turned it."""
    if below and above:
        return (Clip(vec(0.0), vec(0.0)),)
    if not below and not above:
        return ()
    return (EltwiseOp("relu"),) if below is not turned else (Clip(vec(-np.inf), vec(0.0)),)


def _name(op: ChainOp) -> str:
    return op.algorithm if isinstance(op, EltwiseOp | BinaryOp | CodesOp) else "round"


UNROUNDED: ApproximatingRule = Rule(
    "f(clip(round(x),l,h)*a + b) ~= f(clip(x,l,h)*a + b)", _middle_rounding, real="approximation"
)

UNCLIPPED: ApproximatingRule = Rule(
    "clip(round(x),l,h)*a + b + t ~= x*a + b + t", _residual_rounding, real="approximation"
)

APPROXIMATING: Mapping[str, ApproximatingRule] = {
    RESIDUAL_ROUNDING: UNCLIPPED,
    MIDDLE_ROUNDING: UNROUNDED,
}
"""Name of the approximation -> its rule; of two that match the one that saves more is taken."""
