"""Types of values: element type, shape with symbolic dimensions, and quantization.

A type reads `u8[N,64,56,56]{s=0.02,z=0}`: element type, dimensions, and, where the value holds
quantized codes, how a code
decodes into a real number: `real = scale * (code - zero_point)`, per tensor or along one axis.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

Dim = int | str
"""A dimension: a size, or the name (or formula) of a size that is only known at run time."""

Shape = tuple[Dim, ...]
"""Sizes of the dimensions. `==` compares words; `dims.same_shape` tells whether two values surely
have one shape: `?` equals nothing.
"""


MOST_DIMENSIONS = 32
"""Of an array in NumPy 1."""


class DType(enum.Enum):
    """Element types; the value is the short name used in every text form."""

    __hash__ = object.__hash__  # Enum's is a function in Python, of its name

    F32 = "f32"
    F64 = "f64"
    F16 = "f16"
    BF16 = "bf16"
    F8E4M3FN = "f8e4m3fn"
    F8E4M3FNUZ = "f8e4m3fnuz"
    F8E5M2 = "f8e5m2"
    F8E5M2FNUZ = "f8e5m2fnuz"
    F8E8M0 = "f8e8m0"
    F4E2M1 = "f4e2m1"
    S2 = "s2"
    U2 = "u2"
    S4 = "s4"
    U4 = "u4"
    S8 = "s8"
    U8 = "u8"
    S16 = "s16"
    U16 = "u16"
    S32 = "s32"
    U32 = "u32"
    S64 = "s64"
    U64 = "u64"
    BOOL = "bool"
    STRING = "string"

    @property
    def numpy(self) -> np.dtype[np.generic]:
        """The NumPy type that carries such elements: integers of 2 and 4 bits travel in 8 bits, bf16
        and floats of 8 and 4 bits in f32.
        """
        return _NUMPY[self]

    @property
    def bits(self) -> int:
        """Bits of an element in a file."""
        return _BITS[self]

    @property
    def is_carried(self) -> bool:
        """True where NumPy arrays of it have another element type."""
        return self in _CARRIED

    @property
    def is_integer(self) -> bool:
        """True of signed and unsigned integers (not of bool)."""
        return self in _RANGES

    @property
    def is_float(self) -> bool:
        """True of the floating-point types."""
        return self is DType.BF16 or self.value.startswith("f")

    @property
    def is_small_float(self) -> bool:
        """True of floats of 8 and 4 bits: codes of quantizers with a scale and no zero point."""
        return self.is_float and self.bits <= 8

    @property
    def is_code(self) -> bool:
        """True of the types of 8-bit codes, which primitives read and store."""
        return self in (DType.U8, DType.S8)

    @property
    def is_wide_code(self) -> bool:
        """True of the types of 16-bit codes: no primitive stores them, and f32 holds each, and
        x/scale to 2^-8 of a step.
        """
        return self in (DType.U16, DType.S16)

    @property
    def beyond_s8(self) -> int:
        """What makes s8 codes of codes of 8 bits or fewer when it is taken off: 128 of u8, else 0.

        Taken off a zero point, too, it changes no number that codes stand for; and 128 is even, so that
        values on a rounding tie round alike.
        """
        return 128 if self is DType.U8 else 0

    @property
    def range(self) -> tuple[int, int]:
        """Smallest and largest integer of the type.

        Raises:
            ValueError: the type is not an integer type.
        """
        if self not in _RANGES:
            raise ValueError(f"{self.value} is not an integer type")
        return _RANGES[self]

    @classmethod
    def from_numpy(cls, dtype: npt.DTypeLike) -> DType:
        """The element type carried by a NumPy type.

        Raises:
            ValueError: no element type is carried by it.
        """
        found = _FROM_NUMPY.get(np.dtype(dtype))
        if found is None:
            raise ValueError(f"no element type for NumPy type {np.dtype(dtype)}")
        return found


def _carrier(name: str) -> np.dtype[np.generic]:
    """The NumPy type for the name of an element type: a letter and the number of bits, mostly."""
    if name in ("bool", "string"):
        return np.dtype("bool" if name == "bool" else "object")
    bits = _bits(name)
    if name[0] in "su":
        return np.dtype(f"{'u' * (name[0] == 'u')}int{max(bits, 8)}")
    return np.dtype("float32" if name == "bf16" or bits <= 8 else f"float{bits}")


def _bits(name: str) -> int:
    found = re.search(r"\d+", name)
    return int(found.group()) if found else 8


def _range(name: str) -> tuple[int, int]:
    values = 1 << int(name[1:])
    return (-values // 2, values // 2 - 1) if name[0] == "s" else (0, values - 1)


_NUMPY = {dtype: _carrier(dtype.value) for dtype in DType}
_BITS = {dtype: _bits(dtype.value) for dtype in DType}
_CARRIED = frozenset(
    dtype
    for dtype, numpy in _NUMPY.items()
    if numpy.kind in "iuf" and 8 * numpy.itemsize != _BITS[dtype]
)
_FROM_NUMPY = {numpy: dtype for dtype, numpy in _NUMPY.items() if dtype not in _CARRIED}
_RANGES = {d: _range(d.value) for d, numpy in _NUMPY.items() if numpy.kind in "iu"}


@dataclass(frozen=True)
class Quantization:
    """How codes decode into reals: `real = scale * (code - zero_point)`.

    Attributes:
        scale: one entry (per tensor), or one for each index along `axis`; f32 values, any sign,
            never 0.
        zero_point: as many entries as `scale`. Integral in what quantizers write; a FakeQuantize
            whose range does not hold zero on its grid gives a fractional one (il = -ih with 256
            levels: 127.5).
        axis: None (per tensor) or the axis, counted from 0, that the entries run along.
    """

    scale: tuple[float, ...]
    zero_point: tuple[float, ...] = (0.0,)
    axis: int | None = None

    def __post_init__(self) -> None:
        if len(self.scale) != len(self.zero_point):
            raise ValueError(f"{len(self.scale)} scales with {len(self.zero_point)} zero points")
        if self.axis is None and len(self.scale) != 1:
            raise ValueError("more than one scale needs an axis")

    @classmethod
    def of(
        cls, scale: npt.ArrayLike, zero_point: npt.ArrayLike = 0, axis: int | None = None
    ) -> Quantization:
        """Quantization from arrays (scalars or 1-D, broadcast against each other); one entry drops
        the axis.
        """
        s, z = np.broadcast_arrays(
            np.atleast_1d(np.asarray(scale, np.float32)),
            np.atleast_1d(np.asarray(zero_point, np.float32)),
        )
        z = z + np.float32(0)  # -0 becomes 0
        return cls(tuple(s.tolist()), tuple(z.tolist()), axis if s.size > 1 else None)

    @property
    def per_tensor(self) -> bool:
        """True when one scale and zero point serve the whole tensor."""
        return self.axis is None

    @property
    def integral(self) -> bool:
        """True when every zero point is an integer."""
        return all(float(z).is_integer() for z in set(self.zero_point))

    @property
    def symmetric(self) -> bool:
        """True when every zero point is zero."""
        return not any(self.zero_point)

    @cached_property
    def scales(self) -> npt.NDArray[np.float32]:
        """The scales as a read-only f32 array [1] or [size of the axis]."""
        return _read_only(self.scale)

    @cached_property
    def zero_points(self) -> npt.NDArray[np.float32]:
        """The zero points as a read-only f32 array [1] or [size of the axis]."""
        return _read_only(self.zero_point)

    def shaped(self, rank: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """Scales and zero points, shaped to broadcast against a tensor of `rank` dimensions."""
        if self.axis is None:
            return self.scales.reshape(()), self.zero_points.reshape(())
        shape = [1] * rank
        shape[self.axis] = -1
        return self.scales.reshape(shape), self.zero_points.reshape(shape)

    def with_axis(self, axis: int | None) -> Quantization:
        """The same parameters along another axis (per-tensor ones stay as they are)."""
        return self if self.axis is None else Quantization(self.scale, self.zero_point, axis)

    def __str__(self) -> str:
        parts = [f"s={_numbers(self.scale)}", f"z={_numbers(self.zero_point)}"]
        if self.axis is not None:
            parts.append(f"axis={self.axis}")
        return "{" + ",".join(parts) + "}"


def _read_only(values: tuple[float, ...]) -> npt.NDArray[np.float32]:
    array = np.asarray(values, np.float32)
    array.setflags(write=False)
    return array


def _number(value: float) -> str:
    """Shortest text that gives the same f32 back; integers without a point."""
    if float(value).is_integer() and abs(value) < 1e6:
        return str(int(value))
    # values that are no f32 are for the verifier to refuse
    with np.errstate(over="ignore", under="ignore"):
        return str(np.float32(value))


def _numbers(values: tuple[float, ...]) -> str:
    return _number(values[0]) if len(values) == 1 else "[" + ",".join(map(_number, values)) + "]"


@dataclass(frozen=True)
class TensorType:
    """Type of a value: element type, shape (None: even the rank is unknown), and quantization of
    its codes if any.
    """

    dtype: DType
    shape: Shape | None
    quant: Quantization | None = None

    @property
    def rank(self) -> int:
        """Number of dimensions.

        Raises:
            ValueError: the rank is unknown.
        """
        if self.shape is None:
            raise ValueError("the rank of this value is unknown")
        return len(self.shape)

    @property
    def static_shape(self) -> tuple[int, ...]:
        """The shape when every dimension is a number.

        Raises:
            ValueError: a dimension is symbolic.
        """
        if self.shape is None or not is_static(self.shape):
            raise ValueError(f"the shape of {self} is not static")
        return tuple(d for d in self.shape if isinstance(d, int))

    def with_quant(self, quant: Quantization | None) -> TensorType:
        """The same type with other quantization."""
        return TensorType(self.dtype, self.shape, quant)

    def __str__(self) -> str:
        dims = "*" if self.shape is None else ",".join(map(str, self.shape))
        return f"{self.dtype.value}[{dims}]{self.quant or ''}"


def narrower(new: TensorType, old: TensorType) -> bool:
    """True when `new` says all that `old` says, and more."""
    if (
        new.dtype is not old.dtype
        or (old.quant is not None and new.quant != old.quant)
        or new.shape is None
    ):
        return False
    if old.shape is None:
        return True
    return len(new.shape) == len(old.shape) and all(
        isinstance(b, str) or a == b for a, b in zip(new.shape, old.shape, strict=True)
    )


def is_static(shape: Shape | None) -> bool:
    """True when the rank and every dimension are known numbers."""
    return shape is not None and all(isinstance(d, int) for d in shape)


def dimensions(*ranks: int) -> str:
    """How many dimensions, in words: `one dimension`, `3 dimensions`, `1 or 2 dimensions`."""
    return "one dimension" if ranks == (1,) else f"{' or '.join(map(str, ranks))} dimensions"
