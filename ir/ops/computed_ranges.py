"""FakeQuantize whose ranges are computed: its codes by a chain of f32 operations with run-time
operands, and what decodes them.

The chain is that of `codes_by_chain`, and its operands are chosen so that it gives the codes of the
definition for every range: inverted ones, thresholds, and ranges at the ends of f32.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from ..types import Dim, DType, Shape, is_static
from .broadcasting import broadcast_shapes
from .rows import A, Call, integer, row
from .spec import REQUIRED, Attrs, OpSpec, ShapeError, Trait

GRID = "FakeQuantizeGrid"

D = TypeVar("D", bound=Dim)

QUARTER = 0.25
"""What a jump keeps from the end that it goes to, in steps: it rounds there, and is not beyond it."""

BLOWN_UP = 2.0**127
"""How much indices below 0 are blown up: the smallest f32 becomes `-BEYOND`."""

BEYOND = 2.0**-22
"""The bound of what lies beyond the first end of an inverted range, where all of that ends."""

_MOST_DIMENSIONS = 64  # of NumPy's arrays
_LARGEST = np.finfo(np.float32).max
_FARTHEST = 126  # of a power of two that is a normal f32, as its reciprocal is


def last_code(levels: int) -> int:
    """The code of output_high. Of two levels the codes are 0 and 2: of 0 and 1, f32 might not hold
    the distance.
    """
    return max(levels - 1, 2)


def fake_quantize_grid(low: A, high: A, out_low: A, out_high: A, levels: int) -> tuple[A, ...]:
    """The operands of the chain that makes codes, and the parameters that decode them.

    With L = levels - 1, for x in f32::

        t = x*factor - offset           (x - il)*factor, rounded once: factor is a power of two
        u = t*rate                      the index on the grid, (x - il)/(ih - il)*L
        u = min(max(u, low), high)      0 and L; of inverted ranges, which jump to the other end at
                                        either bound, -BEYOND and the largest f32
        y = (code - zero_point)*scale + rest

    `factor` brings a step to 1..2, so that nothing overflows; of thresholds (il = ih) the bound,
    whose next f32 is 2^-24 away then, and `rate` makes L of that. `rate` of inverted ranges is the
    first f32 by which x = ih is beyond L. `zero_point` is the code next to the real 0, and `rest` is
    what that lacks; it is 0 where f32 cannot tell it from 0. Where one of the ranges is no finite number, scale and rest
    are NaN.

    Returns: factor, offset, rate, low, high, of the shape of the input ranges; scale, zero_point,
    rest, of the shape of all.
    """
    il, ih, ol, oh = (np.asarray(end, np.float64) for end in (low, high, out_low, out_high))
    il, ih = np.broadcast_arrays(il, ih)
    with np.errstate(all="ignore"):
        return *_encoding(il, ih, levels - 1), *_decoding(il + ih, ol, oh, levels)


def _encoding(il: A, ih: A, steps: int) -> tuple[A, ...]:
    width = (ih - il) / steps
    equal, inverted = il == ih, il > ih
    exponent = np.frexp(np.where(equal, il, width))[1]
    exponent = np.where(np.where(equal, il, width) == 0, -_FARTHEST, exponent)
    factor = np.ldexp(1.0, np.clip(1 - exponent, -_FARTHEST, _FARTHEST))
    offset = _f32(il * factor)
    rate = _f32(np.where(equal, steps * 2.0**25, 1.0 / (width * factor)))
    end = _f32(ih * factor) - offset
    for _ in range(4):  # of three roundings, each half a unit in the last place
        short = inverted & (end * rate <= np.float32(steps))
        rate = np.where(short, np.nextafter(rate, np.float32(-np.inf)), rate)
    low = np.where(inverted, -BEYOND, 0.0)
    high = np.where(inverted, _LARGEST, float(steps))
    return _f32(factor), offset, rate, _f32(low), _f32(high)


def _decoding(finite: A, ol: A, oh: A, levels: int) -> tuple[A, A, A]:
    last = last_code(levels)
    finite, ol, oh = np.broadcast_arrays(np.isfinite(finite), ol, oh)
    known = finite & np.isfinite(ol) & np.isfinite(oh)
    scale = _f32((oh - ol) / last)
    real = np.where(scale == 0, 0.0, -ol / scale.astype(np.float64))
    zero = np.clip(np.nan_to_num(np.rint(real)), 0, last)
    rest = ol + zero * scale.astype(np.float64)
    lost = np.maximum(zero * 2.0**-22, (last + 1) * 2.0**-24)
    rest = np.where((scale != 0) & (np.abs(real - zero) <= lost), 0.0, rest)
    scale, rest = (_f32(np.where(known, values, np.nan)) for values in (scale, rest))
    return scale, zero.astype(np.uint8), rest


def _f32(values: A) -> A:
    return np.asarray(values).astype(np.float32)


def _grid(low: A, high: A, out_low: A, out_high: A, attrs: Attrs) -> tuple[A, ...]:
    found = fake_quantize_grid(low, high, out_low, out_high, integer(attrs, "levels"))
    rank = integer(attrs, "rank")
    wide = [_of_rank(array.shape, rank) for array in found]
    wide[5:7] = [_parameter(array.shape, rank) for array in found[5:7]]
    return tuple(np.reshape(array, shape) for array, shape in zip(found, wide, strict=True))


def _grid_shapes(call: Call) -> list[Shape]:
    levels, rank = integer(call.attrs, "levels"), integer(call.attrs, "rank")
    if not 2 <= levels <= 256:
        raise ShapeError(f"levels must be from 2 to 256, found {levels}")
    if not 0 <= rank <= _MOST_DIMENSIONS:
        raise ShapeError(f"rank must be from 0 to {_MOST_DIMENSIONS}, found {rank}")
    ends = [call.shape(index) for index in range(4)]
    given = broadcast_shapes(ends[:2], "input_low and input_high")
    every = broadcast_shapes(ends, "the ranges")
    if not all(is_static(shape) for shape in (given, every)) or len(every) > rank:
        raise ShapeError(f"the ranges must have fixed sizes and at most {rank} dimensions")
    parameter, operand = _parameter(every, rank), _of_rank(every, rank)
    return [_of_rank(given, rank)] * 5 + [parameter, parameter, operand]


def _of_rank(shape: tuple[D, ...], rank: int) -> tuple[D | int, ...]:
    return (1,) * (rank - len(shape)) + shape


def _parameter(shape: tuple[D, ...], rank: int) -> tuple[D | int, ...]:
    """Without dimensions, or a vector, as those that decode have it; of several axes as operands."""
    long = tuple(size for size in shape if size != 1)
    return long if len(long) < 2 else _of_rank(shape, rank)


COMPUTED_RANGES: tuple[OpSpec, ...] = (
    row(
        GRID,
        "What makes and decodes the codes of a FakeQuantize with computed ranges: operands of `rank` dimensions, scale, zero point.",
        "input_low:F input_high:F output_low:F output_high:F",
        attrs={"levels": REQUIRED, "rank": REQUIRED},
        shape=_grid_shapes,
        compute=_grid,
        result=(*[DType.F32] * 6, DType.U8, DType.F32),
        outputs=("factor", "offset", "rate", "low", "high", "scale", "zero_point", "rest"),
        traits={Trait.TELLS_ZERO, Trait.JUMPS},
        onnx=False,
    ),
)
