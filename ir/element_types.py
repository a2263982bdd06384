"""The element types of ONNX, by their numbers in TensorProto.DataType, without onnx."""

from __future__ import annotations

from collections.abc import Mapping

from .types import DType

ELEMENT_TYPES: Mapping[DType, int] = {
    DType.F32: 1,
    DType.U8: 2,
    DType.S8: 3,
    DType.U16: 4,
    DType.S16: 5,
    DType.S32: 6,
    DType.S64: 7,
    DType.STRING: 8,
    DType.BOOL: 9,
    DType.F16: 10,
    DType.F64: 11,
    DType.U32: 12,
    DType.U64: 13,
    DType.BF16: 16,
    DType.F8E4M3FN: 17,
    DType.F8E4M3FNUZ: 18,
    DType.F8E5M2: 19,
    DType.F8E5M2FNUZ: 20,
    DType.U4: 21,
    DType.S4: 22,
    DType.F4E2M1: 23,
    DType.F8E8M0: 24,
    DType.U2: 25,
    DType.S2: 26,
}

DTYPES: Mapping[int, DType] = {number: dtype for dtype, number in ELEMENT_TYPES.items()}
