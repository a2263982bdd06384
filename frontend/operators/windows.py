"""Explicit windows: kernel, strides, dilations and pads of convolutions and pools, with `auto_pad`
and `output_shape` resolved.

Sizes come from the types; where a size that the padding depends on is symbolic, `auto_pad` stays
for the run time to resolve.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ...ir.types import Dim
from ..importer import Importer
from ..nodes import OnnxNode

WINDOWED: Final = frozenset(
    {"AveragePool", "Conv", "ConvInteger", "ConvTranspose", "LpPool", "MaxPool", "QLinearConv"}
)
"""Ops with a window."""

_WEIGHTS: Final = {"Conv": 1, "ConvInteger": 1, "ConvTranspose": 1, "QLinearConv": 3}
_AUTO: Final = ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")


def explicit_window(ctx: Importer, node: OnnxNode) -> OnnxNode:
    """The node with `kernel_shape`, `strides`, `dilations` and `pads` spelled out, as far as they
    are known.

    Raises:
        InvalidModel: an attribute of a wrong length, or an unknown `auto_pad`.
    """
    shape = ctx.type(node.input(0)).shape
    if shape is None or len(shape) < 3:
        return node
    spatial = shape[2:]
    count = len(spatial)
    auto = node.attr("auto_pad", "NOTSET") or "NOTSET"
    if auto not in _AUTO:
        raise node.invalid(f"auto_pad is {auto!r}, and may be {', '.join(_AUTO)}")
    kernel = _kernel(ctx, node, count)
    strides = _entries(node, "strides", count, 1)
    dilations = _entries(node, "dilations", count, 1)
    if kernel is None:
        return node.rewritten(strides=strides, dilations=dilations)
    if min(kernel + strides + dilations, default=1) < 1:
        raise node.invalid(
            f"kernel_shape {list(kernel)}, strides {list(strides)} and dilations {list(dilations)} must be positive"
        )
    node = node.rewritten(kernel_shape=kernel, strides=strides, dilations=dilations)
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    if node.op == "ConvTranspose":
        totals = _cropped(node, spatial, spans)
        if totals is None and auto == "NOTSET" and not node.attr("output_shape"):
            return node.rewritten(
                pads=_entries(node, "pads", 2 * count, 0),
                output_padding=_entries(node, "output_padding", count, 0),
            )
    elif auto == "NOTSET":
        return node.rewritten(pads=_entries(node, "pads", 2 * count, 0))
    else:
        totals = [0] * count if auto == "VALID" else _padded(spatial, strides, spans)
    if totals is None:
        return node
    # The odd one: in front, except for SAME_UPPER; for ConvTranspose by ONNX's formula, also when
    # there is no auto_pad.
    begin = [t // 2 if auto == "SAME_UPPER" else t - t // 2 for t in totals]
    end = [t - b for t, b in zip(totals, begin, strict=True)]
    return node.rewritten(drop=("output_shape",), auto_pad="NOTSET", pads=(*begin, *end))


def _kernel(ctx: Importer, node: OnnxNode, count: int) -> tuple[int, ...] | None:
    given = node.attr("kernel_shape")
    if given:
        if len(given) != count:
            raise node.invalid(
                f"kernel_shape has {len(given)} entries for {count} spatial dimensions"
            )
        return tuple(given)
    weights = ctx.type(node.input(_WEIGHTS[node.op])).shape if node.op in _WEIGHTS else None
    sizes = tuple(d for d in weights[2:] if isinstance(d, int)) if weights else ()
    return sizes if len(sizes) == count else None


def _entries(node: OnnxNode, name: str, count: int, default: int) -> tuple[int, ...]:
    given: tuple[int, ...] = node.attr(name) or (default,) * count
    if len(given) != count:
        raise node.invalid(f"{name} has {len(given)} entries where {count} belong")
    return given


def _padded(
    spatial: Sequence[Dim], strides: Sequence[int], spans: Sequence[int]
) -> list[int] | None:
    """SAME: the padding that makes ceil(n / stride) windows fit; for stride 1 whatever n is."""
    totals = []
    for n, stride, span in zip(spatial, strides, spans, strict=True):
        if stride == 1:
            totals.append(span - 1)
        elif isinstance(n, int):
            totals.append(max((-(-n // stride) - 1) * stride + span - n, 0))
        else:
            return None
    return totals


def _cropped(node: OnnxNode, spatial: Sequence[Dim], spans: Sequence[int]) -> list[int] | None:
    """ConvTranspose: what SAME, VALID or `output_shape` crop; None when pads are explicit, or
    cannot be known.
    """
    count = len(spatial)
    strides, extra = node.attrs["strides"], _entries(node, "output_padding", count, 0)
    wanted = node.attr("output_shape")
    auto = node.attr("auto_pad", "NOTSET")
    if not wanted:
        if auto == "VALID":
            return [0] * count
        if not auto.startswith("SAME"):
            return None
        # stride*(n-1) + extra + span - stride*n: the size of the input does not matter.
        totals = [e + span - s for s, e, span in zip(strides, extra, spans, strict=True)]
    else:
        if len(wanted) not in {count, count + 2}:
            raise node.invalid(
                f"output_shape has {len(wanted)} entries for {count} spatial dimensions"
            )
        if not all(isinstance(n, int) for n in spatial):
            return None
        full = [
            s * (int(n) - 1) + e + span
            for n, s, e, span in zip(spatial, strides, extra, spans, strict=True)
        ]
        totals = [f - int(w) for f, w in zip(full, wanted[-count:], strict=True)]
    return totals if min(totals) >= 0 else None
