"""Reads the inputs of a model from .npy and .npz files. Nothing is ever unpickled."""

from __future__ import annotations

import tokenize
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.lib.npyio import NpzFile

from ..errors import InvalidInput
from ..files import is_folder, is_there, open_regular, unreadable
from ..ir.ops.spec import Array
from .options import place

_NPY, _NPZ = b"\x93NUMPY", b"PK"
_DAMAGED = (
    OSError,
    ValueError,
    EOFError,
    KeyError,
    NotImplementedError,
    RuntimeError,
    zipfile.BadZipFile,
    zlib.error,
    # a header is Python's own text for NumPy, and sizes in it may be negative, huge or no integers
    tokenize.TokenError,
    SyntaxError,
    OverflowError,
    TypeError,
)


@dataclass(frozen=True)
class Feed:
    """An array for an input, and the file it came from."""

    array: Array
    file: Path


def read_feeds(arguments: Iterable[str], inputs: Sequence[str]) -> dict[str, Feed]:
    """The arrays that the values of `--input` name.

    Args:
        arguments: `name=x.npy`, `x.npy` (the model has one input), or `feeds.npz` (its names are
            those of inputs).
        inputs: the inputs of the model.

    Raises:
        InvalidInput: a file cannot be read, a name is none of the model's inputs, or an input is
            given twice or not at all.
    """
    feeds: dict[str, Feed] = {}
    for argument in arguments:
        name, path = _parsed(argument, inputs)
        for key, array in _arrays(name, path, inputs).items():
            if key in feeds:
                raise InvalidInput(
                    f"the input {key} is given twice",
                    where=f"{feeds[key].file} and {path}",
                    hint="leave one of them out",
                )
            feeds[key] = Feed(array, path)
    missing = [name for name in inputs if name not in feeds]
    if missing:
        first = missing[0]
        hint = f"add --input {first}=FILE.npy" + (
            ", and the others alike" if len(missing) > 1 else ""
        )
        raise InvalidInput(
            f"missing inputs: {', '.join(missing)}",
            where=place("--input"),
            hint=f"{hint} ({_listed(inputs)})",
        )
    return feeds


def read_samples(data: Path, inputs: tuple[str, ...]) -> Iterator[dict[str, Array]]:
    """The arrays of a file, or of each .npz and .npy file in a folder.

    Raises:
        InvalidInput: as `read_feeds`; or the folder holds none.
    """
    files = [data]
    if is_folder(data):
        files = sorted(path for path in data.iterdir() if path.suffix in (".npz", ".npy"))
        if not files:
            raise InvalidInput(
                "the folder holds no .npz and no .npy file",
                where=str(data),
                hint="write one .npz file for each sample, with an array for each input",
            )
    for file in files:
        yield {name: feed.array for name, feed in read_feeds([str(file)], inputs).items()}


def _parsed(argument: str, inputs: Sequence[str]) -> tuple[str | None, Path]:
    """(name, path) of `name=path`, (None, path) of a path; both may hold further `=`."""
    for name in inputs:
        if argument.startswith(f"{name}="):
            return name, Path(argument[len(name) + 1 :])
    name, equals, _ = argument.partition("=")
    if equals and not is_there(Path(argument)):
        raise InvalidInput(
            f"the model has no input {name!r}", where=f"--input {argument}", hint=_listed(inputs)
        )
    return None, Path(argument)


def _arrays(name: str | None, path: Path, inputs: Sequence[str]) -> Mapping[str, Array]:
    """The arrays in one file by the names of inputs."""
    try:
        with open_regular(path) as file:
            magic = file.read(len(_NPY))
    except OSError as error:
        raise unreadable(path, error, "the .npy or .npz file") from error
    if magic.startswith(_NPZ):
        return _archive(name, path, inputs)
    if magic != _NPY:
        raise InvalidInput(
            "the file is neither .npy nor .npz",
            where=str(path),
            hint="write it with numpy.save or numpy.savez",
        )
    if name is None and len(inputs) != 1:
        hint = f"write --input NAME={path} ({_listed(inputs)})"
        raise InvalidInput(
            f"the model has {len(inputs)} inputs, and nothing says which one this is for",
            where=str(path),
            hint=hint,
        )
    return {inputs[0] if name is None else name: _loaded(path)}


def _loaded(path: Path) -> Array:
    try:
        # Mapped, a file shorter than its header claims is refused before memory for it is asked
        # for.
        mapped = np.load(path, mmap_mode="r", allow_pickle=False)
        return _native(np.array(mapped))
    except _DAMAGED as error:
        raise _damaged(path, error) from error


def _archive(name: str | None, path: Path, inputs: Sequence[str]) -> dict[str, Array]:
    if name is not None:
        hint = f"write --input {path}: the names are taken from the archive"
        raise InvalidInput(
            "an .npz archive holds named arrays, so it takes no name",
            where=f"--input {name}={path}",
            hint=hint,
        )
    try:
        # Opened here: numpy leaves a file that it opens itself open when the archive turns out to
        # be broken.
        with open_regular(path) as file, np.load(file, allow_pickle=False) as archive:
            unknown = [key for key in archive.files if key not in inputs]
            if unknown:
                what = f"the archive holds arrays that are no inputs of the model: {', '.join(unknown)}"
                raise InvalidInput(what, where=str(path), hint=_listed(inputs))
            if len(set(archive.files)) < len(archive.files):
                raise ValueError("two arrays have one name")
            return {key: _member(archive, key) for key in archive.files}
    except _DAMAGED as error:
        raise _damaged(path, error) from error


def _member(archive: NpzFile, key: str) -> Array:
    """One array of an archive; for anything else NumPy gives the bytes."""
    found = archive[key]
    if not isinstance(found, np.ndarray):
        raise ValueError(f"what it holds of {key} is no array")
    return _native(found)


def _damaged(path: Path, error: Exception) -> InvalidInput:
    if "allow_pickle" in str(error) or "Python objects" in str(error):
        hint = "save plain arrays: strings as numpy.str_, numbers as their type"
        return InvalidInput(
            "the file holds Python objects, and fqfuse never unpickles anything",
            where=str(path),
            hint=hint,
        )
    return InvalidInput(
        f"the file is damaged: {error}",
        where=str(path),
        hint="write it again with numpy.save or numpy.savez",
    )


def _native(array: Array) -> Array:
    """The array in the byte order of this machine."""
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _listed(inputs: Sequence[str]) -> str:
    return f"the model's inputs are: {', '.join(inputs) or 'none'}"
