"""Recurrent layers: one step each, in f32."""

from __future__ import annotations

import numpy as np

from ...ir.node import Node, subject
from ...ir.ops.recurrent import DYNAMIC
from ...ir.rule import Refusal
from ...ir.types import DType
from ...plan.recurrent import beyond_primitive
from ...plan.types import Step
from .builder import StepBuilder
from .primitives import plain

__all__ = ["LAYERS", "recurrent"]

LAYERS = frozenset({"GRU", "LSTM", "RNN", DYNAMIC})
"""The operations that are recurrent layers."""

_RULE = "recurrent layer by oneDNN's primitive"


def recurrent(builder: StepBuilder, node: Node) -> None:
    """A layer in all its directions. Quantized weights were decoded: nothing quantizes the hidden
    state, which the int8 primitive would have to.
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
    y = node.outputs[0] or graph.fresh(f"{node.name}/y")
    given = [graph.type(value) if value else None for value in node.inputs]
    type_ = node.spec.infer(given, node.attrs, [None] * len(given))[0]
    outputs = (y, *node.outputs[1:])
    step = Step(node.name, "rnn", node.op, tuple(args), outputs, node.attrs, origin=node.origin)
    builder.add(step, [node], type_ if y != node.outputs[0] else None)
    reads_codes = any(fate.consumer == subject(node) for fate in graph.fates)
    if reads_codes:
        builder.refuse(_RULE + " in int8", node, _NOT_QUANTIZED)


_NOT_QUANTIZED = Refusal(
    "the model quantizes no hidden state, which the int8 primitive would do at each step",
    "parameters of the hidden state",
    "f32",
)


def _arguments(node: Node) -> list[tuple[str, str]]:
    """(value, name in the row) of the inputs that there are."""
    names = [param.name for param in node.spec.inputs]
    return [(value, name) for value, name in zip(node.inputs, names, strict=False) if value]


def _are_whole(builder: StepBuilder, node: Node, value: str) -> bool:
    """True where constant lengths say that every sequence has all steps."""
    lens, shape = builder.graph.constant(value), builder.graph.type(node.inputs[0]).shape
    return lens is not None and shape is not None and bool(np.all(lens == shape[0]))
