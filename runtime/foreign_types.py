"""Element types that NumPy lacks: as arrays of ml_dtypes they are fed and returned, in arrays of the types
that carry them (`DType.numpy`) they are computed, and may be fed as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from ..errors import InvalidInput
from ..ir.ops.spec import Array
from ..ir.types import DType
from ..plan.types import Plan

_ML_DTYPES: Final[Mapping[DType, str]] = {
    DType.BF16: "bfloat16",
    DType.F8E4M3FN: "float8_e4m3fn",
    DType.F8E4M3FNUZ: "float8_e4m3fnuz",
    DType.F8E5M2: "float8_e5m2",
    DType.F8E5M2FNUZ: "float8_e5m2fnuz",
    DType.F8E8M0: "float8_e8m0fnu",
    DType.F4E2M1: "float4_e2m1fn",
    DType.S2: "int2",
    DType.U2: "uint2",
    DType.S4: "int4",
    DType.U4: "uint4",
}
"""Element types that NumPy lacks -> what the package ml_dtypes calls them."""


def dtype_of(array: Array) -> DType:
    """The element type of an array, of ml_dtypes or NumPy.

    Raises:
        InvalidInput: it is none of ONNX.
    """
    for dtype, name in _ML_DTYPES.items():
        if array.dtype.name == name and array.dtype.isbuiltin == 2:
            return dtype
    try:
        return DType.STRING if array.dtype.kind == "U" else DType.from_numpy(array.dtype)
    except ValueError as error:
        raise InvalidInput(
            f"ONNX has no type for elements of {array.dtype}", hint="convert it: array.astype(...)"
        ) from error


def called(dtype: DType) -> str:
    """The name of an element type for people: ml_dtypes' where NumPy lacks it."""
    return _ML_DTYPES.get(dtype) or str(dtype.numpy)


def conversion_of(array: Array, dtype: DType) -> str:
    """How to make an array one of an element type. Integers may be the values of a float that NumPy lacks, or,
    where they are as wide, its bits.
    """
    if dtype not in _ML_DTYPES:
        return f"convert it: array.astype('{dtype.numpy}')"
    wanted = f"ml_dtypes.{_ML_DTYPES[dtype]}"
    if dtype.is_float and array.dtype.kind in "iu" and 8 * array.dtype.itemsize == dtype.bits:
        return f"where it holds bits, array.view({wanted}); where it holds values, array.astype({wanted})"
    # ml_dtypes has no conversion between some of its types
    over = ".astype('float32')" if array.dtype.isbuiltin == 2 else ""
    return f"convert it: array{over}.astype({wanted})"


def foreign_types(plan: Plan) -> dict[str, np.dtype[Any]]:
    """Output -> its type of ml_dtypes, where NumPy lacks it."""
    types = {name: foreign_type(plan.type(name).dtype) for name in plan.outputs}
    return {name: type_ for name, type_ in types.items() if type_ is not None}


def foreign_type(dtype: DType) -> np.dtype[Any] | None:
    """The type of ml_dtypes, where NumPy lacks it."""
    return _foreign(dtype) if dtype in _ML_DTYPES else None


def carried(name: str, array: Array, dtype: DType) -> Array:
    """What is fed for an input, in the type that carries its elements; an array of another type as it
    is. Nothing is rounded, and nothing wraps around: as of f64 for f32, that is the caller's to do.

    Raises:
        InvalidInput: values that the type does not have.
    """
    if dtype not in _ML_DTYPES:
        return array
    if array.dtype.name == _ML_DTYPES[dtype] and array.dtype.isbuiltin == 2:
        return array.astype(dtype.numpy)
    if array.dtype != dtype.numpy:
        return array
    values = in_type(array, dtype)
    fits = (values == array) | (np.isnan(values) & np.isnan(array))
    if not fits.all():
        raise InvalidInput(
            f"input {name} holds {array[~fits].flat[0]}, which is no {called(dtype)}",
            where=f"input {name}",
            hint=conversion_of(array, dtype)
            if dtype.is_float
            else "clip it: numpy.clip(array, {}, {})".format(*dtype.range),
        )
    return values


def in_type(array: Array, dtype: DType) -> Array:
    """Numbers, rounded to those of an element type as ml_dtypes does it, in the type that carries them."""
    if dtype not in _ML_DTYPES:
        return array.astype(dtype.numpy)
    with np.errstate(all="ignore"):
        return array.astype(_foreign(dtype)).astype(dtype.numpy)


def _foreign(dtype: DType) -> np.dtype[Any]:
    import ml_dtypes  # as onnx does; most models need none of it

    found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, _ML_DTYPES[dtype]))
    return found
