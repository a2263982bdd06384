"""What decisions and fates say, held to the plan: each names a step, an absorber, post-ops and a cost that
are there.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator

from fqfuse.composer.mapping.cost import CHEAP, WRITE_ALLOCATE, operand_cost, post_op_cost
from fqfuse.ir.decision import Decision, DequantizeFate, Half, Outcome, QuantizeFate
from fqfuse.plan.attributes import Binary, Sum
from fqfuse.plan.targets import check_target
from fqfuse.plan.types import Plan, Step

PRODUCTS = ("convolution", "deconvolution", "matmul")
READS_CODES = (*PRODUCTS, "binary", "pooling", "resampling")
_FILED = re.compile(r"/(post_op|scalar)\d+$")  # a constant of the step itself: loads, no pass
TAKES_F32 = "its reader takes f32"


def untrue(plan: Plan, told: Counter[str] | None = None) -> list[str]:
    """What is said of a plan and is not so; `told` counts what was said."""
    counts: Counter[str] = Counter() if told is None else told
    steps: dict[str, list[Step]] = defaultdict(list)
    for step in plan.steps:
        for name in step.origin:
            steps[name].append(step)
    found = []
    for decision in plan.decision_records:
        for kind, broken in _claims(plan, steps, decision):
            counts[kind] += 1
            found += [f"{kind}: {broken}: {decision}"] if broken else []
    for fate in plan.fate_records:
        at = None if fate.step is None else plan.steps[fate.step]
        kind = fate.fate.value
        counts[f"fate {kind}"] += 1
        taken = at is not None and fate.consumer in at.origin
        if fate.fate is DequantizeFate.SUM:
            good = taken and any(isinstance(op, Sum) for op in at.attr.post_ops)
        elif fate.fate is DequantizeFate.SOURCE_SCALE:
            good = taken
        elif fate.fate is QuantizeFate.DST_SCALE:
            good = at is not None and plan.type(at.output).dtype.is_code
        elif fate.reason == TAKES_F32 and fate.half is Half.DEQUANTIZE:
            counts[TAKES_F32] += 1
            good = not any(
                step.primitive in READS_CODES and at is not None and at.output in step.inputs
                for step in steps[fate.consumer]
            )
        else:
            good = True
        found += [] if good else [f"fate: {fate}"]
    return found


def _claims(
    plan: Plan, steps: dict[str, list[Step]], decision: Decision
) -> Iterator[tuple[str, str]]:
    """Each thing that a decision says, and what is wrong with it."""
    mine = steps[decision.subject]
    if decision.outcome is Outcome.REFUSED:
        if decision.step is not None:
            step = plan.steps[decision.step]
            right = decision.rule == f"fuse into {step.primitive}"
            yield "refused by", "" if right else f"#{decision.step} is no such step"
        if decision.reason == "the other branch takes this add":
            taken = any(step.primitive in PRODUCTS for step in mine)
            yield "the other branch", "" if taken else "no product has the add"
        return
    if absorber := re.match(r"(.*) absorbs the add", decision.reason):
        kept = any(absorber[1] in step.origin and step.primitive in PRODUCTS for step in mine)
        yield "absorber", "" if kept else "it does not"
    if decision.step is None:
        if decision.rule.startswith(("home of", "branch of")):
            yield "step", "none is named"
        return
    step = plan.steps[decision.step]
    yield "step", "" if decision.subject in step.origin else f"#{decision.step} has no such part"
    if decision.rule.startswith("home of ") and decision.rule != "home of the zero point":
        yield from _home(plan, step, decision)
    if decision.rule == "home of the zero point":
        stored = decision.alternatives[0].home == "destination zero point"
        yield "zero point", "" if stored == ("dst" in step.attr.zero_points) else "it is not there"


def _home(plan: Plan, step: Step, decision: Decision) -> Iterator[tuple[str, str]]:
    """What a decision says of the home of an operation."""
    home, ops = decision.alternatives[0], step.attr.post_ops
    if any(not 0 <= number < len(ops) for number in decision.post_ops):
        yield "post-op", "there is none"
        return
    named = [ops[number] for number in decision.post_ops]
    read = [op.operand for op in named if isinstance(op, Binary | Sum)]
    itself = step.primitive in ("binary", "eltwise")  # the first operation may be the primitive
    if home.home == "primitive":
        yield "primitive", "" if itself and not named else "it is another one"
        return  # what it costs is no post-op's
    if home.home == "sum":
        yield "sum", "" if any(isinstance(op, Sum) for op in named) else "no sum"
    elif home.home == "binary":
        yield "binary", "" if read or itself else "no binary"
    elif home.home == "post-op":
        yield "post-op", "" if named or itself else "no post-op"
    elif home.home == "destination scale":
        yield "destination scale", "" if "dst" in step.attr.scales else "no scale"
        if named:
            return
    else:
        yield home.home, "" if not named or home.home == "folded" else "it is a post-op"
    cost = sum(map(post_op_cost, named))
    dst = plan.type(step.output)
    for op in named:
        if not isinstance(op, Binary | Sum) or _FILED.search(op.operand):
            continue
        if home.home != "post-op" or op.operand not in plan.constants:  # one that the model holds
            cost += operand_cost(plan.type(op.operand), dst)
            cost += WRITE_ALLOCATE if isinstance(op, Binary) else 0.0
    if home.home == "destination scale":
        cost += CHEAP if check_target(plan.target).fold_dst_scale else 0.0
    near = abs(cost - home.cost) < 1e-5 * (1 + cost)  # sums of f32
    part = itself and cost <= home.cost  # the primitive does the first of it
    yield "cost", "" if near or part else f"{home.cost:g}, and the plan has {cost:g}"
