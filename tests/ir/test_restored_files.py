"""Large constants apart from the rest of a file, and back in their places."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import numpy_helper

from fqfuse.ir.lifting import LARGE, is_free, lifted, memory_of, restored, stored_pieces

SIZES = st.sampled_from([0, 1, LARGE - 1, LARGE, 3 * LARGE, 300_000])


def model_of(sizes: list[int]) -> bytes:
    tensors = [
        numpy_helper.from_array(np.arange(size, dtype=np.uint64).astype(np.uint8), f"w{number}")
        for number, size in enumerate(sizes)
    ]
    graph = onnx.helper.make_graph([], "graph", [], [], tensors)
    return bytes(onnx.helper.make_model(graph, producer_name="test").SerializeToString())


@given(st.lists(SIZES, max_size=5))
def test_what_is_lifted_and_restored_is_the_file(tmp_path_factory, sizes):
    path: Path = tmp_path_factory.mktemp("lifting") / "model.onnx"
    path.write_bytes(model_of(sizes))
    with path.open("rb") as file:
        found = lifted(file.fileno(), path.stat().st_size)
    assert (found is None) == all(size < LARGE for size in sizes)
    if found is not None:
        model, data = found
        assert len(model) < 200 + sum(size for size in sizes if size < LARGE) + 30 * len(sizes)
        assert b"".join(restored(model, data)) == path.read_bytes()


@pytest.mark.parametrize(
    "data",
    [
        np.arange(24, dtype=np.int32).reshape(2, 3, 4).transpose(2, 0, 1),
        np.arange(6, dtype=">f8").reshape(2, 3),
        np.arange(10, dtype=np.int16)[::-2],
        np.float32(3),
        np.zeros((0, 4), np.float32),
        np.zeros((4, 0), np.float32),
        np.asfortranarray(np.arange(5_000_000, dtype=np.uint64).reshape(2500, 2000)),
    ],
    ids=["turned", "big-endian", "strided", "scalar", "no rows", "empty rows", "several pieces"],
)
def test_pieces_of_an_array_are_its_bytes_in_a_file(data):
    data = np.asarray(data)
    pieces = list(stored_pieces(data))
    assert b"".join(pieces) == data.astype(data.dtype.newbyteorder("<")).tobytes()
    assert all(piece.nbytes <= 1 << 24 for piece in pieces)


def test_memory_is_free_when_no_array_sees_it(tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(model_of([2 << 20]))
    with path.open("rb") as file:
        found = lifted(file.fileno(), path.stat().st_size)
    assert found is not None
    data = found[1].pop(0).view(np.int8).reshape(2, -1)
    memory = memory_of(data)
    assert memory is not None
    row = data[1]
    assert memory_of(row) is None  # it is larger than the row
    del data
    assert not is_free(memory)
    del row
    assert is_free(memory)
    assert memory_of(np.zeros(2 << 20, np.uint8)) is None
