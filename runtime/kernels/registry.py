"""Which kernel runs which primitive."""

from __future__ import annotations

from collections.abc import Callable

from ...errors import InternalError
from ...plan.verify_shapes import SCHEMAS
from .base import Binding, Kernel
from .deconvolution import bind_deconvolution
from .elementwise import bind_binary, bind_concat, bind_eltwise, bind_reorder
from .fused_depthwise import bind_any_convolution
from .matmul import bind_matmul
from .pooling import Pooling
from .table import bind_row

__all__ = ["KERNELS", "bind_kernel"]

KERNELS: dict[str, Callable[[Binding], Kernel]] = {
    "convolution": bind_any_convolution,
    "deconvolution": bind_deconvolution,
    "matmul": bind_matmul,
    "pooling": Pooling,
    "binary": bind_binary,
    "eltwise": bind_eltwise,
    "reorder": bind_reorder,
    "concat": bind_concat,
}
"""Primitive -> what binds its kernel; that of any other is its operator's row of the op table.
`onnx.<Op>` steps are `table.EvaluatedKernel`.
"""


def bind_kernel(binding: Binding) -> Kernel:
    """The kernel of a step for concrete shapes.

    Raises:
        InternalError: the step's primitive has no kernel.
    """
    if binding.step.primitive not in SCHEMAS:
        raise InternalError(
            f"step {binding.step.name}: no kernel for the primitive {binding.step.primitive}"
        )
    return KERNELS.get(binding.step.primitive, bind_row)(binding)
