"""Which lowering serves which primitive of a plan; what is missing here runs on NumPy."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ...plan.types import Step
from .binary import binary
from .binding import RESHAPES, Binder
from .compute import convolution, deconvolution
from .matmul import matmul
from .moves import gather, reshape, shuffle, slice_, transpose
from .normalization import (
    batch_normalization,
    layer_normalization,
    lrn,
    prelu,
    reduction,
    resampling,
    softmax,
)
from .pointwise import concat, eltwise, pooling
from .reorder import quantizing_reorder

__all__ = ["LOWERINGS"]

LOWERINGS: Mapping[str, Callable[[Binder, Step], None]] = {
    "convolution": convolution,
    "deconvolution": deconvolution,
    "matmul": matmul,
    "pooling": pooling,
    "binary": binary,
    "eltwise": eltwise,
    "reorder": quantizing_reorder,
    "concat": concat,
    "softmax": softmax,
    "layer_normalization": layer_normalization,
    "batch_normalization": batch_normalization,
    "lrn": lrn,
    "prelu": prelu,
    "reduction": reduction,
    "resampling": resampling,
    "shuffle": shuffle,
    **dict.fromkeys(RESHAPES, reshape),
    "onnx.Transpose": transpose,
    "onnx.Gather": gather,
    "onnx.Slice": slice_,
}
