"""Matrix products: activations times constant weights, and activations times activations (batched,
broadcast).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...ir.ops.spec import Array
from ...ir.types import DType
from ..numerics import F32Array
from .base import Binding, Kernel, Recorder, Result, Tasks, Tile, Values, nbytes, tiles
from .convolution import anchor_of, check_types, integer_codes
from .elementwise import cut, expand
from .epilogue import Epilogue
from .exact_gemm import KSplit, record_product, scratch_bytes, split_for_any, split_for_weights
from .gemm import TiledGemm

__all__ = ["BatchedMatmul", "Matmul", "bind_matmul"]

_TILE_BYTES = 1 << 20
_LEAST_WORK = 1 << 20  # multiply-adds of a task: about 20 microseconds
_PER_ELEMENT = 64


def bind_matmul(binding: Binding) -> Kernel:
    """The kernel for constant two-dimensional weights, or the one for everything else."""
    src, weights = binding.need("src"), binding.need("weights")
    check_types(binding)
    if len(src.shape) < 2 or len(weights.shape) < 2:
        raise binding.refuse("a one-dimensional factor")
    if weights.data is not None and math.prod(weights.shape[:-2]) == 1:
        return Matmul(binding)
    return BatchedMatmul(binding)


def _no_split(depth: int) -> KSplit:
    return KSplit((0, depth), 0, False, False)


class Matmul(Kernel):
    """`matmul` with constant weights [K, N] (leading dimensions of 1 allowed)."""

    def __init__(self, binding: Binding) -> None:
        src, weights = binding.need("src"), binding.need("weights")
        if weights.data is None:
            raise binding.refuse("weights that are no constant")
        shape = binding.shapes[0]
        result = Result(binding.dtypes[0], shape)
        self.results = (result,)
        self._src, self._leading = src.name, (*shape[:-1], src.shape[-1])
        codes, self._shift = integer_codes(binding, "src")
        matrix = weights.data.reshape(weights.shape[-2:])
        _, weights_zero = integer_codes(binding, "weights")
        if weights_zero:
            matrix = np.subtract(matrix, np.int16(weights_zero), dtype=np.int16)
        split, magnitude = _no_split(matrix.shape[0]), math.inf
        if codes is not None:
            split = split_for_weights(matrix.T, codes, exact=result.dtype is DType.S32)
            magnitude = float(split.bound)
        anchor = anchor_of(binding, len(shape) - 1, len(shape), magnitude, codes is not None)
        self._epilogue = Epilogue(binding, result, anchor)
        self._gemm = TiledGemm(
            matrix, 1, split, self._epilogue, shape, lambda _: 0, binding.threads
        )
        self.local_bytes = self._gemm.local_bytes

    def tasks(self, values: Values, outputs: Sequence[Array]) -> Tasks:
        """Tiles of the destination."""
        x = values[self._src].reshape(self._leading)
        return self._gemm.tasks(x, self._fill, outputs[0], self._epilogue.operands(values))

    def _fill(self, x: Array, tile: Tile, gathered: F32Array, record: Recorder) -> None:
        part = x[tile]
        record.copy(gathered.reshape(part.shape), part)
        if self._shift:
            record(np.subtract, gathered, np.float32(self._shift), gathered)


class BatchedMatmul(Kernel):
    """`matmul` of two activations, or with weights of more than two dimensions: [..., M, K] x [...,
    K, N], leading dimensions broadcast.
    """

    def __init__(self, binding: Binding) -> None:
        src, weights = binding.need("src"), binding.need("weights")
        shape = binding.shapes[0]
        result = Result(binding.dtypes[0], shape)
        self.results = (result,)
        self._src, self._weights, self._shape = src, weights, shape
        self._depth = src.shape[-1]
        codes, self._shift = integer_codes(binding, "src")
        weights_codes, self._weights_shift = integer_codes(binding, "weights")
        self._split, magnitude = _no_split(self._depth), math.inf
        if codes is not None and weights_codes is not None:
            self._split = split_for_any(
                self._depth, weights_codes, codes, exact=result.dtype is DType.S32
            )
            magnitude = float(self._split.bound)
        anchor = anchor_of(binding, len(shape) - 1, len(shape), magnitude, codes is not None)
        self._epilogue = Epilogue(binding, result, anchor)
        self._tiles = tiles(shape[:-1], self._rows(binding.threads))
        self.local_bytes = max((self._tile_bytes(t) for t in self._tiles), default=0)

    def _rows(self, threads: int) -> int:
        rows = math.prod(self._shape[:-1])
        fit = _TILE_BYTES // (4 * (self._depth + self._shape[-1]) + 1)
        work = rows * self._shape[-1] * (self._depth + _PER_ELEMENT)
        workers = max(1, min(threads, work // _LEAST_WORK))
        return max(1, min(max(fit, 64), -(-rows // workers)))

    def _tile_bytes(self, tile: Tile) -> int:
        sizes = [c.stop - c.start for c in tile]
        rows, columns = math.prod(sizes), self._shape[-1]
        batch = math.prod(sizes[:-1])
        factors = nbytes((rows, self._depth), np.float32) + nbytes(
            (batch, self._depth, columns), np.float32
        )
        return (
            factors
            + scratch_bytes(self._split, rows, columns)
            + self._epilogue.scratch_bytes(rows * columns)
        )

    def tasks(self, values: Values, outputs: Sequence[Array]) -> Tasks:
        """Tiles of the destination."""
        rank = len(self._shape)
        a, w = expand(self._src.read(values), rank), expand(self._weights.read(values), rank)
        operands = self._epilogue.operands(values)

        def task(index: int, record: Recorder) -> None:
            tile = self._tiles[index]
            left = _f32(cut(a, (*tile, slice(0, self._depth))), self._shift, record)
            right = _f32(
                cut(w, (*tile[:-1], slice(0, self._depth), slice(0, self._shape[-1]))),
                self._weights_shift,
                record,
            )
            acc = record_product(self._split, left, right, record)
            self._epilogue.record(
                acc, outputs[0], (*tile, slice(0, self._shape[-1])), operands, record
            )

        return Tasks(len(self._tiles), task)


def _f32(part: Array, shift: int, record: Recorder) -> F32Array:
    converted = record.take(part.shape, np.float32)
    record.copy(converted, part)
    if shift:
        record(np.subtract, converted, np.float32(shift), converted)
    return converted
