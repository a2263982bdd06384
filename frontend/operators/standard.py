"""ONNX's own ops in their newest form: taken by their row of the op table, or kept as they are
where none covers them.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import onnx
from onnx import helper

from ...ir.ops import OPS
from ...ir.ops.spec import Attr, NotCovered, OpSpec, Trait
from ...ir.rule import Refusal
from ...ir.types import DType
from ..element_types import dtype_of
from ..importer import Importer
from ..nodes import OnnxNode
from .foreign import import_foreign

_RULE: Final = "import_by_row"

_REPEATING_OUTPUTS: Final = frozenset({"Split"})
_TYPES: Final = frozenset({"dtype", "output_dtype", "stash_type", "to"})
"""Attributes that hold the number of an element type."""

_FOLDED_INTO: Final = frozenset({"Conv", "ConvTranspose", "Gemm"})
"""Operators that exporters fold a BatchNormalization into."""

_HALVES: Final = frozenset({DType.F16, DType.BF16})


def import_newest(ctx: Importer, node: OnnxNode) -> None:
    """Imports a node of ONNX's own domain in its newest form.

    Raises:
        InvalidModel: shapes or attributes that do not fit.
        UnsupportedOp: no row covers it, and the reference evaluator does not know it.
    """
    spec = OPS.get(node.op)
    if spec is None or not spec.onnx:
        import_foreign(ctx, node)
        return
    try:
        _import_by_row(ctx, node, spec)
    except NotCovered as reason:
        keep(ctx, node, reason)


def keep(ctx: Importer, node: OnnxNode, reason: NotCovered) -> None:
    """Leaves the node as it is, and says that the op table does not cover it."""
    why = "the op table does not cover this use; the node runs unfused"
    expected = f"{node.op} as inference uses it"
    ctx.refuse(
        node,
        _RULE,
        Refusal(
            why,
            expected,
            str(reason),
            "export the node as inference uses it; it runs as ONNX's own operator meanwhile",
        ),
    )
    import_foreign(ctx, node)


def _import_by_row(ctx: Importer, node: OnnxNode, spec: OpSpec) -> None:
    inputs = _of_one_type(ctx, node) if node.op in _FOLDED_INTO else node.inputs
    ctx.emit(node, spec.name, inputs, row_attrs(node, spec), outputs=_row_outputs(ctx, node, spec))
    if spec.traits & {Trait.LAYOUT_ONLY, Trait.SELECTS} or spec.name in {"Clip", "Concat"}:
        sources = node.inputs if spec.name == "Concat" else node.inputs[:1]
        names = tuple(dict.fromkeys(name for value in sources for name in ctx.codes.get(value, ())))
        if names:
            ctx.codes.update(dict.fromkeys(filter(None, node.outputs), names))


def _of_one_type(ctx: Importer, node: OnnxNode) -> tuple[str, ...]:
    """The inputs of a layer of half floats, with constants of f32 as such: PyTorch's exporter leaves weights
    and biases so where it folds a BatchNormalization of bf16 into them, which ONNX does not allow.
    """
    first, *others = node.inputs
    if not first or ctx.type(first).dtype not in _HALVES:
        return node.inputs
    half, found = ctx.type(first).dtype, [first]
    for index, name in enumerate(others, start=1):
        wide = name and ctx.type(name).dtype is DType.F32 and ctx.constant(name) is not None
        found.append(ctx.cast(node, name, half, f"input_{index}") if wide else name)
    return tuple(found)


def _row_outputs(ctx: Importer, node: OnnxNode, spec: OpSpec) -> tuple[str, ...]:
    """Names of the outputs; further ones that nothing reads are left out.

    Raises:
        InvalidModel: there is not one output for each size that a Split is given.
        NotCovered: one that is read.
    """
    if spec.name in _REPEATING_OUTPUTS:
        outputs, sizes = (
            len(node.proto.output),
            ctx.type(node.input(1)).shape if node.input(1) else None,
        )
        if sizes and isinstance(sizes[0], int) and sizes[0] != outputs:
            raise node.invalid(
                f"{node.op} has {outputs} outputs, and {sizes[0]} sizes of pieces",
                "give one size for each output",
            )
        return tuple(node.proto.output)
    kept = node.outputs[: len(spec.outputs)]
    for name in node.outputs[len(spec.outputs) :]:
        if name in ctx.model_outputs or ctx.wiring.readers.get(name):
            raise NotCovered(f"output {node.outputs.index(name)} of {node.op}")
    return kept


def row_attrs(node: OnnxNode, spec: OpSpec) -> dict[str, Attr]:
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
    return (
        value.decode()
        if isinstance(value, bytes)
        else tuple(value)
        if isinstance(value, list)
        else value
    )
