"""Large constants are read apart from the model: the same graph as from bytes, each in an array of
its own.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from support.onnx_cases import model, node

import fqfuse
from fqfuse.frontend import graph_from_onnx
from fqfuse.frontend.budgets import DEFAULT
from fqfuse.frontend.source import read_model
from fqfuse.ir.lifting import LARGE, lifted
from fqfuse.ir.types import DType

RNG = np.random.default_rng(0)
BIG = 1 << 20


def added(kinds: dict[str, onnx.TensorProto]) -> onnx.ModelProto:
    """y = x + 0 * c for each constant, cast to f32."""
    nodes, value = [], "x"
    for name in kinds:
        nodes += [
            node("Cast", [name], [f"{name}_f"], to=TensorProto.FLOAT),
            node("ReduceMax", [f"{name}_f"], [f"{name}_m"], keepdims=0),
            node("Add", [value, f"{name}_m"], [f"{name}_y"]),
        ]
        value = f"{name}_y"
    proto = model(nodes, inputs={"x": [2, 3]}, outputs=[value], opset=21)
    proto.graph.initializer.extend(kinds.values())
    return proto


def tensors() -> dict[str, onnx.TensorProto]:
    return {
        "f": numpy_helper.from_array(RNG.standard_normal(BIG // 3).astype(np.float32), "f"),
        "h": numpy_helper.from_array(RNG.standard_normal(LARGE).astype(np.float16), "h"),
        "small": numpy_helper.from_array(np.float32([1, 2]), "small"),
        "q": numpy_helper.from_array(RNG.integers(0, 256, 3 * LARGE, np.uint8), "q"),
        "b": numpy_helper.from_array(RNG.integers(0, 2, LARGE) > 0, "b"),
        "four": helper.make_tensor(
            "four", TensorProto.INT4, [2 * LARGE], bytes(range(256)) * (LARGE // 256), raw=True
        ),
        "field": helper.make_tensor(
            "field", TensorProto.FLOAT, [LARGE], RNG.standard_normal(LARGE)
        ),
    }


def saved(proto: onnx.ModelProto, folder: Path) -> Path:
    path = folder / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    assert path.stat().st_size > BIG
    return path


def test_a_path_gives_what_bytes_give(tmp_path):
    proto = added(tensors())
    path = saved(proto, tmp_path)
    source = read_model(path, DEFAULT)
    assert len(source.lifted) == 5  # all but the small one, and that in a field of its own
    assert len(source.model.SerializeToString()) < path.stat().st_size / 4
    assert graph_from_onnx(path) == graph_from_onnx(path.read_bytes())


def test_each_constant_has_memory_of_its_own(tmp_path):
    graph = graph_from_onnx(saved(added(tensors()), tmp_path))
    data = graph.constant("q")
    assert data is not None
    assert graph.type("q").dtype is DType.U8
    owner = data
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    assert owner.nbytes == data.nbytes
    assert not data.flags.writeable


def test_two_parts_of_a_graph_are_one(tmp_path):
    """Protobuf joins messages that occur twice, and takes the last of two texts."""
    first, second = (
        numpy_helper.from_array(RNG.standard_normal(BIG // 4).astype(np.float32), name)
        for name in "ab"
    )
    rest = added({"a": first, "b": second})
    parts = [onnx.GraphProto(initializer=[tensor]) for tensor in rest.graph.initializer]
    del rest.graph.initializer[:]
    tag = bytes([7 << 3 | 2])

    def field(message: bytes) -> bytes:
        size, length = len(message), bytearray()
        while size >= 128:
            length.append(size & 127 | 128)
            size >>= 7
        return tag + bytes([*length, size]) + message

    path = tmp_path / "m.onnx"
    path.write_bytes(
        b"".join(
            [
                field(parts[0].SerializeToString()),
                rest.SerializeToString(),
                field(parts[1].SerializeToString()),
            ]
        )
    )
    assert read_model(path, DEFAULT).lifted.keys() == {0, 1}
    assert graph_from_onnx(path) == graph_from_onnx(path.read_bytes())


def test_data_twice_in_one_tensor(tmp_path):
    old, new = (RNG.standard_normal(BIG // 4).astype(np.float32) for _ in range(2))
    one = numpy_helper.from_array(old, "a").SerializeToString()
    again = onnx.TensorProto(raw_data=new.tobytes()).SerializeToString()
    tensor = one + again
    rest = added({"a": onnx.TensorProto()})
    del rest.graph.initializer[:]

    def field(number: int, message: bytes) -> bytes:
        size, length = len(message), bytearray()
        while size >= 128:
            length.append(size & 127 | 128)
            size >>= 7
        return bytes([number << 3 | 2, *length, size]) + message

    path = tmp_path / "m.onnx"
    path.write_bytes(rest.SerializeToString() + field(7, field(5, tensor)))
    graph = graph_from_onnx(path)
    np.testing.assert_array_equal(graph.constant("a"), new)
    assert graph == graph_from_onnx(path.read_bytes())


@pytest.mark.parametrize("size", [1, 4, BIG, -1])
def test_data_that_does_not_fit_is_told(tmp_path, size):
    proto = added(tensors())
    for tensor in proto.graph.initializer:
        if tensor.name == "f":
            tensor.raw_data = (tensor.raw_data * 4)[: len(tensor.raw_data) + size]
    with pytest.raises(fqfuse.InvalidModel, match="bytes of data, and has"):
        graph_from_onnx(saved(proto, tmp_path))


def test_a_file_that_is_cut_is_told_as_before(tmp_path):
    data = added(tensors()).SerializeToString()
    for end in (len(data) - 1, len(data) // 2, BIG + 7):
        path = tmp_path / "cut.onnx"
        path.write_bytes(data[:end])
        with path.open("rb") as file:
            assert lifted(file.fileno(), end) is None
        messages = set()
        for given in (path, data[:end]):
            with pytest.raises(fqfuse.InvalidModel) as error:
                graph_from_onnx(given)
            messages.add(error.value.what)
        assert len(messages) == 1


def test_noise_is_no_model(tmp_path):
    path = tmp_path / "noise.onnx"
    path.write_bytes(RNG.bytes(2 * BIG))
    with pytest.raises(fqfuse.InvalidModel):
        graph_from_onnx(path)


@pytest.mark.parametrize("computed", [False, True])
def test_codes_of_4_bits_are_read_when_their_node_is(tmp_path, computed):
    """In front of the DequantizeLinear that packs them again; where it cannot, they stay."""
    rows, size = 512, 8192
    raw = RNG.integers(0, 256, rows * size // 2, np.uint8).tobytes()
    scales = RNG.uniform(0.1, 0.2, (rows // 32, size)).astype(np.float32)
    nodes = [
        node("DequantizeLinear", ["w", "s"], ["d"], axis=0, block_size=32),
        node("MatMul", ["x", "d"]),
    ]
    inputs = {"x": [2, rows]} | ({"s": [rows // 32, size]} if computed else {})
    proto = model(nodes, inputs=inputs, constants={} if computed else {"s": scales}, opset=21)
    proto.graph.initializer.append(
        helper.make_tensor("w", TensorProto.INT4, [rows, size], raw, raw=True)
    )
    path = saved(proto, tmp_path)
    graph = graph_from_onnx(path)
    assert graph == graph_from_onnx(path.read_bytes())
    assert ("w" in graph.constants) == computed
    x = {"x": RNG.standard_normal((2, rows)).astype(np.float32)}
    if not computed:
        found = fqfuse.InferenceSession(str(path), "numpy").run(None, x)[0]
        codes = np.stack([np.frombuffer(raw, np.uint8) & 15, np.frombuffer(raw, np.uint8) >> 4], -1)
        signed = ((codes.reshape(rows, size).astype(np.int8) ^ 8) - 8).astype(np.float64)
        wanted = x["x"] @ (signed * np.repeat(scales, 32, 0))
        np.testing.assert_allclose(found, wanted, atol=1e-5 * np.abs(wanted).max())
