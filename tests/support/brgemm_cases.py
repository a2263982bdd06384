"""Convolutions and deconvolutions of codes that oneDNN after 3.2 gets wrong, and what is right."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fqfuse.onednn.attributes import Attributes
from fqfuse.onednn.enums import Arg, DataType, arg_zero_points
from fqfuse.onednn.primitive_desc import PrimitiveDesc, describe


@dataclass(frozen=True)
class Codes:
    """A request.

    Attributes:
        src: shape of the source.
        weights: [G, O, I, kernel...].
        strides, begin, end: of each spatial dimension; padding behind may be negative.
        zero: zero point of the source.
        signed: whether the source is s8.
        bias: of each channel; 0: there is none.
        apart: dilations, counted from 0; (): none.
    """

    src: Sequence[int]
    weights: Sequence[int]
    strides: Sequence[int]
    begin: Sequence[int]
    end: Sequence[int]
    zero: int = 0
    signed: bool = False
    bias: int = 0
    apart: Sequence[int] = ()

    @property
    def dilations(self) -> tuple[int, ...]:
        return tuple(self.apart) or (0,) * len(self.strides)

    @property
    def spans(self) -> list[int]:
        """Of the kernel along each dimension."""
        taps = zip(self.weights[3:], self.dilations, strict=True)
        return [(k - 1) * (d + 1) + 1 for k, d in taps]


WINDOWS_OF_PADDING = Codes((2, 32, 8, 1), (1, 2, 32, 1, 1), (1, 3), (2, 1), (1, -1), 7)
DEPTHWISE_WINDOWS_OF_PADDING = Codes(
    (2, 64, 3, 11), (64, 1, 1, 1, 2), (1, 1), (1, 0), (1, 0), signed=True
)
ONE_CHANNEL = Codes((1, 2, 1, 3, 3), (2, 2, 1, 3, 3, 3), (1, 1, 1), (1, 1, 1), (1, 1, 1))
ONE_CHANNEL_IN_ROWS = Codes((1, 1, 8, 2), (1, 32, 1, 3, 3), (1, 3), (1, 1), (0, 0))
SPREAD = Codes((1, 1, 3, 3), (1, 1, 1, 1, 1), (1, 3), (0, 0), (0, 0), 7)
SOME_CHANNELS = Codes((1, 8, 13, 11), (4, 17, 2, 3, 2), (2, 1), (1, 0), (-1, 1), 7)
ONE_COLUMN = Codes((3, 16, 11, 2), (1, 3, 16, 2, 4), (1, 2), (0, 0), (1, 2), signed=True)
PADDED_ROWS = Codes((1, 16, 16, 16), (1, 2, 16, 2, 1), (1, 1), (1, 0), (1, 0), 4, signed=True)
UNREACHED = Codes((1, 8, 8, 11), (1, 3, 8, 2, 1), (1, 2), (0, 0), (0, 0), bias=9)
HIGH_PADDING = Codes((1, 16, 8, 4), (1, 64, 16, 5, 1), (1, 2), (3, 0), (4, -1), 130, signed=True)
PADDED_PLANE = Codes((1, 45, 1, 5, 5), (1, 64, 45, 1, 3, 3), (1, 1, 1), (0, 1, 1), (0, 1, 1), 128)
PADDING_ALONE = Codes((1, 32, 1, 8), (1, 16, 32, 3, 3), (1, 1), (3, 1), (1, 1), apart=(1, 0))
SPREAD_PADDING_ALONE = Codes((1, 32, 1, 8), (1, 16, 32, 3, 3), (1, 1), (1, 1), (3, 1), apart=(1, 0))
OF_3_3 = Codes((3, 17, 5, 1), (1, 5, 17, 3, 1), (2, 2), (1, 1), (-1, 1), signed=True)


def drawn(
    bare: Any, kind: str, codes: Codes
) -> tuple[Callable[[], PrimitiveDesc], dict[int, np.ndarray], np.ndarray]:
    """What makes its descriptor, its arguments and its result, an exact one."""
    low, high, dtype = (-128, 128, np.int8) if codes.signed else (0, 256, np.uint8)
    x = bare.rng.integers(low, high, codes.src).astype(dtype)
    w = bare.small(*codes.weights)
    sums = _convolved(x, w, codes) if kind == "convolution" else _spread(x, w, codes)
    sums = sums + codes.bias
    bias = {Arg.BIAS: np.full(sums.shape[1], codes.bias, np.float32)} if codes.bias else {}
    given = w if codes.weights[0] > 1 else w[0]
    zeros = {arg_zero_points(Arg.SRC): np.array([codes.zero], np.int32)} if codes.zero else {}

    def make() -> PrimitiveDesc:
        return describe(
            bare.engine,
            kind,
            bare.any(x.shape, DataType.s8 if codes.signed else DataType.u8),
            bare.any(given.shape, DataType.s8),
            bare.any(sums.shape[1:2], DataType.f32) if bias else None,
            bare.any(sums.shape, DataType.f32),
            strides=tuple(codes.strides),
            dilations=codes.dilations,
            padding_l=tuple(codes.begin),
            padding_r=tuple(codes.end),
            attributes=Attributes(zero_points={Arg.SRC: 0} if codes.zero else {}),
        )

    return make, {Arg.SRC: x, Arg.WEIGHTS: given, **zeros, **bias}, sums


def _taps(codes: Codes) -> Iterator[tuple[tuple[int, ...], list[int]]]:
    """Each tap of the kernel, and where it lies."""
    for tap in itertools.product(*map(range, codes.weights[3:])):
        yield tap, [t * (d + 1) for t, d in zip(tap, codes.dilations, strict=True)]


def _products(w: np.ndarray, x: np.ndarray, tap: Sequence[int]) -> np.ndarray:
    """Of one tap of the kernel, [N, G, O, spatial...]."""
    split = x.reshape(x.shape[0], w.shape[0], w.shape[2], *x.shape[2:])
    return np.einsum("goi,ngi...->ngo...", w[(..., *tap)].astype(np.int64), split)


def _convolved(x: np.ndarray, w: np.ndarray, codes: Codes) -> np.ndarray:
    pads = [(0, 0), (0, 0), *((b, max(e, 0)) for b, e in zip(codes.begin, codes.end, strict=True))]
    padded = np.pad(x.astype(np.int64) - codes.zero, pads)
    sizes = [
        (n + b + e - k) // s + 1
        for n, b, e, k, s in zip(
            x.shape[2:], codes.begin, codes.end, codes.spans, codes.strides, strict=True
        )
    ]
    total: Any = 0
    for tap, places in _taps(codes):
        cuts = (
            slice(t, t + (size - 1) * s + 1, s)
            for t, size, s in zip(places, sizes, codes.strides, strict=True)
        )
        total = total + _products(w, padded[(..., *cuts)], tap)
    return np.asarray(total).reshape(x.shape[0], -1, *sizes)


def _spread(x: np.ndarray, w: np.ndarray, codes: Codes) -> np.ndarray:
    sizes = [
        (n - 1) * s + k for n, s, k in zip(x.shape[2:], codes.strides, codes.spans, strict=True)
    ]
    total = np.zeros((x.shape[0], *w.shape[:2], *sizes), np.int64)
    for tap, places in _taps(codes):
        cuts = (
            slice(t, t + (n - 1) * s + 1, s)
            for t, n, s in zip(places, x.shape[2:], codes.strides, strict=True)
        )
        total[(..., *cuts)] += _products(w, x.astype(np.int64) - codes.zero, tap)
    inside = [slice(b, n - e) for n, b, e in zip(sizes, codes.begin, codes.end, strict=True)]
    return total.reshape(x.shape[0], -1, *sizes)[(..., *inside)]
