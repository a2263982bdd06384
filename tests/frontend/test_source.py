"""Where a model comes from: files, bytes, protos; what is no model; what is too large."""

from __future__ import annotations

import os
import time
from contextlib import suppress

import numpy as np
import onnx
import pytest
from support.onnx_cases import model, node, random

from fqfuse.errors import FqfuseError, InvalidInput, InvalidModel
from fqfuse.frontend import Budgets, graph_from_onnx
from fqfuse.frontend.wire import SMALL


@pytest.fixture
def proto():
    return model(
        [node("Add", ["x", "c"], name="add")],
        inputs={"x": ["N", 3]},
        constants={"c": np.float32([1, 2, 3])},
    )


def test_a_path_bytes_and_a_proto_give_the_same_graph(tmp_path, proto):
    path = tmp_path / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    before = proto.SerializeToString()
    graphs = [
        graph_from_onnx(source) for source in (path, str(path), proto.SerializeToString(), proto)
    ]
    assert all(graph == graphs[0] for graph in graphs)
    assert proto.SerializeToString() == before


def test_names_and_symbolic_sizes_are_the_models(proto):
    graph = graph_from_onnx(proto)
    assert graph.name == "case"
    assert graph.inputs == ("x",)
    assert graph.outputs == ("y",)
    assert graph.type("x").shape == graph.type("y").shape == ("N", 3)
    assert graph.node("add").origin == ("add",)
    assert set(graph.constants) == {"c"}


def test_what_is_no_file(tmp_path):
    with pytest.raises(InvalidInput, match="no such file"):
        graph_from_onnx(tmp_path / "missing.onnx")
    with pytest.raises(InvalidInput, match="a folder"):
        graph_from_onnx(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InvalidInput, match="not a regular file"):
        graph_from_onnx(tmp_path / "pipe")
    with pytest.raises(InvalidInput, match="cannot be read"):
        graph_from_onnx("a\0b")
    with pytest.raises(InvalidInput, match="from a int"):
        graph_from_onnx(3)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable_file(tmp_path):
    path = tmp_path / "m.onnx"
    path.write_bytes(b"x")
    path.chmod(0)
    with pytest.raises(InvalidInput, match="may not be read"):
        graph_from_onnx(path)


def test_what_is_no_model(tmp_path, proto):
    path = tmp_path / "m.onnx"
    for content, text in [
        (b"", "the file is empty"),
        (b"PK\x03\x04 this is a zip archive", "no ONNX model"),
        (b"\x00" * 100, "no ONNX model"),
        (proto.SerializeToString()[:-7], "no ONNX model"),
        (onnx.ModelProto(ir_version=8).SerializeToString(), "it holds no graph"),
    ]:
        path.write_bytes(content)
        with pytest.raises(InvalidModel, match=text) as caught:
            graph_from_onnx(path)
        assert caught.value.where == str(path)
        assert caught.value.hint


def test_every_truncation_is_a_clear_error(tmp_path, proto):
    data = proto.SerializeToString()
    path = tmp_path / "m.onnx"
    refused = 0
    for size in range(len(data)):
        path.write_bytes(data[:size])
        with suppress(FqfuseError):  # a cut between two fields of the file may leave a whole model
            graph_from_onnx(path)
            continue
        refused += 1
    assert refused > len(data) * 0.9


# -- budgets ---------------------------------------------------------------------------------------


def test_a_bomb_in_a_file_is_not_walked_to_its_end(tmp_path, monkeypatch):
    (tmp_path / "bomb.onnx").write_bytes(field(7, b"\x0a\x00" * (SMALL // 2 + 1)))
    reads, pread = [], os.pread
    monkeypatch.setattr(os, "pread", lambda *args: reads.append(args) or pread(*args))
    with pytest.raises(InvalidModel, match="this many nodes needs 5,001"):
        graph_from_onnx(tmp_path / "bomb.onnx", budgets=Budgets(nodes=5000))
    assert len(reads) == 1  # of 16: the rest is not looked at for large constants


@pytest.mark.parametrize("field", ["file_bytes", "nodes", "tensor_bytes", "constant_bytes"])
def test_each_budget_names_itself(proto, field):
    limits = {"file_bytes": 10, "nodes": 0, "tensor_bytes": 11, "constant_bytes": 11}
    with pytest.raises(InvalidModel, match="and the budget allows") as caught:
        graph_from_onnx(proto.SerializeToString(), budgets=Budgets(**{field: limits[field]}))
    assert f"Budgets({field}=" in caught.value.hint


def test_file_budget_is_checked_before_reading(tmp_path):
    path = tmp_path / "m.onnx"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # sparse: a terabyte that takes no space
    with pytest.raises(InvalidModel, match=r"needs 1024\.0 GiB, and the budget allows 2\.0 GiB"):
        graph_from_onnx(path)


def varint(value):
    result = b""
    while True:
        value, low = value >> 7, value & 127
        if not value:
            return result + bytes([low])
        result += bytes([low | 128])


def field(number, content):
    return varint(number << 3 | 2) + varint(len(content)) + content


def test_a_bomb_of_empty_messages_is_counted_before_it_is_parsed():
    nodes = b"\x0a\x00" * ((4 << 20) + 1)
    bomb = field(7, nodes)  # ModelProto.graph = 7, GraphProto.node = 1
    started = time.monotonic()
    with pytest.raises(InvalidModel, match="protobuf fields needs 1,000,001"):
        graph_from_onnx(bomb, budgets=Budgets(protobuf_fields=1_000_000))
    assert time.monotonic() - started < 30  # counted, not parsed into gigabytes


def test_nodes_are_counted_before_they_are_parsed(monkeypatch):
    monkeypatch.setattr(onnx.ModelProto, "FromString", lambda _: pytest.fail("parsed"))
    with pytest.raises(
        InvalidModel, match="this many nodes needs 5,001, and the budget allows 5,000"
    ):
        graph_from_onnx(field(7, b"\x0a\x00" * (SMALL // 2 + 1)), budgets=Budgets(nodes=5000))


@pytest.mark.parametrize(
    "tail", [b"\x0f", b"\x0a\xff\xff\xff\xff\x7f", b"\x08" + b"\xff" * 12, b"\x0d\x00"]
)
def test_bytes_that_only_begin_as_protobuf_are_refused_by_the_count(tail):
    padding = field(8, field(1, b"x" * SMALL))
    with pytest.raises(InvalidModel, match="no protobuf message"):
        graph_from_onnx(padding + tail)


def test_large_models_pass_the_count():
    weights = random([SMALL // 4 // 64 + 1, 64])
    proto = model(
        [node("MatMul", ["x", "w"])], inputs={"x": [1, weights.shape[0]]}, constants={"w": weights}
    )
    data = proto.SerializeToString()
    assert len(data) > SMALL
    graph = graph_from_onnx(data)
    np.testing.assert_array_equal(graph.constants["w"], weights)


def test_nesting_deeper_than_protobuf_allows():
    body = field(1, field(2, b"y") + field(4, b"Identity"))
    for _ in range(60):
        attribute = field(1, b"body") + field(6, body) + b"\xa0\x01\x05"
        body = field(1, field(4, b"If") + field(5, attribute))
    with pytest.raises(InvalidModel, match="nest too deeply"):
        graph_from_onnx(b"\x08\x08" + field(7, body))
