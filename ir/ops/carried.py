"""How the quantization of a value's type survives ops that only move its elements.

Per-tensor parameters always do. Those along an axis follow the axis; where an op leaves no axis
that the entries run along in their order, the quantization is dropped from the type (no error: the
codes stay right, only the type no longer says what they mean).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ..types import Quantization, Shape
from . import dims
from .rows import Call

__all__ = ["as_it_is", "common", "outside_of", "permuted", "reshaped", "where_size_stays"]


def as_it_is(call: Call, shape: Shape | None) -> Quantization | None:  # noqa: ARG001
    """That of the first input, axis and all."""
    return call.type(0).quant


def outside_of(
    call: Call, axes: Collection[int] | None, shape: Shape | None
) -> Quantization | None:
    """That of the first input, unless it runs along one of the axes (from 0; None: not known) whose
    elements the op moves or drops.
    """
    quant = call.type(0).quant
    if quant is None or quant.axis is None:
        return quant
    return None if axes is None or quant.axis in axes else where_size_stays(call, shape)


def where_size_stays(call: Call, shape: Shape | None) -> Quantization | None:
    """That of the first input, if the axis it runs along keeps its size: for ops that leave an axis
    alone or change its size.
    """
    quant, before = call.type(0).quant, call.type(0).shape
    if quant is None or quant.axis is None:
        return quant
    if shape is None or before is None or len(shape) != len(before):
        return None
    return quant if dims.same(before[quant.axis], shape[quant.axis]) else None


def permuted(quant: Quantization | None, perm: Sequence[int]) -> Quantization | None:
    """After a transposition: the axis goes where `perm` puts it (empty: unknown)."""
    if quant is None or quant.axis is None:
        return quant
    return quant.with_axis(list(perm).index(quant.axis)) if quant.axis in perm else None


def reshaped(call: Call, shape: Shape | None) -> Quantization | None:
    """After a reshape (same elements, same order): the axis that has the old one's size and as many
    elements before it.
    """
    quant, before = call.type(0).quant, call.type(0).shape
    if quant is None or quant.axis is None:
        return quant
    if shape is None or before is None:
        return None
    outer, size = dims.product(before[: quant.axis]), before[quant.axis]
    for axis, dim in enumerate(shape):
        if dims.same(dim, size) and dims.same(dims.product(shape[:axis]), outer):
            return quant.with_axis(axis)
    return None


def common(call: Call, axis: int) -> Quantization | None:
    """Of several inputs joined along `axis`: what all have in common, unless it runs along that
    axis.
    """
    quants = {t.quant for t in call.types if t is not None}
    quant = quants.pop() if len(quants) == 1 else None
    return None if quant is not None and quant.axis == axis else quant
