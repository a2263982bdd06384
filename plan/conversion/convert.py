"""Plans for `onednn-v2` rewritten for `onednn-v3`, attribute by attribute.

Two ways, after the order of both schemes (`attributes.py`)::

    mechanical   (acc + bias) * output_scale  ->  acc * weights_scale, or with a bias the output scale as first post-op;
                 eltwise with a scale         ->  eltwise, linear(scale, 0).     Every float operation stays: the same numbers.
    semantic     output_scale = src_scale * weights_scale / dst_scale is taken apart by what the plan's types say; the bias moves from the
                 accumulator's domain into the real one, and the post-ops' parameters from the destination's quanta into real numbers.
                 A real identity: codes differ by at most 1, and only next to a tie.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

import numpy as np

from ...errors import InvalidInput, PlanError
from ...ir.decision import Decision, Outcome
from ...ir.ops.spec import Array
from ...ir.rule import Refusal
from ..attributes import PostOp, PrimitiveAttr
from ..targets import TARGETS
from ..types import Plan, Step
from ..verify import check_plan
from .output_scale import OUTPUT_SCALE, UNSCALED, OutputScale, ScaleHome
from .real_domain import REORDERED, TAKEN_APART, real_post_ops, real_scales, weights_mask

__all__ = ["Conversion", "to_v3"]

Conversion = Literal["mechanical", "semantic"]
_SOURCE, _TARGET = "onednn-v2", "onednn-v3"


def to_v3(plan: Plan, how: Conversion = "mechanical") -> Plan:
    """The plan with the attributes of `onednn-v3`.

    A step that has no semantic reading (types without quantization, a bias computed at run time) is converted mechanically; the
    decision `v2 attributes to v3` of each converted step says which way it went and why.

    Args:
        plan: for target `onednn-v2`; it stays as it is.
        how: `mechanical` or `semantic`, see above.

    Raises:
        InvalidInput: the plan is for another target, or there is no such way.
        PlanError: a step has more post-ops than the target takes once the eltwise scales are post-ops of their own.
    """
    if plan.target != _SOURCE:
        raise InvalidInput(
            f"only plans for {_SOURCE} are converted, and this one is for {plan.target}", where=plan.name, hint="run it as it is"
        )
    if how not in ("mechanical", "semantic"):
        raise InvalidInput(f"there is no conversion {how!r}", where="how", hint="choose mechanical or semantic")
    work = _Conversion(plan)
    steps = tuple(work.convert(step, how) for step in plan.steps)
    converted = replace(
        plan,
        target=_TARGET,
        constants={**plan.constants, **work.constants},
        steps=steps,
        decisions=(*plan.decisions, *work.decisions),
        options={**plan.options, "target": _TARGET, "converted": how},
    )
    converted = replace(converted, constants=_without_unread(converted, plan))
    check_plan(converted, blame="the conversion to onednn-v3")
    return converted


@dataclass
class _Conversion:
    plan: Plan
    constants: dict[str, Array] = field(default_factory=dict)
    decisions: list[Decision] = field(default_factory=list)

    def convert(self, step: Step, how: Conversion) -> Step:
        """The step for v3, with a decision where anything changed."""
        refusal: Refusal | None = None
        converted = None
        if how == "semantic" and step.attr.output_scales is not None:
            found = self._semantic(step)
            refusal, converted = (found, None) if isinstance(found, Refusal) else (None, found)
        if converted is None:
            converted = self._mechanical(step)
        limit = TARGETS[_TARGET].max_post_ops
        if len(converted.attr.post_ops) > limit:
            raise PlanError(
                f"{step.primitive} {step.name} has {len(converted.attr.post_ops)} post-ops once its eltwise scales are linear post-ops; "
                f"{_TARGET} takes {limit}",
                where=", ".join(step.origin) or step.name,
                hint=f"compile the model for {_TARGET}",
            )
        if converted != step:
            self._decide(step, "mechanical" if how == "mechanical" or step.attr.output_scales is None else "semantic", refusal)
        return converted

    def _decide(self, step: Step, how: str, refusal: Refusal | None) -> None:
        subject = step.origin[0] if step.origin else step.name
        rule = "v2 attributes to v3"
        if refusal is None:
            self.decisions.append(Decision(rule, subject, Outcome.FIRED, f"{how}: {step.primitive} {step.name}"))
        else:
            reason = f"{step.primitive} {step.name} is converted mechanically: {refusal.reason}"
            self.decisions.append(Decision(rule, subject, Outcome.REFUSED, reason, refusal.expected, refusal.found, refusal.hint))

    def _mechanical(self, step: Step) -> Step:
        attr, scale = step.attr, step.attr.output_scales
        post_ops = tuple(part for op in attr.post_ops for part in _unscaled(op))
        if scale is None:
            return replace(step, attr=PrimitiveAttr(attr.scales, attr.zero_points, post_ops))
        rank, biased = self.plan.type(step.output).rank, step.arg("bias") is not None
        mask = 0 if step.primitive in REORDERED else weights_mask(self.plan, step)
        given = OutputScale(scale, step.primitive in REORDERED, biased, mask, rank, partial(self.file, f"{step.name}/output_scale"))
        found = next(home for rule in OUTPUT_SCALE if isinstance(home := rule.apply(given), ScaleHome))
        return replace(step, attr=PrimitiveAttr({**attr.scales, **found.scales}, attr.zero_points, (*found.post_ops, *post_ops)))

    def _semantic(self, step: Step) -> Step | Refusal:
        """The step in real numbers, or why it cannot be read so."""
        scales = real_scales(self.plan, step)
        if isinstance(scales, Refusal):
            return scales
        domain, post_ops = real_post_ops(self.plan, step, scales.dst, self.file)
        by_argument = TAKEN_APART.apply(scales, domain)
        if isinstance(by_argument, Refusal):
            return by_argument
        args = step.args
        if (bias := step.arg("bias")) is not None:
            if bias not in self.plan.constants:
                return Refusal("its bias is computed at run time, in the accumulator's domain", "a constant bias", bias)
            real = (self.plan.constants[bias].astype(np.float64) * scales.factor(domain)).astype(np.float32)
            args = tuple((role, self.file(f"{bias}/real", real) if role == "bias" else value) for role, value in args)
        return replace(step, args=args, attr=PrimitiveAttr({**step.attr.scales, **by_argument}, step.attr.zero_points, post_ops))

    def file(self, name: str, data: Array) -> str:
        """Files a constant under a name that nothing else has, and returns that."""
        free, count = name, 1
        while free in self.constants or free in self.plan.constants or free in self.plan.values:
            count += 1
            free = f"{name}.{count}"
        self.constants[free] = np.ascontiguousarray(data)
        return free


def _unscaled(op: PostOp) -> tuple[PostOp, ...]:
    """A post-op without a scale of its own, and what multiplies by that."""
    found = UNSCALED.apply(op)
    return found if isinstance(found, tuple) else (op,)


def _without_unread(converted: Plan, plan: Plan) -> Mapping[str, Array]:
    """The constants without those that only the old attributes read, and those that no step came to need."""
    now, before = _read(converted), _read(plan)
    return {name: data for name, data in converted.constants.items() if name in now or (name in plan.constants and name not in before)}


def _read(plan: Plan) -> set[str]:
    return {value for step in plan.steps for value in step.inputs} | set(plan.outputs)
