"""Which kernel runs which primitive."""

from __future__ import annotations

from collections.abc import Callable

from ...errors import InternalError
from .base import Binding, Kernel
from .deconvolution import bind_deconvolution
from .elementwise import bind_binary, bind_concat, bind_eltwise, bind_reorder
from .fused_depthwise import bind_any_convolution
from .matmul import bind_matmul
from .pooling import Pooling
from .table import bind_row

__all__ = ["PRIMITIVES", "bind_kernel"]

PRIMITIVES: dict[str, Callable[[Binding], Kernel]] = {
    "convolution": bind_any_convolution,
    "deconvolution": bind_deconvolution,
    "matmul": bind_matmul,
    "pooling": Pooling,
    "binary": bind_binary,
    "eltwise": bind_eltwise,
    "reorder": bind_reorder,
    "concat": bind_concat,
    **dict.fromkeys(
        (
            "reduction",
            "softmax",
            "layer_normalization",
            "batch_normalization",
            "resampling",
            "shuffle",
            "prelu",
            "lrn",
        ),
        bind_row,
    ),
}
"""Primitive -> what binds its kernel. `onnx.<Op>` steps are `table.EvaluatedKernel`.
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
