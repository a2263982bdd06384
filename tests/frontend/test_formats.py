"""What is no ONNX model is called by its name, with what to do."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import pickle
import tarfile
import zipfile

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.onnx_cases import model, node

import fqfuse
from fqfuse.errors import InvalidModel
from fqfuse.frontend import graph_from_onnx
from fqfuse.frontend.formats import HEAD, known_format
from fqfuse.frontend.wire import SMALL
from fqfuse.plan.text import print_plan

MODEL = model([node("Relu", ["x"])])


def written(write) -> bytes:
    buffer = io.BytesIO()
    write(buffer)
    return buffer.getvalue()


def zipped(*names: str) -> bytes:
    def write(buffer):
        with zipfile.ZipFile(buffer, "w") as archive:
            for name in names:
                archive.writestr(name, b"content")

    return written(write)


def tarred() -> bytes:
    def write(buffer):
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            archive.addfile(tarfile.TarInfo("model.onnx"))

    return written(write)


def safetensors() -> bytes:
    header = json.dumps({"weight": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    return len(header).to_bytes(8, "little") + header + bytes(4)


LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize 12345\n" % (b"4d7a2146" * 8)
FILES = {
    "a text file": b"This is not the model you are looking for.\n",
    "a text file: a long one": ("größer\n" * 100_000).encode(),
    "a text file: one of Windows": "model\r\n".encode("utf-16"),
    "a web page": b"\n<!DOCTYPE html>\n<html><body>404</body></html>",
    "a JSON file": b'{"layers": []}',
    "a model in JSON": written(lambda file: onnx.save(MODEL, file, format="json")),
    "a model in ONNX's text form": written(lambda file: onnx.save(MODEL, file, format="onnxtxt")),
    "a model in the text form of protobuf": written(
        lambda file: onnx.save(MODEL, file, format="textproto")
    ),
    "the text form of a plan": print_plan(fqfuse.compile(MODEL)).encode(),
    "a pointer of Git LFS": LFS,
    "an XML file": b"<?xml version='1.0'?>\n<a/>",
    "a model of OpenVINO": b'<?xml version="1.0"?>\n<net name="m" version="11">\n</net>',
    "a PyTorch file": zipped("net/data.pkl", "net/version"),
    "a Python pickle": pickle.dumps({"weight": 1}, protocol=2),
    "a Keras model": zipped("metadata.json", "config.json", "model.weights.h5"),
    "an HDF5 file": b"\x89HDF\r\n\x1a\n" + bytes(100),
    "a safetensors file": safetensors(),
    "a TensorFlow Lite model": b"\x1c\x00\x00\x00TFL3" + bytes(100),
    "a model in the format of ONNX Runtime": b"\x1c\x00\x00\x00ORTM" + bytes(100),
    "a GGUF file": b"GGUF\x03\x00\x00\x00" + bytes(100),
    "a NumPy array": written(lambda file: np.save(file, np.zeros(3))),
    "an archive of NumPy arrays": written(lambda file: np.savez(file, x=np.zeros(3))),
    "a zip archive": zipped("model.onnx"),
    "a gzip archive": gzip.compress(MODEL.SerializeToString()),
    "an xz archive": lzma.compress(MODEL.SerializeToString()),
    "a tar archive": tarred(),
    "a picture": b"\x89PNG\r\n\x1a\n" + bytes(100),
}


@pytest.mark.parametrize("kind", FILES)
def test_a_file_of_another_kind_is_told_so(tmp_path, kind):
    path = tmp_path / "model.onnx"
    path.write_bytes(FILES[kind])
    with pytest.raises(InvalidModel) as caught:
        graph_from_onnx(path)
    assert caught.value.what.startswith(f"the file is no ONNX model, but {kind.partition(':')[0]}")
    assert caught.value.hint
    assert all(len(line) <= 100 for line in str(caught.value).splitlines() if "where" not in line)


@pytest.mark.filterwarnings("ignore:The onnxtxt format is experimental")
def test_what_to_do_works(tmp_path):
    """The line of Python that a hint gives makes the model."""
    for form in ("json", "onnxtxt", "textproto"):
        onnx.save(MODEL, tmp_path / "text", format=form)
        with pytest.raises(InvalidModel) as caught:
            graph_from_onnx(tmp_path / "text")
        command = caught.value.hint.partition(": ")[2].replace("'model.onnx'", "TARGET")
        exec(command, {"onnx": onnx, "FILE": tmp_path / "text", "TARGET": tmp_path / "model.onnx"})  # noqa: S102  (our own words)
        assert graph_from_onnx(tmp_path / "model.onnx") == graph_from_onnx(MODEL)


def test_a_large_file_of_another_kind_is_told_so_too():
    with pytest.raises(InvalidModel, match="but a JSON file"):
        graph_from_onnx(b'{"a": "' + b"x" * SMALL + b'"}')


def test_what_is_unknown_or_broken_gets_no_name():
    data = MODEL.SerializeToString()
    for content in (
        bytes(100),
        b"\xff\xfe\xfd",
        b"\x00text",
        b"text\x00",
        data[:-3],
        b"\x7fELF" + bytes(10),
    ):
        assert known_format(content, len(content)) is None
    with pytest.raises(InvalidModel, match="or it was cut short"):
        graph_from_onnx(data[:-3])


def test_a_model_may_begin_like_anything():
    """Protobuf takes fields in any order, and skips those that it does not know: only what is
    refused is looked at.
    """
    # a field that ONNX does not have, the domain, the version
    opset = b"h\x01" + b"\x0a\x54" + b"d" * 84 + b"\x10\x01"
    data = b"B" + bytes([len(opset)]) + opset + MODEL.SerializeToString()
    assert known_format(data, len(data))[0] == "a bzip2 archive"
    assert graph_from_onnx(data).outputs == ("y",)


FRONTS = [b"", b"PK\x03\x04", b"{", b"<", b"\x80\x02", b"plan ", b"\xff\xfe"]


@given(st.binary(max_size=400), st.sampled_from(FRONTS), st.integers(0, 10**12))
def test_any_bytes_are_looked_at_without_harm(data, front, size):
    told = known_format((front + data)[:HEAD], max(size, len(front + data)))
    assert told is None or all(told)
