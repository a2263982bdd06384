"""Products whose source has a zero point of its own for each channel, or whose zero points are far from the
codes, as a product of their sums by ones.

The sums are exact in s32, which wraps around; attributes apply to them in f32, as to all sums.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from ..ir.ops import OPS
from ..ir.ops.spec import Array, Attr
from ..ir.types import DType, TensorType
from ..plan.attributes import PrimitiveAttr, ZeroPoint
from .description import Description, has_several_points

Integers = npt.NDArray[np.int64]

_FACTORS = ("src", "weights")
_WIDE, _U32 = 2**14, 2**32 - 1


def needs_sums(description: Description) -> bool:
    """Whether it is such a product, or one whose zero point is far from the codes, which the kernels do not
    subtract in 16 bits; its attributes have all values.
    """
    points = description.attr.zero_points
    values = [value for role in _FACTORS if role in points for value in points[role].values]
    return has_several_points(description) or any(not -_WIDE <= value < _WIDE for value in values)


def with_near_points(description: Description) -> Description:
    """The sums in s32, with one zero point for the source, and none that is far from the codes."""
    points = {
        role: ZeroPoint((min(max(zero.values[0], -_WIDE), _WIDE - 1),))
        for role, zero in description.attr.zero_points.items()
        if role in _FACTORS
    }
    factors = {role: description.tensors[role] for role in _FACTORS}
    sums = TensorType(DType.S32, description.dims("dst"))
    plain = PrimitiveAttr(zero_points=points)
    return replace(description, tensors={**factors, "dst": sums}, operands={}, attr=plain)


def exact_sums(
    description: Description, op: str, params: Mapping[str, Attr], src: Array, weights: Array
) -> Integers:
    """The sums modulo 2^32, in f64, which is exact of 16 bits of each factor at a time.

    Args:
        description: the product; its zero points are those that count.
        op, params, src, weights: as the op table has them.
    """
    points = description.attr.zero_points
    moved = [
        factor.astype(np.int64) - _along_channels(points.get(role), factor.ndim)
        for role, factor in zip(_FACTORS, (src, weights), strict=True)
    ]
    (x_low, x_high), (w_low, w_high) = (
        [((factor >> shift) & 0xFFFF).astype(np.float64) for shift in (0, 16)] for factor in moved
    )
    row = OPS[op]
    assert row.evaluate is not None
    found = np.zeros(description.dims("dst"), np.int64)
    for x, w, shift in ((x_low, w_low, 0), (x_low, w_high, 16), (x_high, w_low, 16)):
        (sums,) = row.evaluate([x, w], row.complete(params))
        found += (sums.astype(np.int64) & _U32) << shift
    return found


def _along_channels(zero: ZeroPoint | None, rank: int) -> Integers:
    values = np.zeros(1, np.int64) if zero is None else zero.array.astype(np.int64)
    return values.reshape(-1, *(1,) * (rank - 2))


def of_sums(description: Description, sums: Array) -> tuple[Description, dict[str, Array]]:
    """The product of sums (of any integers, taken modulo 2^32) by ones, with all the attributes but those
    zero points; and its factors.
    """
    dims, kept = description.dims("dst"), description.attr.zero_points
    params, one, none = description.params, (1,) * (len(dims) - 2), (0,) * (len(dims) - 2)
    if description.kind == "matmul":
        ones = np.eye(dims[-1], dtype=np.float32)
    else:
        ones = np.ones((dims[1], 1, 1, *one), np.float32)
        params = {"strides": one, "dilations": none, "padding_l": none, "padding_r": none}
    factors: dict[str, Array] = {
        "src": sums.astype(np.int32).astype(np.float32),
        "weights": ones,
    }
    types = {role: TensorType(DType.F32, array.shape) for role, array in factors.items()}
    attr = replace(
        description.attr, zero_points={role: kept[role] for role in kept if role == "dst"}
    )
    tensors = {**description.tensors, **types}
    return replace(description, tensors=tensors, params=params, attr=attr), factors
