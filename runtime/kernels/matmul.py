"""Matrix products: activations times constant weights, and activations times activations (batched, broadcast)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...ir.ops.spec import Array
from ...ir.types import DType
from ..numerics import F32Array
from .base import Binding, Kernel, Result, Scratch, Tile, Values, Workspace, nbytes, tiles
from .convolution import anchor_of, integer_codes
from .elementwise import cut, expand
from .epilogue import Epilogue
from .exact_gemm import KSplit, accumulate, scratch_bytes, split_for_any, split_for_weights
from .gemm import TiledGemm

__all__ = ["BatchedMatmul", "Matmul", "bind_matmul"]

_TILE_ROWS = 512
_TILE_BYTES = 1 << 20


def bind_matmul(binding: Binding) -> Kernel:
    """The kernel for constant two-dimensional weights, or the one for everything else."""
    src, weights = binding.need("src"), binding.need("weights")
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
        self._gemm = TiledGemm(matrix, True, 1, split, self._epilogue, shape, lambda _: 0, binding.threads)
        self.local_bytes, self.shared_bytes = self._gemm.local_bytes, self._gemm.shared_bytes

    def run(self, values: Values, outputs: Sequence[Array], work: Workspace) -> None:
        """Computes the destination."""
        x = values[self._src].reshape(self._leading)
        self._gemm.run(x, self._fill, outputs[0], self._epilogue.operands(values), work)

    def _fill(self, x: Array, tile: Tile, gathered: F32Array, scratch: Scratch) -> None:
        part = x[tile]
        np.copyto(gathered.reshape(part.shape), part, casting="unsafe")
        if self._shift:
            np.subtract(gathered, np.float32(self._shift), out=gathered)


class BatchedMatmul(Kernel):
    """`matmul` of two activations, or with weights of more than two dimensions: [..., M, K] x [..., K, N], leading dimensions broadcast."""

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
        if (codes is None) != (weights_codes is None):
            raise binding.refuse(f"{src.dtype.value} times {weights.dtype.value}")
        if codes is not None and weights_codes is not None:
            self._split = split_for_any(self._depth, weights_codes, codes, exact=result.dtype is DType.S32)
            magnitude = float(self._split.bound)
        anchor = anchor_of(binding, len(shape) - 1, len(shape), magnitude, codes is not None)
        self._epilogue = Epilogue(binding, result, anchor)
        self._tiles = tiles(shape[:-1], self._rows(binding.threads))
        self.local_bytes = max((self._tile_bytes(t) for t in self._tiles), default=0)

    def _rows(self, threads: int) -> int:
        rows = math.prod(self._shape[:-1])
        fit = _TILE_BYTES // (4 * (self._depth + self._shape[-1]) + 1)
        return max(1, min(max(fit, 64), -(-rows // threads)))

    def _tile_bytes(self, tile: Tile) -> int:
        sizes = [c.stop - c.start for c in tile]
        rows, columns = math.prod(sizes), self._shape[-1]
        batch = math.prod(sizes[:-1])
        factors = nbytes((rows, self._depth), np.float32) + nbytes((batch, self._depth, columns), np.float32)
        return factors + scratch_bytes(self._split, rows, columns) + self._epilogue.scratch_bytes(rows * columns)

    def run(self, values: Values, outputs: Sequence[Array], work: Workspace) -> None:
        """Computes the destination."""
        rank = len(self._shape)
        a, w = expand(self._src.read(values), rank), expand(self._weights.read(values), rank)
        operands = self._epilogue.operands(values)

        def body(index: int, slot: int) -> None:
            tile = self._tiles[index]
            scratch = work.local[slot]
            scratch.reset()
            left = _f32(cut(a, (*tile, slice(0, self._depth))), self._shift, scratch)
            right = _f32(cut(w, (*tile[:-1], slice(0, self._depth), slice(0, self._shape[-1]))), self._weights_shift, scratch)
            acc = accumulate(self._split, left, right, scratch)
            self._epilogue.apply(acc, outputs[0], (*tile, slice(0, self._shape[-1])), operands, scratch)

        work.pool.run(len(self._tiles), body)


def _f32(part: Array, shift: int, scratch: Scratch) -> F32Array:
    copy: F32Array = scratch.take(part.shape, np.float32)  # type: ignore[assignment]
    np.copyto(copy, part, casting="unsafe")
    if shift:
        np.subtract(copy, np.float32(shift), out=copy)
    return copy
