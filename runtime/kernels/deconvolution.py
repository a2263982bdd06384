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

from ...ir.ops import OPS
from ...ir.ops.convolution import transposed_window
from ...ir.ops.spec import Array
from ...ir.types import DType
from .base import Binding, Kernel, Layout, Recorder, Result, Tasks, Tile, Values
from .convolution import WindowedGemm, anchor_of, check_types, integer_codes
from .epilogue import Epilogue
from .exact_gemm import KSplit, split_for_weights
from .windows import Window

__all__ = ["Deconvolution"]


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


class Deconvolution(Kernel):
    """`deconvolution`, in ONNX layout [IC, OC/groups, kernel...].

    Args:
        binding: the step; the weights must be constant.
    """

    def __init__(self, binding: Binding) -> None:
        src, weights = binding.need("src"), binding.need("weights")
        if weights.data is None:
            raise binding.refuse("weights that are no constant")
        shape = binding.shapes[0]
        result = Result(binding.dtypes[0], shape, Layout.CHANNELS_LAST)
        self.results = (result,)
        self._src = src.name
        groups = int(binding.number("group", 1))
        check_types(binding)
        codes, shift = integer_codes(binding, "src")
        win = transposed_window(
            OPS["ConvTranspose"].known(binding.step.params), src.shape[2:], weights.shape[2:]
        )
        strides = win.strides
        per_axis = [
            _axes(*args)
            for args in zip(strides, win.dilations, win.kernel, win.begin, win.out, strict=True)
        ]
        self._phases: list[tuple[Tile, WindowedGemm]] = []
        for axes in itertools.product(*per_axis):
            matrix = _phase_matrix(weights.data, groups, axes)
            split, magnitude = KSplit((0, matrix.shape[0]), 0, False, False), math.inf
            if codes is not None:
                split = split_for_weights(matrix.T, codes, exact=result.dtype is DType.S32)
                magnitude = float(split.bound)
            part = (
                slice(None),
                *(slice(a.residue, None, s) for a, s in zip(axes, strides, strict=True)),
                slice(None),
            )
            anchor = anchor_of(binding, 1, len(shape), magnitude, codes is not None)
            epilogue = Epilogue(binding, result, anchor, part)
            physical = (shape[0], *(a.outputs for a in axes), shape[1])
            gemm = WindowedGemm(
                _window(axes, src.shape[2:]),
                matrix,
                groups,
                split,
                epilogue,
                physical,
                src.shape[1],
                shift,
                binding.threads,
            )
            self._phases.append((part, gemm))
        self.local_bytes = sum(gemm.local_bytes for _, gemm in self._phases)

    def tasks(self, values: Values, outputs: Sequence[Array]) -> Tasks:
        """Tiles of every residue."""
        x, out = (
            Layout.CHANNELS_LAST.physical(values[self._src]),
            Layout.CHANNELS_LAST.physical(outputs[0]),
        )
        phases = [gemm.tasks(x, out[part], values) for part, gemm in self._phases]
        places = [(phase, index) for phase in phases for index in range(phase.count)]

        def prepare(record: Recorder) -> None:
            for phase in phases:
                if phase.prepare is not None:
                    phase.prepare(record)

        def task(index: int, record: Recorder) -> None:
            phase, inner = places[index]
            phase.record(inner, record)

        return Tasks(len(places), task, prepare)


def _phase_matrix(weights: Array, groups: int, axes: Sequence[_Axis]) -> Array:
    """The weights of one residue as [kernel... * IC/groups, OC]."""
    chosen = weights
    for axis, part in enumerate(axes):
        chosen = np.take(chosen, part.taps, axis=2 + axis)
    inner, outer = weights.shape[0] // groups, weights.shape[1]
    split = chosen.reshape(groups, inner, outer, *chosen.shape[2:])
    turned = np.moveaxis(split, (1, 0, 2), (-3, -2, -1))
    return np.ascontiguousarray(turned).reshape(-1, groups * outer)


def _window(axes: Sequence[_Axis], spatial: Sequence[int]) -> Window:
    kernel = tuple(len(a.taps) for a in axes)
    output, begin = tuple(a.outputs for a in axes), tuple(a.begin for a in axes)
    ones = (1,) * len(kernel)
    dilations = tuple(a.dilation for a in axes)
    end = tuple(
        o - 1 + (max(k, 1) - 1) * d + 1 - i - b
        for o, k, d, i, b in zip(output, kernel, dilations, spatial, begin, strict=True)
    )
    return Window(tuple(spatial), output, kernel, ones, dilations, begin, end)
