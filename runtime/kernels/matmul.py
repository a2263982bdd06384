"""Matrix products: activations times constant weights, and activations times activations (batched,
broadcast).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...ir.ops.spec import Array
from ...ir.types import DType
from ...plan.arguments import PACKED
from ...plan.types import codes_source
from ..numerics import F32Array
from .base import Binding, Kernel, Recorder, Result, Tile, extent, nbytes, part_of, tiles
from .block_gemm import BlockGemm, CodedBlockGemm
from .epilogue import Anchor, Epilogue, Tiled
from .exact_gemm import KSplit, record_product, scratch_bytes, split_for_any, split_for_weights
from .gemm import TiledGemm, anchor_of, bias_operand, integer_codes
from .pairs import live_pairs, pairs_of, sums_of_step

_TILE_BYTES = 1 << 20
_LEAST_WORK = 1 << 20  # multiply-adds of a task: about 20 microseconds
_PER_ELEMENT = 64


def bind_matmul(binding: Binding) -> Kernel:
    """The kernel for constant two-dimensional weights [K, N] (leading dimensions of 1 allowed), or
    the one for everything else.
    """
    if binding.step.op == PACKED:
        return (CodedBlockGemm if codes_source(binding.step) else BlockGemm)(binding)
    weights, result = binding.need("weights"), binding.result()
    codes, shift = integer_codes(binding, "src")
    if len(binding.need("src").shape) < 2 or len(weights.shape) < 2:
        raise binding.refuse("a one-dimensional factor")
    if weights.data is None or math.prod(weights.shape[:-2]) != 1:
        return BatchedMatmul(binding)
    matrix = weights.data.reshape(weights.shape[-2:])
    _, zero = integer_codes(binding, "weights")
    if zero:
        matrix = np.subtract(matrix, np.int16(zero), dtype=np.int16)
    split = split_for_weights(matrix.T, codes, exact=result.dtype is DType.S32)
    codes_of_weights = weights.data.reshape(weights.shape[-2:])
    pairs = pairs_of(sums_of_step(binding), codes_of_weights, matrix.shape[0], shift)
    split = pairs.split(split) if pairs else split
    epilogue = Epilogue(binding, result, _anchor_of(binding, result, split))
    return TiledGemm(binding, matrix, 1, split, epilogue, result.shape, pairs=pairs)


def _anchor_of(binding: Binding, result: Result, split: KSplit) -> Anchor:
    columns = len(result.shape) - 1
    return anchor_of(binding, columns, split, bias_operand(binding, columns))


class BatchedMatmul(Tiled):
    """`matmul` of two activations, or with weights of more than two dimensions: [..., M, K] x [...,
    K, N], leading dimensions broadcast.
    """

    def __init__(self, binding: Binding) -> None:
        src, weights, result = binding.need("src"), binding.need("weights"), binding.result()
        self._depth, columns = src.shape[-1], result.shape[-1]
        codes, self._shift = integer_codes(binding, "src")
        weights_codes, self._weights_shift = integer_codes(binding, "weights")
        exact = result.dtype is DType.S32
        self._split = split_for_any(self._depth, weights_codes, codes, exact)
        self._sums = sums_of_step(binding)
        if self._sums.pairs:  # exact in spite of a correction
            self._split = replace(self._split, wide=True)
        epilogue = Epilogue(binding, result, _anchor_of(binding, result, self._split))
        rows = tiles(result.shape[:-1], self._rows(result.shape, binding.threads))
        boxes = [(*tile, slice(0, columns)) for tile in rows]
        super().__init__(epilogue, [src, weights], boxes, self._split.dtype, self._tile_bytes)

    def _rows(self, shape: Sequence[int], threads: int) -> int:
        rows = math.prod(shape[:-1])
        fit = _TILE_BYTES // (4 * (self._depth + shape[-1]) + 1)
        work = rows * shape[-1] * (self._depth + _PER_ELEMENT)
        workers = max(1, min(threads, work // _LEAST_WORK))
        return max(1, min(max(fit, 64), -(-rows // workers)))

    def _tile_bytes(self, tile: Tile) -> int:
        *batch, rows, columns = extent(tile)
        images = math.prod(batch)
        left = nbytes((images * rows, self._depth), np.float32)
        right = nbytes((images, self._depth, columns), np.float32)
        return left + right + scratch_bytes(self._split, images * rows, columns)

    def _fill(self, acc: Array, sources: Sequence[Array], tile: Tile, record: Recorder) -> None:
        (*batch, rows, columns), depth = tile, slice(0, self._depth)
        left = _f32(part_of(sources[0], (*batch, rows, depth)), self._shift, record)
        right = _f32(part_of(sources[1], (*batch, depth, columns)), self._weights_shift, record)
        correct = None
        if self._sums.pairs:
            correct = live_pairs(self._sums, left, right, (self._shift, self._weights_shift))
        record_product(self._split, left, right, acc, record, correct)


def _f32(part: Array, shift: int, record: Recorder) -> F32Array:
    converted = record.take(part.shape, np.float32)
    record.copy(converted, part)
    if shift:
        record(np.subtract, converted, np.float32(shift), converted)
    return converted
