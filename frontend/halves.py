"""Half floats, f16 and bf16, are computed in f32: as the primitives do that have no arithmetic for
them, and with quantizers fused as in a model of f32.

A model of half floats rounds each result. Nothing here does but its outputs and what goes into an
operator that stays foreign, so that results are nearer to those of real numbers. Inputs, outputs
and foreign operators keep the types that the model gives them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
import onnx
from onnx import AttributeProto

from ..ir.constants import LARGE, Halves
from ..ir.decision import Decision, Outcome
from ..ir.graph import Graph
from ..ir.node import Node
from ..ir.ops.spec import Array, Attr
from ..ir.types import DType, TensorType

_HALVES: Final = frozenset({DType.F16, DType.BF16})
_RULE: Final = "import_half_floats"
_TENSORS: Final = frozenset({"tensor(float16)", "tensor(bfloat16)"})
_WIDE: Final = "tensor(float)"
_TYPES: Final = frozenset({"dtype", "to", "output_dtype"})
"""Attributes that hold the number of an element type."""

_PLAIN: Final = frozenset(
    {
        AttributeProto.INT,
        AttributeProto.FLOAT,
        AttributeProto.FLOATS,
        AttributeProto.INTS,
        AttributeProto.STRING,
        AttributeProto.STRINGS,
    }
)
"""Kinds of attributes without element types of their own."""


def widened(graph: Graph) -> Graph:
    """A graph that computes the half floats of an imported one in f32; the graph itself where it has none.

    Before -> after, of half floats x and y, where y is an output::

        y = Op(x)  ->  Cast(y) of Op(Cast(x))

    with one Cast for each input of the graph, and each output. Casts to half floats in between are gone.
    Of an imported graph that is written anew the constants are given up.
    """
    halves = {value for value, type_ in graph.values.items() if type_.dtype in _HALVES}
    made = {value for node in graph.nodes() for value in node.outputs if value in halves}
    if not made and not any(graph.is_read(value) for value in halves):
        return graph
    return _Widening(graph, halves).graph


class _Widening:
    """A graph written anew, in the order of the old one and with its names."""

    def __init__(self, old: Graph, halves: set[str]) -> None:
        self._old, self._halves = old, halves
        self._wide: dict[str, str] = {}
        self.graph = Graph(old.name)
        self.graph.halved = True
        for value in old.inputs:
            self.graph.add_input(value, old.type(value))
        for value in list(old.constants):
            kind, data = old.type(value), old.give_up_constant(value)  # in memory once, not twice
            if value in halves and not self._is_kept(value):
                self.graph.add_constant(value, _in_f32_or_halves(data), DType.F32)
                self._wide[value] = value
            else:
                self.graph.add_constant(value, data, kind.dtype, kind.quant)
        for node in old.nodes():
            self._add(node)
        self.graph.set_outputs(old.outputs)
        self.graph.quantizers.update(old.quantizers)
        self.graph.fates.extend(old.fates)
        for decision in old.decisions:
            self.graph.decide(decision)
        self._tell()

    def _is_kept(self, value: str) -> bool:
        """True of what somebody wants in the model's own type: the caller, or a foreign operator."""
        old = self._old
        return old.is_output(value) or any(map(_keeps_types, old.consumers(value)))

    def _add(self, node: Node) -> None:
        foreign = _keeps_types(node)
        inputs = [self._read(value, node, half=foreign) for value in node.inputs]
        if self._is_nothing(node):
            self._wide[node.output] = inputs[0]
            if self._is_kept(node.output):
                self._cast(inputs[0], node.output, self._old.type(node.output).dtype, node)
            return
        halves = [] if foreign else [v for v in node.outputs if v in self._halves]
        wide = {v: self.graph.fresh(f"{v}/f32") for v in halves if self._is_kept(v)}
        types = [self._type_of(value, kept=foreign) for value in node.outputs]
        self.graph.add(
            node.op,
            inputs,
            {name: _in_f32(value) for name, value in node.attrs.items()},
            name=node.name,
            outputs=[wide.get(value, value) for value in node.outputs],
            origin=node.origin,
            quantizer=node.quantizer,
            types=types if node.op == "Onnx" else None,
            after_all=True,
        )
        self._wide |= {value: wide.get(value, value) for value in halves}
        for value, source in wide.items():
            self._cast(source, value, self._old.type(value).dtype, node)

    def _is_nothing(self, node: Node) -> bool:
        """True of a Cast between types that are both f32 here."""
        if node.op != "Cast":
            return False
        types = {self._old.type(value).dtype for value in (node.input, node.output)}
        return bool(types & _HALVES) and {_in_f32(dtype) for dtype in types} == {DType.F32}

    def _type_of(self, value: str, *, kept: bool) -> TensorType:
        if not value:
            return TensorType(DType.F32, None)
        type_ = self._old.type(value)
        return replace(type_, dtype=DType.F32) if type_.dtype in _HALVES and not kept else type_

    def _read(self, value: str, reader: Node, *, half: bool) -> str:
        """What stands for a value of the old graph; `half`: in the type that the model gives it."""
        if value not in self._halves:
            return self._wide.get(value, value)
        if half:
            return value
        if (
            value not in self._wide
        ):  # an input, a constant that is kept, or what a foreign node made
            maker = self._old.producer(value) or reader
            self._wide[value] = self._cast(
                value, self.graph.fresh(f"{value}/f32"), DType.F32, maker
            )
        return self._wide[value]

    def _cast(self, source: str, output: str, dtype: DType, node: Node) -> str:
        self.graph.add(
            "Cast",
            [source],
            {"to": dtype},
            name=f"{node.name}/{dtype.value}",
            outputs=[output],
            origin=node.origin,
            after_all=True,
        )
        return output

    def _tell(self) -> None:
        count = len(self._halves)
        told = f"{count} values of half floats are computed in f32"
        self.graph.decide(Decision(_RULE, self._old.name or "the model", Outcome.FIRED, told))


def _keeps_types(node: Node) -> bool:
    """True of a foreign operator whose types are its own: it has a body, or says types itself, or ONNX has
    none of it for f32.
    """
    if node.op != "Onnx":
        return False
    proto = onnx.NodeProto.FromString(node.attr("proto", bytes))
    schema = onnx.defs.get_schema(proto.op_type, node.attr("opset", int), proto.domain)
    formal = {item.type_str for item in (*schema.inputs, *schema.outputs)}
    alone = [c for c in schema.type_constraints if c.type_param_str in formal]
    told = [a for a in proto.attribute if a.type not in _PLAIN or a.name in _TYPES]
    return bool(told) or any(
        set(c.allowed_type_strs) & _TENSORS and _WIDE not in c.allowed_type_strs for c in alone
    )


def _in_f32_or_halves(data: Array | Halves) -> Array | Halves:
    """Constant half floats as f32; many of them stay where they lie, and are widened when they are read."""
    if isinstance(data, Halves):
        return data
    wide = data.dtype == np.float32 or data.size * np.dtype(np.float32).itemsize < LARGE
    return np.asarray(data, np.float32) if wide else Halves(data)


def _in_f32(value: Attr) -> Attr:
    """An attribute, an element type among others; half floats are f32."""
    return DType.F32 if value in _HALVES else value
