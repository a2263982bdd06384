"""Reads a model: from a file, from bytes, or as a ModelProto."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError, EncodeError

from ..errors import InvalidInput, InvalidModel
from ..files import checked_path, unreadable
from ..ir.lifting import Lifted, lifted
from . import wire
from .budgets import Budgets
from .formats import HEAD, known_format

ModelSource = str | os.PathLike[str] | bytes | onnx.ModelProto
"""What a model may be given as."""

_NO_MODEL = "the file is no ONNX model"
_EXPORT = (
    "export the model again, or fetch the file once more: an ONNX file is a serialized ModelProto"
)


@dataclass(frozen=True)
class Source:
    """A parsed model and where it came from.

    Attributes:
        model: never changed by the import.
        folder: the only folder that external data may lie in; None when the model came without a
            file.
        label: for messages: the path, or how the model was given.
        lifted: data of initializers that is not in the model.
        named, denoted: sizes for dimensions of inputs that the model leaves open, by their name, in the file or in the
            graph, or by their denotation (in small letters).
        apart: dimensions of inputs that share a name need not be equal.
    """

    model: onnx.ModelProto
    folder: Path | None
    label: str
    lifted: Lifted = field(default_factory=dict)
    named: Mapping[str, int] = field(default_factory=dict)
    denoted: Mapping[str, int] = field(default_factory=dict)
    apart: bool = False

    def size_of(self, dim: onnx.TensorShapeProto.Dimension) -> int | None:
        """The size of a dimension of an input; None where it is open.

        Raises:
            InvalidInput: its name and its denotation have different sizes.
        """
        given = {
            sizes[key]
            for sizes, key in (
                (self.named, dim.dim_param),
                (self.denoted, dim.denotation.lower()),
            )
            if key in sizes
        }
        if dim.HasField("dim_value") and dim.dim_value != -1:
            given.add(dim.dim_value)
        if len(given) > 1:
            raise InvalidInput(
                f"a dimension called {dim.dim_param!r} ({dim.denotation!r}) is given the sizes "
                f"{', '.join(map(str, sorted(given)))}",
                hint="leave one of the overrides out",
            )
        return next(iter(given), None)


def read_model(source: ModelSource | Source, budgets: Budgets) -> Source:
    """Reads and parses a model; what is read already stays as it is.

    Raises:
        InvalidInput: no such file, a folder, not readable, or an argument of another type.
        InvalidModel: empty, truncated, no ONNX, or larger than the budget.
    """
    if isinstance(source, Source):
        return source
    if isinstance(source, onnx.ModelProto):
        return Source(_with_graph(source, "ModelProto"), None, "ModelProto")
    if isinstance(source, bytes):
        return Source(_parse(source, budgets, "bytes"), None, "bytes")
    if not isinstance(source, (str, os.PathLike)):
        raise InvalidInput(
            f"a model cannot be read from a {type(source).__name__}",
            hint="give a path, bytes, or an onnx.ModelProto",
        )
    path = checked_path(source)
    data, apart = _read(path, budgets)
    return Source(_parse(data, budgets, str(path)), path.parent, str(path), apart)


def serialized(source: bytes | onnx.ModelProto) -> bytes:
    """A model that came without a file, as one.

    Raises:
        InvalidInput: it is larger than a message may be.
    """
    if isinstance(source, bytes):
        return source
    try:
        return bytes(source.SerializeToString())
    except (ValueError, EncodeError) as error:
        raise InvalidInput(
            "the model is too large for one message",
            hint="save it with onnx.save(..., save_as_external_data=True), and give the path",
        ) from error


def _read(path: Path, budgets: Budgets) -> tuple[bytes, Lifted]:
    """The file, without the data of large initializers where it has such, and that."""
    try:
        status = path.stat()  # before opening: opening a pipe would wait for ever
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not stat.S_ISREG(status.st_mode):
            raise InvalidInput(
                "not a regular file", where=str(path), hint="give the path of an .onnx file"
            )
        budgets.check("file_bytes", status.st_size, "a model file of this size", where=str(path))
        if status.st_size > wire.SMALL and hasattr(os, "preadv"):
            with path.open("rb") as file:
                # a graph has a few fields for each node: what has far more is refused when it is parsed
                found = lifted(file.fileno(), status.st_size, 4 * budgets.nodes)
            if found is not None:
                return found
        return path.read_bytes(), {}
    except OSError as error:
        raise unreadable(path, error, "the .onnx file") from None


def _parse(data: bytes, budgets: Budgets, label: str) -> onnx.ModelProto:
    if not data:
        raise InvalidModel("the file is empty", where=label, hint=_EXPORT)
    budgets.check("file_bytes", len(data), "a model of this size", where=label)
    try:
        if len(data) > wire.SMALL:
            wire.check_fields(data, budgets)
        return _with_graph(onnx.ModelProto.FromString(data), label)
    except DecodeError:
        what, hint = f"{_NO_MODEL}, or it was cut short, or its subgraphs nest too deeply", _EXPORT
    except InvalidModel as error:
        what, hint = error.what, error.hint or _EXPORT
    # Only what is refused is looked at: a model may begin like anything.
    told = known_format(data[:HEAD], len(data)) if what.startswith(_NO_MODEL) else None
    if told is not None:
        what, hint = f"{_NO_MODEL}, but {told[0]}", told[1]
    raise InvalidModel(what, where=label, hint=hint)


def _with_graph(model: onnx.ModelProto, label: str) -> onnx.ModelProto:
    if not model.HasField("graph"):
        raise InvalidModel(f"{_NO_MODEL}: it holds no graph", where=label, hint=_EXPORT)
    return model
