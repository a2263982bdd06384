"""Element types: between the numbers that ONNX gives them and the DType of the graph."""

from __future__ import annotations

from typing import Final

from onnx import TensorProto

from ..errors import InvalidModel, UnsupportedOp
from ..ir.types import DType

__all__ = ["ONNX_TYPE", "dtype_of", "type_name"]

_DTYPES: Final[dict[int, DType]] = {
    TensorProto.FLOAT: DType.F32,
    TensorProto.DOUBLE: DType.F64,
    TensorProto.FLOAT16: DType.F16,
    TensorProto.BFLOAT16: DType.BF16,
    TensorProto.INT4: DType.S4,
    TensorProto.UINT4: DType.U4,
    TensorProto.INT8: DType.S8,
    TensorProto.UINT8: DType.U8,
    TensorProto.INT16: DType.S16,
    TensorProto.UINT16: DType.U16,
    TensorProto.INT32: DType.S32,
    TensorProto.UINT32: DType.U32,
    TensorProto.INT64: DType.S64,
    TensorProto.UINT64: DType.U64,
    TensorProto.BOOL: DType.BOOL,
    TensorProto.STRING: DType.STRING,
}

ONNX_TYPE: Final[dict[DType, int]] = {dtype: number for number, dtype in _DTYPES.items()}
"""The number of a DType in TensorProto.DataType."""


def type_name(number: int) -> str:
    """ONNX's name of an element type, `float8e4m3fn` say."""
    known = {int(value): str(name) for name, value in TensorProto.DataType.items()}
    return known.get(number, f"number {number}").lower()


def dtype_of(number: int, where: str) -> DType:
    """The DType of an ONNX element type; `where` is for the message.

    Raises:
        InvalidModel: ONNX has no such element type.
        UnsupportedOp: float8, float4, 2-bit integers or complex numbers, which the graph has no
            type for.
    """
    found = _DTYPES.get(number)
    if found is not None:
        return found
    if number == TensorProto.UNDEFINED or number not in TensorProto.DataType.values():
        raise InvalidModel(
            f"element type {number} does not exist", where=where, hint="export the model again"
        )
    raise UnsupportedOp(
        f"the element type {type_name(number)} is not supported",
        where=where,
        hint="quantize to 4, 8 or 16 bit integers, or keep this part of the model in float32",
    )
