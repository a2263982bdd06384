"""What a plan would be after the change that a finding asks for: `Remedied`, which `estimate` prices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .estimate import Remedied
from .kind import Effect, Kind
from .remedies import Tool
from .view import ELEMENTWISE, View, additions, converts, multiplies, skips_of
from .work import operator_of

_KEEP_THEIR_STEP = frozenset({"softmax", "layer_normalization", "pooling"})
"""Primitives that compute, whatever they convert besides."""


def change_of(view: View, kind: Kind, steps: Sequence[int], tool: Tool = Tool.ANY) -> Remedied:
    """The plan with floats of these steps as codes, and with what the kind's effect says where this tool
    mends it.
    """
    if kind.effect is Effect.CODES_FIT:
        return Remedied(fitting=frozenset(steps))
    if kind.effect is Effect.FUSED:
        return Remedied(gone=frozenset(steps))
    if kind.effect is Effect.CASTS_GO:
        return Remedied(gone=frozenset(each for each in steps if view.is_foreign(each)))
    return Remedied(
        narrow=frozenset((*_codes_written(view, kind, steps), *_weights(view, steps))),
        int8=frozenset(i for i in steps if multiplies(view, i) and not view.in_int8(i)),
        gone=frozenset(_gone(view, kind, steps)),
        primitives=frozenset(steps if kind.effect is Effect.PRIMITIVES else ()),
        rounding=tuple(_roundings(view, steps)) if kind.effect is Effect.QUANTIZERS_GO else (),
        coded=tuple(_sums_in_f32(view)) if tool in kind.with_additions else (),
    )


def touched(view: View, change: Remedied, steps: Sequence[int]) -> list[int]:
    """All steps that a change changes: those it is about, and who reads what becomes narrower; but for
    conversions to codes, which are gone then, and count where they are found.
    """
    readers = {reading.step for value in change.narrow for reading in view.readers.get(value, ())}
    others = (index for index in readers if not converts(view, index))
    return sorted({*steps, *others})


def _codes_written(view: View, kind: Kind, steps: Sequence[int]) -> Iterable[str]:
    """The floats that these steps write, as far as they would be codes. Where nothing helps, all of
    them: the finding tells what they cost beyond int8.
    """
    for value in _floats_written(view, steps):
        if kind.no_remedy or not (view.stays_float(value) or _is_kept(view, kind, value)):
            yield value


def _weights(view: View, steps: Sequence[int]) -> Iterable[str]:
    """The constants in f32 that these steps read; a bias stays f32, and so does what tells an operator outside
    of the primitives how to compute: the factors of a Resize, the bounds of a Clip.
    """
    for index in steps:
        if view.is_foreign(index) and not (multiplies(view, index) or _looks_up(view, index)):
            continue
        for role, value in view.steps[index].args:
            if view.is_constant(value) and view.is_float(value) and role != "bias":
                yield value


def _looks_up(view: View, index: int) -> bool:
    return operator_of(view.steps[index]) == "Gather"


def _gone(view: View, kind: Kind, steps: Sequence[int]) -> Iterable[int]:
    """The steps that would not be there."""
    for index in steps:
        if kind.effect is Effect.ALL_GO:
            goes = True
        elif kind.effect is Effect.REORDERS_GO:
            goes = view.steps[index].primitive == "reorder"
        elif kind.effect is Effect.CONVERSIONS_GO:
            goes = _only_converts(view, index)
        else:
            goes = converts(view, index) and not _is_as_dear(view, kind, index)
        if goes:
            yield index


def _only_converts(view: View, index: int) -> bool:
    """True of a step that is there for the conversion alone: what moves data moves it in codes, too, and what a
    node of the network computes of floats stays.
    """
    step = view.steps[index]
    if multiplies(view, index) or view.is_move(index) or step.primitive in _KEEP_THEIR_STEP:
        return False
    own = any(name not in view.plan.quantizers for name in step.origin)
    return not (own and step.primitive in ELEMENTWISE and view.floats_written(index))


def _roundings(view: View, steps: Sequence[int]) -> Iterable[int]:
    """The additions of what these steps write, as often as they would round: the term, and, where
    their sum stays f32, the sum and what is computed of it.
    """
    for index in {
        each for value in _floats_written(view, steps) for each in additions(view, value)
    }:
        yield from [index] * (3 if _stays_float(view, index) else 1)


def _sums_in_f32(view: View) -> Iterable[int]:
    """The additions whose sums stay f32, and get a quantizer for the skip where additions are quantized. Measured:
    a ViT by NNCF took 0.319 ms with its attention in f32 (model_type=TRANSFORMER), and 0.325 ms without.
    """
    for index, step in enumerate(view.steps):
        if skips_of(view, step) and any(map(view.is_float, step.outputs)):
            yield index


def _is_kept(view: View, kind: Kind, value: str) -> bool:
    """True of a residual term whose sum stays f32: a layer normalization takes no less time to write
    codes (14.0 µs for f32 and 16.4 µs for codes in BERT).
    """
    return kind.effect is Effect.QUANTIZERS_GO and any(
        _stays_float(view, index) for index in additions(view, value)
    )


def _is_as_dear(view: View, kind: Kind, index: int) -> bool:
    """True of a quantizer step that reads what a layer normalization writes, when the change is to quantize
    additions: the step goes, but the normalization then stores codes for it and for the skip, and takes
    longer by as much. Measured: a BERT with its additions quantized took 9.17 ms, and 9.12 ms without.
    """
    return kind.effect is Effect.QUANTIZERS_GO and any(
        view.steps[front].primitive == "layer_normalization"
        for value in view.floats_read(index)
        for front in view.in_front(value)
    )


def _floats_written(view: View, steps: Sequence[int]) -> list[str]:
    return [value for index in steps for value in view.floats_written(index)]


def _stays_float(view: View, index: int) -> bool:
    return any(map(view.stays_float, view.steps[index].outputs))
