"""Deconvolution (transposed convolution) as convolutions of stride 1: one for each residue of the
output position by the stride.

The outputs o = s*j + p of one residue p read the inputs i = (o + begin - k*dilation) / s for the
taps k where that is an integer: every (s / gcd(s, dilation))-th tap. So each residue is a
convolution with those taps, reversed, and nothing is multiplied by a zero.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...ir.ops.spec import Array
from ...ir.ops.windows import Window
from ..windows import window_of
from .base import Binding, Kernel, Layout, Tile
from .convolution import WindowedGemm
from .elementwise import Parts
from .gemm import bias_operand


@dataclass(frozen=True)
class _Axis:
    """One residue along one spatial dimension.

    Attributes:
        residue: p of o = s*j + p.
        outputs: how many j.
        taps: the taps that contribute, reversed.
        dilation: step of the input from one of them to the next.
        begin: padding before the input.
    """

    residue: int
    outputs: int
    taps: tuple[int, ...]
    dilation: int
    begin: int


def _axes(stride: int, dilation: int, kernel: int, begin: int, output: int) -> list[_Axis]:
    found = []
    for residue in range(min(stride, output)):
        shift, phase = divmod(residue + begin, stride)
        taps = tuple(k for k in reversed(range(kernel)) if k * dilation % stride == phase)
        # The first (last) tap reads the input at j + shift + (phase - k*dilation) / stride.
        first = shift + (phase - taps[0] * dilation) // stride if taps else 0
        found.append(
            _Axis(
                residue,
                -(-(output - residue) // stride),
                taps,
                dilation // math.gcd(stride, dilation),
                -first,
            )
        )
    return found


def bind_deconvolution(binding: Binding) -> Kernel:
    """`deconvolution` with constant weights, in ONNX layout [IC, OC/groups, kernel...]."""
    src, weights = binding.need("src"), binding.constant("weights")
    result, groups = binding.result(Layout.CHANNELS_LAST), int(binding.number("group", 1))
    win = window_of(binding.step, src.shape[2:], weights.shape[2:])
    per_axis = [
        _axes(*args)
        for args in zip(win.strides, win.dilations, win.kernel, win.begin, win.out, strict=True)
    ]
    parts: list[tuple[Tile, Kernel]] = []
    bias = bias_operand(binding, 1)
    for axes in itertools.product(*per_axis):
        steps = (slice(a.residue, None, s) for a, s in zip(axes, win.strides, strict=True))
        part = (slice(None), *steps, slice(None))
        matrix = _phase_matrix(weights, groups, axes)
        kernel = WindowedGemm(
            binding, _window(axes, src.shape[2:]), matrix, groups, result, bias, part
        )
        parts.append((part, kernel))
    return Parts(result, parts, sum(kernel.local_bytes for _, kernel in parts))


def _phase_matrix(weights: Array, groups: int, axes: Sequence[_Axis]) -> Array:
    """The weights of one residue as [kernel... * IC/groups, OC]."""
    chosen = weights
    for axis, part in enumerate(axes):
        chosen = np.take(chosen, part.taps, axis=2 + axis)
    inner, outer = weights.shape[0] // groups, weights.shape[1]
    split = chosen.reshape(groups, inner, outer, *chosen.shape[2:])
    turned = np.moveaxis(split, (1, 0, 2), (-3, -2, -1))
    rows = math.prod(turned.shape[:-2])
    return np.ascontiguousarray(turned).reshape(rows, groups * outer)


def _window(axes: Sequence[_Axis], spatial: Sequence[int]) -> Window:
    taps, out, begin, dilations = zip(
        *((len(a.taps), a.outputs, a.begin, a.dilation) for a in axes), strict=True
    )
    end = tuple(
        o + max(k - 1, 0) * d - n - b
        for o, k, d, n, b in zip(out, taps, dilations, spatial, begin, strict=True)
    )
    return Window(taps, (1,) * len(taps), dilations, begin, end, out)
