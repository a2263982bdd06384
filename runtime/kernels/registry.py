"""Which kernel runs which primitive."""

from __future__ import annotations

from collections.abc import Callable

from ...errors import InternalError
from .base import Binding, Kernel
from .concat import Concat
from .convolution import Convolution
from .deconvolution import Deconvolution
from .depthwise import DepthwiseConvolution, is_depthwise
from .elementwise import BinaryKernel, EltwiseKernel, Reorder
from .fused_depthwise import FusedDepthwise, has_depthwise
from .matmul import bind_matmul
from .pooling import Pooling
from .table import RowKernel

__all__ = ["PRIMITIVES", "bind_kernel"]


def _convolution(binding: Binding) -> Kernel:
    if has_depthwise(binding):
        return FusedDepthwise(binding)
    return DepthwiseConvolution(binding) if is_depthwise(binding) else Convolution(binding)


PRIMITIVES: dict[str, Callable[[Binding], Kernel]] = {
    "convolution": _convolution,
    "deconvolution": Deconvolution,
    "matmul": bind_matmul,
    "pooling": Pooling,
    "binary": BinaryKernel,
    "eltwise": EltwiseKernel,
    "reorder": Reorder,
    "concat": Concat,
    "reduction": RowKernel,
    "softmax": RowKernel,
    "layer_normalization": RowKernel,
    "batch_normalization": RowKernel,
    "resampling": RowKernel,
    "shuffle": RowKernel,
    "prelu": RowKernel,
    "lrn": RowKernel,
}
"""Primitive -> what binds its kernel. `onnx.<Op>` steps are `table.OnnxKernel`; foreign ops go
through runtime/fallback.py.
"""


def bind_kernel(binding: Binding) -> Kernel:
    """The kernel of a step for concrete shapes.

    Raises:
        InternalError: the step's primitive has no kernel.
    """
    binder = PRIMITIVES.get(binding.step.primitive)
    if binder is None:
        raise InternalError(
            f"step {binding.step.name}: no kernel for the primitive {binding.step.primitive}"
        )
    return binder(binding)
