"""A session that takes rows in the forms in which other engines hand them out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from numbers import Integral
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ..errors import InvalidInput
from ..frontend import ModelSource
from ..inference import InferenceSession
from ..ir.ops.spec import Array
from ..plan.types import Plan
from ..runtime.foreign_types import foreign_types
from ..runtime.session import InferenceSession as PlanSession
from .columns import (
    check_type,
    column_of,
    reason_of,
    row_shape,
    shape_of_value,
    values_of,
    whole,
)
from .libraries import library
from .signature import RowType, signature_of


class Predictor:
    """Maps rows to rows: for Ray Data's `map_batches`, Spark's `mapInArrow`, Dask, or by itself.

    Called with a dictionary of arrays it gives one of the outputs, in the types that a session has
    (bfloat16 and other types of ml_dtypes); with a pyarrow.RecordBatch or
    Table, one of its columns and those of the outputs (Arrow has no bf16 and no float8, which are
    f32 there, and integers of 4 bits are in 8); with an iterator of those, an iterator. It
    can be pickled and sent to other processes, plan and all, and used by many threads at once.

    Args:
        model: a Plan, a plan file, or an ONNX model (path, bytes, `onnx.ModelProto`).
        batch: rows that run at once (None: as many as it is called with, or as the model demands).
        backend: as of `InferenceSession`.
        threads: as of `InferenceSession`.
        columns: column or array for an input, where it is not called like the input.

    Raises:
        FqfuseError: what `InferenceSession` raises; or the model's first dimensions do not count
            rows.
    """

    def __init__(
        self,
        model: Plan | ModelSource,
        *,
        batch: int | None = None,
        backend: Literal["auto", "numpy", "onednn"] = "auto",
        threads: int | None = None,
        columns: Mapping[str, str] | None = None,
    ) -> None:
        self._session = InferenceSession(model, backend=backend, threads=threads)
        self._batch = _checked_batch(batch)
        self._columns = dict(columns or {})
        unknown = [name for name in self._columns if name not in self._session.plan.inputs]
        if unknown:
            raise InvalidInput(
                f"columns are given for what is no input: {', '.join(unknown)}",
                where=self._session.plan.name,
                hint=f"the model's inputs are: {', '.join(self._session.plan.inputs)}",
            )

    def __call__(self, rows: Any) -> Any:
        """The outputs for these rows, in the same form.

        Raises:
            InvalidInput: a column is missing, or a row does not fit; the message names it.
        """
        if isinstance(rows, Mapping):
            return self._of_arrays(rows)
        if isinstance(rows, Iterator):
            return map(self._of_arrow, rows)
        return self._of_arrow(rows)

    def _of_arrays(self, rows: Mapping[str, npt.ArrayLike]) -> dict[str, Array]:
        feeds = {}
        for name in self._session.plan.inputs:
            column = self._columns.get(name, name)
            if column not in rows:
                raise _missing(column, list(rows))
            feeds[name] = np.asarray(rows[column])
        types = foreign_types(self._session.plan)
        return {
            name: array.astype(types[name]) if name in types else array
            for name, array in self._run(feeds).items()
        }

    def _of_arrow(self, rows: Any) -> Any:
        pa = library("pyarrow", "Arrow is read with pyarrow")
        if not isinstance(rows, (pa.RecordBatch, pa.Table)):
            raise InvalidInput(
                f"a {type(rows).__name__} holds no rows",
                hint="give a dictionary of arrays, a pyarrow.RecordBatch or Table, or an iterator of these",
            )
        taken = [name for name in self._session.plan.outputs if name in rows.schema.names]
        if taken:
            raise InvalidInput(
                f"the rows have a column {taken[0]}, as an output is called",
                where=self._session.plan.name,
                hint="rename it, or drop it, before the rows come here",
            )
        columns = {name: whole(rows.column(name)) for name in rows.schema.names}
        outputs = self._run(self._feeds(columns)) if rows.num_rows else self._nothing()
        schema = rows.schema
        for name, array in outputs.items():
            columns[name] = column_of(array)
            schema = schema.append(pa.field(name, columns[name].type))
        return type(rows).from_arrays(list(columns.values()), schema=schema)

    def _feeds(self, columns: Mapping[str, Any]) -> dict[str, Array]:
        plan, found = self._session.plan, {}
        for name in plan.inputs:
            column = self._columns.get(name, name)
            if column not in columns:
                raise _missing(column, list(columns))
            found[name] = columns[column]

        def shape(name: str) -> tuple[int, ...]:
            told = row_shape(found[name].type)
            return shape_of_value(found[name][0].as_py()) if told is None else told

        rows = signature_of(plan, None, {}, shape).inputs
        return {
            name: self._values(array, self._columns.get(name, name), rows[name])
            for name, array in found.items()
        }

    @staticmethod
    def _values(array: Any, column: str, row: RowType) -> Array:
        check_type(column, array.type, row, f"column {column}")
        fits, values = values_of(array, row)
        if not fits.all():
            index = int(np.flatnonzero(~fits)[0])
            value = array[index]
            shown = value.as_py() if not hasattr(value, "to_numpy") else value.to_numpy()
            raise InvalidInput(
                reason_of(column, shown, row),
                where=f"row {index} of the batch",
                hint="leave such rows out before they come here",
            )
        return values

    def _run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        counts = {len(array) if array.ndim else 0 for array in feeds.values()}
        if len(counts) != 1:
            raise InvalidInput(
                "the arrays do not have the same number of rows",
                where=self._session.plan.name,
                hint="stack the rows along the first axis",
            )
        (count,) = counts
        size = fixed_rows(self._session) or self._batch or max(count, 1)
        found: list[list[Array]] = []
        for start in range(0, count, size):
            batch = {name: array[start : start + size] for name, array in feeds.items()}
            found.append(run_rows(self._session, batch))
        if not found:
            return self._nothing()
        names = self._session.plan.outputs
        return {
            name: arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
            for name, arrays in zip(names, zip(*found, strict=True), strict=True)
        }

    def _nothing(self) -> dict[str, Array]:
        return {name: _empty(self._session, name) for name in self._session.plan.outputs}


def _checked_batch(batch: Any) -> int | None:
    if batch is not None and (not isinstance(batch, Integral) or batch < 1):
        raise InvalidInput(f"a batch of {batch!r} rows", hint="give a whole number from 1 on")
    return None if batch is None else int(batch)


def run_rows(session: PlanSession, feeds: Mapping[str, Array]) -> list[Array]:
    """Runs rows, no more than a batch that the model demands: those that lack are filled up by the
    last one, and cut off the outputs.

    Raises:
        InvalidInput: as `InferenceSession.run`; or an output has no row for each row.
    """
    count = len(next(iter(feeds.values())))
    size = fixed_rows(session) or count
    if size > count:
        feeds = {
            name: np.concatenate([array, np.repeat(array[-1:], size - count, axis=0)])
            for name, array in feeds.items()
        }
    outputs = session.run_carried(None, feeds)
    for name, array in zip(session.plan.outputs, outputs, strict=True):
        if not array.ndim or len(array) != size:
            raise InvalidInput(
                f"the output {name} has shape {list(array.shape)} for {size} rows",
                where=session.plan.name,
                hint="cut it off the model, or run the model once for each input: fqfuse run",
            )
    return [array[:count] for array in outputs]


def fixed_rows(session: PlanSession) -> int | None:
    """How many rows the model demands; None: any number."""
    shape = session.plan.type(session.plan.inputs[0]).shape
    return shape[0] if shape and isinstance(shape[0], int) else None


def _empty(session: PlanSession, name: str) -> Array:
    """An output without rows.

    Raises:
        InvalidInput: its shape is not known before a run.
    """
    type_ = session.plan.type(name)
    if type_.shape is None or not all(isinstance(dim, int) for dim in type_.shape[1:]):
        raise InvalidInput(
            f"no rows were given, and the shape of the output {name} is known by a run only: {type_}",
            where=session.plan.name,
            hint="leave empty batches out",
        )
    return np.zeros((0, *(int(dim) for dim in type_.shape[1:])), type_.dtype.numpy)


def _missing(column: str, names: list[str]) -> InvalidInput:
    return InvalidInput(
        f"there is no column {column}",
        where=f"columns: {', '.join(names)}",
        hint="name it: columns={INPUT: COLUMN}",
    )
