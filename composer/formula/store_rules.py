"""Rules at the end of a chain: what a store into 8 bits does anyway, nothing in front of it must
do; and what a store cannot do goes in front of it.

A rule of `STORING` looks at the last operation and the store behind it, and says whether the
operation may go, why not (a `Refusal`), or nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from ...ir.rule import Refusal, Rule, first_fired
from .algebra import as_clip, is_normal
from .formula import BasicOp, Clip, Round, ScaleBy, Shift, Store, vec


def written_out(store: Store) -> list[BasicOp]:
    """clip(round(x*(1/s) + z), l, h): a store that the chain goes on behind. Codes that are known to
    be codes already need no rounding and no clip.
    """
    affine = scale_apart(store)[0], Shift(store.zero_point)
    if store.exact:
        return [*affine]
    return [*affine, Round(), Clip(vec(float(store.low)), vec(float(store.high)))]


def scale_apart(store: Store) -> tuple[ScaleBy, Store]:
    """store(x, s, z) = store(x*(1/s), 1, z): a factor for a destination without a scale."""
    return ScaleBy(vec(1.0 / store.scale)), replace(store, scale=vec(1.0))


def zero_point_apart(store: Store) -> tuple[Shift, Store]:
    """store(x, s, z) = store(x + z*s, s, 0): a shift in front of the scale, towards the bias."""
    return Shift(vec(store.zero_point * store.scale)), replace(store, zero_point=vec(0.0))


def with_factor(factor: BasicOp | None, store: Store) -> Store | None:
    """store(x*A, s) = store(x, s/A) for one A and one s; None for others, and where f32 does not
    hold s/A.
    """
    if not isinstance(factor, ScaleBy) or max(factor.values.size, store.scale.size) > 1:
        return None
    quotient = store.scale / factor.values
    return replace(store, scale=vec(quotient)) if is_normal(quotient) else None


def _needs_positive(equation: str, store: Store) -> Refusal | None:
    if bool((store.scale > 0).all()):
        return None
    return Refusal(
        f"{equation} needs s > 0",
        "s > 0",
        f"smallest s {store.scale.min():g}",
        "nothing to change: behind a scale that is not positive the operation is a post-op of its own",
    )


def _narrow_store(store: Store) -> tuple[Clip, Store] | Refusal:
    """A store that keeps to fewer codes than its type has becomes a clip and a store of all codes.

    Legal because: quantization is non-decreasing for s > 0, so that it clips alike in front and
    behind.
    Refuses when: a scale is not positive: a NaN, which is the lowest code, would become the
    highest.
    """
    ends = (vec((end - store.zero_point) * store.scale) for end in (store.low, store.high))
    low, high = store.dtype.range
    refusal = _needs_positive("a clip in front of the store", store)
    return refusal or (Clip(*ends), replace(store, low=low, high=high))


NARROW_STORE = Rule(
    "store(x, l, h) = store(clip(x, (l-z)*s, (h-z)*s)), s > 0", _narrow_store, float="bitwise"
)


def _store_clip(last: BasicOp, store: Store) -> Literal[True] | Refusal | None:
    """A clip whose bounds get the first and the last code, or lie beyond, goes; so does a relu
    whose 0 has the lowest code, or lies below it.

    Legal because: quantization is non-decreasing, so what lies beyond a bound gets the bound's code
    with or without the clip. In f32 a bound beside a tie may get the next code. relu is a clip to
    [0, inf).
    Refuses when: a bound's code lies inside (255 levels into s8 clip at -127, the store at -128),
    or a scale is not positive; a leaky relu does not match.
    """
    clip = as_clip(last)
    if not isinstance(clip, Clip):
        return None
    refusal = _needs_positive("store(clip(x,l,h)) = store(x)", store)
    if refusal is not None:
        return refusal
    zero = store.zero_point
    with np.errstate(invalid="ignore"):  # the zero point as it is, and as the store adds it
        zeros = (zero, zero.astype(np.float32))
        first = np.maximum(*(np.rint(clip.low / store.scale + zero) for zero in zeros))
        last_code = np.minimum(*(np.rint(clip.high / store.scale + zero) for zero in zeros))
    if bool((first <= store.low).all()) and bool((last_code >= store.high).all()):
        return True
    return Refusal(
        "store(clip(x,l,h)) = store(x) needs bounds whose codes are the store's ends, or beyond",
        f"codes {store.low} and {store.high}",
        f"{first.max():g} and {last_code.min():g}",
        "calibrate the quantizer behind the clip to the clip's own range",
    )


def _store_round(last: BasicOp, store: Store) -> Literal[True] | Refusal | None:
    """A rounding in front of a store that rounds to the same grid goes.

    Legal because: rounding twice is rounding once, and round(x) + z = round(x + z) for even z; for
    odd z ties would part.
    Refuses when: the store has a scale, or a zero point that is not an even integer.
    """
    if not isinstance(last, Round):
        return None
    if bool((store.scale == 1).all()) and bool((store.zero_point % 2 == 0).all()):
        return True
    found = f"scale {store.scale[0]:g}, zero point {store.zero_point[0]:g}"
    return Refusal(
        "store(round(x)) = store(x) needs s = 1 and an even z",
        "scale 1, even zero point",
        found,
        "nothing to change: the values are rounded once more, as the model says",
    )


STORING: tuple[Rule[Callable[[BasicOp, Store], Literal[True] | Refusal | None]], ...] = (
    Rule("store(clip(x,l,h)) = store(x), l and h at its ends or beyond", _store_clip, float="ties"),
    Rule("store(round(x)) = store(x), s = 1, z even", _store_round, float="ties"),
)


def absorb(ops: Sequence[BasicOp], store: Store) -> list[BasicOp]:
    """The chain without what the store does anyway."""
    left = list(ops)
    while left and first_fired(STORING, left[-1], store) is True:
        left.pop()
    return left
