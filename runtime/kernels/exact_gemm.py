"""Integer matrix products by f32 BLAS, exact: the proof, and the product of one tile.

A product of two codes is an integer below 2**16. While every partial sum that BLAS may form, in any
order, stays within +-2**24, f32 arithmetic is exact. For each column the partial sums lie between
the sum of all negative terms and the sum of all positive ones, and `weight * [low, high]` bounds
each term. Where this does not prove it, K is cut into pieces that it does prove; two pieces are
added in f32 (the sum of two exact integers, rounded once, which is the conversion to f32 that
follows anyway), more are added in f64.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from ...ir.ops.spec import Array
from ..numerics import F32Array, F64Array
from .base import Recorder, nbytes

_EXACT = 2**24
_S32 = 2**31


@dataclass(frozen=True)
class Codes:
    """The range of integer codes minus their zero point: what one factor of a product may be."""

    low: int
    high: int

    @classmethod
    def of(cls, bounds: tuple[int, int], zero_point: int = 0) -> Codes:
        """From an element type's range and a zero point."""
        return cls(bounds[0] - zero_point, bounds[1] - zero_point)

    @property
    def magnitude(self) -> int:
        """The largest absolute value."""
        return max(abs(self.low), abs(self.high))


@dataclass(frozen=True)
class KSplit:
    """How K is cut.

    Attributes:
        cuts: borders of the pieces: 0, ..., K.
        bound: no accumulator is beyond it in absolute value (infinity: they are no integers).
        wide: the pieces are added in f64 (the accumulator is f64).
        wraps: the accumulator may leave s32, and wraps there as the hardware's does.
    """

    cuts: tuple[int, ...]
    bound: float
    wide: bool
    wraps: bool

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the accumulator."""
        return np.dtype(np.float64 if self.wide else np.float32)


def split_for_weights(weights: Array, codes: Codes | None, exact: bool) -> KSplit:
    """The cuts for constant weights.

    Args:
        weights: [N, K].
        codes: the range of the other factor; None where both are f32.
        exact: the exact integer is needed, not its f32 rounding.
    """
    depth = weights.shape[1]
    if codes is None:
        return KSplit((0, depth), math.inf, False, False)
    worst = depth * _largest(weights) * codes.magnitude
    if worst <= _EXACT:
        return KSplit((0, depth), worst, False, False)
    positive = (
        np.maximum(weights, 0).astype(np.int64)
        if weights.dtype.itemsize > 1
        else np.maximum(weights, 0)
    )
    negative = np.minimum(weights, 0)
    pieces = 1
    while True:
        cuts = tuple(depth * i // pieces for i in range(pieces + 1))
        sums = [(_columns(positive, a, b), _columns(negative, a, b)) for a, b in pairwise(cuts)]
        bounds = [_bound(p, n, codes) for p, n in sums]
        if all(bound <= _EXACT for bound in bounds) or pieces == depth:
            total = _bound(sum(p for p, _ in sums), sum(n for _, n in sums), codes)  # type: ignore[arg-type]
            return _split(cuts, total, exact)
        pieces = max(pieces + 1, min(-(-max(bounds) * pieces // _EXACT), depth))


def split_for_any(depth: int, weights: Codes | None, codes: Codes | None, exact: bool) -> KSplit:
    """The cuts when both factors are only known by their ranges (None: f32)."""
    if weights is None or codes is None:
        return KSplit((0, depth), math.inf, False, False)
    term = max(1, weights.magnitude * codes.magnitude)
    pieces = max(1, -(-depth * term // _EXACT))
    while pieces < depth and -(-depth // pieces) * term > _EXACT:
        pieces += 1
    return _split(tuple(depth * i // pieces for i in range(pieces + 1)), depth * term, exact)


def _split(cuts: tuple[int, ...], bound: int, exact: bool) -> KSplit:
    pieces = len(cuts) - 1
    wraps = bound >= _S32
    return KSplit(cuts, bound, wraps or pieces > 2 or (exact and pieces > 1), wraps)


def _largest(weights: Array) -> int:
    return max(abs(int(weights.max(initial=0))), abs(int(weights.min(initial=0))))


def _columns(part: Array, start: int, stop: int) -> npt.NDArray[np.int64]:
    return part[:, start:stop].sum(axis=1, dtype=np.int64)  # type: ignore[no-any-return]


def _bound(positive: npt.NDArray[np.int64], negative: npt.NDArray[np.int64], codes: Codes) -> int:
    """The largest absolute value of a partial sum: terms reach up to w*high and w*low, whichever
    sign.
    """
    up, down = max(codes.high, 0), max(-codes.low, 0)
    upper = positive * up - negative * down
    lower = positive * down - negative * up
    return int(max(upper.max(initial=0), lower.max(initial=0)))


def scratch_bytes(split: KSplit, rows: int, columns: int) -> int:
    """Scratch that `record_product` takes for a tile (the accumulator included)."""
    single = nbytes((rows, columns), np.float32)
    pieces = len(split.cuts) - 1
    return (
        single
        + (single if pieces > 1 else 0)
        + (nbytes((rows, columns), np.float64) if split.wide else 0)
    )


def record_product(
    split: KSplit,
    a: F32Array,
    w: F32Array,
    acc: Array,
    record: Recorder,
    correct: Callable[[Array], None] | None = None,
) -> None:
    """Takes down the accumulators of one tile: acc = a @ w, exact as `split` says.

    Args:
        split: the cuts.
        a: [..., rows, K] f32 codes.
        w: [..., K, columns] f32 codes (any strides that BLAS takes).
        acc: [..., rows, columns] of `split.dtype`, contiguous.
        record: takes the calls down, gives scratch.
        correct: adds to the sums what an emulated CPU gets instead; None: nothing.
    """
    cuts = split.cuts
    total = record.take(acc.shape, np.float32) if split.wide else acc
    record(np.matmul, a[..., : cuts[1]], w[..., : cuts[1], :], total)
    piece = record.take(acc.shape, np.float32) if len(cuts) > 2 else total
    if split.wide:
        record(np.copyto, acc, total)
    for start, stop in pairwise(cuts[1:]):
        record(np.matmul, a[..., start:stop], w[..., start:stop, :], piece)
        record(np.add, acc, piece, acc)
    if correct is not None:
        record(correct, acc)
    if split.wraps:
        record(_wrap, acc)


def _wrap(wide: F64Array) -> None:
    """s32 accumulators wrap around: modulo 2**32, into [-2**31, 2**31)."""
    turns = np.floor((wide + float(_S32)) / 2.0**32)
    wide -= turns * 2.0**32
