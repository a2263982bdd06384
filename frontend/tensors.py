"""Constant tensors of a model as NumPy arrays: the sizes are checked before anything is allocated,
the data copied at most once.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto
from onnx.external_data_helper import load_external_data_for_tensor, uses_external_data

from ..errors import InvalidModel
from ..ir.constants import LARGE, Halves, array_of
from ..ir.ops.small_floats import decoded
from ..ir.ops.spec import Array
from ..ir.types import MOST_DIMENSIONS, DType
from .budgets import Budgets
from .element_types import dtype_of

Constant = tuple[Array, DType]
"""Data and element type: NumPy's own type does not tell bf16 and types of fewer than 8 bits."""

_REWRITE: Final = "export the model again: its data and its shape do not agree"

# What lies in raw_data, and in which field of the protobuf message data may lie otherwise.
_RAW: Final[dict[DType, str]] = {
    DType.BF16: "<u2",
    DType.BOOL: "|u1",
    **{dtype: "|u1" for dtype in DType if dtype.is_carried and dtype.bits <= 8},
}
_FIELDS: Final[dict[DType, str]] = {
    DType.F32: "float_data",
    DType.F64: "double_data",
    DType.S64: "int64_data",
    DType.U32: "uint64_data",
    DType.U64: "uint64_data",
    DType.STRING: "string_data",
}
_INT32_FIELD: Final = "int32_data"  # every other type
_ALL_FIELDS: Final = (
    "raw_data",
    "float_data",
    "double_data",
    "int32_data",
    "int64_data",
    "uint64_data",
    "string_data",
)


class TensorReader:
    """Reads TensorProtos within one model's budgets.

    Args:
        budgets: limits; `constant_bytes` counts over the whole life of the reader.
        folder: where external data may lie; None when there is no such place.
    """

    def __init__(self, budgets: Budgets, folder: Path | None) -> None:
        self._budgets = budgets
        self._folder = folder
        self._total = 0

    def read(
        self, tensor: TensorProto, where: str, lifted: npt.NDArray[np.uint8] | None = None
    ) -> Constant:
        """The data of a tensor: an array of its shape, read-only where it is a view. `lifted`: its
        `raw_data`, where that was read apart from it.

        Raises: as `read_as_it_lies`.
        """
        data, dtype = self.read_as_it_lies(tensor, where, lifted)
        return array_of(data), dtype

    def read_as_it_lies(
        self, tensor: TensorProto, where: str, lifted: npt.NDArray[np.uint8] | None = None
    ) -> tuple[Array | Halves, DType]:
        """As `read`; many numbers of bf16 stay what they are.

        Raises:
            InvalidModel: shape, type and data do not agree, a budget is exceeded, or external data
                is missing or lies elsewhere.
            UnsupportedOp: an element type that the graph does not have.
        """
        dtype = dtype_of(tensor.data_type, where)
        shape = checked_shape(tensor.dims, where)
        self._charge(dtype, shape, where)
        if tensor.HasField("segment"):
            raise _broken(
                "the tensor is stored in segments, which ONNX never came to define", where
            )
        if uses_external_data(tensor):
            tensor = self._load_external(tensor, _stored_bytes(dtype, shape), where)
        elif tensor.HasField("raw_data") and dtype is DType.STRING:
            raise _broken("strings cannot be stored as raw_data", where)
        _check_fields(tensor, dtype, where)
        many = dtype is DType.BF16 and math.prod(shape) * dtype.numpy.itemsize >= LARGE
        if many and tensor.HasField("raw_data"):
            raw = tensor.raw_data if lifted is None else lifted
            return Halves(_stored(raw, dtype, shape, where).reshape(shape)), dtype
        flat = (
            _from_raw(tensor.raw_data if lifted is None else lifted, dtype, shape, where)
            if tensor.HasField("raw_data")
            else _from_field(tensor, dtype, shape, where)
        )
        return flat.reshape(shape), dtype

    def read_sparse(self, sparse: onnx.SparseTensorProto, where: str) -> Constant:
        """The data of a sparse tensor, made dense.

        Raises:
            InvalidModel: as `read`; or indices that are out of range, unsorted, or of a wrong
                shape.
        """
        shape = checked_shape(sparse.dims, where)
        values, dtype = self.read(sparse.values, where)
        indices, index_type = self.read(sparse.indices, where)
        self._charge(dtype, shape, where)
        count = math.prod(shape)
        if (
            values.ndim != 1
            or index_type is not DType.S64
            or indices.shape not in {(values.size,), (values.size, len(shape))}
        ):
            raise _broken("values and indices of the sparse tensor do not fit together", where)
        positions = np.asarray(indices, np.int64)
        if positions.ndim == 2 and positions.size:
            if (positions < 0).any() or (positions >= np.asarray(shape, np.int64)).any():
                raise _broken("an index of the sparse tensor lies outside its shape", where)
            positions = np.ravel_multi_index(tuple(positions.T), shape)
        positions = positions.reshape(-1)
        if positions.size and (
            positions.min() < 0 or positions.max() >= count or (np.diff(positions) <= 0).any()
        ):
            raise _broken(
                "the indices of the sparse tensor are out of range, repeated or unsorted", where
            )
        dense = (
            np.zeros(count, values.dtype)
            if dtype is not DType.STRING
            else np.full(count, "", np.object_)
        )
        dense[positions] = values
        return dense.reshape(shape), dtype

    def external_as_raw(self, tensor: TensorProto, where: str) -> TensorProto:
        """The same tensor with its external data inside; itself when it has none. Raises as
        `read`.
        """
        if not uses_external_data(tensor):
            return tensor
        dtype, shape = dtype_of(tensor.data_type, where), checked_shape(tensor.dims, where)
        self._charge(dtype, shape, where)
        return self._load_external(tensor, _stored_bytes(dtype, shape), where)

    def _charge(self, dtype: DType, shape: Sequence[int], where: str) -> None:
        size = math.prod(shape) * dtype.numpy.itemsize
        self._budgets.check("tensor_bytes", size, "one constant", where=where)
        self._total += size
        self._budgets.check("constant_bytes", self._total, "all constants together", where=where)

    def _load_external(self, tensor: TensorProto, size: int, where: str) -> TensorProto:
        """A copy with the data inside. The onnx library guards the way: inside the folder, no links
        of any kind, within the file.
        """
        entries = {entry.key: entry.value for entry in tensor.external_data}
        place = f"{where}, external data {entries.get('location', '')[:200]!r}"
        if self._folder is None:
            hint = "give the path of the model file, or load the data before (onnx.load_external_data_for_model)"
            raise InvalidModel(
                "the model keeps data in another file, but came without a folder",
                where=place,
                hint=hint,
            )
        if "\0" in entries.get("location", ""):  # C would end the name there
            raise _broken("the name of the data file holds a null character", place)
        length = entries.get("length", str(size))
        if not (
            length.isascii() and length.isdigit() and length.lstrip("0") == str(size).lstrip("0")
        ):
            raise _broken(
                f"external data of {length[:40]} bytes cannot fill a tensor of {size} bytes", place
            )
        loaded = TensorProto(
            name=tensor.name,
            data_type=tensor.data_type,
            dims=tensor.dims,
            data_location=TensorProto.EXTERNAL,
        )
        for key in ("location", "offset"):
            if key in entries:
                loaded.external_data.add(key=key, value=entries[key])
        # An explicit length: without one the library would read to the end of the file, however
        # long that is.
        loaded.external_data.add(key="length", value=str(size))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                load_external_data_for_tensor(loaded, str(self._folder))
        except (onnx.checker.ValidationError, ValueError, OSError, RuntimeError, Warning) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            hint = "put the data file beside the model, as a real file (no link), under the relative name that the model gives"
            raise InvalidModel(
                f"the external data cannot be read: {reason}", where=place, hint=hint
            ) from None
        loaded.data_location = TensorProto.DEFAULT  # onnx 1.21 leaves it at EXTERNAL
        del loaded.external_data[:]
        return loaded


def checked_shape(dims: Sequence[int], where: str) -> tuple[int, ...]:
    """The dimensions of a constant as Python integers.

    Raises:
        InvalidModel: a negative dimension, too many of them, or more elements than any array can
            have.
    """
    shape = tuple(int(d) for d in dims)
    if any(d < 0 for d in shape):
        raise _broken(f"a constant cannot have the shape {list(shape)}", where)
    # Of the sizes other than 0: NumPy computes strides from them even when there are no elements.
    if (
        len(shape) > MOST_DIMENSIONS
        or math.prod(max(d, 1) for d in shape) > np.iinfo(np.int64).max // 16
    ):
        raise _broken(
            f"no array can have the shape {list(shape[:8])}{'...' if len(shape) > 8 else ''}", where
        )
    return shape


def _broken(what: str, where: str) -> InvalidModel:
    return InvalidModel(what, where=where, hint=_REWRITE)


def _stored_bytes(dtype: DType, shape: Sequence[int]) -> int:
    count = math.prod(shape)
    if dtype.bits < 8:
        return -(-count * dtype.bits // 8)
    return count * np.dtype(_RAW.get(dtype, dtype.numpy)).itemsize


def _check_fields(tensor: TensorProto, dtype: DType, where: str) -> None:
    """The data may lie in one place only."""
    wanted = "raw_data" if tensor.HasField("raw_data") else _FIELDS.get(dtype, _INT32_FIELD)
    others = [name for name in _ALL_FIELDS if name != wanted and len(getattr(tensor, name))]
    if others:
        raise _broken(f"the data lies in {others[0]}, where {wanted} belongs", where)


def _from_raw(
    data: bytes | npt.NDArray[np.uint8], dtype: DType, shape: Sequence[int], where: str
) -> Array:
    return _unpacked(_stored(data, dtype, shape, where), dtype, math.prod(shape), where)


def _stored(
    data: bytes | npt.NDArray[np.uint8], dtype: DType, shape: Sequence[int], where: str
) -> npt.NDArray[Any]:
    """The numbers in `raw_data`, as the file has them."""
    needed = _stored_bytes(dtype, shape)
    if len(data) != needed:
        raise _broken(
            f"a tensor of shape {list(shape)} needs {needed} bytes of data, and has {len(data)}",
            where,
        )
    return np.frombuffer(data, np.dtype(_RAW.get(dtype, dtype.numpy)).newbyteorder("<"))


def _from_field(tensor: TensorProto, dtype: DType, shape: Sequence[int], where: str) -> Array:
    name = _FIELDS.get(dtype, _INT32_FIELD)
    data = getattr(tensor, name)
    count = math.prod(shape)
    needed = -(-count * dtype.bits // 8) if dtype.bits < 8 else count
    if len(data) != needed:
        found = f"{needed} entries of {name}, and has {len(data)}"
        raise _broken(f"a tensor of shape {list(shape)} needs {found}", where)
    if dtype is DType.STRING:
        return _strings(data)
    if name != _INT32_FIELD and dtype is not DType.U32:
        return np.fromiter(data, dtype.numpy, count)
    stored_as = np.dtype(_RAW.get(dtype, np.uint16 if dtype is DType.F16 else dtype.numpy))
    wide: npt.NDArray[np.integer] = np.fromiter(
        data, np.uint64 if dtype is DType.U32 else np.int32, needed
    )
    limits = np.iinfo(stored_as)
    if needed and (int(wide.min()) < limits.min or int(wide.max()) > limits.max):
        raise _broken(f"{name} holds numbers that do not fit in {dtype.value}", where)
    narrow = wide.astype(stored_as)
    return narrow.view(np.float16) if dtype is DType.F16 else _unpacked(narrow, dtype, count, where)


def _strings(data: Sequence[bytes]) -> Array:
    result = np.empty(len(data), np.object_)
    result[:] = [text.decode("utf-8", "replace") for text in data]
    return result


def _unpacked(stored: npt.NDArray[Any], dtype: DType, count: int, where: str) -> Array:
    if dtype is DType.BF16:  # the upper half of an f32
        return (stored.astype(np.uint32) << np.uint32(16)).view(np.float32)
    if dtype is DType.BOOL:
        if stored.size and stored.max() > np.uint8(1):
            raise _broken("a bool is neither 0 nor 1", where)
        return stored.view(np.bool_)
    if dtype.bits < 8:  # several in a byte, the lowest bits first
        shifts = np.arange(0, 8, dtype.bits, dtype=np.uint8)
        mask = np.uint8((1 << dtype.bits) - 1)
        stored = ((stored[:, None] >> shifts) & mask).reshape(-1)[:count]
    if dtype.is_small_float:
        return np.asarray(decoded(dtype)[stored])
    if dtype.bits < 8:
        sign = dtype.range[0]  # 0 of unsigned ones
        return ((stored.astype(np.int8) ^ np.int8(-sign)) + np.int8(sign)).astype(dtype.numpy)
    # no copy where the machine's bytes are ordered as the file's
    return stored.astype(dtype.numpy, copy=False)
