"""Which finding a step belongs to: rules in order, and the first that claims a step has it.

A rule is a function from the view of a plan to the steps that it claims. Every step that writes
floating-point numbers, multiplies them, or runs outside the primitives is claimed by exactly one;
`other` takes what no rule knows. Steps on codes are claimed only where they cost time by themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from .numbers import absurd_scales, has_unusable_scale, multiplies_by_infinity
from .rules_of_products import (
    asymmetric_weights,
    control_flow,
    double_floats,
    dynamic_beside_lstm,
    dynamic_quantizer,
    dynamic_recurrence,
    embedding,
    f32_attention,
    f32_product,
    f32_weights,
    float_codes,
    fractional_zero,
    gru,
    index_arithmetic,
    is_whole_quantizer,
    left_by_qoperator,
    lstm,
    not_quantized,
    other_recurrence,
    per_channel,
    quantized_outside,
    resizes_bare_codes,
    shape_only,
    squeeze_excitation,
    takes_a_range,
    weights_along_inputs,
    weights_only,
    whole_quantizer,
    wide_codes,
    with_products_inside,
)
from .rules_of_steps import (
    concat_parameters,
    decoded_operand,
    f32_pooling,
    f32_residual,
    fallback,
    float_operation,
    half_floats,
    layout_copy,
    model_output,
    open_sizes,
    own_step,
    quantizer_apart,
    quantizer_between,
    requantized,
    table,
)
from .view import (
    View,
    converts,
    feeders_of,
    is_recurrent,
    is_suspect,
    multiplies,
    steps_where,
)
from .work import POOLINGS

Rule = Callable[[View], Iterable[int]]
"""From the view of a plan to the steps that it claims."""

_WITH_QUANTIZERS = frozenset(
    {
        "absurd-scale",
        "unquantized-recurrence",
        "f32-gru",
        "f32-rnn",
        "dynamic-recurrence",
        "double-precision",
        "half-floats",
        "per-channel-activation",
        "fractional-zero-point",
        "whole-quantizer",
        "f32-embedding",
        "squeeze-excitation",
        "fallback",
        "control-flow",
    }
)
"""Kinds whose f32 is the only reason for the quantizer behind it to be a step of its own."""
_PRODUCTS = frozenset(
    {
        "left-by-qoperator",
        "f32-weights",
        "asymmetric-weights",
        "weights-along-inputs",
        "weights-only",
        "f32-attention",
        "f32-product",
    }
)
"""The same, where nobody else reads that f32: a product of codes stores codes."""


def _is_f32_product(view: View, index: int) -> bool:
    return view.is_product(index) and not view.in_int8(index)


def _is_left_by_qoperator(view: View, index: int) -> bool:
    return _is_f32_product(view, index) or resizes_bare_codes(view, index)


def _is_binary(view: View, index: int) -> bool:
    return view.steps[index].primitive == "binary"


def _is_pooling(view: View, index: int) -> bool:
    return view.steps[index].primitive in POOLINGS


def _writes_floats(view: View, index: int) -> bool:
    return bool(view.floats_written(index))


def _stores_codes(view: View, index: int) -> bool:
    return not view.floats_written(index)


CORES: Mapping[str, Callable[[View, int], bool]] = MappingProxyType(
    {
        "left-by-qoperator": _is_left_by_qoperator,
        "f32-weights": _is_f32_product,
        "quantized-outside": _is_f32_product,
        "weights-only": _is_f32_product,
        "asymmetric-weights": _is_f32_product,
        "weights-along-inputs": _is_f32_product,
        "squeeze-excitation": _is_f32_product,
        "f32-attention": _is_f32_product,
        "f32-product": _is_f32_product,
        "f32-pooling": _is_pooling,
        "not-quantized": multiplies,
        "unquantized-recurrence": is_recurrent,
        "f32-gru": is_recurrent,
        "f32-rnn": is_recurrent,
        "dynamic-recurrence": is_recurrent,
        "dynamic-beside-lstm": takes_a_range,
        "dynamic-quantizer": takes_a_range,
        "whole-quantizer": is_whole_quantizer,
        "fallback": View.is_foreign,
        "half-floats": View.is_foreign,
        "control-flow": View.multiplies_inside,
        "decoded-operand": _is_binary,
        "quantizer-apart": _stores_codes,
        "f32-residual": _writes_floats,
    }
)
"""Code -> which of its steps it is about; for the others, all that are no views."""


def claims(view: View, *, inside: bool = False) -> dict[int, str]:
    """Step -> the code of its finding, in the order of the steps. What runs plans in its bodies has
    their findings; `inside`: such a plan, of a model that is quantized.
    """
    found: dict[int, str] = {}
    rules = _RULES if inside or is_quantized(view) else _UNQUANTIZED
    for code, rule in rules.items():
        new = [index for index in rule(view) if index not in found]
        core = CORES.get(code, _anything) if code in _RULES else _anything
        if any(core(view, index) and _may_have(view, index, code) for index in new):
            found.update(dict.fromkeys(new, code))
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
    _take_from_apart(view, found)
    return {index: code for index, code in sorted(found.items()) if _may_have(view, index, code)}


def _anything(_view: View, _index: int) -> bool:
    return True


def _may_have(view: View, index: int, code: str) -> bool:
    """False of a step that runs plans in its bodies, which have findings of their own, where another kind claims it."""
    return view.steps[index].bodies is None or code == "control-flow"


def _take_from_apart(view: View, found: dict[int, str]) -> None:
    """Quantizers apart that have an absurd scale, or are there for steps with one alone, go with those: they
    are to stay f32, and nothing is to be quantized for them.
    """
    absurd = {
        *absurd_scales(view),
        *(each for each, code in found.items() if code == "absurd-scale"),
    }
    for index in reversed(range(len(view.steps))):
        if found.get(index) != "quantizer-apart":
            continue
        readers = {item.step for value in view.steps[index].outputs for item in view.behind(value)}
        if index in absurd or (readers and readers <= absurd):
            found[index] = "absurd-scale"
            absurd.add(index)


def is_quantized(view: View) -> bool:
    """True where the model holds quantizers, or a step computes on codes."""
    indices = range(len(view.steps))
    return (
        bool(view.plan.quantizers)
        or any(map(view.in_int8, indices))
        or any(map(view.is_quantized_inside, indices))
    )


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
        return "layout-copy" if view.readings(index) else "model-output"
    return "other"


def unusable_scale(view: View) -> Iterable[int]:
    """Quantizers whose scale nothing can be divided by, multiplications by what such a scale made infinite, and
    what writes f32 for them.
    """
    found = steps_where(
        view, lambda index: has_unusable_scale(view, index) or multiplies_by_infinity(view, index)
    )
    return found | feeders_of(view, found)


_RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "absurd-scale": unusable_scale,
        "control-flow": control_flow,
        "open-sizes": open_sizes,
        "index-arithmetic": index_arithmetic,
        "decoded-for-shape": shape_only,
        "wide-codes": wide_codes,
        "unquantized-recurrence": lstm,
        "f32-gru": gru,
        "f32-rnn": other_recurrence,
        "dynamic-recurrence": dynamic_recurrence,
        "double-precision": double_floats,
        "half-floats": half_floats,
        "float-codes": float_codes,
        "per-channel-activation": per_channel,
        "fractional-zero-point": fractional_zero,
        "whole-quantizer": whole_quantizer,
        "dynamic-beside-lstm": dynamic_beside_lstm,
        "dynamic-quantizer": dynamic_quantizer,
        "quantized-outside": quantized_outside,
        "f32-embedding": embedding,
        "squeeze-excitation": squeeze_excitation,
        "f32-attention": f32_attention,
        "left-by-qoperator": left_by_qoperator,
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
        "open-sizes": open_sizes,
        "index-arithmetic": index_arithmetic,
        "unquantized-recurrence": lstm,
        "f32-gru": gru,
        "f32-rnn": other_recurrence,
        "double-precision": double_floats,
        "half-floats": half_floats,
        "not-quantized": not_quantized,
    }
)
