"""What holds of the steps of a finding, where its remedy depends on that: no remedy asks for what is so
already, or names a setting that does not concern these layers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from ...ir.decision import Outcome
from ...ir.types import DType
from ...plan.arguments import PACKED
from .remedies import is_qoperator
from .view import View

_JOINED = "joined the scale and zero point"
"""How `move_dequantize` says that a constant factor became a part of a scale."""


def circumstances_of(view: View, steps: Sequence[int], tests: Sequence[str]) -> frozenset[str]:
    """Those of the circumstances with these names that hold of some of the steps."""
    return frozenset(name for name in tests if _CIRCUMSTANCES[name](view, steps))


def _around_concat(view: View, steps: Sequence[int]) -> bool:
    return any(_touches_concat(view, index) and not _gives_signs(view, index) for index in steps)


def _touches_concat(view: View, index: int) -> bool:
    step = view.steps[index]
    fronts = {front for _, value in step.args for front in view.in_front(value)}
    around = fronts | {item.step for value in step.outputs for item in view.behind(value)}
    beside = {item.step for value in step.outputs for item in view.readers.get(value, ())}
    makers = {view.producer.get(value, -1) for _, value in step.args}
    return any(
        view.steps[each].primitive == "concat" for each in around | beside | makers if each >= 0
    )


def _by_a_factor(view: View, steps: Sequence[int]) -> bool:
    return any(_has_factor(view, index) for index in steps)


def _has_factor(view: View, index: int) -> bool:
    names = set(view.steps[index].origin)
    return any(
        decision.reason == _JOINED
        and decision.outcome is Outcome.FIRED
        and decision.subject in names
        for decision in view.plan.decision_records
    )


def _given_signs(view: View, steps: Sequence[int]) -> bool:
    return any(_gives_signs(view, index) for index in steps)


def _gives_signs(view: View, index: int) -> bool:
    """True of codes that get signs and keep their scale, as the second operand of a product has to have them."""
    step = view.steps[index]
    before, after = view.type(step.args[0][1]), view.type(step.outputs[0])
    types = (before and before.dtype, after and after.dtype)
    scales = {step.attr.scales.get(side) for side in ("src", "dst")}
    return types == (DType.U8, DType.S8) and len(scales) == 1


def _otherwise_scaled(view: View, steps: Sequence[int]) -> bool:
    causes = (_has_factor, _touches_concat, _gives_signs)
    return any(not any(cause(view, each) for cause in causes) for each in steps)


def _all_wide(view: View, steps: Sequence[int]) -> bool:  # noqa: ARG001  # of the whole model
    return not any(map(view.is_code, _activations(view)))


def _some_wide(view: View, steps: Sequence[int]) -> bool:
    return not _all_wide(view, steps)


def _activations(view: View) -> list[str]:
    return [value for value in view.plan.values if view.is_quantized(value)]


def _refused_for(words: str) -> Callable[[View, Sequence[int]], bool]:
    def holds(view: View, steps: Sequence[int]) -> bool:
        return any(words in reason for index in steps for reason in view.refusals(index))

    return holds


_MAY_ROUND = "the model lets the source be rounded to codes"
"""How `quantize_at_run_time` says that a file permits what was not asked for."""


def _may_round(view: View, index: int) -> bool:
    names = set(view.steps[index].origin)
    return any(
        decision.reason.startswith(_MAY_ROUND) and decision.subject in names
        for decision in view.plan.decision_records
    )


def _some_may_round(view: View, steps: Sequence[int]) -> bool:
    return any(_may_round(view, index) for index in steps)


def _some_may_not(view: View, steps: Sequence[int]) -> bool:
    return not all(
        _may_round(view, each) or _reads_codes(view, each) for each in _packed(view, steps)
    )


def _packed(view: View, steps: Sequence[int]) -> list[int]:
    return [index for index in steps if view.steps[index].op == PACKED]


def _reads_codes(view: View, index: int) -> bool:
    """True of a product whose source is decoded from codes that are computed."""
    return any(
        view.is_code(value) and not view.is_constant(value)
        for front in view.in_front(view.steps[index].arg("src") or "")
        for value in view.steps[front].inputs
    )


def _some_read_codes(view: View, steps: Sequence[int]) -> bool:
    return any(_reads_codes(view, index) for index in _packed(view, steps))


def _is_computed(view: View, index: int) -> bool:
    """True of a product of two activations."""
    weights = view.steps[index].arg("weights")
    return weights is not None and not view.is_constant(weights)


_CIRCUMSTANCES: Mapping[str, Callable[[View, Sequence[int]], bool]] = MappingProxyType(
    {
        "around a Concat": _around_concat,
        "behind a constant factor": _by_a_factor,
        "in front of a product of two activations": _given_signs,
        "elsewhere": _otherwise_scaled,
        "in QDQ": lambda view, _: not is_qoperator(view.plan),
        "in QOperator": lambda view, _: is_qoperator(view.plan),
        "where all activations have 16 bits": _all_wide,
        "where some have": _some_wide,
        "where weights have more than 8 bits": _refused_for("the weights have more than 8 bits"),
        "where the model lets activations become codes (accuracy_level=4)": _some_may_round,
        "where it does not": _some_may_not,
        "where the model quantizes its activations": _some_read_codes,
        "where weights have no quantizer": _refused_for("the weights are not quantized"),
        "where weights are constants": lambda view, steps: any(
            not _is_computed(view, index) for index in steps
        ),
        "where both factors are computed": lambda view, steps: any(
            _is_computed(view, index) for index in steps
        ),
    }
)
"""What a remedy calls it -> whether it holds of the steps of a finding."""
