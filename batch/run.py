"""A data set through a plan: what `fqfuse batch` does."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from ..errors import InvalidInput
from ..plan.file import plan_digest
from ..plan.types import Plan
from ..runtime.processors import default_threads
from ..runtime.session import checked_threads
from . import local, on_ray
from .folder import Identity, done, finish, opened
from .job import Job, Record
from .parts import Part, parts_of, rows_of_part
from .reading import Reading, Wanted
from .signature import Signature, ranks_of, signature_of
from .sources import DataSet, data_set
from .writers import check_names

ENGINES = {"local": local.run_parts, "ray": on_ray.run_parts}


@dataclass(frozen=True)
class Asked:
    """What a caller wants.

    Attributes:
        data: a folder or file.
        output: a folder, new or of an earlier run of the same job.
        reading: how the data are read.
        batch: rows of a batch; None: what the model demands, else 32.
        sizes: of dimensions that model and data leave open.
        workers: processes, or actors of Ray.
        threads: of each, which run a batch each; None: the processors, shared among them.
        backend: `auto`, `numpy` or `onednn`.
        engine: of `ENGINES`.
    """

    data: Path
    output: Path
    reading: Reading = field(default_factory=Reading)
    batch: int | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)
    workers: int = 1
    threads: int | None = None
    backend: str = "auto"
    engine: str = "local"


@dataclass(frozen=True)
class Outcome:
    """What became of the rows.

    Attributes:
        data: what was read.
        signature: as what.
        parts: of the output.
        resumed: parts that an earlier run had done.
        records: of all parts, in order.
        seconds: of this run.
        threads: of each worker.
    """

    data: DataSet
    signature: Signature
    parts: int
    resumed: int
    records: tuple[Record, ...]
    seconds: float
    threads: int

    @property
    def written(self) -> int:
        """Rows of the output."""
        return sum(record.written for record in self.records)

    @property
    def bad(self) -> int:
        """Rows that have no result."""
        return sum(len(record.bad) for record in self.records)


def run_batch(plan: Plan, asked: Asked, progress: Callable[[Part | None, int], None]) -> Outcome:
    """Runs all rows that are left.

    Args:
        plan: what runs them.
        asked: see there.
        progress: is told (None, all parts) first, then of each part that is done, with its number
            of rows.

    Raises:
        FqfuseError: data, output or options are wrong, or a file cannot be read or written. What
            is done by then stays.
    """
    started = time.perf_counter()
    data, signature = checked(plan, asked)
    parts = parts_of(data.files, signature.batch)
    threads = checked_threads(asked.threads or max(1, default_threads() // asked.workers))
    wanted = Wanted(signature, asked.reading)
    job = Job(
        data.root.resolve(), data.format, wanted, asked.output.resolve(), asked.backend, threads
    )
    identity = _identity(asked, data, signature, plan_digest(plan))
    by_index = {part.index: part for part in parts}
    with opened(job, identity, plan):
        records = done(job, parts)
        resumed = len(records)
        progress(None, len(parts))
        for index in records:
            progress(by_index[index], by_index[index].rows)

        def take(record: Record) -> None:
            records[record.part] = record
            progress(by_index[record.part], record.rows)

        left = [part for part in parts if part.index not in records]
        ENGINES[asked.engine](job, left, asked.workers, take)
        finish(job, identity, records.values())
    ordered = tuple(records[part.index] for part in parts)
    seconds = time.perf_counter() - started
    return Outcome(data, signature, len(parts), resumed, ordered, seconds, threads)


def checked(plan: Plan, asked: Asked) -> tuple[DataSet, Signature]:
    """The data, and what is fed of them.

    Raises:
        FqfuseError: data, output or options are wrong.
    """
    ranks = ranks_of(plan)
    unknown = [name for name in asked.reading.columns if name not in ranks]
    if unknown:
        raise InvalidInput(
            f"the model has no input {unknown[0]}",
            where=plan.name,
            hint=f"the model's inputs are: {', '.join(ranks)}",
        )
    check_names(plan.outputs, asked.reading.keep)
    data = data_set(asked.data, ranks, asked.reading)
    if asked.output.resolve().is_relative_to(asked.data.resolve()):
        raise InvalidInput(
            "the output lies in the folder of the data",
            where=str(asked.output),
            hint="name another folder with --output",
        )
    signature = signature_of(
        plan,
        asked.batch,
        asked.sizes,
        lambda name: data.first_shape(name, ranks[name], asked.reading),
    )
    data.check(Wanted(signature, asked.reading))
    return data, signature


def _identity(asked: Asked, data: DataSet, signature: Signature, digest: str) -> Identity:
    reading = {**asdict(asked.reading), "columns": dict(asked.reading.columns)}
    try:
        installed = version("fqfuse")
    except PackageNotFoundError:
        installed = ""
    return {
        "fqfuse_version": installed,
        "model": digest,
        "data": data.digest(),
        "format": data.format,
        "rows": data.rows,
        "batch": signature.batch,
        "rows_of_a_part": rows_of_part(data.rows, signature.batch),
        "row_shapes": {name: str(row) for name, row in signature.inputs.items()},
        "reading": reading,
        "backend": asked.backend,
    }
