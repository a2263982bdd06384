"""The folder of the output: whose it is, which parts are done, and what is written at the end.

    part-00000.parquet ...      the output, in the order of the rows
    _bad_rows.jsonl             rows without a result, each with its reason
    _manifest.json              there when all is done
    _batch/                     the plan, the job, and a record for each part that is done

A part is done when its record is there, which is written last. What a killed run leaves behind is
temporary files, and a part without its record, which is written again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..errors import InvalidInput
from ..files import is_folder, is_there, write_atomically
from ..plan.file import save_plan
from ..plan.types import Plan
from .job import RECORDS, Job, Record, record_from
from .parts import Part

MANIFEST, BAD_ROWS = "_manifest.json", "_bad_rows.jsonl"
_JOB, _LOCK = "job.json", "lock"

Identity = Mapping[str, Any]
"""What decides the bytes of the output, by the words in which a person is told of it."""


@contextmanager
def opened(job: Job, identity: Identity, plan: Plan) -> Iterator[None]:
    """Makes the folder this job's, or finds that it is; as long as the block runs, no other run
    takes it.

    Args:
        job: its `output` is the folder.
        identity: JSON values; a folder with another one is refused.
        plan: what workers run; they read it there.

    Raises:
        InvalidInput: the folder holds other things, belongs to another job, or another run has it.
    """
    records = job.output / RECORDS
    _made(job.output, records)
    with _locked(records / _LOCK, job.output):
        found = _identity_of(records / _JOB)
        if found is None:
            save_plan(plan, job.plan)
            write_atomically(records / _JOB, json.dumps(identity, indent=2).encode())
        else:
            _check_identity(found, identity, job.output)
        _sweep(job.output)
        _sweep(records)
        yield


def done(job: Job, parts: Sequence[Part]) -> dict[int, Record]:
    """The records of parts that are done: their output is there, byte for byte."""
    found = {}
    for part in parts:
        try:
            record = record_from(job.record_of(part.index).read_bytes())
            whole = not record.bytes or _digest(job.file_of(part.index)) == record.digest
        except (OSError, ValueError, TypeError, KeyError):
            continue
        if whole and record.part == part.index and record.rows == part.rows:
            found[part.index] = record
    return found


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def finish(job: Job, identity: Identity, records: Iterable[Record]) -> None:
    """Writes the rows that have no result, and the manifest.

    Raises:
        InvalidInput: they cannot be written.
    """
    _sweep(job.output)  # of workers that died
    records = sorted(records, key=lambda record: record.part)
    lines = (
        json.dumps(
            {"row": bad.row, "file": bad.file, "file_row": bad.file_row, "reason": bad.reason}
        )
        for record in records
        for bad in record.bad
    )
    write_atomically(job.output / BAD_ROWS, "".join(f"{line}\n" for line in lines).encode())
    manifest = {
        "schema": "fqfuse.batch-output/1",
        **identity,
        "written": sum(record.written for record in records),
        "bad": sum(len(record.bad) for record in records),
        "parts": [
            {
                "file": job.file_of(record.part).name if record.bytes else None,
                "rows": record.rows,
                "written": record.written,
                "bytes": record.bytes,
            }
            for record in records
        ],
    }
    write_atomically(job.output / MANIFEST, (json.dumps(manifest, indent=2) + "\n").encode())


def _made(output: Path, records: Path) -> None:
    if is_there(output) and not is_folder(output):
        raise InvalidInput(
            "the output is a file", where=str(output), hint="name a folder with --output"
        )
    try:
        others = [path.name for path in output.iterdir()] if is_folder(output) else []
        if others and RECORDS not in others:
            raise InvalidInput(
                f"the folder holds other files, such as {min(others)}",
                where=str(output),
                hint="name a new folder, or one that an earlier run of this job has begun",
            )
        output.mkdir(exist_ok=True)
        records.mkdir(exist_ok=True)
    except OSError as error:
        raise InvalidInput(
            f"the folder cannot be made: {error.strerror or error}",
            where=str(output),
            hint="create the folder above it, get the right to write there, or name another",
        ) from error


@contextmanager
def _locked(path: Path, output: Path) -> Iterator[None]:
    """Holds a lock of the system's, which ends with this process however that ends."""
    try:
        opened_file = path.open("a+b")
    except OSError as error:
        raise InvalidInput(
            f"the folder cannot be written: {error.strerror or error}",
            where=str(path),
            hint="get the right to write there; a folder whose _manifest.json is there is complete, and needs no further run",
        ) from error
    with opened_file as file:
        try:
            _lock(file.fileno())
        except OSError as error:
            raise InvalidInput(
                "another run is writing to this folder",
                where=str(output),
                hint="wait until it has ended, or end it",
            ) from error
        yield


def _lock(handle: int) -> None:
    if sys.platform == "win32":
        import msvcrt

        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _identity_of(path: Path) -> Identity | None:
    try:
        found: Identity = dict(json.loads(path.read_bytes()))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, RecursionError, OSError) as error:
        raise InvalidInput(
            f"the job in the folder cannot be read: {error}",
            where=str(path),
            hint="remove the folder, or name a new one",
        ) from error
    return found


def _check_identity(found: Identity, identity: Identity, output: Path) -> None:
    now = json.loads(json.dumps(identity))
    other = [name for name in now if found.get(name) != now[name]]
    if other:
        raise InvalidInput(
            f"the folder holds parts of another job: {', '.join(name.replace('_', ' ') for name in other)} differ",
            where=str(output),
            hint="name a new folder with --output, or remove this one",
        )


def _sweep(folder: Path) -> None:
    """Removes what a killed run left behind."""
    for path in folder.glob(".*.tmp"):
        with contextlib.suppress(OSError):
            path.unlink()
