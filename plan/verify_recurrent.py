"""The row of the plan verifier about recurrent layers: their arguments are of the types that the
kernels read, and a layer in int8 is one that the library has, with its parameters.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from ..ir.ops import OPS
from ..ir.ops.recurrent import DYNAMIC
from ..ir.text_write import name_text, type_text
from ..ir.types import DType, is_static
from ..masks import mask_text
from .accumulator import ACCUMULATOR
from .arguments import COUNTS
from .attributes import Scale
from .findings import of_target
from .recurrent import beyond_int8
from .recurrent_parameters import GATES_AND_OUTPUTS, qparams_of
from .targets import Target
from .types import Plan, Step

_WEIGHTS = ("w", "r")
_LARGEST = 3.4028235677973362e38
_PRODUCT = 255 * 128  # of a code of u8 and one of s8


@of_target
def recurrent_fits(plan: Plan, step: Step, target: Target) -> Iterator[str | None]:
    """A recurrent layer reads and writes f32, and lengths in s32; in int8 it reads u8 and weights of
    s8, constants with one scale for each row at most, and may write u8. Weights whose products are
    quantized with a range found at run time are codes, as their zero points.
    """
    if step.attr.rnn_weights_projection_qparams is not None:
        yield "has parameters of a projection, and steps have none"
    if step.primitive != "rnn":
        given = step.attr.rnn_data_qparams, step.attr.rnn_weights_qparams
        if given != (None, None):
            yield "has parameters of a recurrent layer"
        return
    src = plan.find(step.arg("src"))
    int8 = src is not None and src.dtype is DType.U8
    for role, value in step.args:
        type_, allowed = plan.find(value), _allowed(step, role, int8=int8)
        if type_ is not None and type_.dtype not in allowed:
            names = " or ".join(dtype.value for dtype in allowed)
            yield f"has {name_text(role)} of {type_text(type_)}, and it is {names}"
    for index, value in enumerate(step.outputs):
        type_ = plan.find(value)
        codes = int8 and index == 0
        if type_ is not None and type_.dtype not in ((DType.F32, DType.U8)[: 1 + codes]):
            yield f"writes %{name_text(value)} of {type_text(type_)}, and it is f32"
    yield from _int8_problems(plan, step, target, int8=int8)


def _allowed(step: Step, role: str, *, int8: bool) -> tuple[DType, ...]:
    if role in COUNTS:
        return (DType.S32,)
    if step.op == DYNAMIC and role in (*_WEIGHTS, "w_zero_point", "r_zero_point"):
        return (DType.U8, DType.S8)
    if int8 and role == "src":
        return (DType.U8,)
    return (DType.S8,) if int8 and role in _WEIGHTS else (DType.F32,)


def _int8_problems(plan: Plan, step: Step, target: Target, *, int8: bool) -> Iterator[str | None]:
    attr = step.attr
    told = [attr.rnn_data_qparams, attr.rnn_weights_qparams]
    if any(told) and not target.capability("rnn").rnn_qparams:
        yield f"has rnn_data_qparams or rnn_weights_qparams, which rnn of {target.name} does not take"
        return
    if not int8:
        if any(told) or attr.scales or attr.zero_points:
            yield "has parameters of codes, and reads f32"
        return
    if step.op not in OPS:
        return  # another row says so
    refusal = beyond_int8(step.op, OPS[step.op].known(step.params), [role for role, _ in step.args])
    if refusal is not None:
        yield f"is in int8: {refusal.reason}"
    values = {role: step.arg(role) or "" for role in _WEIGHTS}
    for role, value in values.items():
        if value not in plan.constants:
            yield f"computes its {role} at run time, and in int8 needs a constant"
    bias = plan.constants.get(step.arg("b") or "")
    if bias is not None and not np.isfinite(bias).all():
        yield "has a bias in int8 that is not finite, which runtimes take for different numbers"
    if target.capability("rnn").src_scale and attr.scales.get("w") != attr.scales.get("r"):
        yield "has other scales of w than of r: its products are added"
        return
    yield _problem(plan, step)


def _problem(plan: Plan, step: Step) -> str | None:
    """What is wrong with the parameters of a layer in int8."""
    attr = step.attr
    if any(
        (scale.mask == 0 and len(scale.values) != 1) or 0 in scale.values
        for scale in attr.scales.values()
    ):
        return "has scales that are 0, or not one of mask common"
    if any(len(zero.values) != 1 for zero in attr.zero_points.values()):
        return "has zero points that are not one"
    found = qparams_of(attr)
    if found is None:
        return "reads u8, and lacks the parameters of its codes"
    data, weights = found
    if not all(map(_is_f32, (*data.values, *weights.values))):
        return "has parameters of codes that are not finite, or scales that are 0"
    if len(data.values) != 2 or data.mask or data.values[0] <= 0:
        return "has rnn_data_qparams that are no positive scale and shift of mask common"
    if not 0 <= data.values[1] <= 255 or not data.values[1].is_integer():
        return f"has a shift of {data.values[1]:g}, which is no code of u8"
    if min(weights.values) > 0 and not _is_f32(1 / (min(weights.values) * data.values[0])):
        return "has parameters of codes whose product is too small: f32 holds no inverse of it"
    r = plan.find(step.arg("r"))
    w = plan.find(step.arg("w"))
    if r is None or w is None or not is_static(r.shape) or not is_static(w.shape):
        return None
    if len(r.static_shape) != 3 or len(w.static_shape) != 3:
        return None
    _, rows, hidden = r.static_shape
    wanted = _count(weights, rows)
    if wanted:
        return wanted
    bound = (hidden + w.static_shape[2]) * _PRODUCT
    return (
        None
        if bound <= ACCUMULATOR
        else f"adds products up to {bound}, and 32 bits hold {ACCUMULATOR}"
    )


def _count(weights: Scale, rows: int) -> str | None:
    count = {0: 1, GATES_AND_OUTPUTS: rows}.get(weights.mask)
    if count is None or len(weights.values) != count or min(weights.values) <= 0:
        held = f"has rnn_weights_qparams of mask {mask_text(weights.mask)} with {len(weights.values)} values"
        return f"{held}; they are positive, one of mask common or {rows} of mask {mask_text(GATES_AND_OUTPUTS)}"
    return None


def _is_f32(value: float) -> bool:
    return math.isfinite(value) and abs(value) <= _LARGEST
