"""Columns of Arrow as arrays, and arrays as columns.

A row of a tensor is a fixed-shape tensor (`arrow.fixed_shape_tensor`), nested lists, one flat list
in the order of C, or binary: its bytes in that order, of the input's own type, little-endian.
Another extension type, such as Ray's tensors, is what it is stored as.
Outputs are fixed-shape tensors; numbers where a row is one number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import InvalidInput
from ..ir.ops.spec import Array
from .libraries import library
from .signature import RowShape, RowType, is_text

Mask = npt.NDArray[np.bool_]
"""Which rows fit."""


def arrow() -> Any:
    """pyarrow.

    Raises:
        BackendUnavailable: it is not installed.
    """
    return library("pyarrow", "Parquet and Arrow are read with pyarrow")


def concatenated(batches: Sequence[Any]) -> Any:
    """Record batches of one schema as one."""
    return arrow().concat_batches(list(batches))


def whole(column: Any) -> Any:
    """A column in one piece."""
    pa = arrow()
    if not isinstance(column, pa.ChunkedArray):
        return column
    if column.num_chunks:
        return column.combine_chunks()
    type_ = column.type  # pyarrow makes no empty tensors
    if isinstance(type_, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(type_, pa.array([], type_.storage_type))
    return pa.array([], type_)


def row_shape(type_: Any) -> RowShape | None:
    """The shape of a row that the type of a column tells; None: it does not."""
    pa = arrow()
    if isinstance(type_, pa.FixedShapeTensorType):
        return tuple(type_.shape[axis] for axis in type_.permutation or range(len(type_.shape)))
    if isinstance(type_, pa.BaseExtensionType):
        told = getattr(type_, "shape", None)
        return told if isinstance(told, tuple) else row_shape(type_.storage_type)
    shape = []
    while pa.types.is_fixed_size_list(type_):
        shape.append(type_.list_size)
        type_ = type_.value_type
    return None if _is_list(type_) or _is_binary(type_) else tuple(shape)


def shape_of_value(value: object) -> RowShape:
    """The shape of nested lists, by their first elements."""
    shape: list[int] = []
    while isinstance(value, list):
        shape.append(len(value))
        value = value[0] if value else None
    return tuple(shape)


def check_type(column: str, type_: Any, row: RowType, where: str) -> None:
    """Refuses a column whose numbers would have to be rounded or cut for an input.

    Raises:
        InvalidInput: they would.
    """
    pa = arrow()
    leaf = plain = _plain(type_)
    while _is_list(leaf):
        leaf = leaf.value_type
    if pa.types.is_dictionary(leaf):
        leaf = leaf.value_type
    texts = pa.types.is_string(leaf) or pa.types.is_large_string(leaf)
    if is_text(row):
        fits = texts
    else:
        number = pa.types.is_integer(leaf) or pa.types.is_floating(leaf)
        known = number or pa.types.is_boolean(leaf)
        fits = known and np.can_cast(leaf.to_pandas_dtype(), row.dtype, "safe")
        fits = fits or _is_binary(plain)
    if not fits:
        raise InvalidInput(
            f"the column {column} has values of type {leaf}, and the input takes {row}",
            where=where,
            hint=f"convert it first: {_conversion(type_, row)}",
        )


def _conversion(type_: Any, row: RowType) -> str:
    """How a column becomes one that is taken, as an expression of pyarrow."""
    wanted = _taken(type_, row)
    if "view" in str(type_) or "run_end" in str(
        type_
    ):  # not every cast of theirs is there, or right
        return f"pyarrow.array(column.to_pylist(), {wanted})"
    return f"column.cast({wanted})"


def _taken(type_: Any, row: RowType) -> str:
    """The type that is taken in the place of another, as an expression of pyarrow."""
    pa = arrow()
    if hasattr(type_, "storage_type"):
        return _taken(type_.storage_type, row)
    if pa.types.is_dictionary(type_) or pa.types.is_run_end_encoded(type_):
        return _taken(type_.value_type, row)
    if hasattr(type_, "value_type"):
        return f"pyarrow.list_({_taken(type_.value_type, row)})"
    name = "string" if is_text(row) else row.dtype.name.replace("bool", "bool_")
    is_binary = "binary" in str(type_) and not is_text(row)
    return f"pyarrow.{'binary' if is_binary or not hasattr(pa, name) else name}()"


def values_of(column: Any, row: RowType) -> tuple[Mask, Array]:
    """The rows of a column that fit an input.

    Args:
        column: a pyarrow.Array whose type `check_type` let through.
        row: what the input takes.

    Returns:
        Which rows fit, and the array of those.
    """
    if _is_binary(_plain(column.type)):
        return _unpacked(column, row)
    fits, values = _dense(column, row.shape)
    dtype = np.dtype(object) if is_text(row) else row.dtype
    return fits, np.ascontiguousarray(values.astype(dtype, copy=False))


def reason_of(column: str, value: object, row: RowType) -> str:
    """Why a value of a column does not fit."""
    if value is None:
        return f"the column {column} is null"
    if isinstance(value, bytes):
        return f"the column {column} holds {len(value):,} bytes, expected {row.bytes:,}: {row}"
    if _holds_null(value):
        return f"the column {column} holds null"
    array = value if isinstance(value, np.ndarray) else None
    shape = array.shape if array is not None else shape_of_value(value)
    flat = (math.prod(row.shape),)
    if shape in {row.shape, flat}:
        what = (
            "null" if array is not None else "lists of different lengths"
        )  # a tensor has one length
        return f"the column {column} holds {what}"
    return f"the column {column} has shape {list(shape)}, expected {list(row.shape)}"


def _holds_null(value: object) -> bool:
    return isinstance(value, list) and any(inner is None or _holds_null(inner) for inner in value)


def column_of(array: Array) -> Any:
    """An array as a column, a row of it in each row.

    Raises:
        InvalidInput: Arrow has no such type.
    """
    pa = arrow()
    if array.dtype.kind in "OU":
        flat = pa.array(array.ravel().tolist(), pa.string())
    else:
        try:
            flat = pa.array(np.ascontiguousarray(array).reshape(-1))
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise InvalidInput(
                f"Arrow has no type for {array.dtype.name}",
                hint="add a Cast to float32 at the end of the model",
            ) from error
    if array.ndim == 1:
        return flat
    shape = array.shape[1:]
    storage = pa.FixedSizeListArray.from_arrays(flat, math.prod(shape))
    if array.dtype.kind in "OU":  # Arrow has tensors of numbers alone
        return storage
    return pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(flat.type, shape), storage)


def _is_list(type_: Any) -> bool:
    types = arrow().types
    return bool(
        types.is_list(type_) or types.is_large_list(type_) or types.is_fixed_size_list(type_)
    )


def _is_binary(type_: Any) -> bool:
    types = arrow().types
    return bool(
        types.is_binary(type_) or types.is_large_binary(type_) or types.is_fixed_size_binary(type_)
    )


def _plain(type_: Any) -> Any:
    """What a column is stored as, and a dictionary stands for."""
    pa = arrow()
    if isinstance(type_, pa.BaseExtensionType):
        type_ = type_.storage_type
    return type_.value_type if pa.types.is_dictionary(type_) else type_


def _unpacked(column: Any, row: RowType) -> tuple[Mask, Array]:
    """Rows of binary that have a row's number of bytes, and the array of those."""
    pa = arrow()
    if isinstance(column.type, pa.BaseExtensionType):
        column = column.storage
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    lengths = library("pyarrow.compute", "Arrow is read with pyarrow").binary_length(column)
    fits: Mask = lengths.fill_null(-1).to_numpy(zero_copy_only=False) == row.bytes
    kept = _filtered(column, fits)
    *_, ends, data = kept.buffers()  # of a fixed size: validity instead of ends
    if not len(kept) or not row.bytes:
        return fits, np.zeros((len(kept), *row.shape), row.dtype)
    first = kept.offset * row.bytes
    if not pa.types.is_fixed_size_binary(kept.type):
        offset = np.int64 if pa.types.is_large_binary(kept.type) else np.int32
        first = int(np.frombuffer(ends, offset)[kept.offset])
    little = row.dtype.newbyteorder("<")
    values = np.frombuffer(data, little, len(kept) * math.prod(row.shape), first)
    values = np.require(values.astype(row.dtype, copy=False), requirements="A")
    return fits, values.reshape(-1, *row.shape)


def _dense(column: Any, shape: RowShape) -> tuple[Mask, Array]:
    """Which rows have this shape throughout and no null in it, and the array of those."""
    pa = arrow()
    if isinstance(column.type, pa.FixedShapeTensorType):
        return _tensors(column, shape)
    if isinstance(column.type, pa.BaseExtensionType):
        column = column.storage
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    fits = _valid(column)
    if not _is_list(column.type):
        if math.prod(shape) != 1:
            fits = np.zeros(len(column), bool)
        values = _filtered(column, fits).to_numpy(zero_copy_only=False)
        return fits, values.reshape(-1, *shape) if fits.any() else _nothing(column, shape)
    nested = _is_list(column.type.value_type)
    count = shape[0] if nested and shape else math.prod(shape)
    lengths = library("pyarrow.compute", "Arrow is read with pyarrow").list_value_length(column)
    fits = fits & (lengths.fill_null(-1).to_numpy(zero_copy_only=False) == count)
    if nested and not shape:
        fits[:] = False
    inner_shape = shape[1:] if nested else ()
    kept = _filtered(column, fits)
    whole, values = _dense(kept.flatten(), inner_shape)
    if not whole.all():
        fits[fits] = whole.reshape(int(fits.sum()), count).all(axis=1)
        _, values = _dense(_filtered(column, fits).flatten(), inner_shape)
    return fits, values.reshape(int(fits.sum()), *shape)


def _tensors(column: Any, shape: RowShape) -> tuple[Mask, Array]:
    if row_shape(column.type) != shape:
        return np.zeros(len(column), bool), _nothing(column.storage, shape)
    fits = _valid(column)
    storage = _filtered(column.storage, fits)
    whole, values = _dense(storage, (math.prod(shape),))
    fits[fits] = whole
    stored = tuple(column.type.shape)
    values = values.reshape(-1, *stored)
    if column.type.permutation:
        values = values.transpose(0, *(1 + axis for axis in column.type.permutation))
    return fits, values


def _valid(column: Any) -> Mask:
    if not column.null_count:
        return np.ones(len(column), bool)
    valid: Mask = column.is_valid().to_numpy(zero_copy_only=False)
    return valid.copy()


def _filtered(column: Any, fits: Mask) -> Any:
    return column if fits.all() else column.filter(arrow().array(fits))


def _nothing(column: Any, shape: RowShape) -> Array:
    leaf = column.type
    while _is_list(leaf):
        leaf = leaf.value_type
    return np.zeros((0, *shape), leaf.to_pandas_dtype())
