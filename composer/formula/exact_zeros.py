"""The order of a scale and a shift where what codes of 0 become must come out exactly.

Scales in front of shifts are the normal form of a chain, and one linear post-op. Rounding makes it
miss by a little what the model has there, 0 or the constant added to it, which hardly any operation
shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...ir.algorithms import BINARY, ELTWISE
from ...ir.rule import Refusal, Rule
from ...ir.telling import FAR, FAR_IN_CODES, Told
from .formula import BasicOp, BinaryOp, ChainOp, EltwiseOp, Round, ScaleBy, Shift, vec

_OF_A_TENSOR = 2.0**8
"""What a tensor may multiply by, as far as is known: by as many codes as there are."""


def tells(op: ChainOp) -> Told:
    """What an operation tells; codes that are compared, once they are written as basic operations."""
    if isinstance(op, Round):
        return Told.NOTHING if op.to_codes else Told.ANY
    if isinstance(op, EltwiseOp | BinaryOp):
        row = ELTWISE[op.algorithm] if isinstance(op, EltwiseOp) else BINARY[op.algorithm]
        return Told.ANY if row.jumps else Told.ZERO if row.tells_zero else Told.NOTHING
    return Told.NOTHING


def _exact_zero(
    a: BasicOp, b: BasicOp, told: Told = Told.ZERO, *, far: bool = False
) -> tuple[BasicOp, ...] | Refusal | None:
    """A shift behind a factor goes in front of it, as far as it is the zero point of codes; what
    was added to 0 stays behind.

    Legal because: (x - z)*A + V = x*A + (V - z*A). Codes decode so: (q - z)*A is 0 at q = z, and V
    behind it exactly that, where q*A + (V - z*A) rounds to either side of it: a root is NaN there,
    and the next lower integer another one.
    A number that the model takes off in front of a factor, (x - z)*A, is such a z: near it x - z is exact.
    Refuses when: z is no f32, or has more than 16 bits behind the point, which x - z could round,
    and is not far from 0, where z*A rounds by more; V is not 0, and nothing behind tells it from the
    numbers next to it.
    """
    if not (isinstance(a, ScaleBy) and isinstance(b, Shift)):
        return None
    moved, kept = b.parts
    if kept.any() and told is not Told.ANY:
        return Refusal(
            "x*A - z*A + V = (x - z)*A + V pays where V is told",
            "a V of 0",
            f"{kept[0]:g}",
            "nothing to change: no zero comes out there that would have to be exact",
        )
    zero = np.asarray(moved / a.values)
    with np.errstate(over="ignore"):
        nearest = zero.astype(np.float32).astype(np.float64)
        if not far:
            nearest = np.rint(nearest * 2.0**16) * 2.0**-16
    if bool((np.abs(zero - nearest) <= 2.0**-45 * np.abs(zero)).all()):
        first = replace(b, values=vec(nearest), added=None)
        return first, a, *([replace(first, values=kept)] if kept.any() else ())
    return Refusal(
        "x*A - z*A = (x - z)*A needs a z of 24 bits",
        "an f32, and a multiple of 2^-16",
        f"{-zero[0]:g}",
        "nothing to change: the shift is applied behind the factor, as the model has it",
    )


EXACT_ZERO = Rule("x*A - z*A + V = (x - z)*A + V, z of 24 bits", _exact_zero)


def exact_zeros(
    ops: Sequence[BasicOp],
    *,
    told: Told = Told.NOTHING,
    step: float | None = None,
    linear: bool = True,
) -> list[BasicOp]:
    """The chain with `EXACT_ZERO` applied where something behind tells what comes of codes of 0
    from what is next to it; and where the zero point is far from 0, as that of a mask down to -1e9
    is: what is small beside it would be lost.

    Args:
        ops: the chain.
        told: what is told behind the step. In front of a rounding to codes nothing is: it makes
            whole numbers of what is next to them.
        step: of the codes that the step stores; None: it stores f32.
        linear: one factor becomes x*A + 0, which is 0 of -0.
    """
    result = list(ops)
    positive = False  # something behind makes 0 of -0
    # what the scales behind multiply by, up to a rounding to codes
    gain, limit = (1.0, FAR) if step is None else (1.0 / abs(step), FAR_IN_CODES)
    for place in range(len(result) - 1, -1, -1):
        op = result[place]
        told = max(told, tells(op))
        adds = isinstance(op, Shift) or (isinstance(op, ScaleBy) and op.values.size == 1 and linear)
        positive = (positive or adds) and tells(op) is Told.NOTHING
        if isinstance(op, Round) and op.to_codes:
            if told is not Told.NOTHING and not positive:
                result.insert(place + 1, Shift(vec(0.0), of=op.of))  # codes of -0 decode to 0
            told, gain, limit = Told.NOTHING, 1.0, FAR_IN_CODES
        if isinstance(op, ScaleBy):
            gain *= float(np.abs(op.values).max())
        if isinstance(op, BinaryOp) and op.algorithm in ("mul", "div"):
            gain *= _OF_A_TENSOR
        if not isinstance(op, Shift):
            continue
        far = gain * np.abs(op.parts[0]).max() > limit
        if far or told is not Told.NOTHING:
            _apart(result, place, Told.ANY if far else told, far=bool(far))
    return result


def _apart(ops: list[BasicOp], place: int, told: Told, *, far: bool) -> None:
    """Replaces the shift at a place, and the factor in front of it, where `EXACT_ZERO` does."""
    shift, before = ops[place], ops[place - 1] if place else None
    assert isinstance(shift, Shift)
    if isinstance(before, ScaleBy):
        found = EXACT_ZERO.apply(before, shift, told, far=far)
        if isinstance(found, tuple):
            ops[place - 1 : place + 1] = found
    elif told is Told.ANY and shift.parts[1].any():  # the factor is 1
        ops[place : place + 1] = [Shift(values, of=shift.of) for values in shift.parts]
