"""What the readers of all formats share: what they are told, and what they find."""

from __future__ import annotations

import errno
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from tokenize import TokenError
from typing import Any

from ..ir.ops.spec import Array
from .signature import Signature

DAMAGED = (
    OSError,
    ValueError,  # pyarrow.ArrowInvalid among them
    EOFError,
    KeyError,
    NotImplementedError,
    RuntimeError,
    SyntaxError,  # Pillow, of a broken PNG
    TokenError,  # NumPy, of a broken header
    zipfile.BadZipFile,
    zlib.error,
)
"""What libraries raise of a file whose content is not what it says. An OSError of the system (with
an errno) is no damage: the file may be readable tomorrow. EINVAL is one: the content names a place in
the file that no file has."""


def is_damage(error: BaseException) -> bool:
    """True for what is wrong with a file's content, and will be as long as the file is the same."""
    return isinstance(error, DAMAGED) and getattr(error, "errno", None) in (None, errno.EINVAL)


def damage(error: BaseException) -> str:
    """The reason of rows that a damaged file holds."""
    return f"the file is damaged: {error}" if str(error) else "the file is damaged"


@dataclass(frozen=True)
class Pixels:
    """How an image becomes an array.

    Attributes:
        fit: `cover` resizes so that height and width are covered and cuts the middle out,
            `stretch` resizes to exactly these, `exact` takes images of this size alone.
        mean, std: of a float input, for each channel or for all: (pixel / 255 - mean) / std.
    """

    fit: str = "cover"
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)


@dataclass(frozen=True)
class Reading:
    """What is read.

    Attributes:
        columns: the column or array for each input, where it is not called like the input.
        keep: columns that are passed on to the output.
        pixels: of images.
    """

    columns: Mapping[str, str] = field(default_factory=dict)
    keep: tuple[str, ...] = ()
    pixels: Pixels = field(default_factory=Pixels)

    def column(self, name: str) -> str:
        """The column for an input."""
        return self.columns.get(name, name)


@dataclass(frozen=True)
class Found:
    """Consecutive rows of a file.

    Attributes:
        stop: number in the file of the first row behind them.
        numbers: in the file, of the rows that can be fed.
        feeds: these rows, an array for each input.
        bad: number and reason of the others.
        kept: a pyarrow.RecordBatch with the columns to keep of the rows that can be fed.
    """

    stop: int
    numbers: Array
    feeds: Mapping[str, Array]
    bad: tuple[tuple[int, str], ...] = ()
    kept: Any = None


@dataclass(frozen=True)
class Wanted:
    """What a reader has to find: the inputs' rows, and how they are called."""

    signature: Signature
    reading: Reading
