"""How far what a quantized model computes is from f32: sums over all samples, and figures of them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..ir.graph import Graph
from ..ir.node import Node

Floats = npt.NDArray[Any]
"""Of any floating-point type."""

_MASK = -9e3
"""Masks of attention add -1e4, -65504, -1e9, -3.4e38 or -inf: what lies below may be a mask's entry..."""

_ABOVE = 30.0
"""...if it is so many times as far from 0 as everything else."""


def unmasked(x: Floats) -> npt.NDArray[np.bool_] | None:
    """Where a tensor of floats holds no entry of an attention mask; None: nowhere does it.

    An entry is the mask's if it is -9,000 or less (-inf too), and all others are closer to 0 by a factor of 30: what a softmax
    makes 0 of, whatever its value.
    """
    if not x.size or not x.min() <= _MASK:
        return None
    with np.errstate(invalid="ignore"):
        low = x <= _MASK
    others = np.abs(x[~low & np.isfinite(x)])
    beyond = float(others.max(initial=0.0)) * _ABOVE
    return None if beyond > -float(x[low].max()) else ~low


@dataclass
class Measure:
    """Sums over the entries of a value, of all samples; masked and non-finite entries of f32 left out.

    Attributes:
        signal, noise: sums of f32² and of (f32 - other)².
        product, other: sums of f32 * other and of other².
        largest: the largest |f32 - other|.
        entries: how many were compared.
        masked: entries of an attention mask.
        broken: entries that are NaN or infinite in one, and not in the other.
    """

    signal: float = 0.0
    noise: float = 0.0
    product: float = 0.0
    other: float = 0.0
    largest: float = 0.0
    entries: int = 0
    masked: int = 0
    broken: int = 0

    def add(self, f32: Floats, found: Floats) -> None:
        """Takes one sample more: arrays of one shape."""
        keep = unmasked(f32)
        if keep is not None:
            self.masked += int(f32.size - np.count_nonzero(keep))
            f32, found = f32[keep], found[keep]
        a, b = f32.ravel().astype(np.float64), found.ravel().astype(np.float64)
        fine = np.isfinite(a) & np.isfinite(b)
        if not fine.all():
            # the same infinity, or NaN in both, is no difference, and nothing to measure either
            same = (a == b) | (np.isnan(a) & np.isnan(b))
            self.broken += int(np.count_nonzero(~fine & ~same))
            a, b = a[fine], b[fine]
        gap = a - b
        self.signal += float(a @ a)
        self.noise += float(gap @ gap)
        self.product += float(a @ b)
        self.other += float(b @ b)
        self.largest = max(self.largest, float(np.abs(gap).max(initial=0.0)))
        self.entries += a.size

    @property
    def sqnr(self) -> float:
        """Signal to quantization noise in dB: 10 log10(signal / noise); inf: equal; -inf: noise alone, or NaN and infinity where
        f32 has none.
        """
        if self.broken:
            return -math.inf
        if not self.noise:
            return math.inf
        return 10 * math.log10(self.signal / self.noise) if self.signal else -math.inf

    @property
    def cosine(self) -> float:
        """Of the angle between both; NaN where f32 or the other is all zeros and they differ."""
        if self.broken:
            return math.nan
        if not self.noise:
            return 1.0
        size = math.sqrt(self.signal) * math.sqrt(self.other)
        return self.product / size if size else math.nan


def sqnr_of(f32: Floats, found: Floats) -> float:
    """Signal to quantization noise of an array in dB, see `Measure.sqnr`."""
    measure = Measure()
    measure.add(f32, found)
    return measure.sqnr


@dataclass(frozen=True)
class Grid:
    """What a quantizer can represent: numbers from `low` to `high`, `step` apart; arrays that broadcast against the value."""

    low: Floats
    high: Floats
    step: Floats


def grid_of(int8: Graph, quantizer: Node, rank: int) -> Grid | None:
    """What a quantizer can represent; None where its range is computed at run time."""
    if quantizer.op == "FakeQuantize":
        ends = [end for value in quantizer.inputs[1:5] if (end := int8.constant(value)) is not None]
        if len(ends) < 4:
            return None
        low, high, out_low, out_high = (end.astype(np.float64) for end in ends)
        step = np.abs(out_high - out_low) / (quantizer.attr("levels", int) - 1)
        return Grid(np.minimum(low, high), np.maximum(low, high), step)
    scale, zero = (part.astype(np.float64) for part in quantizer.quant.shaped(rank))
    ends = [(quantizer.attr(end, int) - zero) * scale for end in ("lo", "hi")]
    return Grid(np.minimum(*ends), np.maximum(*ends), np.abs(scale))
