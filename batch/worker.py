"""One part of the data into one file of the output."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..errors import InvalidInput
from ..files import write_atomically
from ..ir.ops.spec import Array
from ..ir.types import DType
from ..plan.file import read_plan
from ..plan.types import Plan
from ..runtime.session import InferenceSession
from .job import Job, Record
from .parts import Part
from .predictor import run_rows
from .rows import BadRow, Rows, ahead, filled
from .signature import Signature, is_text
from .sources import FORMATS, rows_of
from .writers import Writer, written


class Worker:
    """A session, and the job that it works for.

    Raises:
        FqfuseError: the plan cannot be read, or does not run on rows of zeros (of ones where the type has no zero).
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._session = InferenceSession(read_plan(job.plan), job.backend, job.threads)
        self._reader = FORMATS[job.format].reader(job.wanted)
        # What is wrong with every batch, such as too little memory, is no matter of rows.
        run_rows(self._session, _zeros(job.wanted.signature, self._session.plan))

    def run(self, part: Part) -> Record:
        """Computes a part and writes it; the record comes last, and says that it is done.

        Raises:
            InvalidInput: a file cannot be read now, or the output not be written.
        """
        bad: list[BadRow] = []
        target, count = self._job.file_of(part.index), 0
        rows = ahead(rows_of(part, self._job.data, self._reader, bad))
        with written(target, files=self._job.format == "images") as writer:
            for batch in filled(rows, self._job.wanted.signature.batch):
                count += self._batch(batch, writer, bad)
        record = Record(
            part=part.index,
            rows=part.rows,
            written=count,
            bytes=target.stat().st_size if count else 0,
            bad=tuple(sorted(bad, key=lambda row: row.row)),
        )
        if count + len(bad) != part.rows:
            raise AssertionError(f"part {part.index}: {count} + {len(bad)} rows of {part.rows}")
        # A power cut may cost this record, never the part's bytes: those are on the disk by now.
        write_atomically(self._job.record_of(part.index), record.text().encode(), lasting=False)
        return record

    def _batch(self, rows: Rows, writer: Writer, bad: list[BadRow]) -> int:
        """Runs a batch; where that is refused, each row alone, to find those that are to blame. How
        many have results.
        """
        try:
            outputs = run_rows(self._session, rows.feeds)
        except InvalidInput as error:
            if isinstance(error.__cause__, MemoryError):
                raise
            if len(rows) == 1:
                file, file_row = rows.place(0)
                bad.append(BadRow(int(rows.numbers[0]), file, file_row, error.what))
                return 0
            return sum(self._batch(rows.part(i, i + 1), writer, bad) for i in range(len(rows)))
        writer.add(rows, dict(zip(self._session.plan.outputs, outputs, strict=True)))
        return len(rows)


def _zeros(signature: Signature, plan: Plan) -> Mapping[str, Array]:
    return {
        name: np.full((signature.batch, *row.shape), "", object)
        if is_text(row)
        else np.full(
            (signature.batch, *row.shape), plan.type(name).dtype is DType.F8E8M0, row.dtype
        )
        for name, row in signature.inputs.items()
    }
