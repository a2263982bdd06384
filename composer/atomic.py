"""Writing a file so that either all of it is there or nothing has changed."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from pathlib import Path

from ..errors import InvalidInput
from ..files import checked_path

__all__ = ["write_atomically"]

_HINTS = {
    errno.ENOENT: "create the folder first, or name another path",
    errno.ENOTDIR: "a part of the path is a file: name another path",
    errno.EACCES: "get the right to write into the folder, or name another path",
    errno.EPERM: "get the right to write into the folder, or name another path",
    errno.EROFS: "the file system is read-only: name another path",
    errno.ENOSPC: "free some space, or name another path",
    errno.EDQUOT: "free some space, or name another path",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.EISDIR: "it is a folder: name a file in it",
}


def write_atomically(path: str | os.PathLike[str], data: bytes | memoryview) -> None:
    """Writes a file: first into a new file beside it, then in one step to its place, so that a crash leaves the old one or the new one.

    A symbolic link keeps pointing where it points, and an existing file keeps its permissions to read, write and execute, but not setuid,
    setgid and the sticky bit: they were given to what the file held. A new one gets the permissions of the umask.

    Raises:
        InvalidInput: the path cannot be written; nothing half-written stays behind.
    """
    target = checked_path(path)
    try:
        _write(Path(os.path.realpath(target)), data)
    except OSError as error:
        hint = _HINTS.get(error.errno or 0, "name another path")
        raise InvalidInput(f"the file cannot be written: {error.strerror or error}", where=str(path), hint=hint) from error


def _write(target: Path, data: bytes | memoryview) -> None:
    mode = _mode_of(target)
    beside = target.with_name(f".fqfuse-{secrets.token_hex(8)}.tmp")
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o666)
    try:
        with os.fdopen(handle, "wb", buffering=0) as file:
            _write_all(file.fileno(), memoryview(data))
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        beside.replace(target)
    except BaseException:  # also an interrupt must not leave the half-written file
        with contextlib.suppress(OSError):
            beside.unlink()
        raise
    _sync_folder(target.parent)


def _write_all(handle: int, data: memoryview) -> None:
    done = 0
    while done < len(data):
        done += os.write(handle, data[done : done + (1 << 28)])


def _mode_of(target: Path) -> int | None:
    """The permissions of the file that will be replaced, or None when there is none yet."""
    try:
        found = target.stat()
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(found.st_mode):  # replacing /dev/null or a pipe would take it away from everyone else
        raise OSError(errno.EINVAL, "it is not a regular file")
    return found.st_mode & (stat.S_IRWXU | stat.S_IRWXG | stat.S_IRWXO)


def _sync_folder(folder: Path) -> None:
    """Makes the new name durable, where the file system can do that."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
