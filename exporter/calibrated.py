"""Quantizers that a model does not have, and without which ONNX Runtime computes a convolution in f32, by
ranges that data gives.

NNCF writes none between a convolution and a swish, and one with a scale for each channel in front of a
depthwise convolution. The numbers are rounded once more, or more coarsely.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt

from ..errors import InvalidInput
from ..ir.cleanup import erase_dead
from ..ir.graph import Graph
from ..ir.interpret import run_graph
from ..ir.node import Node, subject
from ..ir.ops.spec import Array, Attr
from ..ir.types import DType, Quantization
from ..passes.base import swap
from ..runtime.fallback import Foreigners
from .biases import behind_activations, decoded_codes, stored_by

Ranges = Mapping[str, tuple[float, float]]
"""Value -> the smallest and the largest number that it has been seen to hold."""

_CHANNELS = 1


def quantize_rest(graph: Graph, samples: Iterable[Mapping[str, Array]]) -> tuple[str, ...]:
    """Gives every convolution of codes a quantizer behind it, and codes of one scale in front of it::

        Conv(x, w)                       ->  Dequantize(Quantize(Conv(x, w)))   u8, the range that samples give
        Swish(y), y of such a Conv       ->  Mul(y, Dequantize(Quantize(Sigmoid(y))))
        Conv(Dequantize(Quantize(x)), w) ->  the same with one scale, for the range of all channels together

    The last keeps what a channel's own range cut off. To cut it off by Max and Min took as long as the
    convolutions gain (EfficientNet-B0: 15.6 ms, 10.5 without, 15.9 with scales for each channel).

    Returns:
        The names of the nodes with a new quantizer, and of the quantizers with one scale, as the user's
        model has them.

    Raises:
        InvalidInput: the samples do not fit the model.
    """
    stores = [node for node in graph.each("Quantize") if _is_wide(graph, node)]
    for store in stores:
        _widen(graph, store)
    places = [
        (node, behind_activations(graph, node.output))
        for node in graph.each("Conv")
        if _lacks(graph, node)
    ]
    ranges = measured(graph, (value for _, value in places), samples)
    for _, value in places:
        decoded = _quantized(graph, value, ranges[value])
        for node in graph.consumers(decoded):
            if node.op == "Swish" and node.attr("alpha", float) == 1:
                _spell_swish(graph, node)
    return (*(subject(node) for node, _ in places), *map(subject, stores))


def _is_wide(graph: Graph, store: Node) -> bool:
    """True of codes with a scale for each channel that a convolution reads."""
    quant, decodes = store.quant, graph.consumers(store.output)
    if quant.axis != _CHANNELS or graph.is_output(store.output) or (quant.scales <= 0).any():
        return False
    if any(node.op != "Dequantize" or node.quant != quant for node in decodes):
        return False
    return any(r.op == "Conv" for node in decodes for r in graph.consumers(node.output))


def _widen(graph: Graph, store: Node) -> None:
    """Gives codes with a scale for each channel one scale."""
    low, high = ends_of(store)
    whole = covering(float(low.min()), float(high.max()))
    value = through_codes(graph, store, store.input, whole)
    for node in graph.consumers(store.output):
        swap(graph, node, value)
    graph.erase(store)


def measured(graph: Graph, values: Iterable[str], samples: Iterable[Mapping[str, Array]]) -> Ranges:
    """The smallest and the largest number of each value, 0 among them, on samples.

    Raises:
        InvalidInput: there is no sample, one does not fit the model, or makes a value infinite or NaN.
    """
    watched = graph.copy()
    found = dict.fromkeys(values, (0.0, 0.0))
    watched.set_outputs(list(found))
    erase_dead(watched)
    foreign = Foreigners()
    count = 0
    for sample in samples:
        count += 1
        _check(sample)
        for value, array in run_graph(watched, sample, foreign=foreign).items():
            if not np.isfinite(array).all():
                raise InvalidInput(
                    "the data makes a value infinite or NaN",
                    where=value,
                    hint="give data as the model expects it",
                )
            low, high = found[value]
            found[value] = (
                min(low, float(array.min(initial=0))),
                max(high, float(array.max(initial=0))),
            )
    if not count:
        raise InvalidInput("there is no sample", hint="give one array for each input")
    return found


def _check(sample: object) -> None:
    hint = "give a dictionary for each sample: {name of input: array}"
    if not isinstance(sample, Mapping):
        raise InvalidInput(f"a sample is of type {type(sample).__name__}", hint=hint)
    for name, array in sample.items():
        given = np.asarray(array)
        if given.dtype.kind == "f" and np.isnan(given).any():
            raise InvalidInput("a sample holds NaN", where=str(name), hint="give real inputs")


def _lacks(graph: Graph, node: Node) -> bool:
    """True of a convolution of codes whose result no quantizer alone reads."""
    source, weights = (decoded_codes(graph, value) for value in node.inputs[:2])
    coded = source is not None and source.quant.per_tensor and weights is not None
    return coded and stored_by(graph, node.output) is None


def _quantized(graph: Graph, value: str, ends: tuple[float, float]) -> str:
    """The value behind a quantizer, which all its readers read from now on: one that reads it already, or
    a new one for the range.
    """
    readers = graph.consumers(value)
    maker = graph.producer(value)
    assert maker is not None
    store = next((node for node in readers if _covers(node, ends)), None)
    if store is None:
        decoded = through_codes(graph, maker, value, covering(*ends))
    else:
        decoded = graph.part(maker, "Dequantize", [store.output], "decoded", {"quant": store.quant})
    others = [node for node in readers if store is None or node.name != store.name]
    graph.replace_uses(value, decoded, only=others)
    if not graph.is_output(value):
        return decoded
    graph.set_outputs([decoded if name == value else name for name in graph.outputs])
    graph.rename_value(value, graph.fresh(f"{value}/real"))
    graph.rename_value(decoded, value)
    return value


def through_codes(graph: Graph, node: Node, value: str, quant: Quantization) -> str:
    """A value as u8 codes and decoded again, as a part of what a node does."""
    attrs: dict[str, Attr] = {
        "quant": quant,
        "dtype": DType.U8,
        "lo": 0,
        "hi": 255,
        "order": "round_first",
    }
    codes = graph.part(node, "Quantize", [value], "codes", attrs)
    return graph.part(node, "Dequantize", [codes], "decoded", {"quant": quant})


def _covers(node: Node, ends: tuple[float, float]) -> bool:
    """True of a quantizer to codes that an operator can write, of a range that nothing leaves."""
    eight = node.op == "Quantize" and node.attr("dtype", DType) in (DType.U8, DType.S8)
    if not eight or not node.quant.per_tensor or not node.quant.integral:
        return False
    low, high = (float(end[0]) for end in ends_of(node))
    return min(low, high) <= ends[0] and ends[1] <= max(low, high)


def ends_of(store: Node) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """The numbers of the first and the last code of a Quantize, for each of its scales."""
    quant = store.quant
    first, last = (
        (store.attr(bound, int) - quant.zero_points.astype(np.float64)) * quant.scales
        for bound in ("lo", "hi")
    )
    return first, last


def covering(low: float, high: float) -> Quantization:
    """u8 codes for a range, 0 among its numbers."""
    low, high = min(low, 0.0), max(high, 0.0)
    scale = np.float32((high - low) / 255) or np.float32(1)
    return Quantization.of(scale, np.clip(np.rint(-low / float(scale)), 0, 255))


def _spell_swish(graph: Graph, node: Node) -> None:
    """x * sigmoid(x), the sigmoid in codes: ONNX Runtime has operators on codes for both."""
    gate = graph.part(node, "Sigmoid", [node.input], "gate")
    gate = through_codes(graph, node, gate, covering(0.0, 1.0))
    swap(graph, node, graph.part(node, "Mul", [node.input, gate], "product"))
