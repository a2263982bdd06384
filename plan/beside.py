"""The constants of a plan beyond 2 GiB, which no ONNX file holds: a second file beside the plan's.

The file's name ends in its own SHA-256, and the plan says that name. So both change in one step: the
new data is written under its own name, then the plan that names it is put into its place, and data
that no plan names goes last. A crash leaves the old plan with its data, or the new one, and what it
leaves behind goes with the next save. Models for other runtimes are written in the same way.

The data is mapped into memory, not read: pages that a session has packed for its kernels, or never
asks for, need not stay.
"""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ..errors import InvalidInput, PlanError
from ..files import TEMPORARY, checked_path, saving, unreadable, write_atomically
from ..ir.constants import Halves
from ..ir.lifting import stored_pieces
from ..ir.ops.spec import Array
from .seal import entry

ALIGNED: Final = 4096
"""A page: where a constant can be mapped, and used as it is."""

DATA: Final = "fqfuse.data"
"""The key in a model's metadata under which the name of its data stands."""

_PIECE: Final = 1 << 24
_NAME: Final = re.compile(r"[^/\\\0]{1,200}\.([0-9a-f]{64})\.data")


@dataclass(frozen=True)
class Beside:
    """Where the data of constants lies.

    Attributes:
        location: the file's name, in the folder of the plan.
        places: constant -> its first byte there, and how many there are.
    """

    location: str
    places: Mapping[str, tuple[int, int]]


def write_beside(path: str | os.PathLike[str], constants: Mapping[str, Array | Halves]) -> Beside:
    """Writes constants beside a plan file that is still to be written, within `replacing`.

    Raises:
        InvalidInput: the file cannot be written.
    """
    target = _real(checked_path(path))
    places, end = {}, 0
    for name, data in constants.items():
        start = end + -end % ALIGNED
        places[name], end = (start, data.nbytes), start + data.nbytes
    arrays = list(constants.values())
    digest = hashlib.sha256()
    for piece in _pieces(arrays):
        digest.update(piece)
    location = f"{target.name}.{digest.hexdigest()}.data"
    if _NAME.fullmatch(location) is None:
        raise InvalidInput(
            f"no data can lie beside a file of the name {target.name!r}"[:300],
            where=str(path),
            hint="choose a shorter name",
        )
    write_atomically(_beside(target, location), _pieces(arrays))
    return Beside(location, places)


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[None]:
    """Within the block a plan or model is written, with data beside it or without. When no other save
    is under way in the folder, what nothing needs goes last: data that was written beside this name
    and that no file of the folder names, and what killed saves had begun.
    """
    target = _real(checked_path(path))
    with saving(target.parent) as is_alone:
        try:
            yield
        finally:
            if is_alone():
                _sweep(target)


def _sweep(target: Path) -> None:
    """What cannot be removed stays."""
    with contextlib.suppress(OSError):
        files = {path.name: path for path in target.parent.iterdir() if path.is_file()}
        begun = {name for name in files if TEMPORARY.fullmatch(name)}
        data = {name for name in files if _is_data_of(target, name)}
        # a copy of a plan names the data of what it was copied from
        whole = files.keys() - begun - data if data else ()
        for name in begun | data - {data_of(files[name]) for name in whole}:
            with contextlib.suppress(OSError):
                files[name].unlink()


def _is_data_of(target: Path, name: str) -> bool:
    return _NAME.fullmatch(name) is not None and name.rpartition(".data")[0][:-65] == target.name


def data_of(path: str | os.PathLike[str]) -> str:
    """The name of the data that a plan or model says lies beside it; '' where it says none, or is no
    such file.
    """
    with contextlib.suppress(InvalidInput):
        found = entry(path, DATA)
        return found if _NAME.fullmatch(found) else ""
    return ""


def _real(path: Path) -> Path:
    """Behind links; `Path.resolve` raises where these lead around in a circle."""
    return Path(os.path.realpath(path))


def _beside(path: Path, location: str) -> Path:
    return _real(path).with_name(location)


def _pieces(arrays: Sequence[Array | Halves]) -> Iterator[memoryview]:
    """The content of the file: each constant at the beginning of a page."""
    end = 0
    for data in arrays:
        yield memoryview(bytes(-end % ALIGNED))
        end += -end % ALIGNED + data.nbytes
        yield from stored_pieces(data)


def mapped(path: str | os.PathLike[str], location: str) -> memoryview:
    """The content of the file beside a plan, as its name says it.

    Raises:
        PlanError: it has a name that plans do not give, is not there, is no regular file, or holds
            something else.
    """
    found = _NAME.fullmatch(location)
    if found is None:
        raise PlanError(
            f"the plan's constants lie in {location[:200]!r}, which is no name that fqfuse gives",
            hint="compile the model again with this version of fqfuse",
        )
    file = _beside(checked_path(path), location)
    content = _opened(file)
    digest = hashlib.sha256()
    for start in range(0, len(content), _PIECE):
        digest.update(content[start : start + _PIECE])
    if digest.hexdigest() != found[1]:
        raise PlanError(
            "the data beside the plan is cut off or damaged",
            where=str(file),
            hint="copy it again, or compile the model again",
        )
    return content


def _opened(file: Path) -> memoryview:
    # not a link: a plan must not make a process read what its author cannot
    flags = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)  # Windows has neither
    if not hasattr(os, "O_NOFOLLOW") and file.is_symlink():
        raise PlanError(
            "the data beside the plan is a link",
            where=str(file),
            hint="copy the file itself beside the plan",
        )
    try:
        handle = os.open(file, os.O_RDONLY | flags)
        try:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode) or not status.st_size:
                raise PlanError(
                    "the data beside the plan is no regular file, or empty",
                    where=str(file),
                    hint="copy it again, or compile the model again",
                )
            return memoryview(mmap.mmap(handle, status.st_size, access=mmap.ACCESS_READ))
        finally:
            os.close(handle)
    except OSError as error:
        why = unreadable(file, error, "the plan's data")
        raise PlanError(
            f"the data beside the plan cannot be read: {why.what}",
            where=str(file),
            hint="a plan of more than 2 GiB has a second file, which has to lie beside it",
        ) from error
