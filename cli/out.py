"""Writing to stdout, so that a full disk or a closed pipe is told like any other wrong place for output."""

from __future__ import annotations

import os
import sys

from ..errors import InvalidInput

__all__ = ["STDOUT", "write_out"]

STDOUT = "standard output"


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
        raise InvalidInput(f"the output cannot be written: {error.strerror or error}", where=STDOUT, hint="send it elsewhere") from error
