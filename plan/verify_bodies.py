"""What holds of If, Loop and Scan with bodies that are plans of their own: they are sound, for the same
target, and take and give what the step does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ..ir.diagnostic import Diagnostic, Finding, summary
from ..ir.ops import OPS
from ..ir.text_write import name_text, type_text
from ..ir.types import DType, TensorType
from .arguments import in_order
from .findings import about
from .types import MOST_DEPTH, Bodies, Plan, Step

_BODIES = {"If": 2, "Loop": 1, "Scan": 1}
_COUNTER, _CONDITION = TensorType(DType.S64, ()), TensorType(DType.BOOL, ())

Types = list[TensorType | None]
"""None: nothing is demanded, or the plan does not say it."""


def body_problems(
    plan: Plan, verify: Callable[[Plan], Sequence[Diagnostic]], depth: int = 0
) -> Iterator[Finding]:
    """Where the bodies of a plan break a rule.

    Args:
        plan: the plan.
        verify: lists what breaks a rule within a plan, its bodies aside.
        depth: in how many bodies the plan lies.
    """
    for step in plan.steps:
        bodies = step.bodies
        if bodies is None:
            continue
        problem = _count_problem(step, bodies)
        if problem is None and depth >= MOST_DEPTH:
            problem = f"lies in more than {MOST_DEPTH} bodies"
        if problem is not None:
            yield about(step, problem)
            continue
        for body in bodies.plans:
            yield from _body_problems(plan, step, bodies, body)
            found = verify(body)
            inner = [str(finding.message) for finding in body_problems(body, verify, depth + 1)]
            said = inner[0] if inner and not found else summary(found) if found else ""
            if said:
                yield about(step, f"has a body that is not sound: {said}")


def _count_problem(step: Step, bodies: Bodies) -> str | None:
    op = step.params.get("op_type")
    if step.op != "Onnx" or op not in _BODIES or step.params.get("domain") != "":
        return "has bodies, and is no If, Loop or Scan"
    if len(bodies.plans) != _BODIES[op]:
        return f"has {len(bodies.plans)} bodies, and {op} has {_BODIES[op]}"
    least = {"If": 1, "Loop": 2, "Scan": 1}[op]
    values = in_order(OPS[step.op], step.args) or ()
    told = (bodies.states, bodies.scanned)
    if min(told) < 0 or (op != "Scan") != (bodies.scanned == 0) or (op == "If" and bodies.states):
        return f"hands on {bodies.states} values, and takes rows of {bodies.scanned}"
    front = least + bodies.states if op != "Scan" else sum(told)
    if len(values) < front or not all(values[2 if op == "Loop" else 0 :]):
        return f"has {len(values)} inputs, and needs {front} and those that its bodies read"
    return None


def _body_problems(plan: Plan, step: Step, bodies: Bodies, body: Plan) -> Iterator[Finding]:
    called = f"its body {name_text(body.name)}"
    if body.target != plan.target:
        yield about(step, f"is for {plan.target}, and {called} for {name_text(body.target)}")
    given, wanted = _flow(plan, step, bodies, body)
    sides = (
        ("takes", [body.values.get(name) for name in body.inputs], given),
        ("gives", [body.find(name) for name in body.outputs], wanted),
    )
    for verb, own, others in sides:
        if len(own) != len(others):
            yield about(step, f"has {len(others)} values where {called} {verb} {len(own)}")
            continue
        for one, other in zip(own, others, strict=True):
            if one is not None and other is not None and not _agree(one, other):
                told = f"{called} {verb} {type_text(one)}"
                yield about(step, f"has {type_text(other.with_quant(None))} where {told}")


def _flow(plan: Plan, step: Step, bodies: Bodies, body: Plan) -> tuple[Types, Types]:
    """What a body is given and what it has to give, in order."""
    values = in_order(OPS[step.op], step.args) or ()
    given: Types = [plan.find(value) for value in values]
    made: Types = [plan.find(value) if value else None for value in step.outputs]
    op, states = step.params["op_type"], bodies.states
    if op == "If":
        given = given[1:]
        made += [None] * (len(body.outputs) - len(made))
        return given, made
    behind = len(body.outputs) - (1 if op == "Loop" else 0)
    made += [None] * (behind - len(made))
    rows = [_row(type_) for type_ in made[states:]]
    # sizes of states are open where trips change them: outside as the last trip leaves them
    handed = [type_ and TensorType(type_.dtype, None) for type_ in made[:states]]
    if op == "Loop":
        front: Types = [
            _any_rank(name, body, kind)
            for name, kind in zip(body.inputs, (_COUNTER, _CONDITION), strict=False)
        ]
        condition: Types = [TensorType(DType.BOOL, None)]
        return [*front, *given[2:]], [*condition, *handed, *rows]
    scanned = slice(states, states + bodies.scanned)
    return [*given[:states], *map(_row, given[scanned]), *given[scanned.stop :]], [*handed, *rows]


def given_to(plan: Plan, step: Step, body: Plan) -> Types:
    """The types of what a body of a step is given in the first trip, in the order of its inputs."""
    return [] if step.bodies is None else _flow(plan, step, step.bodies, body)[0]


def _any_rank(name: str, body: Plan, kind: TensorType) -> TensorType:
    """A number, or a list of one: some bodies take those."""
    own = body.values.get(name)
    return TensorType(kind.dtype, (1,)) if own is not None and own.shape == (1,) else kind


def _row(type_: TensorType | None) -> TensorType | None:
    if type_ is None or not type_.shape:
        return type_ and TensorType(type_.dtype, None)
    return TensorType(type_.dtype, type_.shape[1:])


def _agree(one: TensorType, other: TensorType) -> bool:
    """Whether a value may be of both types; symbols of two plans are not compared."""
    if one.dtype is not other.dtype:
        return False
    if one.shape is None or other.shape is None:
        return True
    pairs = zip(one.shape, other.shape, strict=False)
    return len(one.shape) == len(other.shape) and not any(
        isinstance(a, int) and isinstance(b, int) and a != b for a, b in pairs
    )
