"""Rules at the end of a chain: what a store into 8 bits does anyway, nothing in front of it must
do.

A rule looks at the last operation and the store behind it, and says whether the operation may go,
why not (a `Refusal`), or nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ...ir.rule import Refusal
from .formula import BasicOp, Clip, EltwiseOp, Round, Store, Vec, vec

__all__ = ["STORING", "StoreRule", "absorb"]


@dataclass(frozen=True)
class StoreRule:
    """One equation, of a store and what stands in front of it.

    Attributes:
        name: the equation itself.
        apply: True when the operation may go; its docstring says why that is legal and when it
            refuses.
        real: `identity` or `approximation` of real numbers.
        float: `bitwise`, `ties` or `ulp`: what holds in f32; see `Contract`.
    """

    name: str
    apply: Callable[[BasicOp, Store], Literal[True] | Refusal | None]
    real: Literal["identity", "approximation"] = "identity"
    float: Literal["bitwise", "ties", "ulp"] = "bitwise"


def _covers(low: Vec, high: Vec, store: Store, name: str) -> Literal[True] | Refusal:
    if not bool((store.scale > 0).all()):
        return Refusal(f"{name} needs s > 0", "s > 0", f"smallest s {store.scale.min():g}")
    with np.errstate(invalid="ignore"):
        zeros = (
            store.zero_point,
            store.zero_point.astype(np.float32),
        )  # as it is, and as the store adds it
        first = np.maximum(*(np.rint(low / store.scale + zero) for zero in zeros))
        last = np.minimum(*(np.rint(high / store.scale + zero) for zero in zeros))
    if bool((first <= store.low).all()) and bool((last >= store.high).all()):
        return True
    return Refusal(
        f"{name} needs bounds whose codes are the store's ends, or beyond",
        f"codes {store.low} and {store.high}",
        f"{first.max():g} and {last.min():g}",
    )


def _store_clip(last: BasicOp, store: Store) -> Literal[True] | Refusal | None:
    """A clip whose bounds get the first and the last code, or lie beyond, goes.

    Legal because: quantization is non-decreasing, so what lies beyond a bound gets the bound's code
    with or without the clip. In f32 a bound beside a tie may get the next code.
    Refuses when: a bound's code lies inside (255 levels into s8 clip at -127, the store at -128),
    or a scale is not positive.
    """
    return (
        _covers(last.low, last.high, store, "store(clip(x,l,h)) = store(x)")
        if isinstance(last, Clip)
        else None
    )


def _store_relu(last: BasicOp, store: Store) -> Literal[True] | Refusal | None:
    """A relu in front of a store whose lowest code is that of 0, or higher, goes.

    Legal because: relu is a clip to [0, inf), and quantization is non-decreasing.
    Refuses when: codes of negative values exist, or a scale is not positive; a leaky relu does not
    match.
    """
    return (
        _covers(vec(0.0), vec(np.inf), store, "store(relu(x)) = store(x)")
        if last == EltwiseOp("relu")
        else None
    )


def _store_round(last: BasicOp, store: Store) -> Literal[True] | Refusal | None:
    """A rounding in front of a store that rounds to the same grid goes.

    Legal because: rounding twice is rounding once, and round(x) + z = round(x + z) for even z; for
    odd z ties would part.
    Refuses when: the store has a scale, or a zero point that is not an even integer.
    """
    if not isinstance(last, Round):
        return None
    even = bool((store.zero_point % 2 == 0).all())
    if bool((store.scale == 1).all()) and even:
        return True
    found = f"scale {store.scale[0]:g}, zero point {store.zero_point[0]:g}"
    return Refusal(
        "store(round(x)) = store(x) needs s = 1 and an even z", "scale 1, even zero point", found
    )


STORING: tuple[StoreRule, ...] = (
    StoreRule(
        "store(clip(x,l,h)) = store(x), l and h at its ends or beyond", _store_clip, float="ties"
    ),
    StoreRule("store(relu(x)) = store(x), 0 at its low end or below", _store_relu),
    StoreRule("store(round(x)) = store(x), s = 1, z even", _store_round, float="ties"),
)


def absorb(ops: Sequence[BasicOp], store: Store) -> list[BasicOp]:
    """The chain without what the store does anyway."""
    left = list(ops)
    while left and any(rule.apply(left[-1], store) is True for rule in STORING):
        left.pop()
    return left
