"""The row of the plan verifier about recurrent layers: their arguments are of the types that the
kernels read.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..ir.ops.recurrent import DYNAMIC
from ..ir.text_write import name_text, type_text
from ..ir.types import DType
from .arguments import COUNTS
from .findings import of_steps
from .types import Plan, Step

__all__ = ["recurrent_fits"]


@of_steps
def recurrent_fits(plan: Plan, step: Step) -> Iterator[str]:
    """A recurrent layer reads and writes f32, and lengths in s32; weights that are quantized for
    products with a range found at run time are codes, as their zero points.
    """
    if step.primitive != "rnn":
        return
    for role, value in step.args:
        type_, allowed = plan.find(value), _allowed(step, role)
        if type_ is not None and type_.dtype not in allowed:
            names = " or ".join(dtype.value for dtype in allowed)
            yield f"has {name_text(role)} of {type_text(type_)}, and it is {names}"
    for value in filter(None, step.outputs):
        type_ = plan.find(value)
        if type_ is not None and type_.dtype is not DType.F32:
            yield f"writes %{name_text(value)} of {type_text(type_)}, and it is f32"


def _allowed(step: Step, role: str) -> tuple[DType, ...]:
    if role in COUNTS:
        return (DType.S32,)
    codes = step.op == DYNAMIC and role in ("w", "r", "w_zero_point", "r_zero_point")
    return (DType.U8, DType.S8) if codes else (DType.F32,)
