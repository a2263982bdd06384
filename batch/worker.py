"""One part of the data into one file of the output."""

from __future__ import annotations

import threading
from collections.abc import Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import numpy as np

from ..errors import InvalidInput
from ..files import write_atomically
from ..ir.ops.spec import Array
from ..ir.types import DType
from ..plan.file import read_plan
from ..plan.types import Plan
from ..runtime.processors import default_threads, machine_bytes
from ..runtime.session import InferenceSession
from .job import PARTS_AT_ONCE, Job, Record
from .parts import Part
from .predictor import run_rows
from .rows import BadRow, Rows, filled, in_order
from .signature import Signature, is_text
from .sources import FORMATS, rows_of
from .writers import written

_WAITING = 4  # batches of a part, at most, that are ready beside those that run


class Worker:
    """A session, the threads that run batches on it, and the job that it works for.

    Each thread runs a batch of its own: no thread waits for another within a step, and a row's
    bytes do not depend on the number of threads. Where so many runs take too much memory there are
    fewer, each of several threads, by whose number f32 products may round otherwise.

    Raises:
        FqfuseError: the plan cannot be read, or does not run on rows of zeros (of ones where the type has no zero).
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._session, count, beside = _session(job)
        self._runs, self._most = ThreadPoolExecutor(count, "fqfuse-batch"), count + beside
        self._reader = FORMATS[job.format].reader(job.wanted)
        self._reading = threading.Lock()

    def run(self, part: Part) -> Record:
        """Computes a part and writes it; the record comes last, and says that it is done.

        Two threads may call this at once: the batches of one part are read and run while the last
        ones of the other are still running, or are on their way to the disk.

        Raises:
            InvalidInput: a file cannot be read now, the output not be written, or memory is short.
        """
        try:
            return self._run(part)
        except MemoryError as error:
            raise InvalidInput(
                f"there is not enough memory for part {part.index}: {error}".rstrip(": "),
                hint="take fewer --workers or --threads, or a smaller --batch in a new folder",
            ) from error

    def _run(self, part: Part) -> Record:
        bad: list[BadRow] = []
        target, count = self._job.file_of(part.index), 0
        with (
            written(target, files=self._job.format == "images") as writer,
            closing(self._batches(part, bad)) as batches,
        ):
            for answers in in_order(self._answers, batches, self._runs, self._most):
                for rows, answer in answers:
                    if isinstance(answer, str):
                        file, file_row = rows.place(0)
                        bad.append(BadRow(int(rows.numbers[0]), file, file_row, answer))
                    else:
                        writer.add(rows, answer)
                        count += len(rows)
        record = Record(
            part=part.index,
            rows=part.rows,
            written=count,
            bytes=target.stat().st_size if count else 0,
            digest=writer.digest,
            bad=tuple(sorted(bad, key=lambda row: row.row)),
        )
        if count + len(bad) != part.rows:
            raise AssertionError(f"part {part.index}: {count} + {len(bad)} rows of {part.rows}")
        # A power cut may cost this record, never the part's bytes: those are on the disk by now.
        write_atomically(self._job.record_of(part.index), record.text().encode(), lasting=False)
        return record

    def _batches(self, part: Part, bad: list[BadRow]) -> Generator[Rows]:
        with self._reading:
            found = rows_of(part, self._job.data, self._reader, bad)
            yield from filled(found, self._job.wanted.signature.batch)

    def _answers(self, rows: Rows) -> list[tuple[Rows, Mapping[str, Array] | str]]:
        """The outputs of a batch. Where it is refused each row runs alone, to find those that are to
        blame: the reason stands for the outputs of such a row.
        """
        try:
            outputs = run_rows(self._session, rows.feeds)
        except InvalidInput as error:
            if isinstance(error.__cause__, MemoryError):
                raise
            if len(rows) == 1:
                return [(rows, error.what)]
            alone = (self._answers(rows.part(i, i + 1)) for i in range(len(rows)))
            return [answer for answers in alone for answer in answers]
        return [(rows, dict(zip(self._session.plan.outputs, outputs, strict=True)))]


def _session(job: Job) -> tuple[InferenceSession, int, int]:
    """A session for a job; how many batches it may run at once: one on each thread, or as many as
    find room in half of the memory that the job's threads have of this machine; and how many may be
    ready beside them, by what is left of that.
    """
    session, outputs = _tried(job, 1)
    memory, signature = session.memory(), job.wanted.signature
    inputs = signature.batch * sum(row.bytes for row in signature.inputs.values())
    # a batch of each part that is not run yet, or whose outputs are not written yet
    waiting = PARTS_AT_ONCE * max(1, inputs + outputs)
    running = memory.arena + memory.scratchpad + waiting
    share = machine_bytes() * job.threads // max(job.threads, default_threads()) // 2
    count = max(1, min(job.threads, share // running))
    beside = max(0, min(_WAITING, (share - count * running) // waiting))
    if count < job.threads:
        session, _ = _tried(job, job.threads // count)
    return session, count, beside


def _tried(job: Job, threads: int) -> tuple[InferenceSession, int]:
    """A session that has run a batch, and the bytes of its outputs: what is wrong with each, such as
    too little memory, is no matter of rows.
    """
    session = InferenceSession(read_plan(job.plan), job.backend, threads)
    outputs = run_rows(session, _zeros(job.wanted.signature, session.plan))
    return session, sum(array.nbytes for array in outputs)


def _zeros(signature: Signature, plan: Plan) -> Mapping[str, Array]:
    return {
        name: np.full((signature.batch, *row.shape), "", object)
        if is_text(row)
        else np.full(
            (signature.batch, *row.shape), plan.type(name).dtype is DType.F8E8M0, row.dtype
        )
        for name, row in signature.inputs.items()
    }
