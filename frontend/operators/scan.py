"""Scan along any axis, in any direction: as one along first axes, forward, between what turns its
tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ...ir.types import DType
from ..importer import Importer
from ..nodes import OnnxNode

_AXES = ("scan_input_axes", "scan_output_axes")
_DIRECTIONS = ("scan_input_directions", "scan_output_directions")
_FIRST = -(1 << 63)  # ONNX's end of a slice that goes back to the first row


def is_forward(node: OnnxNode) -> bool:
    """True of a Scan that takes and makes rows along first axes, the first ones first."""
    return not any(any(node.attr(name, ())) for name in (*_AXES, *_DIRECTIONS))


def turned_forward(
    ctx: Importer, node: OnnxNode, take: Callable[[Importer, OnnxNode], None]
) -> None:
    """Imports a Scan by way of one that is forward.

    Args:
        ctx: the import.
        node: the Scan.
        take: imports the other one.

    Raises:
        InvalidModel: there is no such axis, or more or fewer axes than tensors.
    """
    scanned = int(node.attr("num_scan_inputs", 0))
    first = len(node.inputs) - scanned
    made = len(node.outputs) - first
    told = [
        _listed(node, name, count)
        for name, count in zip((*_AXES, *_DIRECTIONS), (scanned, made) * 2, strict=True)
    ]
    in_axes, out_axes, in_directions, out_directions = told
    sources = [
        _turned(ctx, node, value, axis, back, f"in{place}")
        for place, (value, axis, back) in enumerate(
            zip(node.inputs[first:], in_axes, in_directions, strict=True)
        )
    ]
    results = [
        ctx.fresh(f"{node.name}.rows{place}") if name and (axis or back) else name
        for place, (name, axis, back) in enumerate(
            zip(node.outputs[first:], out_axes, out_directions, strict=True)
        )
    ]
    forward = node.rewritten(
        inputs=(*node.inputs[:first], *sources),
        outputs=(*node.outputs[:first], *results),
        drop=(*_AXES, *_DIRECTIONS),
    )
    take(ctx, forward)
    for place, (name, made_as) in enumerate(zip(node.outputs[first:], results, strict=True)):
        if name != made_as:
            axis, back = out_axes[place], out_directions[place]
            _turned_back(ctx, node, made_as, axis, back, f"out{place}", name)


def _listed(node: OnnxNode, name: str, count: int) -> Sequence[int]:
    found = tuple(node.attr(name, ())) or (0,) * count
    if len(found) != count:
        raise node.invalid(f"{name} has {len(found)} numbers for {count} tensors")
    return found


def _place(ctx: Importer, node: OnnxNode, value: str, axis: int) -> tuple[int, int]:
    rank = ctx.rank(node, value)
    if not -rank <= axis < rank:
        raise node.invalid(f"{value!r} has {rank} dimensions, and no axis {axis}")
    return axis % rank, rank


def _turned(ctx: Importer, node: OnnxNode, value: str, axis: int, back: int, role: str) -> str:
    """The value with its rows along the first axis, the first one first."""
    if axis:
        place, rank = _place(ctx, node, value, axis)
        order = [place, *(other for other in range(rank) if other != place)]
        moved = ctx.derived(node, f"{role}.axis", "Transpose", [value], {"perm": tuple(order)})
        ctx.take(moved)
        value = moved.output(0)
    return _reversed(ctx, node, value, role) if back else value


def _turned_back(
    ctx: Importer, node: OnnxNode, value: str, axis: int, back: int, role: str, output: str
) -> None:
    place, rank = _place(ctx, node, value, axis)
    if back:
        value = _reversed(ctx, node, value, role, "" if place else output)
    if place:
        order = [*range(1, rank)]
        order.insert(place, 0)
        perm = {"perm": tuple(order)}
        ctx.take(ctx.derived(node, f"{role}.axis", "Transpose", [value], perm, output=output))
    elif not back:
        ctx.take(ctx.derived(node, f"{role}.axis", "Identity", [value], output=output))


def _reversed(ctx: Importer, node: OnnxNode, value: str, role: str, output: str = "") -> str:
    numbers = [
        ctx.add_constant(node, f"{role}.{name}", np.array([number]), DType.S64)
        for name, number in (("from", -1), ("to", _FIRST), ("axes", 0), ("steps", -1))
    ]
    turned = ctx.derived(node, f"{role}.back", "Slice", [value, *numbers], output=output)
    ctx.take(turned)
    return turned.output(0)
