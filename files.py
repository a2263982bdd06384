"""Files that a caller names: whatever was given for a path, there is the file, an OSError of the system, or InvalidInput."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

from .errors import InvalidInput

__all__ = ["checked_path", "is_folder", "is_there", "open_regular", "unreadable"]


def checked_path(path: object) -> Path:
    """The path that a `str` or `os.PathLike` stands for.

    Raises:
        InvalidInput: it is something else, or no file can have this name.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise InvalidInput(f"a {type(path).__name__} names no file", hint="give the path as a str or a pathlib.Path")
    try:
        name = os.fspath(path)
    except Exception as error:  # the caller's own object is asked, and may raise anything
        raise InvalidInput(f"a {type(path).__name__} names no file: {error}", hint="give the path as a str or a pathlib.Path") from error
    if not isinstance(name, str) or not name:
        what = "the name of a file is empty" if not name else f"{path!r} names a file by bytes"
        raise InvalidInput(what, hint="give the path as a str or a pathlib.Path")
    try:
        encoded = os.fsencode(name)
    except UnicodeEncodeError:
        encoded = b"\0"
    if b"\0" in encoded:
        what = "the name of a file cannot be read: it holds a null character, or what is no character"
        raise InvalidInput(what, where=name, hint="name another")
    return Path(name)


def is_there(path: Path) -> bool:
    """True for a file or folder of any kind; False where the system says otherwise, as of a name that is too long."""
    try:
        return path.exists()
    except OSError:
        return False


def is_folder(path: Path) -> bool:
    """True for a folder that can be seen."""
    try:
        return path.is_dir()
    except OSError:
        return False


def open_regular(path: object) -> BinaryIO:
    """Opens a regular file for reading; what is none is not opened: a pipe would wait for ever, a device have no end.

    Raises:
        OSError: there is no such file, it is not regular, or may not be read.
        InvalidInput: as `checked_path`.
    """
    found = checked_path(path)
    mode = found.stat().st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "it is not a regular file")
    return found.open("rb")


def unreadable(path: object, error: OSError, wanted: str) -> InvalidInput:
    """What a caller is told of a file that cannot be opened.

    Args:
        path: as the caller named it.
        error: what the system said.
        wanted: the file that should have been named, as "the .onnx file".
    """
    match error:
        case FileNotFoundError() | NotADirectoryError():
            what, hint = "there is no such file", "check the path"
        case IsADirectoryError():
            what, hint = "this is a folder, not a file", f"give the path of {wanted} in it"
        case PermissionError():
            what, hint = "the file may not be read", "change its permissions, or copy it"
        case _:
            what, hint = f"the file cannot be read: {error.strerror or error}", "check the path and the disk"
    return InvalidInput(what, where=str(path), hint=hint)
