"""Which lowering serves which primitive of a plan; what is missing here runs on NumPy."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ...composer.plan import Step
from .binding import RESHAPES, Binder
from .lowering_binary import binary
from .lowering_boxes import gather, slice_
from .lowering_compute import convolution, deconvolution
from .lowering_matmul import matmul
from .lowering_normalization import batch_normalization, layer_normalization, lrn, prelu, reduction, resampling, softmax
from .lowering_pointwise import concat, eltwise, pooling
from .lowering_reorder import quantizing_reorder
from .lowering_views import reshape, shuffle, transpose

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
