"""What a worker has to know, whichever process or machine it is on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .parts import Part, Piece
from .reading import Wanted
from .rows import BadRow

PLAN = "plan.onnx"
RECORDS = "_batch"
"""The folder in the output that knows what is done; readers of data sets leave out what begins
with `_`."""

PARTS_AT_ONCE = 2
"""Of a process: one is computed, the one before is written."""


@dataclass(frozen=True)
class Job:
    """A plan, its data and the place of the output.

    Attributes:
        data: the folder that the pieces' files are relative to.
        format: of the data, a name of `sources.FORMATS`.
        wanted: what a row holds, and how it is read.
        output: the folder.
        backend: of each worker's session.
        threads: of each worker, which run a batch each.
    """

    data: Path
    format: str
    wanted: Wanted
    output: Path
    backend: str
    threads: int

    @property
    def plan(self) -> Path:
        """The plan's file."""
        return self.output / RECORDS / PLAN

    @property
    def suffix(self) -> str:
        """Of the output's files."""
        return ".parquet" if self.format == "parquet" else ".npz"

    def file_of(self, part: int) -> Path:
        """The output of a part."""
        return self.output / f"part-{part:05}{self.suffix}"

    def record_of(self, part: int) -> Path:
        """What says that a part is done."""
        return self.output / RECORDS / f"part-{part:05}.json"


@dataclass(frozen=True)
class Record:
    """A part that is done.

    Attributes:
        part: its number.
        rows: of the data.
        written: of the output.
        bytes: of the output's file; 0: there is none, for no row is good.
        digest: its SHA-256, or ''.
        bad: the rows that have no result.
    """

    part: int
    rows: int
    written: int
    bytes: int
    digest: str
    bad: tuple[BadRow, ...]

    def text(self) -> str:
        """As JSON."""
        return json.dumps(asdict(self))


def record_from(text: str | bytes) -> Record:
    """A record that `Record.text` wrote.

    Raises:
        ValueError, TypeError, KeyError: the text is none.
    """
    found: Mapping[str, Any] = json.loads(text)
    return Record(**{**found, "bad": tuple(BadRow(**row) for row in found["bad"])})


def part_text(part: Part) -> str:
    """A part as JSON, to be sent."""
    return json.dumps(asdict(part))


def part_from(text: str) -> Part:
    """What `part_text` wrote."""
    found = json.loads(text)
    return Part(found["index"], found["first"], tuple(Piece(**piece) for piece in found["pieces"]))
