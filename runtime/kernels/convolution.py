"""Convolution: 1-D, 2-D, 3-D, grouped; integer (exact) and f32.

The zero point is subtracted while codes are converted to f32, and padding then holds 0, so a padded
tap contributes zero real value. Each tile of outputs gathers its own windows (im2col) from the part
of the padded input that it reads.
"""

from __future__ import annotations

import math

import numpy as np

from ...ir.ops.spec import Array
from ...ir.ops.windows import Window
from ...ir.types import DType
from ..numerics import F32Array
from ..windows import window_of
from .base import Binding, Kernel, Layout, Operand, Recorder, Result, Tile, Values, extent
from .epilogue import Epilogue
from .exact_gemm import split_for_weights
from .gemm import TiledGemm, anchor_of, bias_operand, integer_codes, kernel_matrix
from .pairs import halved, pairs_of, sums_of_step
from .windows import record_slab, slab_bytes, window_view

# window elements side by side in memory; below, gathering runs along the outputs instead (first
# layers)
_SHORT_RUN = 32


class WindowedGemm(TiledGemm):
    """Windows of the input times constant weights: the work of a convolution.

    Args:
        binding: the step.
        win: the window.
        matrix: weights [kernel... * IC/groups, OC].
        groups: of channels.
        result: the destination.
        bias: see `bias_operand`.
        part: the part of it that the windows belong to, with steps, physical order; None: all.
    """

    def __init__(
        self,
        binding: Binding,
        win: Window,
        matrix: Array,
        groups: int,
        result: Result,
        bias: Operand | None,
        part: Tile | None = None,
    ) -> None:
        self._window, channels = win, binding.need("src").shape[1]
        codes, zero = integer_codes(binding, "src")
        law = sums_of_step(binding)
        matrix = halved(law, matrix)
        split = split_for_weights(matrix.T, codes, exact=result.dtype is DType.S32)
        pairs = pairs_of(law, matrix, channels // groups, zero, padded=not win.trivial)
        split = pairs.split(split) if pairs else split
        epilogue = Epilogue(binding, result, anchor_of(binding, 1, split, bias), part)
        run = channels * (win.kernel[-1] if win.dilations[-1] == 1 else 1)
        self._planar = groups == 1 and not win.trivial and run < _SHORT_RUN
        shape = (result.shape[0], *win.out, result.shape[1])
        super().__init__(
            binding, matrix, groups, split, epilogue, shape, by_position=self._planar, pairs=pairs
        )

    def _source(self, values: Values) -> Array:
        return Layout.CHANNELS_LAST.physical(self._src.read(values))

    def _fill_bytes(self, tile: Tile) -> int:
        if self._window.trivial or not math.prod(self._window.kernel):
            return 0
        return slab_bytes(self._window, tile, self._src.shape[1], np.float32)

    def _fill(
        self, source: Array, tile: Tile, gathered: F32Array, record: Recorder, shift: int
    ) -> None:
        if self._window.trivial:
            super()._fill(source, tile, gathered, record, shift)
        elif math.prod(self._window.kernel):
            slab = record_slab(
                self._window,
                source,
                tile,
                np.float32,
                shift,
                0.0,
                record,
                planar=self._planar,
            )
            record_windows(self._window, slab, tile, self._groups, gathered, record)


def bind_convolution(binding: Binding) -> Kernel:
    """`convolution` with dense or grouped constant weights, in ONNX layout [OC, IC/groups,
    kernel...].
    """
    weights, groups = binding.constant("weights"), int(binding.number("group", 1))
    win = window_of(binding.step, binding.need("src").shape[2:], weights.shape[2:])
    result = binding.result(Layout.CHANNELS_LAST)
    bias = bias_operand(binding, 1)
    return WindowedGemm(binding, win, kernel_matrix(weights), groups, result, bias)


def record_windows(
    win: Window, slab: Array, tile: Tile, groups: int, gathered: F32Array, record: Recorder
) -> None:
    """Takes down the copy of the windows of a slab into rows: [rows, groups, kernel..., C/groups],
    flat in all but the rows.

    `gathered` may be the transpose of a contiguous array (one group): the copy then runs along the
    rows.
    """
    sizes = extent(tile[1:])
    view = window_view(win, slab, sizes)
    if not gathered.flags.c_contiguous:  # planar: [kernel..., C] x rows
        target = gathered.T.reshape(view.shape[1 + len(sizes) :] + view.shape[: 1 + len(sizes)])
        record(
            np.copyto, np.moveaxis(target, range(-1 - len(sizes), 0), range(1 + len(sizes))), view
        )
        return
    if groups > 1:
        view = view.reshape(*view.shape[:-1], groups, view.shape[-1] // groups)
        view = np.moveaxis(view, -2, 1 + len(sizes))
    record(np.copyto, gathered.reshape(view.shape), view)
