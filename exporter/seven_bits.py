"""Quantizers of a graph with 7 bits in place of 8.

In the middle of their codes stands 0 of s8 and 128 of u8, which becomes the zero point; q and z are a
code and a zero point. Seven bits are codes of a step that is f times as large, so that they lie in
-64..64 about the middle::

    f = max(2, largest |q - z| / 64)    q' = round((q - z) / f) + middle    scale' = f * scale

f is 2 where z stands in the middle, and never 4: a zero point at an end of the codes leaves all of them
on one side. Where a CPU halves weights, they become even instead, at the same scale:
q' = 2 * round(q / 2). What is computed gets the codes 0..127, by a wider step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import UnsupportedOp
from ..ir.decision import Quantizer
from ..ir.graph import Graph
from ..ir.node import Node
from ..ir.types import DType, Quantization
from ..passes.base import swap
from ..passes.retyping import carries_codes

_ANEW = "quantize this layer anew: weights to 7 bits, or activations to 0..127"
_HALF = 64  # pairs of weights up to this magnitude never saturate
_LARGEST = 127
_LSTM = {1: (3, 4), 2: (5, 6)}
"""DynamicQuantizeLSTM: its weights of the input and of the hidden state, with scale and zero point."""

Numbers = npt.NDArray[Any]


@dataclass(frozen=True)
class Channels:
    """Which output channels of a layer's weights are to change, of how many."""

    chosen: frozenset[int]
    of: int

    def mask(self, count: int) -> npt.NDArray[np.bool_]:
        """Which of so many scales: those of the channels where there is one for each, else all."""
        if count != self.of or count < 2:
            return np.ones(count, np.bool_)
        return np.isin(np.arange(self.of), list(self.chosen))


def weights_in_7_bits(
    graph: Graph, quantizer: Quantizer, channels: Channels, *, even: bool = False
) -> None:
    """Changes the weights of a quantizer, and of all that decode the same constant.

    Args:
        graph: split, with constant codes; it is changed.
        quantizer: of constant weights.
        channels: those that are to change.
        even: make their codes even.

    Raises:
        UnsupportedOp: their form is unknown, or they are no codes of 8 bits.
    """
    names = {q.name for q in graph.quantizers.values() if q.value == quantizer.value}
    found = [node for node in graph.nodes() if not names.isdisjoint(node.quantizer)]
    done = False
    for node in found:
        if node.op == "Dequantize" and graph.constant(node.input) is not None:
            codes, quant = _narrowed(graph, node, quantizer, channels, even=even)
            made = graph.again(node, [codes], {**node.attrs, "quant": quant})
            swap(graph, node, made.output)
            done = True
        elif node.op == "DynamicQuantizeLSTM":
            _layer(graph, node, quantizer)
            done = True
    if not done:
        raise _refused(quantizer, "nothing known here reads its weights")


def activation_in_7_bits(graph: Graph, quantizer: Quantizer) -> None:
    """Maps the range of a quantizer of what is computed to the codes 0..127 (s8: -128..-1).

    Raises:
        UnsupportedOp: as `weights_in_7_bits`.
    """
    stores = [node for node in graph.each("Quantize") if quantizer.name in node.quantizer]
    if not stores:
        raise _refused(quantizer, f"it is part of {quantizer.form}")
    for store in stores:
        quant, dtype = store.quant, store.attr("dtype", DType)
        if not quant.per_tensor or dtype not in (DType.U8, DType.S8):
            raise _refused(quantizer, "it has several scales, or no codes of 8 bits")
        least = dtype.range[0]
        span = np.float64(255) / _LARGEST
        zero = np.rint((quant.zero_points.astype(np.float64) - least) / span) + least
        wider = Quantization.of(quant.scales * span, zero)
        attrs = {**store.attrs, "quant": wider, "lo": least, "hi": least + _LARGEST}
        made = graph.again(store, store.inputs, attrs)
        _recode(graph, store, made, quantizer)


def _refused(quantizer: Quantizer, why: str) -> UnsupportedOp:
    what = f"this quantizer cannot be given 7 bits: {why}"
    return UnsupportedOp(what, where=quantizer.name, hint=_ANEW)


def _narrowed(
    graph: Graph, node: Node, quantizer: Quantizer, channels: Channels, *, even: bool
) -> tuple[str, Quantization]:
    """The constant of the new codes that a Dequantize reads, and how they decode."""
    data, quant = graph.constant(node.input), node.quant
    assert data is not None
    _check(data, quantizer)
    mask = channels.mask(len(quant.scale))
    shape = [1] * data.ndim
    if quant.axis is not None:
        shape[quant.axis] = -1
    if even:
        codes = np.where(mask.reshape(shape), _evened(data), data)
        return graph.add_constant(node.input, codes.astype(data.dtype)), quant
    zero = quant.zero_points.astype(np.float64)
    factor = np.where(mask, _factors(data, zero.reshape(shape)).reshape(-1), 1.0)
    codes = _divided(data, zero.reshape(shape), factor.reshape(shape))
    zeros = np.where(factor > 1, _middle(data), zero)
    changed = replace(quant, scale=_f32(quant.scales * factor), zero_point=_f32(zeros))
    return graph.add_constant(node.input, codes), changed


def _layer(graph: Graph, node: Node, quantizer: Quantizer) -> None:
    """Codes [D, K, 4H], with parameters for each direction, or for each of its columns: those of the input and
    of the hidden state, which are two quantizers; what has 7 bits stays.
    """
    inputs = list(node.inputs)
    for index, places in _LSTM.items():
        found = [graph.constant(node.inputs[place]) for place in (index, *places)]
        parts = [part for part in found if part is not None]
        if len(parts) < len(found):
            raise _refused(quantizer, "its scale or zero point is computed")
        data, scale, zero = parts
        _check(data, quantizer)
        if np.abs(data.astype(np.int16) - _middle(data)).max(initial=0) <= _HALF:
            continue
        apart = zero.reshape(data.shape[0], 1, -1).astype(np.float64)
        factor = _factors(data, apart)
        news = (
            _divided(data, apart, factor),
            (scale * factor.reshape(scale.shape)).astype(scale.dtype),
            np.full(zero.shape, _middle(data), zero.dtype),
        )
        for place, new in zip((index, *places), news, strict=True):
            inputs[place] = graph.add_constant(node.inputs[place], new)
    graph.set_inputs(node, inputs)


def _check(data: Numbers, quantizer: Quantizer) -> None:
    if data.dtype not in (np.int8, np.uint8):
        raise _refused(quantizer, f"its codes are {data.dtype}")


def _middle(codes: Numbers) -> int:
    return 128 if codes.dtype == np.uint8 else 0


def _f32(numbers: Numbers) -> tuple[float, ...]:
    return tuple(numbers.astype(np.float32).tolist())


def _factors(data: Numbers, zero: Numbers) -> Numbers:
    """How many times as large a step becomes, for each zero point; both have the rank of the data."""
    others = tuple(axis for axis, size in enumerate(zero.shape) if size == 1)
    reach = np.abs(data - zero).max(axis=others, keepdims=True, initial=0)
    return np.asarray(np.maximum(reach / _HALF, 2.0))


def _divided(data: Numbers, zero: Numbers, factor: Numbers) -> Numbers:
    """Codes of 7 bits, where the factor is not 1."""
    new = np.rint((data - zero) / factor) + _middle(data)
    return np.asarray(np.where(factor > 1, new, data), data.dtype)


def _evened(data: Numbers) -> Numbers:
    centred = data.astype(np.float32) - _middle(data)
    return np.asarray(np.clip(2 * np.rint(centred / 2), -128, 126) + _middle(data))


def _recode(graph: Graph, old: Node, made: Node, quantizer: Quantizer) -> None:
    """Lets all that reads the codes of a node read those of another one, and erases it."""
    if graph.is_output(old.output):
        raise _refused(quantizer, "the model returns its codes")
    quant = graph.type(made.output).quant
    for node in graph.consumers(old.output):
        inputs = [made.output, *node.inputs[1:]]
        if node.op == "Dequantize" and quant is not None:
            swap(graph, node, graph.again(node, inputs, {**node.attrs, "quant": quant}).output)
        elif carries_codes(node):
            _recode(graph, node, graph.again(node, inputs), quantizer)
        else:
            raise _refused(quantizer, f"{node.op} reads its codes")
    graph.erase(old)
