"""Rules about what stands between products: tables, fallbacks, additions, poolings, quantizers apart, copies."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ...ir.decision import Outcome
from ...ir.types import DType
from ...plan.attributes import Binary, Eltwise, Sum
from .view import (
    ADDS,
    ELEMENTWISE,
    Reading,
    View,
    converts,
    feeders_of,
    on_integers,
    skips_of,
    steps_where,
)
from .work import POOLINGS, SHAPES, WITH_BODIES, along_the_middle, operator_of

_HALVES = frozenset({DType.F16, DType.BF16})
_OPEN = "the model does not tell whether their sizes are the same"
_SIZES = 6  # steps
_SIZES_SHARE = 0.1  # of all steps
_DATA_DECIDES_SIZES = frozenset(
    {
        "Compress",
        "NonMaxSuppression",
        "NonZero",
        "Unique",
        *(each.removeprefix("onnx.") for each in WITH_BODIES),
    }
)


def open_sizes(view: View) -> Iterable[int]:
    """What is there because the model leaves sizes open: additions that were not fused, since their sides
    may differ in size, and arithmetic on sizes. Of that, a Reshape has a few steps in front of it, which
    cost nothing to speak of.
    """
    refused = {
        decision.subject
        for decision in view.plan.decision_records
        if decision.outcome is Outcome.REFUSED and _OPEN in decision.reason
    }
    apart = steps_where(
        view,
        lambda index: (
            view.steps[index].primitive in ELEMENTWISE
            and not refused.isdisjoint(view.steps[index].origin[:1])
        ),
    )
    sizes = _on_sizes(view)
    many = len(sizes) >= max(_SIZES, _SIZES_SHARE * len(view.steps))
    return apart | sizes if apart or many else ()


def _on_sizes(view: View) -> set[int]:
    """Steps that compute integers from sizes and constants alone, where those sizes follow from the
    inputs'; a lookup of floats stays, whatever its indices.
    """
    found: set[int] = set()
    from_sizes: set[str] = set()
    by_data: set[str] = set()
    for index, step in enumerate(view.steps):
        given = [value for value in step.inputs if value]
        if operator_of(step) in _DATA_DECIDES_SIZES or not by_data.isdisjoint(given):
            by_data.update(step.outputs)
        elif not any(
            view.is_float(value) or view.is_code(value) for value in step.outputs if value
        ) and (
            step.primitive in SHAPES
            or all(view.is_constant(value) or value in from_sizes for value in given)
        ):
            found.add(index)
            from_sizes.update(step.outputs)
    return found


def table(view: View) -> Iterable[int]:
    """An activation between two quantizers, as a table of its 256 codes."""
    return steps_where(view, lambda index: operator_of(view.steps[index]) == "Lookup")


def half_floats(view: View) -> Iterable[int]:
    """Casts between f16 or bf16 and f32, in which a model of half floats is computed."""
    return steps_where(view, lambda index: _casts_halves(view, index))


def _casts_halves(view: View, index: int) -> bool:
    step = view.steps[index]
    stated = [view.type(value) for value in (*step.inputs, *step.outputs)]
    types = {type_.dtype for type_ in stated if type_ is not None}
    half = not types.isdisjoint(_HALVES)
    return step.primitive == "onnx.Cast" and half and types <= {*_HALVES, DType.F32}


def _makes_half_output(view: View, index: int) -> bool:
    """True of the cast in front of an output of half floats."""
    return _casts_halves(view, index) and not view.readings(index)


def fallback(view: View) -> Iterable[int]:
    """Operators that no primitive computes, and what writes f32 for them."""
    found = steps_where(
        view,
        lambda index: (
            view.is_foreign(index)
            and not view.is_move(index)
            and operator_of(view.steps[index]) not in {"Gather", "Lookup"}
            and not on_integers(view, index)
            and not _makes_half_output(view, index)
        ),
    )
    return found | feeders_of(view, found)


def model_output(view: View) -> Iterable[int]:
    """f32 that nothing reads but who runs the model, who may get it as half floats."""
    return steps_where(
        view,
        lambda index: (
            bool(view.floats_written(index))
            and not view.is_foreign(index)
            and not along_the_middle(view.plan, view.steps[index])
            and all(_makes_half_output(view, reading.step) for reading in view.readings(index))
        ),
    )


def concat_parameters(view: View) -> Iterable[int]:
    """The parts of a product that was cut up because its source joins codes with other parameters:
    steps of one node, which add up.
    """
    parts: dict[tuple[str, str], set[int]] = {}
    for index, step in enumerate(view.steps):
        for name in step.origin if view.is_product(index) else ():
            if name not in view.plan.quantizers:
                parts.setdefault((step.primitive, name), set()).add(index)
    cut = {index for same in parts.values() if len(same) > 1 for index in same}
    return {
        index
        for index in cut
        if any(reading.step in cut for reading in view.readings(index))
        or any(
            front in cut
            for value in skips_of(view, view.steps[index])
            for front in view.in_front(value)
        )
    }


def f32_residual(view: View) -> Iterable[int]:
    """Additions of two f32 tensors of one size, what writes their operands, and quantizers that are
    steps of their own because an addition reads what they read; but for sums that stay f32, and for what
    readers besides the addition want in codes of several scales: it stays f32, whatever the addition reads.
    """
    return _around_additions(
        view,
        lambda index: not _sum_stays_float(view, index),
        lambda maker: len(_codes_of(view, maker)) <= 1,
    )


def _codes_of(view: View, index: int) -> set[object]:
    """The parameters of the codes that quantizers make of what a step writes."""
    quantizers = (each.step for each in view.readings(index) if converts(view, each.step))
    types = (view.type(value) for each in quantizers for value in view.steps[each].outputs)
    return {(type_.dtype, type_.quant) for type_ in types if type_ is not None}


def _sum_stays_float(view: View, index: int) -> bool:
    """True of an addition whose sum a layer normalization reads, as in transformers: quantized, it is decoded
    there, and nothing is gained.
    """
    return any(map(view.stays_float, view.steps[index].outputs))


def _around_additions(
    view: View, holds: Callable[[int], bool], counts: Callable[[int], bool] = lambda _: True
) -> set[int]:
    """Additions of which something holds, those of their makers that count, and quantizers behind these."""
    found: set[int] = set()
    for index, step in enumerate(view.steps):
        skips = skips_of(view, step)
        if not skips or not holds(index):
            continue
        if view.floats_written(index):
            found.add(index)
        makers = {front for value in skips for front in view.in_front(value) if counts(front)}
        found |= makers
        found |= {
            reading.step
            for maker in makers
            for reading in view.readings(maker)
            if converts(view, reading.step) and not skips_of(view, view.steps[reading.step])
        }
    return {index for index in found if view.floats_written(index) or converts(view, index)}


def f32_pooling(view: View) -> Iterable[int]:
    """Poolings and resizings that read f32 and that only quantizers read, these, and what writes f32
    for them.
    """
    found = steps_where(
        view,
        lambda index: (
            view.steps[index].primitive in POOLINGS
            and bool(view.floats_read(index))
            and bool(view.readings(index))
            and all(converts(view, reading.step) for reading in view.readings(index))
        ),
    )
    quantizers = {reading.step for index in found for reading in view.readings(index)}
    return found | quantizers | feeders_of(view, found)


def float_operation(view: View) -> Iterable[int]:
    """Operations that compute in f32 and have no int8 form here, what writes f32 for them, and what is around
    additions whose sums they read.
    """
    found = steps_where(
        view,
        lambda index: (
            bool(view.floats_read(index))
            and (bool(view.floats_written(index)) or along_the_middle(view.plan, view.steps[index]))
            and not view.is_foreign(index)
            and not view.is_move(index)
            and view.steps[index].primitive != "reorder"
            and not _would_look_up(view, index)
        ),
    )
    storing = steps_where(
        view,
        lambda index: (
            bool(view.floats_read(index))
            and not view.is_foreign(index)
            and not view.is_move(index)
            and (not converts(view, index) or _ends_a_node(view, index))
            and not _would_look_up(view, index)
        ),
    )
    ends = {index for index in storing if converts(view, index)}
    sums = _around_additions(view, lambda index: _sum_stays_float(view, index))
    return found | ends | sums | feeders_of(view, storing)


def _would_look_up(view: View, index: int) -> bool:
    """True of an activation and a quantizer in one step behind a product, or what moves its result: had that a
    quantizer, too, this would be a table of codes.
    """
    step, given = view.steps[index], view.floats_read(index)
    return (
        step.primitive in ELEMENTWISE
        and len({value for value in step.inputs if not view.is_constant(value)}) == len(given) == 1
        and not converts(view, index)
        and any(map(view.is_code, step.outputs))
        and any(view.is_product(front) for front in view.in_front(given[0]))
        and not _ends_a_node(view, index)
    )


def _ends_a_node(view: View, index: int) -> bool:
    """True of a step that computes the rest of a node of which the steps in front compute the beginning:
    the factors of an instance normalization, say.
    """
    own = {name for name in view.steps[index].origin if name not in view.plan.quantizers}
    fronts = {front for value in view.floats_read(index) for front in view.in_front(value)}
    return any(not own.isdisjoint(view.steps[front].origin) for front in fronts)


def decoded_operand(view: View) -> Iterable[int]:
    """An elementwise operation that stores codes, by itself or behind a product, and a reorder that decodes
    an operand with a zero point for it and nothing else.
    """

    def stores(reading: Reading) -> bool:
        step = view.steps[reading.step]
        combines = step.primitive == "binary" or reading.role.startswith("binary")
        return combines and any(map(view.is_code, step.outputs))

    decoding = steps_where(
        view,
        lambda index: (
            view.steps[index].primitive == "reorder"
            and _has_zero_point(view, view.steps[index].args[0][1])
            and bool(view.readings(index))
            and all(map(stores, view.readings(index)))
        ),
    )
    readers = {reading.step for index in decoding for reading in view.readings(index)}
    return decoding | {index for index in readers if view.steps[index].primitive == "binary"}


def _has_zero_point(view: View, value: str) -> bool:
    type_ = view.type(value)
    return (
        type_ is not None
        and type_.dtype.is_code
        and type_.quant is not None
        and not type_.quant.symmetric
    )


def quantizer_apart(view: View) -> Iterable[int]:
    """A quantizer that is a step of its own, behind a step that writes f32 for it."""
    apart = steps_where(
        view,
        lambda index: (
            (converts(view, index) or _would_look_up(view, index))
            and not _ends_a_node(view, index)
            and any(map(view.in_front, view.floats_read(index)))
        ),
    )
    return apart | feeders_of(view, apart)


def quantizer_between(view: View) -> Iterable[int]:
    """A product that rounds to codes before it adds the skip."""

    def holds(index: int) -> bool:
        rounded = False
        for op in view.steps[index].attr.post_ops:
            rounded = rounded or (isinstance(op, Eltwise) and op.algorithm == "round")
            if (
                rounded
                and isinstance(op, Sum | Binary)
                and not view.is_constant(op.operand)
                and (isinstance(op, Sum) or op.algorithm in ADDS)
            ):
                return True
        return False

    return steps_where(view, lambda index: view.is_product(index) and holds(index))


def requantized(view: View) -> Iterable[int]:
    """A step that only changes the parameters of codes: a reorder, or a quantizer behind a concatenation of
    codes with others.
    """

    def holds(index: int) -> bool:
        step = view.steps[index]
        given = [value for _, value in step.args if not view.is_constant(value)]
        alone = (
            step.primitive in ELEMENTWISE
            and all(map(view.plan.quantizers.get, step.origin))
            and any(
                view.steps[front].primitive == "concat"
                for front in map(view.producer.get, given)
                if front is not None
            )
        )
        return (
            (step.primitive == "reorder" or alone)
            and all(map(view.is_code, given))
            and any(map(view.is_code, step.outputs))
        )

    return steps_where(view, holds)


def layout_copy(view: View) -> Iterable[int]:
    """Codes that are moved: concatenations, transpositions, slices."""
    return steps_where(
        view,
        lambda index: (
            not view.floats_written(index)
            and (view.is_move(index) or operator_of(view.steps[index]) == "Gather")
        ),
    )


def own_step(view: View) -> Iterable[int]:
    """Elementwise arithmetic on codes that no layer in front could take."""
    return steps_where(
        view,
        lambda index: (
            view.steps[index].primitive in ELEMENTWISE
            and view.in_int8_source(index)
            and any(map(view.is_code, view.steps[index].outputs))
        ),
    )
