"""Rows of the plan verifier about arguments: their roles, and the shape that the op table gives to what a step writes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from ..ir.diagnostic import Finding
from ..ir.ops import OPS
from ..ir.ops.spec import Array, OpSpec, Required, ShapeError
from ..ir.text_write import name_text, type_text
from ..ir.types import DType, TensorType
from .attributes import DepthwiseConv
from .plan import Plan, Step
from .plan_nodes import positional
from .verify_attributes import BINARY, ELTWISE, type_of

__all__ = ["PRIMITIVES", "params_fit", "roles_fit", "shapes_fit"]

PRIMITIVES: Mapping[str, tuple[str, ...]] = {
    "convolution": ("src", "weights"), "deconvolution": ("src", "weights"), "matmul": ("src", "weights"), "binary": ("src_0", "src_1"),
    "concat": ("src_0",), "sum": ("src_0",), "pooling": ("src",), "eltwise": ("src",), "reorder": ("src",), "softmax": ("src",),
    "layer_normalization": ("src",), "batch_normalization": ("src",), "reduction": ("src",), "resampling": ("src",), "shuffle": ("src",),
    "prelu": ("src",), "lrn": ("src",),
}  # fmt: skip
"""The primitives, and the roles that they cannot do without."""

_KINDS: Mapping[type, tuple[type, ...]] = {float: (float, int)}  # what else may stand for a default of that type
_NO_FIT = (ShapeError, ValueError, TypeError, KeyError, IndexError, AttributeError, ArithmeticError, MemoryError)
"""What rows raise over arguments and parameters from a file: ShapeError where they look at them, something else where they rely on them."""

_GEMM = ("convolution", "deconvolution", "matmul")
_CODES = (DType.U8, DType.S8, DType.S32)


def roles_fit(plan: Plan) -> Iterator[Finding]:
    """Primitives are known, have the arguments that they need, each role once, and every argument has its own."""
    for step in plan.steps:
        problem = _role_problem(step)
        if problem:
            yield Finding(f"{step.primitive} {name_text(step.name)} {problem}", step.name, token=step.primitive)


def _role_problem(step: Step) -> str | None:
    roles = [role for role, _ in step.args]
    if step.primitive.startswith("onnx."):
        row = OPS.get(step.op)
        if row is None:
            return f"is of the op {name_text(step.op)}, which the op table does not have"
        if positional(row, step.args) is None or len(set(roles)) != len(roles):
            return f"has the roles {', '.join(roles)}, which {step.op} does not have"
        missing = [p.name for p in row.inputs if not (p.optional or p.variadic) and p.name not in roles]
        return f"lacks its input {', '.join(missing)}" if missing else None
    if step.primitive not in PRIMITIVES:
        return "is no primitive"
    missing = [role for role in PRIMITIVES[step.primitive] if role not in roles]
    if missing:
        return f"lacks its argument {', '.join(missing)}"
    return "has two arguments in one role" if len(set(roles)) != len(roles) else None


def params_fit(plan: Plan) -> Iterator[Finding]:
    """Parameters are of the kinds that the op's row has; `eltwise` and `binary` name an algorithm."""
    for step in plan.steps:
        for problem in _param_problems(step):
            yield Finding(f"{step.primitive} {name_text(step.name)} {problem}", step.name, token=step.primitive)


def _param_problems(step: Step) -> Iterator[str]:
    algorithms = {"eltwise": ELTWISE, "binary": BINARY}.get(step.primitive)
    if algorithms is not None:
        algorithm = step.params.get("algorithm")
        if not isinstance(algorithm, str) or algorithm not in algorithms:
            yield f"computes by the unknown algorithm {algorithm!r}"
        for name in ("alpha", "beta"):
            if not isinstance(step.params.get(name, 0.0), float | int):
                yield f"has the parameter {name}, and it is no number"
        return
    row = OPS.get(step.op)
    for name, default in row.attrs.items() if row is not None else ():
        value = step.params.get(name, default)
        if default is not None and not isinstance(default, Required) and not isinstance(value, _KINDS.get(type(default), type(default))):
            yield f"has the parameter {name}, which is of another kind than {default!r}"


def shapes_fit(plan: Plan) -> Iterator[Finding]:
    """What a step writes has the shape that the op table gives; for `onnx.<Op>` the element type, too."""
    for step in plan.steps:
        types = [type_of(plan, value) for _, value in step.args]
        if _role_problem(step) or None in types or step.op == "Onnx" or any(isinstance(op, DepthwiseConv) for op in step.attr.post_ops):
            continue  # other rows speak of these; a foreign op and a depthwise post-op give shapes that no row knows
        try:
            found = _expected(plan, step)
        except _NO_FIT as error:
            yield Finding(f"{step.primitive} {name_text(step.name)}: {error}", step.name, token=step.primitive)
            continue
        for value, expected in zip(step.outputs, found, strict=False):
            stated = plan.values.get(value)
            differs = stated is not None and stated.shape != expected.shape
            if stated is not None and (differs or (step.primitive.startswith("onnx.") and stated.dtype is not expected.dtype)):
                token = f"%{name_text(value)}"
                gives = f"{step.primitive} {name_text(step.name)} gives {type_text(expected)}"
                message = f"{token} is recorded as {type_text(stated)}, and {gives}"
                yield Finding(message, step.name, token=token)


def _expected(plan: Plan, step: Step) -> tuple[TensorType, ...]:
    """Types of the outputs by the op table; of a fused primitive the shape counts only.

    Raises:
        ShapeError: the arguments do not fit the op.
    """
    roles = dict(step.args)
    if step.primitive in ("eltwise", "reorder", "prelu", "shuffle"):
        return (plan.type(roles["src"]),)
    row = OPS.get("Add" if step.primitive == "binary" else step.op)
    if row is None:
        raise ShapeError(f"the op table has no row {step.op}")
    values = _arguments(row, step)
    types = [None if not v else plan.type(v) if step.primitive.startswith("onnx.") else _decoded(plan.type(v)) for v in values]
    data: list[Array | None] = [plan.constants.get(v) for v in values]
    attrs = row.complete({name: value for name, value in step.params.items() if name in row.attrs})
    return row.infer(types, attrs, data)


def _decoded(type_: TensorType) -> TensorType:
    """Codes count as the reals that they stand for: rows of arithmetic ops speak of f32."""
    return replace(type_, dtype=DType.F32, quant=None) if type_.dtype in _CODES else type_


def _arguments(row: OpSpec, step: Step) -> tuple[str, ...]:
    """The step's arguments in the order of the row's inputs."""
    roles = dict(step.args)
    if step.primitive.startswith("onnx."):
        return positional(row, step.args) or ()
    if step.primitive in _GEMM:
        bias = ("bias",) if "bias" in roles and len(row.inputs) > 2 else ()
        return tuple(roles[role] for role in ("src", "weights", *bias))
    numbered = sorted((int(role[4:]), value) for role, value in step.args if re.fullmatch("src_[0-9]{1,6}", role))
    if numbered:
        return tuple(value for _, value in numbered)
    return (roles["src"], *(roles.get(param.name, "") for param in row.inputs[1:]))
