"""The row of the plan verifier about recurrent layers: their arguments are of the types that the
kernels read.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..ir.text_write import name_text, type_text
from ..ir.types import DType
from .arguments import COUNTS
from .findings import of_steps
from .types import Plan, Step

__all__ = ["recurrent_fits"]


@of_steps
def recurrent_fits(plan: Plan, step: Step) -> Iterator[str]:
    """A recurrent layer reads and writes f32, and lengths in s32."""
    if step.primitive != "rnn":
        return
    for role, value in step.args:
        type_, dtype = plan.find(value), DType.S32 if role in COUNTS else DType.F32
        if type_ is not None and type_.dtype is not dtype:
            yield f"has {name_text(role)} of {type_text(type_)}, and it is {dtype.value}"
    for value in filter(None, step.outputs):
        type_ = plan.find(value)
        if type_ is not None and type_.dtype is not DType.F32:
            yield f"writes %{name_text(value)} of {type_text(type_)}, and it is f32"
