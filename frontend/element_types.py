"""Element types: between the numbers that ONNX gives them and the DType of the graph."""

from __future__ import annotations

from onnx import TensorProto

from ..errors import InvalidModel, UnsupportedOp
from ..ir.element_types import DTYPES
from ..ir.types import DType


def type_name(number: int) -> str:
    """ONNX's name of an element type, `float8e4m3fn` say."""
    known = {int(value): str(name) for name, value in TensorProto.DataType.items()}
    return known.get(number, f"number {number}").lower()


def dtype_of(number: int, where: str) -> DType:
    """The DType of an ONNX element type; `where` is for the message.

    Raises:
        InvalidModel: ONNX has no such element type.
        UnsupportedOp: floats of 6 bits or complex numbers, which the graph has no type for.
    """
    found = DTYPES.get(number)
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
