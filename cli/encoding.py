"""Output that holds no Unicode: signs get their ASCII forms, and everything else an escape.

A terminal in the locale C, or `PYTHONIOENCODING=ascii`, would show `?` for ×, → and what names hold. In the
locale C Python writes UTF-8 all the same, unless told not to: where `LC_ALL` asks for C, the streams become
ASCII here. Signs that are one column wide stay so, because tables were laid out before they were written.
"""

from __future__ import annotations

import codecs
import json
import os
import sys
from typing import TextIO

_HANDLER = "fqfuse"

_SIGNS = {
    "×": "x",
    "→": ">",
    "…": "~",
    "–": "-",
    "−": "-",
    "∞": "inf",
    "µ": "u",
    "“": '"',
    "”": '"',
    "•": "*",
    # shades of the demo's digits, and the rules of tables
    "░": ".",
    "▒": "+",
    "▓": "*",
    "█": "#",
    "─": "-",
    "━": "-",
    "╸": "-",
    "╺": "-",
    "│": "|",
    "├": "+",
    "└": "+",
}


def use_ascii_forms(stream: TextIO) -> None:
    """From now on a text stream writes what its encoding lacks in ASCII."""
    codecs.register_error(_HANDLER, _replacement)
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is None:
        return
    if _asks_for_c():
        reconfigure(encoding="ascii", errors=_HANDLER)
    else:
        reconfigure(errors=_HANDLER)


def _asks_for_c() -> bool:
    """Whether the user asks for the locale C, and leaves it at that: `LC_ALL=C` alone, because a missing
    `LANG` says nothing (containers), and whoever tells Python how to write means it.
    """
    told = any(os.environ.get(name) for name in ("PYTHONIOENCODING", "PYTHONUTF8"))
    return os.environ.get("LC_ALL") in {"C", "POSIX"} and not told


def exact(document: str) -> str:
    """A document that is read by programs (JSON, or the text form): what standard output cannot hold
    is escaped in the way of JSON strings, so that it reads back to the same.
    """
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        document.encode(encoding)
    except UnicodeEncodeError:
        return "".join(map(_escaped, document))
    return document


def _replacement(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    found = error.object[error.start : error.end]
    return "".join(_SIGNS.get(sign) or _escaped(sign) for sign in found), error.end


def _escaped(sign: str) -> str:
    return sign if sign.isascii() else json.dumps(sign)[1:-1]
