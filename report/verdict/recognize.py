"""Which finding a step belongs to: rules in order, and the first that claims a step has it.

A rule is a function from the view of a plan to the steps that it claims. Every step that writes
floating-point numbers, multiplies them, or runs outside the primitives is claimed by exactly one;
`other` takes what no rule knows. Steps on codes are claimed only where they cost time by themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from ...ir.ops.computed_ranges import GRID
from ...ir.types import DType, Quantization
from ...plan.arguments import SOURCE_AT_RUN_TIME
from ...plan.attributes import Binary, Eltwise, Sum
from ...plan.types import Step, codes_source
from .numbers import has_unusable_scale
from .view import Reading, View
from .work import SHAPES, elements_of, operator_of

Rule = Callable[[View], Iterable[int]]

_HALF = frozenset({DType.F16, DType.BF16, DType.F64})
_ADDS = frozenset({"add", "sub"})
_ELEMENTWISE = frozenset({"binary", "eltwise", "prelu", "batch_normalization"})
_CODES = 256
_MUCH = 0.05  # of the multiply-adds: for a classifier behind an LSTM calibration gained nothing
_WITH_QUANTIZERS = frozenset(
    {
        "unquantized-recurrence",
        "f32-gru",
        "f32-rnn",
        "dynamic-recurrence",
        "half-float",
        "per-channel-activation",
        "fractional-zero-point",
        "f32-embedding",
        "squeeze-excitation",
        "fallback",
        "control-flow",
    }
)
"""Kinds whose f32 is the only reason for the quantizer behind it to be a step of its own."""

_PRODUCTS = frozenset(
    {
        "f32-weights",
        "asymmetric-weights",
        "weights-along-inputs",
        "weights-only",
        "f32-attention",
        "f32-product",
    }
)
"""The same, where nobody else reads that f32: a product of codes stores codes."""


def is_suspect(view: View, index: int) -> bool:
    """True of a step that has to belong to a finding."""
    foreign = view.is_foreign(index)
    in_float = view.is_product(index) and not view.in_int8(index)
    return foreign or in_float or bool(view.floats_written(index))


def claims(view: View) -> dict[int, str]:
    """Step -> the code of its finding, in the order of the steps."""
    found: dict[int, str] = {}
    rules = _RULES if is_quantized(view) else _UNQUANTIZED
    for code, rule in rules.items():
        for index in rule(view):
            found.setdefault(index, code)
    for index in range(len(view.steps)):
        if index not in found and is_suspect(view, index):
            found[index] = _of_neighbours(view, index, found)
    for index, code in found.items():
        if code == "quantizer-apart":
            makers = {front for value in view.floats_read(index) for front in view.in_front(value)}
            fronts = {found.get(maker, "") for maker in makers}
            alone = all(
                converts(view, item.step) for each in makers for item in view.readings(each)
            )
            if len(fronts) == 1 and fronts <= (_WITH_QUANTIZERS | (_PRODUCTS if alone else set())):
                found[index] = fronts.pop()
    return dict(sorted(found.items()))


def is_quantized(view: View) -> bool:
    """True where the model holds quantizers, or a step computes on codes."""
    return bool(view.plan.quantizers) or any(map(view.in_int8, range(len(view.steps))))


def _of_neighbours(view: View, index: int, found: Mapping[int, str]) -> str:
    """Moved floats belong to what wrote them, or else to what reads them."""
    if view.is_move(index):
        if not view.floats_written(index):
            return "layout-copy"
        step = view.steps[index]
        around = [front for _, value in step.args for front in view.in_front(value)]
        around += [reading.step for reading in view.readings(index)]
        for neighbour in around:
            if found.get(neighbour, "model-output") != "model-output":
                return found[neighbour]
        return "layout-copy"
    return "other"


def _feeding(view: View, targets: frozenset[int] | set[int]) -> set[int]:
    """Steps that write floats because a target reads them; moves and targets apart."""
    return {
        index
        for index in range(len(view.steps))
        if index not in targets
        and not view.is_move(index)
        and any(reading.step in targets for reading in view.readings(index))
    }


def _all(view: View, holds: Callable[[int], bool]) -> set[int]:
    return {index for index in range(len(view.steps)) if holds(index)}


def _float_products(view: View) -> set[int]:
    return _all(view, lambda index: view.is_product(index) and not view.in_int8(index))


# -- rules -----------------------------------------------------------------------------------------


def not_quantized(view: View) -> Iterable[int]:
    """Everything in a model without quantizers."""
    return _all(view, lambda index: is_suspect(view, index) and not _on_integers(view, index))


def unusable_scale(view: View) -> Iterable[int]:
    """Quantizers whose scale nothing can be divided by, and what writes f32 for them."""
    found = _all(view, lambda index: has_unusable_scale(view, index))
    return found | _feeding(view, found)


def control_flow(view: View) -> Iterable[int]:
    """If, Loop and Scan with products in their bodies, and what writes f32 for them."""
    found = with_products_inside(view)
    return found | _feeding(view, found)


def with_products_inside(view: View) -> set[int]:
    """If, Loop and Scan with products in their bodies."""
    return _all(view, view.multiplies_inside)


def index_arithmetic(view: View) -> Iterable[int]:
    """Operators on integers, which are no codes, and the cast of what they give."""
    return _all(view, lambda index: _on_integers(view, index))


def _on_integers(view: View, index: int) -> bool:
    step = view.steps[index]
    given = [value for _, value in step.args if not view.is_constant(value)]
    results = [value for value in step.outputs if value]
    if not view.is_foreign(index) or any(map(view.is_code, results)):
        return False
    if operator_of(step) == "Gather" and any(map(view.is_float, results)):
        return False
    values = given or results
    return all(not view.is_float(value) and not view.is_code(value) for value in values)


def shape_only(view: View) -> Iterable[int]:
    """Steps that write f32 of which nothing but the sizes are asked for."""
    return _all(
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
    targets = _all(view, holds)
    return targets | _feeding(view, targets)


def _is_lstm(view: View, index: int) -> bool:
    return operator_of(view.steps[index]) == "LSTM"


def _is_dynamic_lstm(view: View, index: int) -> bool:
    return operator_of(view.steps[index]) == "DynamicQuantizeLSTM"


def half_floats(view: View) -> Iterable[int]:
    """Steps that read or write f16, bf16 or f64."""

    def holds(index: int) -> bool:
        step = view.steps[index]
        types = [view.type(value) for value in (*step.inputs, *step.outputs) if value]
        return any(type_ is not None and type_.dtype in _HALF for type_ in types)

    return _all(view, holds)


def wide_codes(view: View) -> Iterable[int]:
    """Quantizers of 16 bits: in f32, rounded to more than 256 codes; and the products behind."""

    def is_wide(index: int) -> bool:
        step = view.steps[index]
        stated = [view.type(value) for value in (*step.inputs, *step.outputs) if value]
        wide = any(
            type_ is not None and type_.dtype.is_wide_code and type_.quant is not None
            for type_ in stated
        )
        return wide or _rounds_wide(step)

    return _with_products(view, _all(view, is_wide))


def _rounds_wide(step: Step) -> bool:
    rounded = False
    for op in step.attr.post_ops:
        if not isinstance(op, Eltwise):
            continue
        if rounded and op.algorithm.startswith("clip") and op.beta - op.alpha >= _CODES:
            return True
        rounded = rounded or op.algorithm == "round"
    return False


def per_channel(view: View) -> Iterable[int]:
    """Codes with a scale for each channel that are decoded by a step, and the products behind."""
    return _decoded(view, lambda quant: not quant.per_tensor)


def fractional_zero(view: View) -> Iterable[int]:
    """Codes whose zero point is no integer that are decoded by a step, and the products behind."""
    return _decoded(view, lambda quant: not quant.integral)


def _decoded(view: View, odd: Callable[[Quantization], bool]) -> set[int]:
    def holds(index: int) -> bool:
        step = view.steps[index]
        first = view.type(step.args[0][1]) if step.args else None
        quant = first.quant if first is not None else None
        return bool(quant and odd(quant) and view.floats_written(index))

    return _with_products(view, _all(view, holds))


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
    return dynamic_quantizer(view) if _all(view, lambda i: _is_dynamic_lstm(view, i)) else ()


def dynamic_quantizer(view: View) -> Iterable[int]:
    """Ranges taken in each run: the step that looks for them, what makes scales of them, and the
    steps that write f32 because a range is taken of it.
    """
    ranges = _all(view, lambda index: operator_of(view.steps[index]) == "DynamicRange")
    grids = _all(view, lambda index: operator_of(view.steps[index]) == GRID)
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
        and view.steps[reading.step].primitive in _ELEMENTWISE
    }
    coded = _all(view, lambda index: codes_source(view.steps[index]))
    feeding = {index for index in _feeding(view, ranges | coded) if _could_store(view, index)}
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
    return found | coded | makers | quantizing | feeding | _with_products(view, whole - coded)


def takes_a_range(view: View, index: int) -> bool:
    """True of a step that looks for a range, of a FakeQuantize that is given one in each run, or what
    makes its grid, and of a product that makes codes of its source.
    """
    step = view.steps[index]
    operator = operator_of(step)
    return (
        codes_source(step)
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

    return _all(view, holds)


def weights_only(view: View) -> Iterable[int]:
    """Products of f32 with weights that are packed in blocks of codes, and what writes the f32."""
    products = {i for i in _float_products(view) if operator_of(view.steps[i]) == "MatMulBlocks"}
    return products | {index for index in _feeding(view, products) if not view.is_product(index)}


def f32_attention(view: View) -> Iterable[int]:
    """Matrix products in f32 of two computed values, and what writes f32 for them."""
    products = {
        index
        for index in _float_products(view)
        if len(view.steps[index].args) > 1
        and not any(view.is_constant(value) for _, value in view.steps[index].args[:2])
    }
    return products | (_feeding(view, products) - _float_products(view))


def f32_product(view: View) -> Iterable[int]:
    """Convolutions and matrix products in f32, and what writes f32 for them."""
    products = {
        index for index in _float_products(view) if operator_of(view.steps[index]) != "MatMulBlocks"
    }
    fed = _feeding(view, products)
    pooled = {index for index in fed if view.steps[index].primitive == "pooling"}
    return products | fed | _feeding(view, pooled)


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
    return found | _feeding(view, found)


def _gate(view: View, pooling: int) -> set[int]:
    """The steps from a pooling to where a larger tensor is multiplied by what was computed of it;
    none where there is no such place.
    """
    size = _size(view, view.steps[pooling].outputs[0])
    path, waiting, multiplied = {pooling}, [pooling], False
    while waiting:
        step = view.steps[waiting.pop()]
        for reading in (item for value in step.outputs for item in view.behind(value)):
            if _size(view, view.steps[reading.step].outputs[0]) > size:
                multiplied = multiplied or _multiplies(view.steps[reading.step], reading.role)
            elif reading.step not in path:
                path.add(reading.step)
                waiting.append(reading.step)
    return path if multiplied else set()


def _multiplies(step: Step, role: str) -> bool:
    algorithm = str(step.params.get("algorithm", step.op)).lower()
    return role == "binary mul" or (step.primitive == "binary" and algorithm == "mul")


def f32_weights(view: View) -> Iterable[int]:
    """Products whose weights are f32, or codes of more than 8 bits."""
    return _refused(view, "the weights are not quantized", "the weights have more than 8 bits")


def asymmetric_weights(view: View) -> Iterable[int]:
    """Products whose weights have a zero point that the primitive does not take."""
    return _refused(
        view,
        "takes no zero point on its weights",
        "the zero points of the weights differ",
        "the zero point of the weights is none of their codes",
    )


def weights_along_inputs(view: View) -> Iterable[int]:
    """Products whose weights have a scale for each input channel."""
    return _refused(view, "the weights are quantized along another axis")


def _refused(view: View, *reasons: str) -> set[int]:
    """Products in f32 that the composer refused to multiply in int8 for one of these reasons, and
    what writes f32 for them.
    """
    found = {
        index
        for index in _float_products(view)
        if any(reason in told for told in view.refusals(index) for reason in reasons)
    }
    return found | _feeding(view, found)


def table(view: View) -> Iterable[int]:
    """An activation between two quantizers, as a table of its 256 codes."""
    return _all(view, lambda index: operator_of(view.steps[index]) == "Lookup")


def fallback(view: View) -> Iterable[int]:
    """Operators that no primitive computes, and what writes f32 for them."""
    found = _all(
        view,
        lambda index: (
            view.is_foreign(index)
            and not view.is_move(index)
            and operator_of(view.steps[index]) not in {"Gather", "Lookup"}
            and not _on_integers(view, index)
        ),
    )
    return found | _feeding(view, found)


def model_output(view: View) -> Iterable[int]:
    """f32 that nothing reads but who runs the model."""
    return _all(
        view,
        lambda index: (
            bool(view.floats_written(index))
            and not view.is_foreign(index)
            and not view.readings(index)
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
            for value in _skips(view, view.steps[index])
            for front in view.in_front(value)
        )
    }


def f32_residual(view: View) -> Iterable[int]:
    """Additions of two f32 tensors of one size, what writes their operands, and quantizers that are
    steps of their own because an addition reads what they read.
    """
    found: set[int] = set()
    for index, step in enumerate(view.steps):
        skips = _skips(view, step)
        if not skips:
            continue
        if view.floats_written(index):
            found.add(index)
        makers = {front for value in skips for front in view.in_front(value)}
        found |= makers
        found |= {
            reading.step
            for maker in makers
            for reading in view.readings(maker)
            if converts(view, reading.step) and not _skips(view, view.steps[reading.step])
        }
    return {index for index in found if view.floats_written(index) or converts(view, index)}


def _skips(view: View, step: Step) -> list[str]:
    """The f32 values that a step adds to what it computes, or to each other."""
    size = _size(view, step.outputs[0]) if step.outputs else 0
    behind = [
        op.operand
        for op in step.attr.post_ops
        if isinstance(op, Sum) or (isinstance(op, Binary) and op.algorithm in _ADDS)
    ]
    algorithm = str(step.params.get("algorithm", step.op)).lower()
    added = [value for _, value in step.args] if step.primitive == "binary" else []
    if algorithm not in _ADDS or not all(map(view.is_float, added)):
        added = []
    values = [
        value
        for value in (*behind, *added)
        if view.is_float(value) and not view.is_constant(value) and _size(view, value) == size
    ]
    return values if behind or len(values) > 1 else []


def additions(view: View, value: str) -> set[int]:
    """The steps that add a value to another tensor of its size."""
    maker = view.producer.get(value)
    return {
        reading.step
        for reading in view.behind(value)
        if any(maker in view.in_front(skip) for skip in _skips(view, view.steps[reading.step]))
    }


def _size(view: View, value: str) -> int:
    type_ = view.type(value)
    return 0 if type_ is None else elements_of(type_)


def f32_pooling(view: View) -> Iterable[int]:
    """Poolings and resizings that read f32 and that only quantizers read, these, and what writes f32
    for them.
    """
    found = _all(
        view,
        lambda index: (
            view.steps[index].primitive in {"pooling", "resampling"}
            and bool(view.floats_read(index))
            and bool(view.readings(index))
            and all(converts(view, reading.step) for reading in view.readings(index))
        ),
    )
    quantizers = {reading.step for index in found for reading in view.readings(index)}
    return found | quantizers | _feeding(view, found)


def float_operation(view: View) -> Iterable[int]:
    """Operations that compute in f32 and have no int8 form here, and what writes f32 for them."""
    found = _all(
        view,
        lambda index: (
            bool(view.floats_read(index))
            and bool(view.floats_written(index))
            and not view.is_foreign(index)
            and not view.is_move(index)
            and view.steps[index].primitive != "reorder"
        ),
    )
    storing = _all(
        view,
        lambda index: (
            bool(view.floats_read(index))
            and not view.is_foreign(index)
            and not view.is_move(index)
            and (not converts(view, index) or _ends_a_node(view, index))
        ),
    )
    ends = {index for index in storing if converts(view, index)}
    return found | ends | _feeding(view, storing)


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

    decoding = _all(
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
    apart = _all(
        view,
        lambda index: (
            converts(view, index)
            and not _ends_a_node(view, index)
            and any(front for value in view.floats_read(index) for front in [*view.in_front(value)])
        ),
    )
    return apart | _feeding(view, apart)


def converts(view: View, index: int) -> bool:
    """True of an elementwise step from f32 to codes: nothing but a quantizer, and what scales."""
    step = view.steps[index]
    return (
        step.primitive in {"reorder", "binary", "eltwise"}
        and any(map(view.is_code, step.outputs))
        and bool(view.floats_read(index))
        and not any(
            isinstance(op, Eltwise) and op.algorithm not in {"linear", "round", "clip", "clip_v2"}
            for op in step.attr.post_ops
        )
        and str(step.params.get("algorithm", "linear")) in {"linear", "mul", "add"}
    )


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
                and (isinstance(op, Sum) or op.algorithm in _ADDS)
            ):
                return True
        return False

    return _all(view, lambda index: view.is_product(index) and holds(index))


def requantized(view: View) -> Iterable[int]:
    """A step that only changes the parameters of codes: a reorder, or a quantizer behind a concatenation of
    codes with others.
    """

    def holds(index: int) -> bool:
        step = view.steps[index]
        given = [value for _, value in step.args if not view.is_constant(value)]
        alone = (
            step.primitive in _ELEMENTWISE
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

    return _all(view, holds)


def layout_copy(view: View) -> Iterable[int]:
    """Codes that are moved: concatenations, transpositions, slices."""
    return _all(
        view,
        lambda index: (
            not view.floats_written(index)
            and (view.is_move(index) or operator_of(view.steps[index]) == "Gather")
        ),
    )


def own_step(view: View) -> Iterable[int]:
    """Elementwise arithmetic on codes that no layer in front could take."""
    return _all(
        view,
        lambda index: (
            view.steps[index].primitive in _ELEMENTWISE
            and view.in_int8_source(index)
            and any(map(view.is_code, view.steps[index].outputs))
        ),
    )


_RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "absurd-scale": unusable_scale,
        "control-flow": control_flow,
        "index-arithmetic": index_arithmetic,
        "decoded-for-shape": shape_only,
        "unquantized-recurrence": lstm,
        "f32-gru": gru,
        "f32-rnn": other_recurrence,
        "dynamic-recurrence": dynamic_recurrence,
        "half-float": half_floats,
        "wide-codes": wide_codes,
        "per-channel-activation": per_channel,
        "fractional-zero-point": fractional_zero,
        "dynamic-beside-lstm": dynamic_beside_lstm,
        "dynamic-quantizer": dynamic_quantizer,
        "f32-embedding": embedding,
        "squeeze-excitation": squeeze_excitation,
        "f32-attention": f32_attention,
        "f32-weights": f32_weights,
        "asymmetric-weights": asymmetric_weights,
        "weights-along-inputs": weights_along_inputs,
        "weights-only": weights_only,
        "f32-product": f32_product,
        "concat-parameters": concat_parameters,
        "code-table": table,
        "fallback": fallback,
        "model-output": model_output,
        "f32-residual": f32_residual,
        "f32-pooling": f32_pooling,
        "float-operation": float_operation,
        "decoded-operand": decoded_operand,
        "quantizer-apart": quantizer_apart,
        "quantizer-between": quantizer_between,
        "requantized": requantized,
        "layout-copy": layout_copy,
        "own-step": own_step,
    }
)
"""In the order of their claims: what explains more stands in front."""

_UNQUANTIZED: Mapping[str, Rule] = MappingProxyType(
    {
        "control-flow": with_products_inside,
        "index-arithmetic": index_arithmetic,
        "unquantized-recurrence": lstm,
        "f32-gru": gru,
        "f32-rnn": other_recurrence,
        "half-float": half_floats,
        "not-quantized": not_quantized,
    }
)
