"""The row of Resize: nearest, linear and cubic interpolation.

Every mode is separable: along each axis an output element is a weighted sum of a few input elements
(one, two or four), at positions that the coordinate transformation gives. Positions and weights are
computed in float64, once an axis, but for quotients by a scale that is no ratio of sizes.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np

from ..types import Dim, DType, Shape, dimensions
from . import dims
from .carried import where_size_stays
from .rows import FLOATS, A, Call, flag, integers, not_covered, number, row, text
from .spec import Attrs, Effort, OpSpec, ShapeError, Trait

_COORDINATES = (
    "align_corners",
    "asymmetric",
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "tf_crop_and_resize",
)
_MODES = ("cubic", "linear", "nearest")
_MIDDLE = 1e-6
"""How near to the middle of two elements a position counts as in it, as in ONNX Runtime: what a rounded scale
leaves of it.
"""
_NEAREST: dict[str, Callable[[A], A]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5 - _MIDDLE),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5 + _MIDDLE),
    "floor": np.floor,
    "ceil": np.ceil,
}


def source_positions(coordinates: str, size: int, out: int, scale: float) -> A:
    """Where each of `out` output elements lies on an axis of `size` input elements, in float64
    (before any clipping).

    Args:
        coordinates: ONNX's coordinate_transformation_mode (all but tf_crop_and_resize).
        size: number of input elements.
        out: number of output elements.
        scale: out / size, or what the model gives as the scale.
    """
    x = np.arange(out, dtype=np.float64)
    # Whole numbers are multiplied before they are divided: rounded quotients would move positions
    # that lie in the middle of two elements, which `nearest` rounds one way.
    if coordinates == "align_corners":
        return x * (size - 1) / (out - 1) if out > 1 else x * 0
    if coordinates == "pytorch_half_pixel" and out <= 1:
        return x * 0

    def unscaled(place: A) -> A:
        if scale * size == out:
            return place * size / out
        # 1.7 is a bit more in f32, and 17 / 1.7 a bit less than 10: in f32, where ONNX Runtime and PyTorch
        # divide, the quotient is 10 again.
        return (place.astype(np.float32) / np.float32(scale)).astype(np.float64)

    if coordinates == "asymmetric":
        return unscaled(x)
    if coordinates == "half_pixel_symmetric" and scale * size != out:
        # The scaled axis has a fractional length; its middle stays where it is. ONNX Runtime has the
        # shift in f32, and rounds the position to f32.
        whole = np.float32(size)
        shift = whole / 2 * (1 - np.float32(out) / (np.float32(scale) * whole))
        place = float(shift) + (x + 0.5) / float(np.float32(scale)) - 0.5
        return place.astype(np.float32).astype(np.float64)
    return unscaled(x + 0.5) - 0.5


def _taps(attrs: Attrs, size: int, out: int, scale: float) -> tuple[A, A | None]:
    """Indices [out, taps] into the axis and float64 weights of the same shape (None of nearest: one
    tap of weight 1).
    """
    positions = source_positions(
        text(attrs, "coordinate_transformation_mode", _COORDINATES), size, out, scale
    )
    mode = text(attrs, "mode", _MODES)
    if mode == "nearest":
        nearest = _NEAREST[text(attrs, "nearest_mode", tuple(_NEAREST))](positions)
        return np.clip(nearest, 0, size - 1).astype(np.intp)[:, None], None
    first = np.floor(positions)
    part = positions - first
    if mode == "linear":
        indices, weights = first[:, None] + np.arange(2), np.stack([1 - part, part], axis=1)
    else:
        indices, weights = (
            first[:, None] + np.arange(-1, 3),
            cubic_weights(part, number(attrs, "cubic_coeff_a")),
        )
    if flag(attrs, "exclude_outside"):
        weights = np.where((indices >= 0) & (indices < size), weights, 0)
        weights = weights / weights.sum(axis=1, keepdims=True)
    return np.clip(indices, 0, size - 1).astype(np.intp), weights


def cubic_weights(part: A, a: float) -> A:
    """Weights [..., 4] of the neighbours at -1, 0, 1, 2: Keys' cubic convolution with parameter a."""
    near = [part, 1 - part]  # distances below 1
    far = [part + 1, 2 - part]  # distances from 1 to 2
    inner = [((a + 2) * d - (a + 3)) * d * d + 1 for d in near]
    outer = [((a * d - 5 * a) * d + 8 * a) * d - 4 * a for d in far]
    return np.stack([outer[0], inner[0], inner[1], outer[1]], axis=-1)


# -- shapes ----------------------------------------------------------------------------------------


def _axes(attrs: Attrs, rank: int) -> tuple[int, ...]:
    axes = integers(attrs, "axes")
    if any(not -rank <= a < rank for a in axes):
        raise ShapeError(f"axes {list(axes)} are out of range for {dimensions(rank)}")
    return tuple(a % rank for a in axes) or tuple(range(rank))


def _scaled(size: Dim, scale: float) -> Dim:
    """floor(size * scale), in f32 as ONNX's shape inference has it; of a symbol only where the
    scale is a fraction of small numbers.
    """
    if isinstance(size, int):
        with np.errstate(over="ignore"):
            found = np.floor(np.float32(size) * np.float32(scale))
        if not np.isfinite(found):
            raise ShapeError(f"{size} times the scale {scale:g} is no size")
        return int(found)
    exact = Fraction(scale)
    return (
        dims.floor_div(dims.multiply(size, exact.numerator), exact.denominator)
        if exact.denominator <= 64
        else dims.UNKNOWN
    )


def _shape(call: Call) -> Shape:
    _check_covered(call)
    x = call.shape(0)
    axes = _axes(call.attrs, len(x))
    scaled = _is_given(call, 2)
    if scaled == _is_given(call, 3):
        raise ShapeError(
            f"either scales or sizes must be given, found {'both' if scaled else 'none'}"
        )
    data = call.data[2 if scaled else 3]
    if data is None:
        return tuple(dims.UNKNOWN if axis in axes else d for axis, d in enumerate(x))
    if data.shape != (len(axes),):
        found = len(data) if data.ndim == 1 else dimensions(data.ndim)
        raise ShapeError(
            f"{'scales' if scaled else 'sizes'} must hold {len(axes)} numbers, found {found}"
        )
    result = list(x)
    for axis, value in zip(axes, data.ravel().tolist(), strict=True):
        if not value > 0:
            raise ShapeError(f"{'scales' if scaled else 'sizes'} must be positive, found {value}")
        if value == np.inf:
            raise ShapeError(f"scales must be finite, found {value}")
        result[axis] = _scaled(x[axis], value) if scaled else int(value)
    return tuple(result)


def _is_given(call: Call, index: int) -> bool:
    # Older exporters give an empty tensor for the one of scales and sizes that they do not mean.
    return call.has(index) and call.type(index).shape != (0,)


def _check_covered(call: Call) -> None:
    attrs, mode = call.attrs, text(call.attrs, "mode", _MODES)
    if text(attrs, "coordinate_transformation_mode", _COORDINATES) == "tf_crop_and_resize":
        raise not_covered("Resize with tf_crop_and_resize")
    if flag(attrs, "antialias") and mode != "nearest":
        raise not_covered("Resize with antialias")
    if text(attrs, "keep_aspect_ratio_policy") != "stretch":
        raise not_covered("Resize with a keep_aspect_ratio_policy")
    if mode != "nearest" and call.type(0).dtype not in FLOATS:
        raise not_covered(f"Resize of {call.type(0)} in mode {mode}")


def _carries(call: Call, axis: int, shape: Shape | None) -> int | None:
    data, sizes = (call.data[2], False) if _is_given(call, 2) else (call.data[3], True)
    if shape is None or data is None or text(call.attrs, "mode") != "nearest":
        return None
    x = call.shape(0)
    for resized, value in zip(_axes(call.attrs, len(x)), data.ravel().tolist(), strict=True):
        if resized == axis and value != (x[axis] if sizes else 1):
            return None
    return where_size_stays(call, axis, shape)


# -- values ----------------------------------------------------------------------------------------


def _resize(x: A, roi: A | None, scales: A | None, sizes: A | None, attrs: Attrs) -> A:  # noqa: ARG001  (roi: tf_crop_and_resize only)
    axes = _axes(attrs, x.ndim)
    y = x
    if scales is not None and scales.size:
        wanted = [
            (int(np.floor(np.float32(x.shape[a]) * np.float32(s))), float(s))
            for a, s in zip(axes, scales.tolist(), strict=True)
        ]
    elif sizes is not None:
        wanted = [
            (int(n), int(n) / x.shape[a] if n else 1.0)
            for a, n in zip(axes, sizes.tolist(), strict=True)
        ]
    else:
        raise ValueError("either scales or sizes must be given")
    for axis, (out, scale) in zip(axes, wanted, strict=True):
        if out != y.shape[axis] or scale != 1:
            y = _along(y, axis, *_taps(attrs, y.shape[axis], out, scale))
    return y


def _along(x: A, axis: int, indices: A, weights: A | None) -> A:
    if weights is None:
        return np.take(x, indices[:, 0], axis=axis)
    factors = weights.astype(x.dtype).reshape(*weights.shape, *[1] * (x.ndim - 1 - axis))
    total: A = np.take(x, indices[:, 0], axis=axis) * factors[:, 0]
    for tap in range(1, indices.shape[1]):
        total += np.take(x, indices[:, tap], axis=axis) * factors[:, tap]
    return total


RESIZE: tuple[OpSpec, ...] = (
    row(
        "Resize",
        "x with each axis resized by a scale, or to a size: nearest element, or linear or cubic interpolation.",
        "x:N roi:F? scales:S? sizes:L?",
        attrs={
            "mode": "nearest",
            "coordinate_transformation_mode": "half_pixel",
            "nearest_mode": "round_prefer_floor",
            "cubic_coeff_a": -0.75,
            "exclude_outside": 0,
            "extrapolation_value": 0.0,
            "antialias": 0,
            "axes": (),
            "keep_aspect_ratio_policy": "stretch",
        },
        types={"S": {DType.F32}},
        shape=_shape,
        compute=_resize,
        carries=_carries,
        wide=1,
        traits={Trait.SCALE_COMMUTING, Trait.KEEPS_ZERO, Trait.READS_CODES},
        primitive="resampling",
        effort=Effort.LOOPS,
    ),
)
