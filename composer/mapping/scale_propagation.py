"""Moving scales and shifts to where they cost nothing: into the front, or to a factor that
multiplies anyway.

A chain is taken in operation by operation. What stays is a list on which each further scale or
shift is moved forward, one place at a time (`algebra.in_front`). So each operation costs one walk
over what stayed, at most, and a chain that begins like the one before it goes on from where they
part (`Fold`): growing a chain by one operation looks at that operation alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import numpy as np

from ...ir.rule import Refusal, Rule, first_fired
from ...ir.telling import Told
from ..formula.algebra import holds, in_front, is_normal, joined, merged
from ..formula.formula import BasicOp, Part, ScaleBy, Shift, Vec, vec
from .composed import Front
from .cost import Saved
from .homes import saved

State = TypeVar("State")
Item = TypeVar("Item")


class Fold(Generic[Item, State]):
    """A left fold that remembers the state behind each item, and starts behind those that it was
    called with before.
    """

    def __init__(self, start: State, step: Callable[[State, Item], State]) -> None:
        self._step = step
        self._items: list[Item] = []
        self._states = [start]

    def __call__(self, items: Sequence[Item]) -> State:
        """The state behind the last item."""
        same = 0
        for known, item in zip(self._items, items, strict=False):
            if known is not item and not _alike(known, item):
                break
            same += 1
        del self._items[same:]
        del self._states[same + 1 :]
        for item in items[same:]:
            self._states.append(self._step(self._states[-1], item))
            self._items.append(item)
        return self._states[-1]


def _alike(a: object, b: object) -> bool:
    """True of operations that are written twice but mean the same, and do the work of the same parts."""
    if isinstance(a, Part) and isinstance(b, Part) and a.of != b.of:
        return False
    if isinstance(a, ScaleBy | Shift) and isinstance(b, ScaleBy | Shift):
        if isinstance(a, Shift) and isinstance(b, Shift):
            return all(map(np.array_equal, (a.values, *a.parts), (b.values, *b.parts)))
        return type(a) is type(b) and np.array_equal(a.values, b.values)
    return a == b


@dataclass(frozen=True, eq=False)
class Propagated:
    """A chain whose scales and shifts have moved.

    Attributes:
        front: with what was folded into it.
        ops: what stayed; a scale or shift says why it could not move into the front, where there is
            something to be said.
        folded: the scales and shifts that went into the front.
    """

    front: Front
    ops: tuple[BasicOp, ...] = ()
    folded: tuple[Saved, ...] = ()


class ScalePropagation:
    """Moves scales and shifts of simplified chains: those that can reach the front into its scale
    and bias, others to where they join.
    """

    def __init__(self, front: Front) -> None:
        self._fold: Fold[BasicOp, Propagated] = Fold(Propagated(front), _taken)

    def __call__(self, ops: Sequence[BasicOp]) -> Propagated:
        """What becomes of a simplified chain."""
        return self._fold(ops)


def _taken(before: Propagated, op: BasicOp) -> Propagated:
    """The chain with one operation more."""
    ops, front, into_front = list(before.ops), before.front, before.folded
    pending = [op]
    while pending:
        op = pending.pop()
        found = joined(ops, op)  # what stood in between may have moved
        if found is not None:
            pending.extend(reversed(found))
        elif isinstance(op, ScaleBy | Shift):
            exact = front.told is Told.ANY and front.bias is None
            moved, joint = forward(ops, op, exact=exact)
            first = first_fired(FOLDING, front, moved[0]) if isinstance(moved, list) else moved
            if isinstance(moved, list) and isinstance(first, Front):
                ops, front, into_front = (
                    moved[1:],
                    first,
                    (*into_front, saved(moved[0], "folded")),
                )
                continue
            why = f"{first.reason}: {first.found}" if isinstance(first, Refusal) else ""
            if joint is None:
                ops.append(replace(op, why=why))
                continue
            chain, place = joint
            if len(chain) > len(ops):  # it stands in front of a shift now
                ops = chain
                ops[place] = replace(op, why=why)
            else:  # the joint one may go where neither could
                ops = chain[:place]
                pending.extend(reversed(chain[place:]))
        else:
            ops.append(op)
    return Propagated(front, tuple(ops), into_front)


def forward(
    ops: Sequence[BasicOp], op: ScaleBy | Shift, *, exact: bool = False
) -> tuple[list[BasicOp] | Refusal | None, tuple[list[BasicOp], int] | None]:
    """How far a scale or shift behind a chain gets towards the front.

    `exact`: a shift stays behind a factor, for c/A*A misses c, which is told.

    Returns:
        The chain with it in front of all; or why it cannot get there, None where an operation in
        between has no rule for it (nothing that a user could change).
        The chain with it at the farthest place that it reaches and where it costs no post-op, and
        that place; None where none is such. A scale joins a scale, or stands in front of a scalar
        shift, for a linear computes both; a shift joins a shift.
    """
    moved, joint = [*ops, op], None
    for place in range(len(ops), 0, -1):
        before, one = moved[place - 1], moved[place]
        if type(before) is type(one):
            both = merged(before, one)
            if both is not None:
                joint = [*moved[: place - 1], *both, *moved[place + 1 :]], place - 1
            return None, joint
        if exact and isinstance(before, ScaleBy) and isinstance(one, Shift):
            return None, joint
        swapped = in_front(before, one)
        if not isinstance(swapped, tuple):
            return swapped, joint
        moved[place - 1 : place + 1] = swapped
        passed = moved[place]
        last = place == 1 or not isinstance(moved[place - 2], ScaleBy)
        scalar = isinstance(passed, Shift) and passed.values.size == op.values.size == 1
        if isinstance(op, ScaleBy) and scalar and last:
            joint = list(moved), place - 1
    return moved, joint


# -- into the front --------------------------------------------------------------------------------


_WITHOUT_BIAS = ("binary", "softmax")


def _factor(front: Front, op: BasicOp) -> Front | Refusal | None:
    """A factor goes into the front's scale, and into its bias.

    Legal because: multiplication distributes over addition.
    Refuses when: the front has no scale, or one for the tensor against a factor for each channel;
    it is a maximum or minimum and the factor is not positive; it holds a bias that is computed at
    run time, which the factor would have to pass; f32 does not hold the product, or what it makes
    of the bias or of f32 weights.
    """
    if not isinstance(op, ScaleBy):
        return None
    if front.scale is None:
        return Refusal(
            "the front has no place for a factor",
            "a scale",
            "none",
            "nothing to change: the factor becomes a post-op",
        )
    if op.values.size > 1 and not front.per_channel:
        return Refusal(
            "the front has one scale for the tensor",
            "one factor",
            f"{op.values.size} factors",
            "quantize per tensor, or leave it: a post-op multiplies by one factor for each channel",
        )
    if front.positive and bool((op.values <= 0).any()):
        return Refusal(
            "a maximum or minimum is the other one of negated operands",
            "positive factors",
            f"{op.values.min():g}",
            "nothing to change: a negative factor stays behind the maximum or minimum",
        )
    if front.bias is None and front.primitive not in _WITHOUT_BIAS:
        return Refusal(
            "the bias is computed at run time",
            "a constant bias",
            "a computed one",
            "export the bias as a constant (an initializer)",
        )
    scale = vec(front.scale * op.values)
    if not is_normal(scale) or not holds(scale * front.largest):
        return Refusal(
            "f32 does not hold the product of the factors",
            "a normal f32",
            f"{abs(scale).max() * front.largest:g}",
            "calibrate again: the scales are far too large or too small",
        )
    bias = None if front.bias is None else vec(front.bias * op.values)
    return _too_large(bias) or replace(front, scale=scale, bias=bias)


def _shift(front: Front, op: BasicOp) -> Front | Refusal | None:
    """A shift goes into the front's bias.

    Legal because: addition is associative.
    Refuses when: the front has no place for a constant bias; f32 does not hold the sum.
    """
    if not isinstance(op, Shift):
        return None
    if front.bias is None:
        return Refusal(
            "the front has no place for a shift",
            "a constant bias",
            "none, or a computed one",
            "nothing to change: the shift becomes a post-op; a bias that is a constant would take it",
        )
    bias = vec(front.bias + op.values)
    return _too_large(bias) or replace(front, bias=bias)


def _too_large(bias: Vec | None) -> Refusal | None:
    if bias is None or holds(bias):
        return None
    return Refusal(
        "f32 does not hold the bias",
        "numbers of f32",
        f"{abs(bias).max():g}",
        "calibrate again: the scales are far too large or too small",
    )


FOLDING: tuple[Rule[Callable[[Front, BasicOp], Front | Refusal | None]], ...] = (
    Rule("(a*x + b)*c = (a*c)*x + b*c", _factor),
    Rule("(a*x + b) + c = a*x + (b + c)", _shift),
)
