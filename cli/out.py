"""Writing to stdout, so that a full disk or a closed pipe is told like any other wrong place for
output.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from pathlib import Path

from ..errors import InvalidInput, is_printable
from ..files import is_there

STDOUT = "standard output"

_NO_ASCII = re.compile(r"[^\n\x20-\x7e]")


def json_safe(document: str) -> str:
    """A serialized document with all that is not printable escaped in JSON's way: it reads back to
    the same, and steers no terminal.
    """
    return _NO_ASCII.sub(
        lambda found: found[0] if is_printable(found[0]) else json.dumps(found[0])[1:-1], document
    )


def write_out(text: str) -> None:
    """Writes to stdout, and makes sure that it arrives.

    Raises:
        InvalidInput: it cannot be written.
    """
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        # What is left in the buffer would fail once more when the interpreter ends.
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
        raise InvalidInput(
            f"the output cannot be written: {error.strerror or error}",
            where=STDOUT,
            hint="send it elsewhere",
        ) from error


def refuse_over(output: Path, source: Path, what: str, option: str = "--output") -> None:
    """Refuses to write over the file that was read.

    Raises:
        InvalidInput: they are the same; the message is `what`, and says which option names another.
    """
    if is_there(output) and output.samefile(source):
        raise InvalidInput(what, where=str(output), hint=f"name another file with {option}")


def sizes_of(path: Path) -> tuple[int, str]:
    """Bytes of a plan or model that was saved, and its files with theirs for a person, who has to
    copy all.
    """
    from ..plan.file import files_of

    sizes = []
    for file in files_of(path):
        with contextlib.suppress(OSError):  # another process may have replaced them by now
            sizes.append((file, file.stat().st_size))
    return sum(size for _, size in sizes), " and ".join(
        f"{file} ({size:,} bytes)" for file, size in sizes
    )
