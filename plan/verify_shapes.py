"""Rows of the plan verifier about what a step is: its identity, its arguments, its parameters, and
the types that follow from them.

Nothing that a plan states is taken on trust: what a step writes is derived again from what it
reads, by the op table's own functions, and has to be what is stated.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from ..ir.algorithms import BINARY, ELTWISE
from ..ir.constants import for_types
from ..ir.diagnostic import Finding
from ..ir.ops import OPS
from ..ir.ops.spec import SWITCHES, Required, ShapeError
from ..ir.text_write import name_text, type_text
from ..ir.types import MOST_DIMENSIONS, DType, TensorType, is_static
from .accumulator import ACCUMULATOR, CODE_REACH, WEIGHTS_ZERO_POINTS, source_reach, sums_of
from .arguments import (
    AT_RUN_TIME,
    BLOCKS_OF_WEIGHTS,
    PACKED,
    SOURCE_AT_RUN_TIME,
    at_run_time,
    positional,
)
from .findings import about, destination, of_steps, of_target
from .shapes import step_types
from .targets import Target
from .types import Plan, Step


@dataclass(frozen=True)
class Schema:
    """What the steps of one primitive are made of.

    Attributes:
        needs: roles that it cannot do without.
        takes: further roles; None: the names of the op's further inputs.
        repeats: the last role is numbered, and goes on: src_0, src_1, src_2 ...
        outputs: how many values it may write; the first one it must.
        constant: roles whose values must be constants: kernels pack them while they bind.
        exact: what it reads and writes has the element types of the op's row: no codes stand for
            reals.
    """

    needs: tuple[str, ...] = ("src",)
    takes: tuple[str, ...] | None = None
    repeats: bool = False
    outputs: int = 1
    constant: tuple[str, ...] = ()
    exact: bool = False


_WEIGHTED = ("src", "weights")
_OF_WINDOWS = ("bias", *SOURCE_AT_RUN_TIME, "scales_weights")
SCHEMAS: Mapping[str, Schema] = {
    "convolution": Schema(_WEIGHTED, _OF_WINDOWS, constant=("bias",)),
    "deconvolution": Schema(_WEIGHTED, _OF_WINDOWS, constant=("weights", "bias")),
    "matmul": Schema(_WEIGHTED, ("bias", *AT_RUN_TIME)),
    "binary": Schema(("src_0", "src_1"), ()),
    "concat": Schema(("src_0",), (), repeats=True),
    "eltwise": Schema(takes=()),
    "reorder": Schema(takes=()),
    "rnn": Schema(outputs=3),
    "dynamic_range": Schema(outputs=2, exact=True),
    **dict.fromkeys(
        (
            "pooling",
            "softmax",
            "layer_normalization",
            "batch_normalization",
            "reduction",
            "resampling",
            "shuffle",
            "prelu",
            "lrn",
        ),
        Schema(),
    ),
}
"""The primitives."""

OWN_PRIMITIVES = frozenset(name for name, schema in SCHEMAS.items() if schema.exact)
"""Those of our own, which oneDNN does not have: steps of ours stand for them on every runtime."""

_OF_OPS: Mapping[str, Schema] = {
    PACKED: Schema(
        (*_WEIGHTED, BLOCKS_OF_WEIGHTS[0]),
        (BLOCKS_OF_WEIGHTS[1], "bias"),
        constant=("weights", *BLOCKS_OF_WEIGHTS),
    )
}
"""Steps that are made of something else than others of their primitive, by their op."""

_ALGORITHMS = {"eltwise": ELTWISE, "binary": BINARY}
# what else may stand for a default of that type
_KINDS: Mapping[type, tuple[type, ...]] = {float: (float, int)}
NO_FIT = (
    ShapeError,
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    AttributeError,
    ArithmeticError,
    MemoryError,
)
"""What rows raise over arguments and parameters from a file: ShapeError where they look at them,
something else where they rely on them.
"""

_GEMM = ("convolution", "deconvolution", "matmul")
_CODES = (DType.U8, DType.S8, DType.S32)


# -- identity and roles ----------------------------------------------------------------------------


@of_steps
def roles_fit(plan: Plan, step: Step) -> Iterator[str | None]:
    """A step's primitive is one that computes its op, it has the arguments that it needs, each role
    once, and every argument its own.
    """
    yield _problem(step)
    for role in _schema(step).constant if step.primitive in SCHEMAS else ():
        value = step.arg(role)
        if value is not None and value not in plan.constants:
            yield f"computes its {role} at run time, and {step.primitive} needs a constant"


def _schema(step: Step) -> Schema:
    return _OF_OPS.get(step.op) or SCHEMAS[step.primitive]


def _problem(step: Step) -> str | None:
    return _identity_problem(step) or _role_problem(step)


def _identity_problem(step: Step) -> str | None:
    """A step is one thing: `onnx.<Op>` is the row of that name or the foreign op of that type, and
    a primitive computes its row.
    """
    row = OPS.get(step.op)
    if row is None and step.primitive.startswith("onnx."):
        return f"is of the op {name_text(step.op)}, which the op table does not have"
    if row is None:
        return f"computes nothing: the op table has no row {name_text(step.op)}"
    if step.primitive.startswith("onnx."):
        op = str(step.params.get("op_type")) if step.op == "Onnx" else step.op
        return None if step.primitive == f"onnx.{op}" else f"is of the op {name_text(op)}"
    if step.primitive not in SCHEMAS:
        return "is no primitive"
    algorithms = {"eltwise": row.eltwise, "binary": row.binary}
    by = step.params.get("algorithm")
    if step.primitive == "binary" or (step.primitive == "eltwise" and step.op != "Identity"):
        fits = by is not None and algorithms[step.primitive] == by
        return None if fits else f"computes {name_text(str(by))}, and is of the op {step.op}"
    fits = (
        step.op == "Identity"
        if step.primitive in ("eltwise", "reorder")
        else row.primitive == step.primitive
    )
    return None if fits else f"is of the op {step.op}, which it does not compute"


def _role_problem(step: Step) -> str | None:
    roles = dict(step.args)
    if len(roles) != len(step.args):
        return "has two arguments in one role"
    return (
        _row_role_problem(step, roles)
        if step.primitive.startswith("onnx.")
        else _primitive_role_problem(step, roles)
    )


def _row_role_problem(step: Step, roles: Mapping[str, str]) -> str | None:
    row = OPS[step.op]
    places = positional(row, tuple((role, role) for role in roles))
    if places is None:
        return f"has the roles {', '.join(roles)}, which {step.op} does not have"
    needed = [p.name if not p.variadic else f"{p.name}_0" for p in row.inputs if not p.optional]
    missing = [role for role in needed if role not in roles]
    if missing:
        return f"lacks its input {', '.join(missing)}"
    return _order_problem(roles, places)


def _order_problem(roles: Mapping[str, str], places: Iterable[str]) -> str | None:
    """Roles stand in their order: much is read by position."""
    return (
        None
        if list(roles) == [role for role in places if role in roles]
        else f"has its arguments in the order {', '.join(roles)}"
    )


def _primitive_role_problem(step: Step, roles: Mapping[str, str]) -> str | None:
    schema = _schema(step)
    missing = [role for role in schema.needs if role not in roles]
    if missing:
        return f"lacks its argument {', '.join(missing)}"
    takes = schema.takes
    if takes is None:
        takes = tuple(param.name for param in OPS[step.op].inputs[1:])
    names = (f"src_{i}" for i in range(len(roles))) if schema.repeats else (*schema.needs, *takes)
    known = dict.fromkeys(names)
    strange = [role for role in roles if role not in known]
    if strange:
        return f"has the role {name_text(strange[0])}, which {step.primitive} does not have"
    if not 1 <= len(step.outputs) <= schema.outputs or not step.outputs[0]:
        most = "one" if schema.outputs == 1 else f"up to {schema.outputs}, the first of them always"
        writes = f"has {len(step.outputs)} outputs, and {step.primitive} has {most}"
        return _order_problem(roles, known) or writes
    return _order_problem(roles, known)


# -- parameters ------------------------------------------------------------------------------------


@of_steps
def params_fit(plan: Plan, step: Step) -> Iterator[str]:  # noqa: ARG001  # a row of steps
    """Parameters are those that the op's row has, of its kinds; `eltwise` and `binary` name an
    algorithm.
    """
    row = OPS.get(step.op)
    if row is None:
        return
    algorithms = _ALGORITHMS.get(step.primitive)
    known = {"algorithm", "alpha", "beta"} if algorithms is not None else row.attrs.keys()
    for name in step.params.keys() - known:
        yield f"has the parameter {name_text(name)}, which {step.op} does not have"
    if algorithms is not None:
        yield from _algorithm_problems(step, algorithms)
        return
    for name, default in row.attrs.items():
        value = step.params.get(name, default)
        if isinstance(value, Required):
            yield f"lacks the parameter {name}"
        elif default is None or isinstance(default, Required):
            continue
        elif not isinstance(value, _KINDS.get(type(default), type(default))):
            yield f"has the parameter {name}, which is of another kind than {default!r}"
        elif name in SWITCHES and value not in (0, 1):
            yield f"has the parameter {name}, which is {value!r} and neither 0 nor 1"


def _algorithm_problems(step: Step, algorithms: Collection[str]) -> Iterator[str]:
    algorithm = step.params.get("algorithm")
    if not isinstance(algorithm, str) or algorithm not in algorithms:
        yield f"computes by the unknown algorithm {algorithm!r}"
    for name in ("alpha", "beta"):
        value = step.params.get(name, 0.0)
        if not isinstance(value, float | int):
            yield f"has the parameter {name}, and it is no number"
        elif math.isnan(value):
            yield f"has the parameter {name}, and it is NaN"


# -- types -----------------------------------------------------------------------------------------


def shapes_fit(plan: Plan) -> Iterator[Finding]:
    """What a step writes has the shape that the op table gives; for `onnx.<Op>` the element type,
    too.
    """
    for value, type_ in plan.values.items():
        # how many bytes is the business of the run's budget
        if len(type_.shape or ()) > MOST_DIMENSIONS:
            yield Finding(
                f"%{name_text(value)} of type {type_text(type_)} has more than {MOST_DIMENSIONS} dimensions",
                value=value,
            )
    for step in plan.steps:
        types = [plan.find(value) for _, value in step.args]
        if None in types or step.op == "Onnx" or _problem(step):
            continue  # other rows speak of these; a foreign op gives shapes that no row knows
        try:
            found = step_types(
                step, plan.type, lambda v: for_types(plan.constants, v), exact=_is_exact(step)
            )
        except NO_FIT as error:
            message = f"{step.primitive} {name_text(step.name)}: {error}"
            yield Finding(message, step.name, token=step.primitive)
            continue
        if len(step.outputs) > len(found):
            yield about(step, f"has {len(step.outputs)} outputs, and {step.op} gives {len(found)}")
        for value, expected in zip(step.outputs, found, strict=False):
            stated = plan.values.get(value)
            differs = stated is not None and stated.shape != expected.shape
            if stated is not None and (
                differs or (_is_exact(step) and stated.dtype is not expected.dtype)
            ):
                token = f"%{name_text(value)}"
                gives = f"{step.primitive} {name_text(step.name)} gives {type_text(expected)}"
                message = f"{token} is recorded as {type_text(stated)}, and {gives}"
                yield Finding(message, step.name, token=token)


def _is_exact(step: Step) -> bool:
    return step.primitive.startswith("onnx.") or step.primitive in OWN_PRIMITIVES


def _accumulator_problem(plan: Plan, step: Step, dtype: DType, weights: TensorType) -> str | None:
    """Sums of products of codes fit into 32 bits, and each product is exact in f32: else the
    runtimes give other numbers.
    """
    points = {
        role: step.attr.zero_points[role].values if role in step.attr.zero_points else (0,)
        for role in _WEIGHTED
    }
    far = any(zero not in WEIGHTS_ZERO_POINTS for zero in points["weights"])
    if source_reach(step, dtype) > CODE_REACH or far:
        return f"has zero points {list(points['src'])} and {list(points['weights'])}, too far from the codes for exact products"
    if not is_static(weights.shape):
        return None
    data = plan.constants.get(step.arg("weights") or "")
    bound = sums_of(step, dtype, weights.static_shape, data)
    return (
        None
        if bound <= ACCUMULATOR
        else f"adds products up to {bound:.0f}, and 32 bits hold {ACCUMULATOR}"
    )


@of_target
def types_fit(plan: Plan, step: Step, target: Target) -> Iterator[str | None]:
    """A primitive reads and writes element types that the target has for it."""
    if step.primitive not in SCHEMAS:
        return
    capability, end = (
        target.capability(step.primitive),
        f"{step.primitive} of {target.name} does not",
    )
    dst = destination(plan, step)
    for role, value in step.args:
        type_ = plan.find(value)
        if not role.startswith("src") or type_ is None:
            continue
        if type_.dtype not in capability.src:
            yield f"reads {role} as {type_.dtype.value}, which {end} take"
        elif dst is not None and dst.dtype is DType.S32 and capability.sums and type_.dtype.is_code:
            yield _sums_problem(step)
        elif dst is not None and dst.dtype not in capability.dst.get(type_.dtype, ()):
            yield f"turns {type_.dtype.value} into {dst.dtype.value}, which {end} do"
    yield from _run_time_problems(plan, step, target)
    yield from _operand_problems(plan, step)


def _operand_problems(plan: Plan, step: Step) -> Iterator[str | None]:
    """The factors of a product are both f32, or both codes; a bias is f32."""
    src, weights, bias = (plan.find(step.arg(role)) for role in ("src", "weights", "bias"))
    if step.op == PACKED:
        if src is not None and src.dtype is not DType.F32:
            yield f"multiplies {src.dtype.value} by packed codes, which are decoded to f32"
    elif src is not None and weights is not None:
        if weights.dtype is not (DType.F32 if src.dtype is DType.F32 else DType.S8):
            yield f"multiplies {src.dtype.value} by {weights.dtype.value}"
        elif src.dtype.is_code:
            yield _accumulator_problem(plan, step, src.dtype, weights)
    if bias is not None and bias.dtype is not DType.F32:
        yield f"adds a bias of {bias.dtype.value} instead of f32"


def _sums_problem(step: Step) -> str | None:
    """Sums in s32 are integers: whatever else is computed would go through f32."""
    computed = at_run_time(step.op, step.args)
    scaled = [role for role in computed if AT_RUN_TIME[role][0] == "scales"]
    attr = step.attr
    if attr.scales or attr.post_ops or attr.output_scales or scaled or step.arg("bias"):
        return "stores sums in s32, and has scales, a bias or post-ops"
    return "stores sums in s32, and has a zero point of dst" if "dst" in attr.zero_points else None


def _run_time_problems(plan: Plan, step: Step, target: Target) -> Iterator[str]:
    """Parameters that are computed are f32 numbers, and codes of the argument's own type, of an
    argument of codes that has no constant ones.
    """
    for role, value in at_run_time(step.op, step.args).items():
        field, argument = AT_RUN_TIME[role]
        type_, of = plan.find(value), plan.find(step.arg(argument))
        if type_ is None or of is None:
            continue
        scaled = field == "zero_points" or target.scales == "arguments"
        if not target.capability(step.primitive).run_time or not scaled:
            yield f"has a computed {role}, which {step.primitive} of {target.name} does not take"
        if not of.dtype.is_code:
            yield f"has a computed {role}, and its {argument} is {of.dtype.value} and no code"
        if argument in getattr(step.attr, field):
            yield f"has constant and computed {field} of {argument}"
        dtype = DType.F32 if field == "scales" else of.dtype
        if type_.dtype is not dtype or not _counts(plan, step, role, type_):
            several = ", or one for each output channel" if role == "scales_weights" else ""
            yield f"has {role} of {type_text(type_)}, and it is one {dtype.value}{several}"


def _counts(plan: Plan, step: Step, role: str, type_: TensorType) -> bool:
    """True for one number, and for a vector of scales of the weights along the output channels."""
    if type_.shape is None:
        return False
    if all(size == 1 for size in type_.shape):
        return True
    result = destination(plan, step)
    shape = None if result is None else result.shape
    if role != "scales_weights" or len(type_.shape) != 1 or not shape:
        return False
    return type_.shape[0] == shape[-1 if step.primitive == "matmul" else 1]
