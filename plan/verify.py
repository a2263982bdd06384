"""The plan verifier: what holds of every plan. `verify_plan` lists what is broken, `check_plan`
raises::

check_plan(plan, source="net.plan.onnx")      # a file, or a plan made by hand: PlanError
check_plan(plan, blame="plan_from_graph")     # the compiler made it: InternalError, and the plan is saved for a report
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from ..errors import InternalError, PlanError
from ..ir.constants import as_held
from ..ir.decision import DequantizeFate, Half, QuantizeFate
from ..ir.diagnostic import Diagnostic, Finding, diagnose, save_text, summary
from ..ir.ops import dims
from ..ir.ops.recurrent import DYNAMIC
from ..ir.text_write import name_text, type_text
from ..ir.verify import quantization_problem
from .attributes import OPERANDS, DepthwiseConv, Sum
from .findings import about, called, destination
from .stated import stated_shapes_fit
from .targets import TARGETS
from .text import print_plan, render_plan
from .types import Plan, Step, codes_source
from .verify_attributes import post_ops_fit, scales_fit, zero_points_fit
from .verify_bodies import body_problems
from .verify_recurrent import recurrent_fits
from .verify_shapes import NO_FIT, params_fit, roles_fit, shapes_fit, types_fit

# a report holds the constants up to this many bytes, and their digests beyond
_SAVED_DATA = 64 << 20
_SHOWN = 50


def verify_plan(plan: Plan) -> list[Diagnostic]:
    """Everything in the plan that breaks a rule (the first 50); empty when it is sound."""
    return _verified(plan, PLAN)


def _verified_alone(plan: Plan) -> list[Diagnostic]:
    """The same, its bodies aside."""
    return _verified(plan, {row: find for row, find in PLAN.items() if row != "bodies"})


def _verified(
    plan: Plan, rows: Mapping[str, Callable[[Plan], Iterable[Finding]]]
) -> list[Diagnostic]:
    broken: list[tuple[str, Finding]] = []
    for row, find in rows.items():
        try:
            broken += [(row, found) for found in find(plan)]
        except NO_FIT:
            # a row relies on those above it, and trips over what they have found
            if not broken:
                raise
    if not broken:
        return []
    text = render_plan(plan, data="digest", explain=False)
    return [diagnose(f"plan/{row}", "", found, text) for row, found in broken[:_SHOWN]]


def check_plan(plan: Plan, *, source: str = "", blame: str = "") -> None:
    """Raises when the plan breaks a rule.

    Args:
        plan: the plan.
        source: the file that it comes from.
        blame: the part of the compiler that made it; empty when it comes from outside.

    Raises:
        PlanError: the plan from outside is not sound.
        InternalError: the compiler's plan is not; its text form is saved.
    """
    found = verify_plan(plan)
    if not found:
        return
    if not blame:
        where = ": ".join(filter(None, [source, found[0].subject]))
        raise PlanError(
            f"the plan is not sound: {summary(found)}",
            where=where,
            hint="compile the model again",
            excerpt=found[0].excerpt,
        )
    size = sum(data.nbytes for data in as_held(plan.constants).values())
    saved = save_text(print_plan(plan, data="full" if size <= _SAVED_DATA else "digest"), "plan")
    raise InternalError(f"{blame} made a plan that is not sound", saved, "\n".join(map(str, found)))


# -- structure -------------------------------------------------------------------------------------


def _target(plan: Plan) -> Iterator[Finding]:
    """The target is known."""
    if plan.target not in TARGETS:
        yield Finding(f"there is no target {name_text(plan.target)}")


def _names(plan: Plan) -> Iterator[Finding]:
    """Steps have names of their own."""
    for name, times in Counter(step.name for step in plan.steps).items():
        if times > 1 or not name:
            yield Finding(f"{times} steps are called {name_text(name)}", name)


def _defined(plan: Plan) -> Iterator[Finding]:
    """Values with a type are inputs, or written by a step."""
    times = Counter(plan.inputs)
    for value in plan.inputs:
        if value not in plan.values or value in plan.constants or times[value] > 1:
            yield Finding(
                f"the input %{name_text(value)} has no type, or is defined twice", value=value
            )
    ready = {
        *plan.inputs,
        *plan.constants,
        *(value for step in plan.steps for value in step.outputs),
    }
    for value in plan.values:
        if value not in ready:
            yield Finding(f"%{name_text(value)} has a type, and nothing writes it", value=value)
        elif value in plan.constants:
            yield Finding(
                f"@{name_text(value)} is a constant, and has the type of a computed value",
                value=value,
            )


def _bound(plan: Plan) -> Iterator[Finding]:
    """A value is written once, has a type, and is written before it is read."""
    ready = {*plan.inputs, *plan.constants}
    for step in plan.steps:
        for value in step.inputs:
            if value not in ready:
                shown = f"%{name_text(value)}"
                yield about(step, f"reads {shown} before it is written", shown)
        if not any(step.outputs):
            yield about(step, "writes nothing", "")
        for value in filter(None, step.outputs):
            shown = f"%{name_text(value)}"
            if value in ready:
                yield about(step, f"writes {shown} a second time", shown)
            if value not in plan.values:
                yield Finding(f"{shown} has no type", step.name, token=shown)
            ready.add(value)


def _outputs(plan: Plan) -> Iterator[Finding]:
    """The plan returns values that exist."""
    if not plan.outputs:
        yield Finding("the plan returns nothing")
    for value in plan.outputs:
        if value not in plan.values and value not in plan.constants:
            yield Finding(
                f"the plan returns %{name_text(value)}, which nothing writes", value=value
            )


def _quantization(plan: Plan) -> Iterator[Finding]:
    """Dimensions and quantization fit each other."""
    for value, type_ in plan.values.items():
        problem = quantization_problem(type_)
        if problem:
            yield Finding(f"%{name_text(value)} of type {type_text(type_)} {problem}", value=value)


def _constants(plan: Plan) -> Iterator[Finding]:
    """Slopes and weights of post-ops are constants."""
    for step in plan.steps:
        demanded = [
            getattr(op, name)
            for op in step.attr.post_ops
            for name, what in OPERANDS[type(op)].items()
            if what != "Value"
        ]
        for value in filter(None, demanded):
            if value not in plan.constants:
                message = f"a post-op of {called(step)} needs {name_text(value)} to be a constant"
                yield Finding(message, step.name, token=f"%{name_text(value)}")


def _sums(plan: Plan) -> Iterator[Finding]:
    """What a sum overwrites is dead afterwards, and fills the destination."""
    last_read = {value: index for index, step in enumerate(plan.steps) for value in step.inputs}
    last_read |= dict.fromkeys(plan.outputs, len(plan.steps))
    for index, step in enumerate(plan.steps):
        sums = [op for op in step.attr.post_ops if isinstance(op, Sum)]
        for op in sums:
            problem = _sum_problem(plan, step, op, alive=last_read.get(op.operand, index) > index)
            if problem:
                message = f"the sum operand of {called(step)} {problem}"
                yield Finding(message, step.name, token=f"%{name_text(op.operand)}")
        if len({op.operand for op in sums}) > 1:
            yield about(step, "has sums over different operands, and just one destination", "")


def _sum_problem(plan: Plan, step: Step, op: Sum, *, alive: bool) -> str | None:
    """The destination's buffer held the operand: nobody may need it any more, and it must fill the
    buffer.
    """
    operand, dst = plan.values.get(op.operand), destination(plan, step)
    if operand is None or dst is None:
        return "is no computed value"
    if alive:
        return "is still needed after the step"
    if op.operand in dict(step.args).values():
        return "is an argument of the step, too: it would be overwritten while it is read"
    if (
        not dims.same_shape(operand.shape, dst.shape)
        or operand.dtype.numpy.itemsize != dst.dtype.numpy.itemsize
    ):
        return f"is {type_text(operand)}, and does not fill the destination {type_text(dst)}"
    if operand.dtype is not (op.dtype or dst.dtype):
        return f"is {operand.dtype.value}, and is read as {(op.dtype or dst.dtype).value}"
    if op.zero_point and not operand.dtype.is_integer:
        return "has a zero point, and no integer codes"
    return None


def _bodies(plan: Plan) -> Iterator[Finding]:
    """Bodies of If, Loop and Scan are sound plans that take and give what the step does."""
    yield from body_problems(plan, _verified_alone)


# -- fates -----------------------------------------------------------------------------------------

_NO_WORK = {
    QuantizeFate.CONSTANT,
    QuantizeFate.REDUNDANT,
    DequantizeFate.BIAS,
    DequantizeFate.CONSTANT,
    DequantizeFate.REDUNDANT,
}


def _fates(plan: Plan) -> Iterator[Finding]:
    """Fates are about quantizers and steps that exist."""
    for fate in plan.fate_records:
        label = f"the {fate.half.value} fate `{fate.fate.value}` of {name_text(fate.quantizer)}"
        if fate.quantizer not in plan.quantizers:
            yield Finding(f"{label} is about a quantizer that the model does not have")
        if not isinstance(
            fate.fate, QuantizeFate if fate.half is Half.QUANTIZE else DequantizeFate
        ):
            yield Finding(f"{label} is a fate of the other half")
        if fate.half is Half.DEQUANTIZE and not fate.consumer:
            yield Finding(f"{label} does not say for which consumer")
        if fate.step is None and fate.fate not in _NO_WORK:
            yield Finding(f"{label} does not say in which step the work is done")
        if fate.step is not None and not 0 <= fate.step < len(plan.steps):
            yield Finding(f"{label} is in step #{fate.step}, and the plan has {len(plan.steps)}")
    for decision in plan.decision_records:
        at = -1 if decision.step is None else decision.step
        post_ops = plan.steps[at].attr.post_ops if 0 <= at < len(plan.steps) else ()
        known = decision.step is None or 0 <= at < len(plan.steps)
        if not known or any(not 0 <= number < len(post_ops) for number in decision.post_ops):
            label = f"the decision {name_text(decision.rule)} at {name_text(decision.subject)}"
            yield Finding(f"{label} names a step or post-op that the plan does not have")


def _fates_add_up(plan: Plan) -> Iterator[Finding]:
    """Both halves of every quantizer have a fate."""
    told = {(fate.quantizer, fate.half) for fate in plan.fate_records}
    for name, quantizer in plan.quantizers.items():
        if quantizer.name != name:
            yield Finding(
                f"the quantizer {name_text(quantizer.name)} is recorded under {name_text(name)}"
            )
        for half in Half:
            if (name, half) not in told:
                yield Finding(f"nothing says where the {half.value} half of {name_text(name)} went")


def _fates_are_true(plan: Plan) -> Iterator[Finding]:
    """A step has what a fate says of it."""
    for fate in plan.fate_records:
        if fate.step is None or not 0 <= fate.step < len(plan.steps):
            continue
        step = plan.steps[fate.step]
        if not _has_it(plan, step, fate.fate):
            told = f"the {fate.half.value} half of {name_text(fate.quantizer)} is told to be `{fate.fate.value}`"
            yield Finding(
                f"{told} of step #{fate.step}, and {called(step)} has no such thing",
                step.name,
                token=step.primitive,
            )


def _has_it(plan: Plan, step: Step, fate: QuantizeFate | DequantizeFate) -> bool:
    """Whether the step has what the fate says of it."""
    if fate is QuantizeFate.DST_SCALE:
        # the scale of codes that stay inside the step
        between = any(isinstance(op, DepthwiseConv) for op in step.attr.post_ops)
        return between or any(
            plan.values[v].dtype.is_integer for v in step.outputs if v in plan.values
        )
    if fate is QuantizeFate.SOURCE:
        return codes_source(step) or step.op == DYNAMIC
    if fate is DequantizeFate.SUM:
        return any(isinstance(op, Sum) for op in step.attr.post_ops)
    if fate in (QuantizeFate.POST_OP, DequantizeFate.POST_OP):
        # the first operation of a chain without an anchor is the primitive itself
        return bool(step.attr.post_ops) or step.primitive in ("binary", "eltwise")
    if fate is DequantizeFate.WEIGHTS_SCALE:
        return step.arg("weights") is not None or step.op == DYNAMIC
    return True


PLAN: Mapping[str, Callable[[Plan], Iterable[Finding]]] = {
    "target": _target,
    "step-names": _names,
    "defined": _defined,
    "bound-before-use": _bound,
    "outputs-exist": _outputs,
    "stated-shapes": stated_shapes_fit,
    "quantization": _quantization,
    "roles": roles_fit,
    "params": params_fit,
    "shapes": shapes_fit,
    "types": types_fit,
    "bodies": _bodies,
    "recurrent": recurrent_fits,
    "scales": scales_fit,
    "zero-points": zero_points_fit,
    "post-ops": post_ops_fit,
    "constants": _constants,
    "sum": _sums,
    "fates": _fates,
    "fates-add-up": _fates_add_up,
    "fates-true": _fates_are_true,
}
"""The rules of plans: name -> where it does not hold. What must hold says the docstring of each."""
