"""What a file is that is no ONNX model, by its first bytes: for a message that says what to do
instead.
"""

from __future__ import annotations

import codecs
import unicodedata
from typing import Final

HEAD: Final = 4096
"""Bytes that are looked at."""

_Told = tuple[str, str]

_ONNX_FILE: Final = "give the model's .onnx file"
_UNPACK: Final = "unpack it, and give the .onnx file in it"
_TORCH: Final = "load it in PyTorch, and export the model with torch.onnx.export"
_ARRAYS: Final = "arrays are inputs of a run; give the .onnx file of the model"

_MAGIC: Final[tuple[tuple[int, bytes, _Told], ...]] = (
    (
        4,
        b"TFL3",
        (
            "a TensorFlow Lite model",
            "convert it: python -m tf2onnx.convert --tflite FILE --output model.onnx",
        ),
    ),
    (
        4,
        b"ORTM",
        ("a model in the format of ONNX Runtime", "give the .onnx file that it was made from"),
    ),
    (
        0,
        b"\x89HDF\r\n\x1a\n",
        ("an HDF5 file, as Keras writes it", "load it in Keras, and export the model with tf2onnx"),
    ),
    (
        0,
        b"GGUF",
        ("a GGUF file, as llama.cpp reads it", "export the model that it was made from to ONNX"),
    ),
    (0, b"\x93NUMPY", ("a NumPy array", _ARRAYS)),
    (0, b"\x1f\x8b", ("a gzip archive", _UNPACK)),
    (0, b"BZh", ("a bzip2 archive", _UNPACK)),
    (0, b"\xfd7zXZ\x00", ("an xz archive", _UNPACK)),
    (0, b"\x28\xb5\x2f\xfd", ("a Zstandard archive", _UNPACK)),
    (0, b"7z\xbc\xaf\x27\x1c", ("a 7z archive", _UNPACK)),
    (0, b"Rar!\x1a\x07", ("a RAR archive", _UNPACK)),
    (0, b"\x89PNG\r\n", ("a picture", _ONNX_FILE)),
    (0, b"\xff\xd8\xff", ("a picture", _ONNX_FILE)),
    (0, b"%PDF-", ("a PDF document", _ONNX_FILE)),
    (257, b"ustar", ("a tar archive", _UNPACK)),
)
"""(place, bytes there, what such a file is and what to do)."""

_LFS: Final = "version https://git-lfs.github.com/spec/"


def known_format(head: bytes, size: int) -> _Told | None:
    """What a file is.

    Args:
        head: its first `HEAD` bytes, or all.
        size: how many bytes it has.

    Returns:
        What it is, as "a text file", and what the user can do; None when it is nothing that is
        known here.
    """
    for place, magic, told in _MAGIC:
        if head[place : place + len(magic)] == magic:
            return told
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return _zip(head)
    if head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        return "a Python pickle, as older PyTorch writes it", _TORCH
    if head[8:9] == b"{" and int.from_bytes(head[:8], "little") <= size - 8:
        return (
            "a safetensors file, which holds weights and no graph",
            "load it where it was made, and export the model to ONNX",
        )
    text = _text(head, size)
    return None if text is None else _text_format(text)


def _zip(head: bytes) -> _Told:
    # Names of the first entries; the directory at the end is not needed to tell these.
    if b"data.pkl" in head or b"/constants.pkl" in head or b"archive_format" in head:
        return "a PyTorch file", _TORCH
    if b".npy" in head[:128]:
        return "an archive of NumPy arrays", _ARRAYS
    if b"config.json" in head or b"model.weights.h5" in head:
        return "a Keras model", "load it in Keras, and export the model with tf2onnx"
    return "a zip archive", _UNPACK


def _text(head: bytes, size: int) -> str | None:
    """The beginning as text; None when it is none. What is printable in UTF-8 or UTF-16 with a mark
    is text.
    """
    encoding = (
        "utf-16" if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig"
    )
    try:
        text = codecs.getincrementaldecoder(encoding)().decode(head, final=len(head) == size)
    except UnicodeDecodeError:
        return None
    return (
        text
        if text and not any(unicodedata.category(c) == "Cc" and c not in "\t\n\r\f" for c in text)
        else None
    )


def _onnx_text(name: str, form: str) -> _Told:
    return (
        f"a model in {name}",
        f"save it as one: onnx.save(onnx.load(FILE, format={form!r}), 'model.onnx')",
    )


def _text_format(text: str) -> _Told:
    start = text.lstrip()[:200].lower()
    if start.startswith("<") and "ir_version" in start:
        return _onnx_text("ONNX's text form", "onnxtxt")
    if start.startswith("ir_version:"):
        return _onnx_text("the text form of protobuf", "textproto")
    if start.startswith("{") and any(
        f'"{key}"' in text for key in ("ir_version", "irVersion", "op_type", "opType")
    ):
        return _onnx_text("JSON", "json")
    if text.startswith(_LFS):
        return (
            "a pointer of Git LFS, which stands for the model",
            "fetch the model itself: git lfs pull",
        )
    if start.startswith(("<!doctype html", "<html")):
        return "a web page", "the download went wrong: fetch the file itself"
    if start.startswith(("<?xml", "<net ")):
        if "<net " in text:
            return "a model of OpenVINO", "give the ONNX model that it was made from"
        return "an XML file", _ONNX_FILE
    if text.startswith(("plan ", "graph ")) and " constants=" in text.partition("\n")[0]:
        return (
            "the text form of a plan, which is for reading",
            "give the plan that fqfuse compile wrote, or the model",
        )
    if start.startswith(("{", "[")):
        return "a JSON file", _ONNX_FILE
    return "a text file", _ONNX_FILE
