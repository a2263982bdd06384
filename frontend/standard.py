"""ONNX's own ops that have a row in the op table: upgraded to the newest form, then taken as they are."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import onnx
from onnx import helper

from ..ir.ops import OPS
from ..ir.ops.spec import Attr, NotCovered, OpSpec, Trait
from ..ir.types import DType
from .element_types import dtype_of
from .importer import Importer
from .nodes import OnnxNode
from .upgrade import WITHOUT_ROW, newest

__all__ = ["import_standard", "is_standard"]

_REPEATING_OUTPUTS: Final = frozenset({"Split"})
_TYPES: Final = frozenset({"dtype", "output_dtype", "stash_type", "to"})
"""Attributes that hold the number of an element type."""


def is_standard(op: str) -> bool:
    """True when ONNX's own op of that name has a row, today or under its newer name."""
    return (op in OPS and OPS[op].onnx) or op in WITHOUT_ROW


def import_standard(ctx: Importer, node: OnnxNode) -> None:
    """Imports a node by the row of its op.

    Raises:
        InvalidModel: shapes or attributes that do not fit.
        NotCovered: a use that the row does not cover.
    """
    outputs = node.outputs
    upgraded = newest(ctx, node)
    if upgraded is None:
        return
    spec = OPS[upgraded.op]
    ctx.emit(upgraded, spec.name, upgraded.inputs, _row_attrs(upgraded, spec), outputs=_row_outputs(ctx, upgraded, spec))
    if spec.traits & {Trait.LAYOUT_ONLY, Trait.SELECTS} or spec.name in {"Clip", "Concat"}:
        sources = upgraded.inputs if spec.name == "Concat" else upgraded.inputs[:1]
        names = tuple(dict.fromkeys(name for value in sources for name in ctx.codes.get(value, ())))
        if names:
            ctx.codes.update(dict.fromkeys(filter(None, outputs), names))


def _row_outputs(ctx: Importer, node: OnnxNode, spec: OpSpec) -> tuple[str, ...]:
    """Names of the outputs; further ones that nothing reads are left out.

    Raises:
        NotCovered: one that is read.
    """
    if spec.name in _REPEATING_OUTPUTS:
        return tuple(node.proto.output)
    kept = node.outputs[: len(spec.outputs)]
    for name in node.outputs[len(spec.outputs) :]:
        if name in ctx.model_outputs or ctx.wiring.readers.get(name):
            raise NotCovered(f"output {node.outputs.index(name)} of {node.op}")
    return kept


def _row_attrs(node: OnnxNode, spec: OpSpec) -> dict[str, Attr]:
    """Attributes as the row has them.

    Raises:
        NotCovered: one that the row does not have, and that is not at its default.
    """
    result: dict[str, Attr] = {}
    for name, value in node.attrs.items():
        if name.startswith("__"):
            continue
        if name in spec.attrs:
            result[name] = _row_value(node, name, value, spec)
        elif value != _default(node.op, node.version, name):
            raise NotCovered(f"the attribute {name} of {node.op}")
    return result


def _row_value(node: OnnxNode, name: str, value: Any, spec: OpSpec) -> Attr:
    if name in _TYPES and isinstance(value, int) and not isinstance(spec.attrs[name], int):
        return dtype_of(value, node.where)
    if isinstance(value, (int, float, str, DType)):
        return value
    if isinstance(value, tuple) and all(isinstance(v, (int, float, str)) for v in value):
        return value
    raise NotCovered(f"the attribute {name} of {node.op}")


@cache
def _default(op: str, version: int, name: str) -> Any:
    """ONNX's default of an attribute; None when there is none."""
    try:
        attribute = onnx.defs.get_schema(op, version, "").attributes[name]
    except (onnx.defs.SchemaError, KeyError):
        return None
    if not attribute.default_value.name:
        return None
    value = helper.get_attribute_value(attribute.default_value)
    return value.decode() if isinstance(value, bytes) else tuple(value) if isinstance(value, list) else value
