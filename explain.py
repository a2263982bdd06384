"""Questions about plans, and about the models that they were made of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .compiler import compile_with_more
from .errors import InvalidInput
from .frontend import ModelSource
from .frontend.model_nodes import model_nodes
from .ir.approximations import (
    FRACTIONAL_ZERO_POINT,
    MIDDLE_ROUNDING,
    RESIDUAL_ROUNDING,
    SMALL_SHIFT,
)
from .ir.types import DType
from .plan.attributes import Binary, Eltwise, PostOp, Sum
from .plan.open_sizes import NO_SIZES, checked_sizes, symbols_of
from .plan.types import Plan, Step
from .report.approximations import Saving, asked_for, saving_of
from .report.diff.compare import difference_of
from .report.diff.document import difference_data
from .report.why.document import story_data
from .report.why.index import Index, NoSuchName
from .report.why.story import story_of

_SHOWN = 5
_AFFINE = ("clip", "linear")


def why(
    plan: Plan,
    name: str,
    *,
    model: ModelSource | None = None,
    sizes: Mapping[str, int] = NO_SIZES,
) -> dict[str, Any]:
    """Where a node, quantizer, value or step ended, which rules looked at it, and what stands in the
    way of better.

    Args:
        plan: the plan.
        name: as the model calls it; a node without a name has that of its first output. A step by
            its name or number (`#3`). A pattern (`*conv1*`) that one node alone matches.
        model: the model that the plan was made of: with it, nodes that were folded away are known,
            too.
        sizes: of what the model leaves open, for what findings save; others are guessed.

    Returns:
        The keys of docs/contributing/json-schema.md: `name`, `kind`, `operator`, `answer`, `places`, `fates`,
        `decisions`, `behind`, `findings`, `unknown`, `body`.

    Raises:
        InvalidInput: it is no plan, or there is nothing of that name, or there are several.
        InvalidModel: the model cannot be read.
    """
    index = index_of(plan, model)
    checked_sizes(sizes, symbols_of(plan))
    if not isinstance(name, str):
        raise InvalidInput(f"a {type(name).__name__} is no name", hint="give a text")
    matches = index.matching(name)
    if len(matches) > 1:
        shown = ", ".join(map(repr, matches[:_SHOWN]))
        raise NoSuchName(
            f"{len(matches):,} nodes match {name!r}", hint=f"ask for one of them: {shown} ..."
        )
    return story_data(index.home(matches[0]).plan, story_of(index, matches[0], sizes=sizes))


def index_of(plan: Plan, model: ModelSource | None = None) -> Index:
    """The names of a plan, and of the model that it was made of.

    Raises:
        InvalidInput: it is no plan.
        InvalidModel: the model cannot be read.
    """
    _check(plan)
    return Index(plan, () if model is None else model_nodes(model))


def diff(first: Plan, second: Plan, *, sizes: Mapping[str, int] = NO_SIZES) -> dict[str, Any]:
    """What differs between two plans, step by step: of two models, or of one for two targets.

    Args:
        first: a plan.
        second: the one to compare it with. Steps are aligned by the nodes of the model that both
            name.
        sizes: of what they leave open, for the estimates; others are those that the other one states, or
            guessed.

    Returns:
        The keys of docs/contributing/json-schema.md: `same`, `answer`, `steps`, `equal`, `verdicts`, `moved`,
        `interface`, `only_first`, `only_second`, `not_aligned_first`, `not_aligned_second`,
        `changed`, `fates`, `decisions`, `quantizers`.

    Raises:
        InvalidInput: one is no plan.
    """
    _check(first)
    _check(second)
    symbols = [symbols_of(plan) for plan in (first, second)]
    given = checked_sizes(sizes, [*symbols[0], *symbols[1]])
    each = [{name: given[name] for name in given if name in known} for known in symbols]
    return difference_data(difference_of(first, second, sizes=each))


def _check(plan: object) -> None:
    if not isinstance(plan, Plan):
        raise InvalidInput(
            f"a {type(plan).__name__} is no plan",
            hint="give what fqfuse.compile or fqfuse.load_plan returned",
        )


def savings(plan: Plan, model: ModelSource) -> list[Saving]:
    """What each approximation that was not asked for would save, the most first: the model is compiled
    with it. Those alone that the plan has a place for; layers in f32 have a finding of their own.

    Args:
        plan: the plan.
        model: the model that the plan was made of.
    """
    asked, dynamic = asked_for(plan), plan.options.get("dynamic")
    others = compile_with_more(
        model,
        [name for name in _candidates(plan) if name not in asked],
        target=plan.target,
        dynamic=dynamic if isinstance(dynamic, str) else None,
        approximate=asked,
    )
    found = [saving_of(name, plan, other) for name, other in others]
    return sorted(filter(None, found), key=lambda saving: saving.order)


def _candidates(plan: Plan) -> list[str]:
    """The approximations that might change a plan: each costs a plan of its own."""
    behind = [ops for step in plan.steps for ops in _behind_roundings(plan, step)]
    ranges = any(one.form.startswith("FakeQuantize") for one in plan.quantizers.values())
    added = any(isinstance(op, Sum | Binary) for ops in behind for op in ops)
    if MIDDLE_ROUNDING in asked_for(plan):  # its quantizers do not round any more, but clip
        ops = [op for step in plan.steps for op in step.attr.post_ops]
        added = any(isinstance(op, Sum | Binary) for op in ops)
    names = [RESIDUAL_ROUNDING] if added else []
    names += [MIDDLE_ROUNDING] if behind else []
    return names + ([SMALL_SHIFT, FRACTIONAL_ZERO_POINT] if ranges else [])


def _behind_roundings(plan: Plan, step: Step) -> Iterator[Sequence[PostOp]]:
    """What follows each rounding inside a step, where that is more than a scale, a shift and a clip: another
    operation, or the destination's codes.
    """
    ops = step.attr.post_ops
    coded = any(plan.values[name].dtype is not DType.F32 for name in step.outputs if name)
    for place, op in enumerate(ops):
        if isinstance(op, Eltwise) and op.algorithm == "round":
            rest = ops[place + 1 :]
            known = all(isinstance(each, Eltwise) and each.algorithm in _AFFINE for each in rest)
            if rest and (coded or not known):
                yield rest
