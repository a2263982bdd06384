"""What CPUs without VNNI lose in integer products: sums of two products that saturate to s16.

The exact product comes from BLAS as ever. What saturation takes off, clamp(s) - s of each pair, is
added to it: only for pairs whose weights can leave s16 at all, and of those only for rows whose
codes are large enough. So the work is small where weights are spread as usual.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from ...ir.ops.spec import Array
from ...ir.types import TensorType
from ...plan.summation import HIGHEST, LOWEST, Summation, pairs_at_risk
from ...plan.summation_of_steps import laws_of
from ..numerics import F32Array
from .base import Binding
from .exact_gemm import KSplit

_CHUNK = 1 << 19  # elements of a temporary array


def sums_of_step(binding: Binding) -> Summation:
    """How the step's products are summed on the instruction set of its profile."""
    if binding.profile.sums is not None:
        return binding.profile.sums
    src, weights = binding.need("src"), binding.need("weights")
    types, isa = (src.dtype, weights.dtype), binding.profile.isa
    known = {name: TensorType(each.dtype, each.shape) for name, each in binding.operands.items()}
    known[binding.step.output] = TensorType(binding.dtypes[0], binding.shapes[0])
    return laws_of(binding.step, isa, *types, weights.shape, known.__getitem__)[0]


def halved(law: Summation, weights: Array) -> Array:
    """The weights that the implementation multiplies by, as s16; as they are where it takes those."""
    return 2 * np.rint(np.divide(weights, 2)).astype(np.int16) if law.halved else weights


class PairSums:
    """The pairs of constant weights that can leave s16.

    Args:
        law: how they are summed; with pairs.
        weights: [K, N] codes, s8.
        channels: how many neighbours along K belong to one tap.
        zero: the source's zero point.
        padded: rows of codes may hold padding, which takes part in no pair.

    Attributes:
        apart: what is subtracted from the codes where `on` wants rows of its own, with 0 as
            padding; None: it takes the rows of the product, codes less the zero point.
    """

    def __init__(
        self, law: Summation, weights: Array, channels: int, zero: int, *, padded: bool = False
    ) -> None:
        offset = law.shift + zero
        self.apart = -law.shift if padded and offset else None
        self._offset = offset if self.apart is None else 0
        self._signed = law.turned
        if law.turned:
            weights = weights.astype(np.int16) + 128
        codes = (-128, 127) if law.turned else (0, 255)
        first, risky = pairs_at_risk(law, weights, channels, codes)
        columns, pairs = np.nonzero(risky.T)  # sorted by column
        self._columns, self._first = columns, first[pairs]
        self._left = weights[self._first, columns].astype(np.float32)
        self._right = weights[self._first + 1, columns].astype(np.float32)

    @property
    def any(self) -> bool:
        """Whether any pair can."""
        return self._columns.size > 0

    def split(self, split: KSplit) -> KSplit:
        """The cuts of the product that is to be corrected: its sums stay exact."""
        most = int(np.bincount(self._columns).max(initial=0)) * 2 * -LOWEST
        bound = split.bound + most
        return replace(split, bound=bound, wide=True, wraps=bound >= 2**31)

    def on(self, rows: F32Array, columns: slice) -> Callable[[Array], None]:
        """What corrects the product of `rows` with these columns of the weights."""
        return partial(self._add, rows, columns)

    def _add(self, rows: F32Array, columns: slice, acc: Array) -> None:
        """Adds what saturation takes off.

        Args:
            rows: [rows, K] codes.
            columns: of the weights.
            acc: [rows, columns] f64 sums.
        """
        start, stop = np.searchsorted(self._columns, [columns.start, columns.stop])
        if start == stop or not rows.size:
            return
        first, left, right = (a[start:stop] for a in (self._first, self._left, self._right))
        place = self._columns[start:stop] - columns.start
        turned = np.ascontiguousarray(rows.T)
        peak = turned.max(axis=1) + np.float32(self._offset)
        one, other = peak[first], peak[first + 1]
        most = np.maximum(left, 0) * one + np.maximum(right, 0) * other
        least = np.minimum(left, 0) * one + np.minimum(right, 0) * other
        # the bounds are those of codes from 0 on
        kept = np.flatnonzero((most > HIGHEST) | (least < LOWEST) | self._signed)
        step = max(1, _CHUNK // rows.shape[0])
        for at in range(0, kept.size, step):
            chosen = kept[at : at + step]
            w0, w1, k = left[chosen, None], right[chosen, None], first[chosen]
            sums = turned[k]
            sums *= w0
            others = turned[k + 1]
            others *= w1
            sums += others
            if self._offset:
                sums += (w0 + w1) * np.float32(self._offset)
            np.clip(sums, LOWEST, HIGHEST, out=others)
            others -= sums
            where = place[chosen]
            starts = np.flatnonzero(np.diff(where, prepend=-1))
            lost = np.add.reduceat(others, starts, axis=0, dtype=np.float64)
            places = where[starts]
            acc[:, places] = np.add(acc[:, places], lost.T)


def pairs_of(
    law: Summation, weights: Array, channels: int, zero: int, *, padded: bool = False
) -> PairSums | None:
    """The pairs, with the arguments of `PairSums`; None where none can leave s16."""
    if law.pairs is None:
        return None
    pairs = PairSums(law, weights, channels, zero, padded=padded)
    return pairs if pairs.any else None


def live_pairs(
    law: Summation, left: F32Array, right: F32Array, zeros: tuple[int, int]
) -> Callable[[Array], None]:
    """What corrects products with weights that are only known in a run.

    Args:
        law: how they are summed; with pairs.
        left, right: [..., rows, K] and [..., K, columns], codes less their zero points.
        zeros: these.
    """

    def correct(acc: Array) -> None:
        *batch, _, columns = acc.shape
        depth = right.shape[-2]
        lefts = np.broadcast_to(left, (*batch, *left.shape[-2:]))
        rights = np.broadcast_to(right, (*batch, depth, columns))
        for place in np.ndindex(*batch):
            pairs = PairSums(law, rights[place] + np.float32(zeros[1]), depth, zeros[0])
            pairs.on(lefts[place], slice(0, columns))(acc[place])

    return correct
