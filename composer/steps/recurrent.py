"""Recurrent layers: one step each, in f32, or in int8 where the compilation may approximate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...ir.approximations import APPROXIMATIONS, INT8_RECURRENCE
from ...ir.decision import Decision, DequantizeFate, Outcome, QuantizeFate
from ...ir.node import Node, origin_of, subject
from ...ir.ops.recurrent import DYNAMIC
from ...ir.reach import span
from ...ir.rule import Refusal
from ...ir.types import DType, Quantization, TensorType
from ...plan.accumulator import ACCUMULATOR
from ...plan.attributes import PrimitiveAttr, Scale
from ...plan.recurrent import beyond_int8, beyond_primitive
from ...plan.recurrent_parameters import GATES_AND_OUTPUTS, with_scales
from ...plan.types import Step
from .build import reorder_attributes, scale_of
from .builder import StepBuilder
from .chain import quantizing
from .primitives import plain
from .two_operands import decoding_of

LAYERS = frozenset({"AUGRU", "GRU", "LSTM", "RNN", DYNAMIC})
"""The operations that are recurrent layers."""

_RULE = "recurrent layer by oneDNN's primitive"
_RULE_INT8 = "recurrent layer in int8"

_LARGEST_WEIGHT = 63  # of 7 bits: instructions without VNNI add such products without loss

_NOT_QUANTIZED = Refusal(
    "the model quantizes no hidden state, which the int8 primitive does at each step",
    f'approximate=("{INT8_RECURRENCE}",)',
    "no such option",
    f"allow it with --approximate {INT8_RECURRENCE}: {APPROXIMATIONS[INT8_RECURRENCE]}",
)


def recurrent(builder: StepBuilder, node: Node) -> None:
    """A layer in all its directions. Quantized weights were decoded: nothing quantizes the hidden
    state, which the int8 primitive would have to; the option for that is told.
    """
    graph = builder.graph
    types = [graph.type(value) for value, _ in _arguments(node)]
    if any(type_.dtype in (DType.F16, DType.F64) or type_.shape is None for type_ in types):
        plain(builder, node)
        return
    args = [
        ("src" if role == "x" else role, value)
        for value, role in _arguments(node)
        if not (role == "sequence_lens" and _are_whole(builder, node, value))
    ]
    refusal = beyond_primitive(node.op, node.attrs, [role for role, _ in args])
    if refusal is not None:
        builder.refuse(_RULE, node, refusal)
    refusal = refusal or _beyond_int8(builder, node, args)
    if INT8_RECURRENCE in builder.approximate and refusal is None:
        _int8(builder, node, dict(args))
        return
    if node.op in ("LSTM", "GRU"):
        builder.refuse(_RULE_INT8, node, refusal or _NOT_QUANTIZED)
    _add(builder, node, args, PrimitiveAttr())
    if node.op == DYNAMIC:
        _settle(builder, node)


def _settle(builder: StepBuilder, node: Node) -> None:
    """The fates of the quantizers of a DynamicQuantizeLSTM: its input, hidden state, W and R."""
    data, weights = (
        replace(node, quantizer=part) for part in (node.quantizer[:2], node.quantizer[2:])
    )
    made = "the layer makes codes of it at each step, by the range that it has then"
    builder.encoded(data, QuantizeFate.SOURCE, made, node.name)
    how = f"the scale that each step of {node.op} finds"
    builder.decoded(data, DequantizeFate.SOURCE_SCALE, how, node, node.name)
    how = f"scales and zero points of {node.op}'s weights"
    builder.decoded(weights, DequantizeFate.WEIGHTS_SCALE, how, node, node.name)


def _arguments(node: Node) -> list[tuple[str, str]]:
    """(value, name in the row) of the inputs that there are."""
    names = [param.name for param in node.spec.inputs]
    return [(value, name) for value, name in zip(node.inputs, names, strict=False) if value]


def _are_whole(builder: StepBuilder, node: Node, value: str) -> bool:
    """True where constant lengths say that every sequence has all steps."""
    lens, shape = builder.graph.constant(value), builder.graph.type(node.input).shape
    return lens is not None and shape is not None and bool(np.all(lens == shape[0]))


def _add(
    builder: StepBuilder,
    node: Node,
    args: Sequence[tuple[str, str]],
    attr: PrimitiveAttr,
    stored: Node | None = None,
) -> None:
    """Adds the step; `stored`: the Quantize whose codes it writes."""
    graph = builder.graph
    y = node.outputs[0] or graph.fresh(f"{node.name}/y")
    given = [graph.type(value) if value else None for value in node.inputs]
    type_ = node.spec.infer(given, node.attrs, [None] * len(given))[0]
    nodes = [node] if stored is None else [node, stored]
    outputs = (y if stored is None else stored.output, *node.outputs[1:])
    step = Step(
        node.name, "rnn", node.op, tuple(args), outputs, node.attrs, attr, origin_of(*nodes)
    )
    builder.add(step, nodes, None if node.outputs[0] else type_)


# -- int8 ------------------------------------------------------------------------------------------


def _beyond_int8(
    builder: StepBuilder, node: Node, args: Sequence[tuple[str, str]]
) -> Refusal | None:
    refusal = beyond_int8(node.op, node.attrs, [role for role, _ in args])
    if refusal is not None:
        return refusal
    weights = [builder.graph.constant(value) for role, value in args if role in ("w", "r")]
    known = [array for array in weights if array is not None]
    if len(known) != len(weights):
        return Refusal(
            "its weights are computed at run time",
            "constant weights",
            "others",
            "export the weights as constants (initializers)",
        )
    bias = builder.graph.constant(dict(args).get("b", ""))
    if not all(np.isfinite(array).all() for array in (*known, *([] if bias is None else [bias]))):
        return Refusal(
            "its weights or its bias are not all finite",
            "finite weights and bias",
            "infinity or NaN",
            "train or export again: infinite weights compute nothing",
        )
    bound = sum(array.shape[2] for array in known) * 255 * 128
    if bound > ACCUMULATOR:
        return Refusal(
            "its sums of products may leave 32 bits",
            f"up to {ACCUMULATOR}",
            f"{bound}",
            "nothing to change: so large a layer stays in f32",
        )
    return None


def _int8(builder: StepBuilder, node: Node, args: dict[str, str]) -> None:
    graph, decode = builder.graph, decoding_of(builder.graph, node.input)
    quant = None if decode is None else _of_data(builder, decode)
    whose = "those of its input"
    if quant is None:
        quant, whose = _of_range(span(graph, node.input))
        decode = None
    if decode is None or graph.sole_consumer(decode.output) is None or _are_s8(builder, decode):
        args["src"] = _codes_of(builder, node, quant)
    else:
        args["src"] = decode.input
        builder.claim(decode)
        how = f"scale and shift of {node.op}'s data, its hidden state among them"
        builder.decoded(decode, DequantizeFate.SOURCE_SCALE, how, node, node.name)
    weights = [graph.constant(args[role]) for role in ("w", "r")]
    found = [np.asarray(array, np.float32) for array in weights if array is not None]
    most = np.max([np.abs(array).max(axis=(0, 2)) for array in found], axis=0)
    factors = np.where(most > 0, _LARGEST_WEIGHT / np.where(most > 0, most, 1), 1)
    factors = np.minimum(factors, np.finfo(np.float32).max).astype(np.float32)
    for role, array in zip(("w", "r"), found, strict=True):
        codes = np.clip(np.rint(array * factors[None, :, None]), -127, 127).astype(np.int8)
        args[role] = builder.file_constant(f"{node.name}/{role}", codes)
    scale, shift = float(np.float32(1) / np.float32(quant.scale[0])), float(quant.zero_point[0])
    attr = PrimitiveAttr(
        rnn_data_qparams=Scale((scale, shift)),
        rnn_weights_qparams=scale_of(factors, GATES_AND_OUTPUTS),
    )
    if not builder.target.capability("rnn").rnn_qparams:
        attr = with_scales(attr)
    stored = _stored(builder, node, quant)
    _add(builder, node, list(args.items()), attr, stored)
    if stored is not None:
        how = "the codes of the hidden state, by its own scale and shift"
        builder.encoded(stored, QuantizeFate.DST_SCALE, how, node.name)
    reason = f"scale {scale:g} and shift {shift:g} of the data, {whose}; weights by 63/max for each gate and output"
    graph.decide(Decision(_RULE_INT8, subject(node), Outcome.FIRED, reason))


def _of_range(ends: tuple[float, float] | None) -> tuple[Quantization, str]:
    """Parameters for the input's range and the hidden state's, and whose they are. Of -1..1 alone they
    are oneDNN's recommendation: scale 127, shift 128.
    """
    low, high = np.minimum(ends or 0, -1).min(), np.maximum(ends or 0, 1).max()
    zero = int(np.clip(np.rint(255 * -low / (high - low)), 1, 254))
    quant = Quantization.of(float(np.float32(max(-low / zero, high / (255 - zero)))), zero)
    if ends is not None:
        return quant, f"which hold its input's {ends[0]:.6g}..{ends[1]:.6g} and -1..1"
    return quant, "oneDNN's recommendation, which clips what is beyond -1..1"


def _are_s8(builder: StepBuilder, decode: Node) -> bool:
    return builder.graph.type(decode.input).dtype is DType.S8


def _of_data(builder: StepBuilder, decode: Node) -> Quantization | None:
    """The parameters of a quantized input, for codes of u8, where they can be those of the hidden
    state, too: one integer zero point, and a range that holds -1..1.
    """
    quant = decode.quant
    if not quant.per_tensor or not quant.integral:
        return None
    scale, zero = quant.scale[0], quant.zero_point[0] + 128 * _are_s8(builder, decode)
    reaches = min(zero, 255 - zero) * scale >= 1 - scale
    return Quantization.of(scale, int(zero)) if 0 <= zero <= 255 and reaches else None


def _codes_of(builder: StepBuilder, node: Node, quant: Quantization) -> str:
    """The input as codes, by a step of its own."""
    graph, value = builder.graph, node.input
    codes = graph.fresh(f"{node.name}/codes")
    step = Step(
        f"{node.name}/quantize",
        "reorder",
        "Identity",
        (("src", value),),
        (codes,),
        {},
        reorder_attributes(builder, None, quant),
        node.origin,
    )
    shape = graph.type(value).shape
    builder.add(step, [node], TensorType(DType.U8, shape, quant))
    return codes


def _stored(builder: StepBuilder, node: Node, quant: Quantization) -> Node | None:
    """The Quantize that alone reads the result, by the parameters of the hidden state."""
    graph = builder.graph
    if not node.outputs[0]:
        return None
    reader = graph.sole_consumer(node.outputs[0])
    if reader is None or reader.op != "Quantize" or builder.is_claimed(reader):
        return None
    own, dtype, low, high = quantizing(reader)
    same = own.per_tensor and own.scale == quant.scale and own.zero_point == quant.zero_point
    return reader if same and dtype is DType.U8 and (low, high) == dtype.range else None
