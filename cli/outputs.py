"""Writes the outputs of a model: into one .npz archive, one .npy file, or a folder with one .npy
file for each. All or nothing.
"""

from __future__ import annotations

import contextlib
import io
import re
import secrets
import unicodedata
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from ..errors import InvalidInput, is_printable
from ..files import archive_member, is_folder, is_there, write_atomically
from ..ir.ops.spec import Array

_LONGEST = 200  # bytes of a file's name, of 255 that file systems allow
_DEVICES = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\.|$)", re.IGNORECASE)  # of Windows


def check_destination(path: Path, outputs: Sequence[str]) -> None:
    """Refuses, before anything is computed, a place where outputs cannot be written.

    Raises:
        InvalidInput: no such folder, or a form that does not fit the outputs.
    """
    if not is_folder(path.parent):
        raise InvalidInput(
            "the folder of the output does not exist",
            where=str(path),
            hint=f"create {path.parent}, or name another place",
        )
    if _is_folder(path):
        if is_there(path) and not is_folder(path):
            raise InvalidInput(
                "the output is neither .npz nor .npy, and no folder",
                where=str(path),
                hint="name a file *.npz or *.npy, or a folder",
            )
        return
    if path.suffix not in (".npz", ".npy"):
        hint = "name a file *.npz or *.npy, or a folder"
        raise InvalidInput(f"outputs are not written as {path.suffix}", where=str(path), hint=hint)
    if path.suffix == ".npy" and len(outputs) != 1:
        hint = f"name {path.with_suffix('.npz').name} or a folder"
        raise InvalidInput(
            f"the model has {len(outputs)} outputs, and an .npy file holds one array",
            where=str(path),
            hint=hint,
        )


def write_outputs(outputs: Mapping[str, Array], path: Path) -> dict[str, Path]:
    """Writes arrays to a destination that `check_destination` let through.

    Returns:
        Output -> the file that holds it.

    Raises:
        InvalidInput: it cannot be written; then nothing new is there, and what was there is
            untouched.
    """
    if _is_folder(path):
        files = _file_names(outputs, path)
        _write_folder(path, {files[name]: _npy(array) for name, array in outputs.items()})
        return files
    if path.suffix == ".npy":
        ((name, array),) = outputs.items()
        write_atomically(path, _npy(array))
        return {name: path}
    write_atomically(path, _npz(outputs))
    return dict.fromkeys(outputs, path)


def _is_folder(path: Path) -> bool:
    return is_folder(path) or not path.suffix


def _file_names(outputs: Mapping[str, Array], folder: Path) -> dict[str, Path]:
    """A file for each output: its name, with `_` for what file systems, shells or terminals do not
    like, and a number where two would be the same, if only on a system that takes `Y` for `y`.
    """
    files: dict[str, Path] = {}
    taken: set[str] = set()
    last: dict[str, int] = {}
    for name in outputs:
        stem = file = _stem(name)
        start = _as_one(stem)
        number = last.get(start, 1)
        while _as_one(file) in taken:
            number += 1
            file = f"{stem}.{number}"
        last[start] = number
        taken.add(_as_one(file))
        files[name] = folder / f"{file}.npy"
    return files


def _stem(name: str) -> str:
    kept = "".join(c if is_printable(c) else "_" for c in re.sub(r"[^\w.+-]", "_", name[:_LONGEST]))
    stem = kept.lstrip(".").encode()[:_LONGEST].decode(errors="ignore") or "output"
    return f"_{stem}" if _DEVICES.match(stem) else stem


def _as_one(name: str) -> str:
    """The same for names that some file system holds for one."""
    return unicodedata.normalize("NFC", name).casefold()


def _write_folder(folder: Path, contents: Mapping[Path, bytes]) -> None:
    created = not folder.exists()
    waiting: dict[Path, Path] = {}
    try:
        folder.mkdir(exist_ok=True)
        for file, data in contents.items():
            if file.is_dir():
                raise InvalidInput(
                    "the file cannot be written: a folder has its name",
                    where=str(file),
                    hint="name another folder",
                )
            beside = file.with_name(f".{secrets.token_hex(8)}.tmp")
            write_atomically(beside, data)
            waiting[beside] = file
        for (
            beside,
            file,
        ) in waiting.items():  # only now: a disk that fills up must not leave half of the outputs
            beside.replace(file)
    except OSError as error:
        what = f"the outputs cannot be written: {error.strerror or error}"
        raise InvalidInput(
            what, where=str(folder), hint="check the folder and its permissions, or name another"
        ) from error
    finally:
        for beside in waiting:
            beside.unlink(missing_ok=True)
        if created:
            with contextlib.suppress(OSError):  # it stays where it holds outputs
                folder.rmdir()


def _npy(array: Array) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, _plain(array), allow_pickle=False)
    return buffer.getvalue()


def _npz(outputs: Mapping[str, Array]) -> bytes:
    # numpy.savez takes names as keyword arguments, and an output may be called `file`.
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, array in outputs.items():
            archive.writestr(archive_member(name), _npy(array))
    return buffer.getvalue()


def _plain(array: Array) -> Array:
    """Strings as fixed-width Unicode: object arrays could only be pickled."""
    return array.astype(np.str_) if array.dtype.kind == "O" else array
