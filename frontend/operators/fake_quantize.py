"""FakeQuantize, as NNCF and OpenVINO write it: domain `org.openvinotoolkit`, or ONNX's own, which
has no such op.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from ...errors import UnsupportedOp
from ...ir.ops.spec import Attr
from ...ir.types import DType
from ..importer import Handler, Importer
from ..nodes import DEFAULT_DOMAIN, OnnxNode

_RANGES: Final = ("input_low", "input_high", "output_low", "output_high")
_ATTRIBUTES: Final = frozenset({"levels", "auto_broadcast"})
_OUR_HINT: Final = (
    "export the model again: FakeQuantize has the inputs X, "
    + ", ".join(_RANGES)
    + " and the attribute levels >= 2"
)


def import_fake_quantize(ctx: Importer, node: OnnxNode) -> None:
    """FakeQuantize(X, input_low, input_high, output_low, output_high){levels, auto_broadcast}:
    ranges constant or computed, broadcast to X.

    Raises:
        InvalidModel: inputs or attributes are missing or unknown, or a range is not finite.
        UnsupportedOp: PaddlePaddle's way of broadcasting is asked for.
    """
    if len(node.inputs) != 5 or not all(node.inputs):
        raise node.invalid(
            f"FakeQuantize needs 5 inputs, and has {sum(map(bool, node.inputs))}", _OUR_HINT
        )
    if not node.output(0):
        raise node.invalid("FakeQuantize has no output", _OUR_HINT)
    levels = node.attr("levels")
    if not isinstance(levels, int) or levels < 2:
        raise node.invalid(
            f"FakeQuantize needs the attribute levels, an integer >= 2, and has {levels!r}",
            _OUR_HINT,
        )
    unknown = sorted(name for name in node.attrs.keys() - _ATTRIBUTES if not name.startswith("__"))
    if unknown:
        raise node.invalid(f"FakeQuantize has no attribute {unknown[0]!r}", _OUR_HINT)
    x = node.input(0)
    x_type = ctx.type(x).dtype
    if not x_type.is_float:
        raise node.invalid(
            f"FakeQuantize works on floating-point values, and {x!r} is {x_type.value}",
            "cast it to float first",
        )
    ranges = [_range(ctx, node, index, role) for index, role in enumerate(_RANGES, 1)]
    quantizer = ctx.add_quantizer(node, "FakeQuantize", x)
    attrs: dict[str, Attr] = {"levels": levels, "auto_broadcast": _broadcasting(ctx, node)}
    if x_type is DType.F32:
        ctx.emit(
            node,
            "FakeQuantize",
            (x, *ranges),
            attrs,
            outputs=node.outputs[:1],
            quantizer=(quantizer,),
        )
    else:
        result = ctx.emit(node, "FakeQuantize", (x, *ranges), attrs, quantizer=(quantizer,))
        ctx.cast(node, result, x_type, "cast", output=node.output(0))


def _range(ctx: Importer, node: OnnxNode, index: int, role: str) -> str:
    """A range in f32: a constant, or what the model computes."""
    value = node.input(index)
    data = ctx.constant(value)
    if data is None:
        return ctx.cast(node, value, DType.F32, role)
    numbers = data.astype(np.float32)
    if not np.isfinite(numbers).all():
        raise node.invalid(
            f"{role} of FakeQuantize, {value!r}, is not finite everywhere",
            "calibrate or train the quantizer again",
        )
    if ctx.graph.constant(value) is not None and ctx.type(value).dtype is DType.F32:
        return value
    return ctx.add_constant(node, role, numbers, DType.F32)


def _broadcasting(ctx: Importer, node: OnnxNode) -> str:
    rule = node.attr("auto_broadcast", "numpy")
    if rule in {"numpy", "none"}:
        return str(rule)
    if rule != "pdpd":
        raise node.invalid(f"auto_broadcast of FakeQuantize is {rule!r}", "use numpy or none")
    # Aligned at the end, as PaddlePaddle does without an axis, ranges of full rank and scalars
    # broadcast like NumPy's.
    rank = ctx.rank(node, node.input(0))
    if any(ctx.rank(node, value) not in {0, rank} for value in node.inputs[1:]):
        hint = "give the ranges the rank of X, and use numpy"
        raise UnsupportedOp("FakeQuantize with auto_broadcast 'pdpd'", where=node.where, hint=hint)
    return "numpy"


HANDLERS: Final[Mapping[tuple[str, str], Handler]] = {
    (DEFAULT_DOMAIN, "FakeQuantize"): import_fake_quantize,
    ("org.openvinotoolkit", "FakeQuantize"): import_fake_quantize,
}
