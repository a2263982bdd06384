"""Plans for `onednn-v2` rewritten for `onednn-v3`, attribute by attribute, and either for `unified`.

Two ways, after the order of both schemes (`attributes.py`)::

    mechanical   (acc + bias) * output_scale  ->  acc * weights_scale, or with a bias the output scale as first post-op;
                 eltwise with a scale         ->  eltwise, linear(scale, 0).     Every float operation stays: the same numbers.
    semantic     output_scale = src_scale * weights_scale / dst_scale is taken apart by what the plan's types say; the bias moves from the
                 accumulator's domain into the real one, and the post-ops' parameters from the
                 destination's quanta into real numbers.
                 A real identity: codes differ by at most 1, and only next to a tie.

`unified` has the attributes of `onednn-v3`, but for recurrent layers, whose scales are the reciprocals.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Literal, get_args

import numpy as np

from ...errors import InvalidInput, PlanError
from ...ir.constants import Constants, as_held
from ...ir.decision import Decision, DequantizeFate, Outcome, QuantizeFate
from ...ir.ops.spec import Array
from ...ir.rule import Refusal
from ...ir.text_write import name_text
from ..attributes import DepthwiseConv, Eltwise, PostOp, Scale
from ..recurrent_parameters import with_scales
from ..types import Plan, Step
from ..verify import check_plan
from ..verify_attributes import post_ops_fit, scales_fit
from .output_scale import FACTOR, OF_ARGUMENT, UNSCALED, argument_of
from .real_domain import COMPILE_AGAIN, TAKEN_APART, LeavesF32, real_post_ops, real_scales, rounded

Conversion = Literal["mechanical", "semantic"]

_RULE = "v2 attributes to v3"
_SOURCE, _TARGET, _UNIFIED = "onednn-v2", "onednn-v3", "unified"
_POST_OPS = (QuantizeFate.POST_OP, DequantizeFate.POST_OP)


def convert(plan: Plan, target: str = _TARGET, how: Conversion = "mechanical") -> Plan:
    """Converts a plan for `onednn-v2` into one for `onednn-v3`, or one for either into one for `unified`.

    A step that has no semantic reading (types without quantization, a bias computed at run time, a
    number that f32 does not hold) is converted mechanically; the decision `v2 attributes to v3` of
    each converted step says which way it went and why.

    Args:
        plan: it stays as it is.
        target: `onednn-v3` or `unified`.
        how: `mechanical`: every float operation stays, and the new plan gives the same numbers;
            `semantic`: scales, bias and post-ops speak of real numbers, and codes differ by at most
            1, next to ties only.

    Raises:
        InvalidInput: it is no plan, or the plan is for that target or `unified` already, or there is
            no such target or way.
        PlanError: the plan is not sound, or a step cannot be said in the attributes of `onednn-v3`,
            such as one with too many post-ops.
    """
    if not isinstance(plan, Plan):
        raise InvalidInput(
            f"a {type(plan).__name__} is no plan",
            hint="give what fqfuse.compile or fqfuse.load_plan returned",
        )
    _check_word("conversion to", target, (_TARGET, _UNIFIED), "target")
    _check_word("conversion", how, get_args(Conversion), "how")
    sources = (_SOURCE,) if target == _TARGET else (_SOURCE, _TARGET)
    if plan.target not in sources:
        what = f"only plans for {' or '.join(sources)} are converted, and this one is for {name_text(plan.target)}"
        raise InvalidInput(what, where=plan.name, hint="run it as it is")
    check_plan(plan)
    converted, kept = convert_steps(plan, how) if plan.target == _SOURCE else (plan, {})
    for index, refusal in kept.items():
        step = plan.steps[index]
        more = f", and {len(kept) - 1} more such steps" if len(kept) > 1 else ""
        what = f"{step.primitive} {step.name} cannot be converted: {refusal.reason}{more}"
        raise PlanError(what, where=", ".join(step.origin) or step.name, hint=COMPILE_AGAIN)
    converted = replace(
        converted,
        target=target,
        steps=tuple(_for_target(step, target, how) for step in converted.steps),
        options={**converted.options, "target": target, "converted": how},
    )
    check_plan(converted, blame=f"the conversion to {target}")
    return converted


def _for_target(step: Step, target: str, how: Conversion) -> Step:
    """A step in v3's attributes in those of the target, with the plans of its bodies converted as well."""
    if target == _UNIFIED:
        step = replace(step, attr=with_scales(step.attr))
    if step.bodies is None:
        return step
    plans = tuple(convert(body, target, how) for body in step.bodies.plans)
    return replace(step, bodies=replace(step.bodies, plans=plans))


def _check_word(what: str, word: object, words: tuple[str, ...], where: str) -> None:
    if not isinstance(word, str) or word not in words:
        raise InvalidInput(
            f"there is no {what} {word!r}", where=where, hint=f"choose {' or '.join(words)}"
        )


def convert_steps(plan: Plan, how: Conversion = "mechanical") -> tuple[Plan, Mapping[int, Refusal]]:
    """Converts a plan for `onednn-v2` step by step, as far as the attributes of `onednn-v3` go.

    Args:
        plan: it is not checked.
        how: see `convert`.

    Returns:
        The plan, with the steps as they were that cannot be converted; and why, by their indices.
        Steps, names and order stay, and so do the values that each step reads and writes; constants
        may be new.
    """
    work = _Conversion(plan)
    steps = tuple(work.convert(index, step, how) for index, step in enumerate(plan.steps))
    read = {value for step in steps for value in step.inputs}.union(plan.outputs)
    converted = replace(
        plan,
        target=_TARGET,
        constants=Constants(
            {name: work.constants[name] for name in work.constants if name in read}
        ),
        steps=steps,
        decision_records=(
            *(replace(d, post_ops=()) for d in plan.decision_records),
            *work.decisions,
        ),
        options={**plan.options, "target": _TARGET, "converted": how},
    )
    return converted, work.kept


class _Conversion:
    """A plan that is being converted.

    Attributes:
        constants: the plan's, and new ones.
        decisions: one for each converted step.
        kept: index of a step that cannot be converted -> why.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.constants = dict(as_held(plan.constants))
        self.decisions: list[Decision] = []
        self.kept: dict[int, Refusal] = {}
        self._fated = {fate.step for fate in plan.fate_records if fate.fate in _POST_OPS}

    def convert(self, index: int, step: Step, how: Conversion) -> Step:
        """The step for v3, with a decision where anything changed; as it is where it cannot be
        converted.
        """
        refusal: Refusal | None = None
        if how == "semantic" and (scale := step.attr.output_scales) is not None:
            found = self._checked(self._semantic(index, step, scale))
            if not isinstance(found, Refusal):
                self._decide(step, f"semantic: {step.primitive} {step.name}")
                return found
            refusal = found
        new = self._mechanical(step)
        if new == step:
            return step
        found = self._checked(new)
        if isinstance(found, Refusal):
            self.kept[index] = found
            return step
        self._decide(step, f"mechanical: {step.primitive} {step.name}", refusal)
        return found

    def _decide(self, step: Step, reason: str, refusal: Refusal | None = None) -> None:
        subject = step.origin[0] if step.origin else step.name
        if refusal is None:
            self.decisions.append(Decision(_RULE, subject, Outcome.FIRED, reason))
        else:
            reason = f"{step.primitive} {step.name} is converted mechanically: {refusal.reason}"
            self.decisions.append(
                Decision(
                    _RULE,
                    subject,
                    Outcome.REFUSED,
                    reason,
                    refusal.expected,
                    refusal.found,
                    refusal.hint,
                )
            )

    def _checked(self, found: Step | Refusal) -> Step | Refusal:
        """A converted step, unless the verifier finds that the target does not take its
        attributes.
        """
        if isinstance(found, Refusal):
            return found
        alone = replace(
            self._plan, target=_TARGET, constants=Constants(self.constants), steps=(found,)
        )
        problem = next(chain.from_iterable(row(alone) for row in (scales_fit, post_ops_fit)), None)
        if problem is None:
            return found
        told = problem.message.removeprefix(f"{found.primitive} {name_text(found.name)} ")
        return Refusal(
            f"for {_TARGET} it {told}",
            f"what {_TARGET} takes",
            "something else",
            COMPILE_AGAIN,
        )

    # -- mechanical --------------------------------------------------------------------------------

    def _mechanical(self, step: Step) -> Step:
        scale, scales = step.attr.output_scales, step.attr.scales
        post_ops = [part for op in step.attr.post_ops for part in self._without_factor(step, op)]
        if scale is not None:
            role, mask = argument_of(self._plan, step, scale)
            if step.primitive == "softmax":
                mask = None  # of oneDNN 3's the source has none
            zero = step.attr.zero_points.get("src")
            found = OF_ARGUMENT.apply(
                scale, mask, step.arg("bias"), 0.0 if zero is None else zero.fraction
            )
            if isinstance(found, Scale):
                scales = {**scales, role: found}
            else:
                post_ops.insert(0, self._factor(step, scale))
        return replace(
            step,
            attr=replace(step.attr, scales=scales, post_ops=tuple(post_ops), output_scales=None),
        )

    def _without_factor(self, step: Step, op: PostOp) -> tuple[PostOp, ...]:
        """A post-op of v2 as post-ops of v3. A depthwise convolution, too, multiplies its
        accumulator with the bias in it.
        """
        match op:
            case Eltwise() if op.scale != 1:
                return UNSCALED.apply(op)
            case DepthwiseConv() if op.bias:
                along = Scale(op.weights_scale.values, 2 if op.weights_scale.mask else 0)
                return replace(op, weights_scale=Scale((1.0,))), self._factor(step, along)
        return (op,)

    def _factor(self, step: Step, scale: Scale) -> PostOp:
        rank = len(self._plan.type(step.output).shape or ())
        return FACTOR.apply(scale, rank, partial(self._file, f"{step.name}/output_scale"))

    # -- semantic ----------------------------------------------------------------------------------

    def _semantic(self, index: int, step: Step, scale: Scale) -> Step | Refusal:
        """The step in real numbers, or why it cannot be read so."""
        try:
            with np.errstate(invalid="ignore"):  # NaN in operands and biases stays NaN
                return self._real(index, step, scale)
        except LeavesF32 as number:
            return Refusal(
                "a number leaves f32's range in the real domain",
                "a normal f32 number",
                f"{number}",
                COMPILE_AGAIN,
            )

    def _real(self, index: int, step: Step, scale: Scale) -> Step | Refusal:
        scales = real_scales(self._plan, step, scale)
        if isinstance(scales, Refusal):
            return scales
        domain, post_ops = real_post_ops(self._plan, step, scales.dst, self._file)
        if index in self._fated and not post_ops:
            return Refusal(
                "a fate speaks of its post-op, which would be gone",
                "a post-op that stays",
                "a factor",
                COMPILE_AGAIN,
            )
        by_argument = TAKEN_APART.apply(scales, domain)
        if isinstance(by_argument, Refusal):
            return by_argument
        args = dict(step.args)
        if (bias := step.arg("bias")) is not None:
            if bias not in self._plan.constants:
                return Refusal(
                    "its bias is computed at run time, in the accumulator's domain",
                    "a constant bias",
                    bias,
                    COMPILE_AGAIN,
                )
            data = self._plan.constants[bias].astype(np.float64) * scales.output * domain
            args["bias"] = self._file(f"{bias}/real", rounded(data))
        attr = replace(
            step.attr,
            scales={**step.attr.scales, **by_argument},
            post_ops=post_ops,
            output_scales=None,
        )
        return replace(step, args=tuple(args.items()), attr=attr)

    def _file(self, name: str, data: Array) -> str:
        """Files a constant under a name that nothing else has, and returns that."""
        free, count = name, 1
        while free in self.constants or free in self._plan.values:
            count += 1
            free = f"{name}.{count}"
        self.constants[free] = np.ascontiguousarray(data)
        return free
