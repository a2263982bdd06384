"""Files that a caller names, read and written. What is wrong with one is an OSError of the system,
or InvalidInput.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from .errors import InvalidInput

if TYPE_CHECKING:
    from zipfile import ZipInfo


def checked_path(path: object) -> Path:
    """The path that a `str` or `os.PathLike` stands for.

    Raises:
        InvalidInput: it is something else, or no file can have this name.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise InvalidInput(
            f"a {type(path).__name__} names no file",
            hint="give the path as a str or a pathlib.Path",
        )
    try:
        name = os.fspath(path)
    except Exception as error:  # the caller's own object is asked, and may raise anything
        raise InvalidInput(
            f"a {type(path).__name__} names no file: {error}",
            hint="give the path as a str or a pathlib.Path",
        ) from error
    if not isinstance(name, str) or not name:
        what = "the name of a file is empty" if not name else f"{path!r} names a file by bytes"
        raise InvalidInput(what, hint="give the path as a str or a pathlib.Path")
    try:
        encoded = os.fsencode(name)
    except UnicodeEncodeError:
        encoded = b"\0"
    if b"\0" in encoded:
        what = (
            "the name of a file cannot be read: it holds a null character, or what is no character"
        )
        raise InvalidInput(what, where=name, hint="name another")
    return Path(name)


def is_there(path: Path) -> bool:
    """True for a file or folder of any kind; False where the system says otherwise, as of a name
    that is too long.
    """
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
    """Opens a regular file for reading; what is none is not opened: a pipe would wait for ever, a
    device have no end.

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
            what, hint = (
                f"the file cannot be read: {error.strerror or error}",
                "check the path and the disk",
            )
    return InvalidInput(what, where=str(path), hint=hint)


# -- writing ---------------------------------------------------------------------------------------

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


TEMPORARY: Final = re.compile(r"\.fqfuse-[0-9a-f]{16}\.tmp")
"""The name of a file that is not complete."""

_WAIT = 60  # seconds; a save keeps the folder for itself as long as it takes to remove a few files


def write_atomically(
    path: str | os.PathLike[str],
    data: bytes | memoryview | Iterable[memoryview],
    *,
    lasting: bool = True,
) -> None:
    """Writes a file: first into a new file beside it, then in one step to its place, so that a
    crash leaves the old one or the new one.

    A symbolic link keeps pointing where it points, and an existing file keeps its permissions to
    read, write and execute, but not setuid,
    setgid and the sticky bit: they were given to what the file held. A new one gets the permissions
    of the umask.

    Args:
        path: of the file.
        data: all of it, or its pieces in order.
        lasting: wait until it would outlast a power cut. Otherwise that may leave a file of any
            content: one that nobody would miss, and whose reader notices.

    Raises:
        InvalidInput: the path cannot be written; nothing half-written stays behind.
    """
    target = Path(os.path.realpath(checked_path(path)))
    try:
        pieces = [memoryview(data)] if isinstance(data, (bytes, memoryview)) else data
        with saving(target.parent):
            _write(target, pieces, lasting=lasting)
    except OSError as error:
        hint = _HINTS.get(error.errno or 0, "name another path")
        raise InvalidInput(
            f"the file cannot be written: {error.strerror or error}", where=str(path), hint=hint
        ) from error


def _write(target: Path, pieces: Iterable[memoryview], *, lasting: bool) -> None:
    mode = _mode_of(target)
    beside = target.with_name(f".fqfuse-{secrets.token_hex(8)}.tmp")  # as `TEMPORARY` has it
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
    # Windows would write another byte in front of each line end
    handle = os.open(beside, flags | getattr(os, "O_BINARY", 0), 0o666)
    try:
        with os.fdopen(handle, "wb", buffering=0) as file:
            for piece in pieces:
                _write_all(file.fileno(), piece)
            if mode is not None and hasattr(os, "fchmod"):  # Windows has no such permissions
                os.fchmod(file.fileno(), mode)
            if lasting:
                os.fsync(file.fileno())
        beside.replace(target)
    except BaseException:  # also an interrupt must not leave the half-written file
        with contextlib.suppress(OSError):
            beside.unlink()
        raise
    if lasting:
        sync_folder(target.parent)


@contextlib.contextmanager
def saving(folder: Path) -> Iterator[Callable[[], bool]]:
    """As long as the block runs, no other save removes what this one has begun in a folder.

    Saves share a lock of the system's on the folder, which ends with their process however that
    ends. Some file systems have none.

    Yields:
        A function, to be called last: True when no other save is under way there, nor begins before
        the block ends. Then what a killed one left behind may go.

    Raises:
        InvalidInput: another program keeps the folder for itself.
    """
    handle = _shared(folder)

    def is_alone() -> bool:
        try:
            return handle is not None and _locks(handle, "LOCK_EX")
        except OSError:
            return False

    try:
        yield is_alone
    finally:
        if handle is not None:
            _locks(handle, "LOCK_UN")  # a forked child may have the descriptor, too
            os.close(handle)


def _shared(folder: Path) -> int | None:
    """A descriptor that has a share in the lock of a folder; None: there is no lock, or no folder."""
    try:
        handle = os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
    except OSError:  # Windows opens no folders
        return None
    end = time.monotonic() + _WAIT
    try:
        while not _locks(handle, "LOCK_SH"):
            if time.monotonic() > end:
                break
            time.sleep(0.001)
        else:
            return handle
    except OSError:  # the file system has no locks
        os.close(handle)
        return None
    except BaseException:
        os.close(handle)
        raise
    os.close(handle)
    raise InvalidInput(
        "another program has locked the folder",
        where=str(folder),
        hint="end that program, or name another path",
    )


def _locks(handle: int, kind: str) -> bool:
    """Takes a lock of the system's, or gives it back; False: another process has one that rules it out.

    Raises:
        OSError: the system or the file system has no locks.
    """
    if sys.platform == "win32":
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))
    import fcntl

    try:
        fcntl.flock(handle, getattr(fcntl, kind) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


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
    # replacing /dev/null or a pipe would take it away from everyone else
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file")
    return found.st_mode & (stat.S_IRWXU | stat.S_IRWXG | stat.S_IRWXO)


def sync_folder(folder: Path) -> None:
    """Makes the new name durable, where the file system can do that."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


# the first date a ZIP archive knows: the same arrays give the same bytes
_LONG_AGO = (1980, 1, 1, 0, 0, 0)
_LONGEST_MEMBER = 65_535  # bytes of a name, which has its length in 16 bits


def archive_member(name: str) -> ZipInfo:
    """The entry of an .npz archive for an array of this name.

    Raises:
        InvalidInput: no archive can hold this name.
    """
    member = f"{name}.npy"
    if "\0" in member:  # names end there
        raise InvalidInput(
            "an .npz archive has no names with a NUL in them",
            where=name,
            hint="rename it in the model",
        )
    if len(member.encode()) > _LONGEST_MEMBER:
        raise InvalidInput(
            f"an .npz archive has no names of more than {_LONGEST_MEMBER:,} bytes",
            where=name,
            hint="rename it in the model",
        )
    # Imported here: all that names files would load the decompressors, too.
    from zipfile import ZipInfo

    return ZipInfo(member, _LONG_AGO)
