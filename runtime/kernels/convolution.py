"""Convolution: 1-D, 2-D, 3-D, grouped; integer (exact) and f32.

The zero point is subtracted while codes are converted to f32, and padding then holds 0, so a padded
tap contributes zero real value. Each tile of outputs gathers its own windows (im2col) from the part
of the padded input that it reads.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...ir.ops.spec import Array
from ...ir.types import DType
from ...plan.attributes import PrimitiveAttr
from ..numerics import F32Array
from .base import Binding, Kernel, Layout, Operand, Recorder, Result, Tasks, Tile, Values
from .epilogue import Anchor, Epilogue, along
from .exact_gemm import Codes, KSplit, split_for_weights
from .gemm import TiledGemm
from .windows import Window, record_slab, resolve_window, slab_bytes, window_view

__all__ = [
    "Convolution",
    "WindowedGemm",
    "anchor_of",
    "check_types",
    "integer_codes",
    "kernel_matrix",
]

# window elements side by side in memory; below, gathering runs along the outputs instead (first
# layers)
_SHORT_RUN = 32


def integer_codes(binding: Binding, role: str) -> tuple[Codes | None, int]:
    """The range of an integer argument minus its zero point, and the zero point; (None, 0) for an
    f32 argument.

    Raises:
        InternalError: an element type, or a zero point per channel, that the kernels do not take.
    """
    operand = binding.need(role)
    zero = binding.step.attr.zero_points.get(role)
    if operand.dtype is DType.F32:
        if zero is not None and np.any(zero.array):
            raise binding.refuse(f"a zero point on f32 {role}")
        return None, 0
    if operand.dtype not in (DType.U8, DType.S8):
        raise binding.refuse(f"{role} of type {operand.dtype.value}")
    if zero is None:
        return Codes.of(operand.dtype.range), 0
    if len(set(zero.values)) > 1:
        raise binding.refuse(f"zero points per channel on {role}")
    return Codes.of(operand.dtype.range, zero.values[0]), zero.values[0]


def check_types(binding: Binding) -> None:
    """Both factors are codes, or both are f32.

    Raises:
        InternalError: they are mixed.
    """
    src, weights = binding.need("src").dtype, binding.need("weights").dtype
    if src.is_integer != weights.is_integer:
        raise binding.refuse(f"{src.value} times {weights.value}")


def anchor_of(binding: Binding, channel: int, rank: int, magnitude: float, integer: bool) -> Anchor:
    """Scales of src and weights, and the bias, placed on dst's dimensions.

    Args:
        binding: the step.
        channel: the dimension of dst that per-channel weights scales run along.
        rank: of dst.
        magnitude: a bound on the accumulator.
        integer: whether the accumulator is an integer.
    """
    attr: PrimitiveAttr = binding.step.attr
    scales: list[F32Array] = []
    for role in ("src", "weights"):
        if role in attr.scales:
            scale = attr.scales[role]
            scales.append(along(scale.array, channel if scale.mask else None, rank))
    bias = binding.arg("bias")
    placed: Operand | F32Array | None = bias
    if bias is not None and channel != rank - 1:
        if bias.data is None:
            raise binding.refuse("a bias that is no constant")
        placed = along(bias.data, channel, rank)
    return Anchor(magnitude=magnitude, integer=integer, scales=tuple(scales), bias=placed)


class WindowedGemm:
    """Windows of the input times constant weights: the work of a convolution.

    Args:
        window: the window.
        matrix: weights [kernel... * IC/groups, OC].
        groups: of channels.
        split: how the depth is cut.
        epilogue: what follows.
        shape: physical shape of the destination.
        channels: of the input.
        shift: the input's zero point.
        threads: how many workers share the tiles.
    """

    def __init__(
        self,
        window: Window,
        matrix: Array,
        groups: int,
        split: KSplit,
        epilogue: Epilogue,
        shape: Sequence[int],
        channels: int,
        shift: int,
        threads: int,
    ) -> None:
        self._window, self._groups, self._channels, self._shift = window, groups, channels, shift
        self._epilogue = epilogue
        run = channels * (window.kernel[-1] if window.dilations[-1] == 1 else 1)
        self._planar = groups == 1 and not window.pointwise and run < _SHORT_RUN
        self._gemm = TiledGemm(
            matrix,
            groups,
            split,
            epilogue,
            shape,
            self._fill_bytes,
            threads,
            by_position=self._planar,
        )
        self.local_bytes = self._gemm.local_bytes

    def tasks(self, x: Array, out: Array, values: Values) -> Tasks:
        """Tiles of the destination, for a source and a destination in physical order."""
        return self._gemm.tasks(x, self._fill, out, self._epilogue.operands(values))

    def _fill_bytes(self, tile: Tile) -> int:
        if self._window.pointwise or not self._window.taps:
            return 0
        return slab_bytes(
            self._window, tile[0].stop - tile[0].start, tile[1:], self._channels, np.float32
        )

    def _fill(self, x: Array, tile: Tile, gathered: F32Array, record: Recorder) -> None:
        if not self._window.taps:
            return
        if self._window.pointwise:
            part = x[tile]
            record.copy(gathered.reshape(part.shape), part)
            if self._shift:
                record(np.subtract, gathered, np.float32(self._shift), gathered)
            return
        slab = record_slab(
            self._window, x, tile, np.float32, self._shift, 0.0, record, planar=self._planar
        )
        record_windows(self._window, slab, tile, self._groups, gathered, record)


class Convolution(Kernel):
    """`convolution` with dense or grouped weights, in ONNX layout [OC, IC/groups, kernel...].

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
        check_types(binding)
        codes, shift = integer_codes(binding, "src")
        matrix = kernel_matrix(weights.data)
        window = resolve_window(binding, src.shape[2:], weights.shape[2:], shape[2:])
        split, magnitude = KSplit((0, matrix.shape[0]), 0, False, False), math.inf
        if codes is not None:
            split = split_for_weights(matrix.T, codes, exact=result.dtype is DType.S32)
            magnitude = float(split.bound)
        epilogue = Epilogue(
            binding, result, anchor_of(binding, 1, len(shape), magnitude, codes is not None)
        )
        physical = Layout.CHANNELS_LAST.physical_shape(shape)
        groups = int(binding.number("group", 1))
        self._gemm = WindowedGemm(
            window, matrix, groups, split, epilogue, physical, src.shape[1], shift, binding.threads
        )
        self.local_bytes = self._gemm.local_bytes

    def tasks(self, values: Values, outputs: Sequence[Array]) -> Tasks:
        """Tiles of the destination."""
        x, out = (
            Layout.CHANNELS_LAST.physical(values[self._src]),
            Layout.CHANNELS_LAST.physical(outputs[0]),
        )
        return self._gemm.tasks(x, out, values)


def record_windows(
    window: Window, slab: Array, tile: Tile, groups: int, gathered: F32Array, record: Recorder
) -> None:
    """Takes down the copy of the windows of a slab into rows: [rows, groups, kernel..., C/groups],
    flat in all but the rows.

    `gathered` may be the transpose of a contiguous array (one group): the copy then runs along the
    rows.
    """
    sizes = [cut.stop - cut.start for cut in tile[1:]]
    view = window_view(window, slab, sizes)
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


def kernel_matrix(weights: Array) -> Array:
    """[OC, IC/groups, kernel...] as a contiguous [kernel... * IC/groups, OC]."""
    turned = np.moveaxis(weights, (0, 1), (-1, -2))
    return np.ascontiguousarray(turned).reshape(math.prod(weights.shape[1:]), weights.shape[0])
