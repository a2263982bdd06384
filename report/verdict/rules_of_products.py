"""Rules about products, recurrences and the quantizers in front of them: why layers do not multiply codes, or
write f32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial

from ...ir.decision import Half
from ...ir.ops import OPS
from ...ir.ops.computed_ranges import GRID
from ...ir.ops.spec import Trait
from ...ir.types import DType, Quantization
from ...plan.arguments import SOURCE_AT_RUN_TIME
from ...plan.attributes import Eltwise
from ...plan.types import Step, codes_source
from .remedies import is_qoperator
from .view import (
    ELEMENTWISE,
    View,
    converts,
    feeders_of,
    float_products,
    is_suspect,
    on_integers,
    size_of,
    steps_where,
)
from .work import POOLINGS, SHAPES, operator_of

_CODES = 256
_SPLITTING = "split_weights_zero_point"
_MUCH = 0.05  # of the multiply-adds: for a classifier behind an LSTM calibration gained nothing


def not_quantized(view: View) -> Iterable[int]:
    """Everything in a model without quantizers."""
    return steps_where(view, lambda index: is_suspect(view, index) and not on_integers(view, index))


def control_flow(view: View) -> Iterable[int]:
    """If, Loop and Scan with products in their bodies, and what writes f32 for them."""
    found = with_products_inside(view)
    return found | feeders_of(view, found)


def with_products_inside(view: View) -> set[int]:
    """If, Loop and Scan with products in their bodies, and no quantizers."""
    return steps_where(
        view,
        lambda index: view.multiplies_inside(index) and not view.is_quantized_inside(index),
    )


def index_arithmetic(view: View) -> Iterable[int]:
    """Operators on integers, which are no codes, and the cast of what they give."""
    return steps_where(view, lambda index: on_integers(view, index))


def shape_only(view: View) -> Iterable[int]:
    """Steps that write f32 of which nothing but the sizes are asked for."""
    return steps_where(
        view,
        lambda index: (
            bool(view.readings(index))
            and all(view.steps[item.step].primitive in SHAPES for item in view.readings(index))
        ),
    )


def lstm(view: View) -> Iterable[int]:
    """LSTMs in f32, and what writes f32 for them."""
    return _recurrent(view, lambda index: view.is_f32_recurrence(index) and _is_lstm(view, index))


def gru(view: View) -> Iterable[int]:
    """GRUs in f32 that an approximation would multiply in int8, and what writes f32 for them."""
    return _recurrent(
        view,
        lambda index: (
            view.is_f32_recurrence(index)
            and not _is_lstm(view, index)
            and any("quantizes no hidden state" in told for told in view.refusals(index))
        ),
    )


def other_recurrence(view: View) -> Iterable[int]:
    """Other recurrent operators in f32 that are no LSTM, and what writes f32 for them."""
    return _recurrent(
        view, lambda index: view.is_f32_recurrence(index) and not _is_lstm(view, index)
    )


def dynamic_recurrence(view: View) -> Iterable[int]:
    """LSTMs that take the ranges of their input and state in each run, and what writes f32 for them;
    where there is little beside them, other ranges taken in each run, too.
    """
    found = _recurrent(view, lambda index: _is_dynamic_lstm(view, index))
    alone = bool(found) and not _is_much_beside_recurrences(view)
    return found | set(dynamic_quantizer(view)) if alone else found


def _is_much_beside_recurrences(view: View) -> bool:
    others = sum(work.macs for index, work in enumerate(view.works) if view.is_product(index))
    return others >= _MUCH * sum(work.macs for work in view.works)


def _recurrent(view: View, holds: Callable[[int], bool]) -> set[int]:
    targets = steps_where(view, holds)
    return targets | feeders_of(view, targets)


def _is_lstm(view: View, index: int) -> bool:
    return operator_of(view.steps[index]) == "LSTM"


def _is_dynamic_lstm(view: View, index: int) -> bool:
    return operator_of(view.steps[index]) == "DynamicQuantizeLSTM"


def double_floats(view: View) -> Iterable[int]:
    """Steps that read or write f64."""

    def holds(index: int) -> bool:
        step = view.steps[index]
        types = [view.type(value) for value in (*step.inputs, *step.outputs) if value]
        return any(type_ is not None and type_.dtype is DType.F64 for type_ in types)

    return steps_where(view, holds)


def wide_codes(view: View) -> Iterable[int]:
    """Quantizers of 16 bits: in f32, rounded to more than 256 codes; the products behind, and functions from
    their codes to such codes, which 8 bits would make tables.
    """

    def is_wide(index: int) -> bool:
        step = view.steps[index]
        stated = [view.type(value) for value in (*step.inputs, *step.outputs) if value]
        wide = any(
            type_ is not None and type_.dtype.is_wide_code and type_.quant is not None
            for type_ in stated
        )
        return wide or _rounds_wide(step)

    wide = steps_where(view, is_wide)
    return _with_products(view, wide | steps_where(view, lambda i: _is_function(view, i, wide)))


def _is_function(view: View, index: int, around: set[int]) -> bool:
    """True of an operator outside the primitives, elementwise, of one value, which these steps alone make
    and read.
    """
    spec, given = OPS.get(operator_of(view.steps[index])), view.floats_read(index)
    if not view.is_foreign(index) or spec is None or Trait.ELEMENTWISE not in spec.traits:
        return False
    makers = {front for value in given for front in view.in_front(value)}
    readers = {reading.step for reading in view.readings(index)}
    return len(given) == 1 and bool(readers) and makers | readers <= around


def _rounds_wide(step: Step) -> bool:
    rounded = False
    for op in step.attr.post_ops:
        if not isinstance(op, Eltwise):
            continue
        if rounded and op.algorithm.startswith("clip") and op.beta - op.alpha >= _CODES:
            return True
        rounded = rounded or op.algorithm == "round"
    return False


def float_codes(view: View) -> Iterable[int]:
    """Quantizers whose codes are floats, what writes f32 for them and decodes them, and the products
    behind.
    """

    def holds(index: int) -> bool:
        step = view.steps[index]
        types = [view.type(value) for value in (*step.inputs, *step.outputs) if value]
        return any(type_ is not None and type_.dtype.is_small_float for type_ in types)

    casts = steps_where(view, holds)
    nodes = {name for index in casts for name in view.steps[index].origin}
    casts |= steps_where(
        view,
        lambda index: nodes.issuperset(view.steps[index].origin) and not view.is_product(index),
    )
    readers = {reading.step for index in casts for reading in view.readings(index)}
    decoding = {index for index in readers if not view.is_product(index)}
    return _with_products(view, casts | decoding | feeders_of(view, casts))


def per_channel(view: View) -> Iterable[int]:
    """Codes with a scale for each channel that are decoded by a step, and the products behind."""
    return _decoded(view, lambda quant: not quant.per_tensor)


def fractional_zero(view: View) -> Iterable[int]:
    """Codes whose zero point is no integer that are decoded by a step, and the products behind."""
    return _decoded(view, lambda quant: not quant.integral)


def whole_quantizer(view: View) -> Iterable[int]:
    """Quantizers that are operators of their own, what writes f32 for them, and the products behind."""
    found = steps_where(view, lambda index: is_whole_quantizer(view, index))
    return _with_products(view, found) | feeders_of(view, found)


def is_whole_quantizer(view: View, index: int) -> bool:
    """True of a FakeQuantize that no scale and zero point describe."""
    return operator_of(view.steps[index]) == "FakeQuantize"


def _decoded(view: View, odd: Callable[[Quantization], bool]) -> set[int]:
    def holds(index: int) -> bool:
        step = view.steps[index]
        first = view.type(step.args[0][1]) if step.args else None
        quant = first.quant if first is not None else None
        return bool(quant and odd(quant) and view.floats_written(index))

    return _with_products(view, steps_where(view, holds))


def _with_products(view: View, sources: set[int]) -> set[int]:
    """Sources, and what reads them in f32 though it could read codes."""
    readers = {reading.step for index in sources for reading in view.readings(index)}
    could = {
        index
        for index in readers
        if not view.in_int8(index)
        and (view.is_product(index) or view.steps[index].primitive == "pooling")
    }
    return sources | could


def dynamic_beside_lstm(view: View) -> Iterable[int]:
    """Ranges taken in each run, of a model with an LSTM that takes its own."""
    return dynamic_quantizer(view) if steps_where(view, lambda i: _is_dynamic_lstm(view, i)) else ()


def dynamic_quantizer(view: View) -> Iterable[int]:
    """Ranges taken in each run: the step that looks for them, what makes scales of them, and the
    steps that write f32 because a range is taken of it.
    """
    return _ranges_taken(view) | _written_out(view)


def _ranges_taken(view: View) -> set[int]:
    ranges = steps_where(view, lambda index: operator_of(view.steps[index]) == "DynamicRange")
    grids = steps_where(view, lambda index: operator_of(view.steps[index]) == GRID)
    by_grids = {
        reading.step
        for index in grids
        for value in view.steps[index].outputs
        for reading in view.readers.get(value, ())
        if not view.is_product(reading.step)
    }
    found, waiting = ranges | grids | by_grids, list(ranges)
    while waiting:
        for value in view.steps[waiting.pop()].outputs:
            for reading in view.readers.get(value, ()):
                makes_scales = view.is_foreign(reading.step) and reading.step not in found
                if makes_scales:
                    found.add(reading.step)
                    waiting.append(reading.step)
    computed = {
        value
        for step in view.steps
        for role, value in step.args
        if role in SOURCE_AT_RUN_TIME and not view.is_constant(value)
    }
    makers = {
        index for value in computed for index in view.in_front(value) if view.is_foreign(index)
    }
    quantizing = {
        reading.step
        for index in ranges
        for value in (value for _, value in view.steps[index].args)
        for reading in view.readers.get(value, ())
        if any(map(view.is_code, view.steps[reading.step].outputs))
        and not view.is_product(reading.step)
        and view.steps[reading.step].primitive in ELEMENTWISE
    }
    coded = steps_where(view, lambda index: codes_source(view.steps[index]))
    feeding = {index for index in feeders_of(view, ranges | coded) if _could_store(view, index)}
    pooling = {index for index in feeding if view.steps[index].primitive in POOLINGS}
    # a pooling takes codes where its result may be codes, and what is in front of it writes them then
    feeding |= {index for index in feeders_of(view, pooling) if _could_store(view, index)}
    whole = {index for index in range(len(view.steps)) if takes_a_range(view, index)} - ranges
    ends = [(step, view.steps[step].args[1:]) for step in whole]
    ends += [(step, view.steps[step].args) for step in grids]
    makers |= {
        index
        for _, args in ends
        for _, value in args
        for index in view.in_front(value)
        if view.is_foreign(index)
    }
    products = _with_products(view, whole - coded - view.written_out[Half.QUANTIZE])
    return found | coded | makers | quantizing | feeding | products


def _written_out(view: View) -> set[int]:
    """Quantizers that the model writes out as arithmetic: what makes codes and decodes them, and what computes their
    parameters, which are smaller than the codes.
    """
    ends = {index for steps in view.written_out.values() for index in steps}
    found = {index for index in ends if not view.is_product(index)}
    waiting = [
        (index, max(map(partial(_elements, view), view.steps[index].inputs))) for index in found
    ]
    while waiting:
        index, size = waiting.pop()
        for value in filter(None, view.steps[index].inputs):
            maker = view.producer.get(value, -1)
            if maker >= 0 and maker not in found and _elements(view, value) < size:
                found.add(maker)
                waiting.append((maker, size))
    return found


def _elements(view: View, value: str) -> int:
    """How many elements a value has, where open sizes are 1."""
    type_ = view.type(value)
    shape = type_.shape if type_ is not None else None
    return math.prod(size for size in shape or () if isinstance(size, int))


def takes_a_range(view: View, index: int) -> bool:
    """True of a step that looks for a range, or makes codes by one that the model computes itself, of a FakeQuantize that
    is given one in each run, or what makes its grid, and of a product that makes codes of its source.
    """
    step = view.steps[index]
    operator = operator_of(step)
    return (
        codes_source(step)
        or index in view.written_out[Half.QUANTIZE]
        or operator in ("DynamicRange", GRID)
        or (
            operator == "FakeQuantize"
            and not all(view.is_constant(value) for _, value in step.args[1:])
        )
    )


def _could_store(view: View, index: int) -> bool:
    """A step that would write codes if its readers' parameters were constant."""
    return not (view.is_product(index) and not view.in_int8(index))


def embedding(view: View) -> Iterable[int]:
    """A lookup in a table of f32 numbers, which were codes or could be."""

    def holds(index: int) -> bool:
        step = view.steps[index]
        is_table = (
            operator_of(step) == "Gather" and bool(step.args) and view.is_constant(step.args[0][1])
        )
        return is_table and bool(view.floats_written(index))

    return steps_where(view, holds)


def quantized_outside(view: View) -> Iterable[int]:
    """Products in a body that read in f32 what is quantized in front of the If, Loop or Scan."""
    read = {item.step for value in view.decoded_outside for item in view.behind(value)}
    return read & float_products(view)


def weights_only(view: View) -> Iterable[int]:
    """Products of f32 with weights that are packed in blocks of codes, and what writes the f32."""
    products = {i for i in float_products(view) if operator_of(view.steps[i]) == "MatMulBlocks"}
    return products | {index for index in feeders_of(view, products) if not view.is_product(index)}


def f32_attention(view: View) -> Iterable[int]:
    """Matrix products in f32 of two computed values, and what writes f32 for them."""
    products = {
        index
        for index in float_products(view)
        if len(view.steps[index].args) > 1
        and not any(view.is_constant(value) for _, value in view.steps[index].args[:2])
    }
    return products | (feeders_of(view, products) - float_products(view))


def f32_product(view: View) -> Iterable[int]:
    """Convolutions and matrix products in f32, and what writes f32 for them."""
    products = {
        index for index in float_products(view) if operator_of(view.steps[index]) != "MatMulBlocks"
    }
    fed = feeders_of(view, products)
    pooled = {index for index in fed if view.steps[index].primitive == "pooling"}
    return products | fed | feeders_of(view, pooled)


def squeeze_excitation(view: View) -> Iterable[int]:
    """Products in f32 that compute a factor for each channel of the mean over its positions, the
    pooling and the activations among them, and what writes f32 for them.
    """
    found: set[int] = set()
    for index, step in enumerate(view.steps):
        if step.primitive == "pooling":
            path = _gate(view, index)
            if any(view.is_product(each) and not view.in_int8(each) for each in path):
                found |= {each for each in path if is_suspect(view, each) or converts(view, each)}
    return found | feeders_of(view, found)


def _gate(view: View, pooling: int) -> set[int]:
    """The steps from a pooling to where a larger tensor is multiplied by what was computed of it;
    none where there is no such place.
    """
    size = size_of(view, view.steps[pooling].outputs[0])
    path, waiting, multiplied = {pooling}, [pooling], False
    while waiting:
        step = view.steps[waiting.pop()]
        for reading in (item for value in step.outputs for item in view.behind(value)):
            if size_of(view, view.steps[reading.step].outputs[0]) > size:
                multiplied = multiplied or _multiplies(view.steps[reading.step], reading.role)
            elif reading.step not in path:
                path.add(reading.step)
                waiting.append(reading.step)
    return path if multiplied else set()


def _multiplies(step: Step, role: str) -> bool:
    algorithm = str(step.params.get("algorithm", step.op)).lower()
    return role == "binary mul" or (step.primitive == "binary" and algorithm == "mul")


def left_by_qoperator(view: View) -> Iterable[int]:
    """In a model of quantized operators what they have no form for: transposed convolutions in f32, what writes
    f32 for them, and interpolations of codes whose scale nothing tells.
    """
    if not is_qoperator(view.plan):
        return ()
    found = {i for i in float_products(view) if view.steps[i].primitive == "deconvolution"}
    return (
        found | feeders_of(view, found) | steps_where(view, lambda i: resizes_bare_codes(view, i))
    )


def resizes_bare_codes(view: View, index: int) -> bool:
    """True of a Resize of codes that the op table does not cover: one that interpolates."""
    step = view.steps[index]
    return step.primitive == "onnx.Resize" and step.op == "Onnx" and view.in_int8_source(index)


def f32_weights(view: View) -> Iterable[int]:
    """Products whose weights are f32, or codes of more than 8 bits."""
    return _refused(view, "the weights are not quantized", "the weights have more than 8 bits")


def asymmetric_weights(view: View) -> Iterable[int]:
    """Products whose weights have a zero point that the primitive does not take, and those of sums that stand
    for one in f32 where the rest of the layer multiplies codes.
    """
    split = view.subjects_of(_SPLITTING)
    terms = {
        index for index in float_products(view) if not split.isdisjoint(view.steps[index].origin)
    }
    apart = _refused(
        view,
        "takes no zero point on its weights",
        "the zero points of the weights differ",
        "the zero point of the weights is none of their codes",
    )
    return apart | terms | _feeding(view, terms)


def weights_along_inputs(view: View) -> Iterable[int]:
    """Products whose weights have a scale for each input channel."""
    return _refused(view, "the weights are quantized along another axis")


def _refused(view: View, *reasons: str) -> set[int]:
    """Products in f32 that the composer refused to multiply in int8 for one of these reasons, and
    what writes f32 for them.
    """
    found = {
        index
        for index in float_products(view)
        if any(reason in told for told in view.refusals(index) for reason in reasons)
    }
    return found | _feeding(view, found)


def _feeding(view: View, found: set[int]) -> set[int]:
    """What writes f32 for some products, but for other ones, which have a cause of their own."""
    return feeders_of(view, found) - float_products(view)
