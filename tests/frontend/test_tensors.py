"""Constants: every way ONNX stores them, and every way in which shape, type and data can
disagree.
"""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from fqfuse.errors import InvalidModel, UnsupportedOp
from fqfuse.frontend.budgets import DEFAULT, Budgets
from fqfuse.frontend.tensors import TensorReader
from fqfuse.ir.types import DType


def read(tensor, budgets=DEFAULT, folder=None):
    return TensorReader(budgets, folder).read(tensor, "here")


NUMBERS = {
    TensorProto.FLOAT: ([0.0, -1.5, np.inf, 3e38], DType.F32),
    TensorProto.DOUBLE: ([0.1, -1e300], DType.F64),
    TensorProto.FLOAT16: ([0.1, -65504.0, np.nan], DType.F16),
    TensorProto.BFLOAT16: ([1.0, -3.140625, 1e38], DType.BF16),
    TensorProto.INT8: ([-128, 0, 127], DType.S8),
    TensorProto.UINT8: ([0, 128, 255], DType.U8),
    TensorProto.INT16: ([-32768, 32767], DType.S16),
    TensorProto.UINT16: ([0, 65535], DType.U16),
    TensorProto.INT32: ([-(2**31), 2**31 - 1], DType.S32),
    TensorProto.UINT32: ([0, 2**32 - 1], DType.U32),
    TensorProto.INT64: ([-(2**63), 2**63 - 1], DType.S64),
    TensorProto.UINT64: ([0, 2**64 - 1], DType.U64),
    TensorProto.BOOL: ([True, False, True], DType.BOOL),
    TensorProto.INT4: ([-8, 7, -1], DType.S4),
    TensorProto.UINT4: ([0, 15, 9, 3], DType.U4),
    TensorProto.FLOAT8E4M3FN: ([0.0, -448.0, np.nan, 0.015625], DType.F8E4M3FN),
    TensorProto.FLOAT8E4M3FNUZ: ([0.0, -240.0, np.nan, 0.5], DType.F8E4M3FNUZ),
    TensorProto.FLOAT8E5M2: ([-0.0, 57344.0, np.inf, -np.inf, np.nan], DType.F8E5M2),
    TensorProto.FLOAT8E5M2FNUZ: ([1.75, -57344.0, np.nan], DType.F8E5M2FNUZ),
}
LATER = {  # not of every onnx that is supported
    "FLOAT4E2M1": ([6.0, -0.5, 1.5], DType.F4E2M1),
    "UINT2": ([0, 3, 1, 2, 3], DType.U2),
    "INT2": ([-2, 1, -1, 0, 1, -2, 1], DType.S2),
}
NUMBERS |= {
    getattr(TensorProto, name): n for name, n in LATER.items() if hasattr(TensorProto, name)
}


@pytest.mark.parametrize("raw", [False, True])
@pytest.mark.parametrize("kind", NUMBERS)
def test_every_type_in_both_places(kind, raw):
    values, dtype = NUMBERS[kind]
    fielded = helper.make_tensor("t", kind, [len(values)], values)
    tensor = numpy_helper.from_array(numpy_helper.to_array(fielded), "t") if raw else fielded
    assert tensor.HasField("raw_data") == raw
    array, found = read(tensor)
    assert found is dtype
    assert array.dtype == dtype.numpy
    np.testing.assert_array_equal(array, numpy_helper.to_array(fielded).astype(dtype.numpy))


def test_strings():
    array, dtype = read(helper.make_tensor("t", TensorProto.STRING, [2], [b"a", "ö".encode()]))
    assert dtype is DType.STRING
    assert array.tolist() == ["a", "ö"]


@given(st.lists(st.integers(-8, 7), max_size=9))
def test_four_bits_of_any_number(values):
    array, _ = read(helper.make_tensor("t", TensorProto.INT4, [len(values)], values))
    assert array.tolist() == values


def test_raw_data_is_not_copied_again():
    data = np.zeros(1 << 20, np.float32)
    tensor = numpy_helper.from_array(data, "t")
    tracemalloc.start()
    array, _ = read(tensor)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # protobuf hands the bytes out once; the array is a view of them
    assert peak < 1.5 * data.nbytes
    assert not array.flags.writeable


@pytest.mark.parametrize(
    ("dims", "length"),
    [
        ([2, 3], 20),
        ([2, 3], 28),
        ([], 0),
        ([0], 4),
        ([2**31, 2**31], 4),
        ([2**40], 4),
        ([2**62, 4], 16),
        ([7, 0, 2**62], 0),
        ([1] * 40, 4),
    ],
)
def test_shape_and_data_must_agree(dims, length):
    tensor = TensorProto(data_type=TensorProto.FLOAT, dims=dims, raw_data=b"\0" * length)
    with pytest.raises(InvalidModel) as caught:
        read(tensor)
    assert caught.value.where == "here"
    assert caught.value.hint


@pytest.mark.parametrize("dims", [[-1], [2, -3], [-1, -1]])
def test_negative_dimensions(dims):
    with pytest.raises(InvalidModel, match="cannot have the shape"):
        read(TensorProto(data_type=TensorProto.FLOAT, dims=dims, raw_data=b"\0" * 4))


def test_wrong_number_of_entries_in_a_field():
    tensor = helper.make_tensor("t", TensorProto.INT64, [3], [1, 2, 3])
    tensor.dims[0] = 4
    with pytest.raises(InvalidModel, match="needs 4 entries of int64_data, and has 3"):
        read(tensor)


def test_data_in_the_wrong_field():
    tensor = TensorProto(data_type=TensorProto.FLOAT, dims=[1], int32_data=[1])
    with pytest.raises(InvalidModel, match="lies in int32_data, where float_data belongs"):
        read(tensor)
    tensor = TensorProto(data_type=TensorProto.FLOAT, dims=[1], raw_data=b"\0" * 4, float_data=[1])
    with pytest.raises(InvalidModel, match="lies in float_data, where raw_data belongs"):
        read(tensor)
    with pytest.raises(InvalidModel, match="strings cannot be stored"):
        read(TensorProto(data_type=TensorProto.STRING, dims=[1], raw_data=b"abcd"))


def test_numbers_that_do_not_fit():
    with pytest.raises(InvalidModel, match="do not fit in u8"):
        read(TensorProto(data_type=TensorProto.UINT8, dims=[2], int32_data=[3, 256]))
    with pytest.raises(InvalidModel, match="neither 0 nor 1"):
        read(TensorProto(data_type=TensorProto.BOOL, dims=[1], raw_data=b"\x02"))


def test_segments():
    tensor = TensorProto(data_type=TensorProto.FLOAT, dims=[1], raw_data=b"\0" * 4)
    tensor.segment.begin = 0
    with pytest.raises(InvalidModel, match="segments"):
        read(tensor)


def test_types_the_graph_does_not_have():
    with pytest.raises(UnsupportedOp, match="complex64"):
        read(TensorProto(data_type=TensorProto.COMPLEX64, dims=[1], raw_data=b"\0" * 8))
    for kind in (0, 99, -1):
        with pytest.raises(InvalidModel, match=f"element type {kind} does not exist"):
            read(TensorProto(data_type=kind, dims=[1], raw_data=b"\0"))


def test_budgets_come_before_the_data():
    tensor = TensorProto(data_type=TensorProto.FLOAT, dims=[2**20])  # no data at all
    with pytest.raises(InvalidModel, match="one constant needs"):
        read(tensor, Budgets(tensor_bytes=2**20))
    reader = TensorReader(Budgets(constant_bytes=30), None)
    small = numpy_helper.from_array(np.zeros(5, np.float32), "t")
    reader.read(small, "here")
    with pytest.raises(InvalidModel, match="all constants together need"):
        reader.read(small, "here")


# -- sparse ----------------------------------------------------------------------------------------


def sparse(values, indices, dims):
    return helper.make_sparse_tensor(
        numpy_helper.from_array(np.asarray(values, np.float32), "s"),
        numpy_helper.from_array(np.asarray(indices, np.int64), "i"),
        dims,
    )


def read_sparse(proto, budgets=DEFAULT):
    return TensorReader(budgets, None).read_sparse(proto, "here")


def test_sparse_tensors_become_dense():
    expected = np.float32([[0, 5, 0], [7, 0, 0]])
    for indices in ([1, 3], [[0, 1], [1, 0]]):
        array, dtype = read_sparse(sparse([5, 7], indices, [2, 3]))
        assert dtype is DType.F32
        np.testing.assert_array_equal(array, expected)
    np.testing.assert_array_equal(read_sparse(sparse([], [], [2, 2]))[0], np.zeros((2, 2)))


@pytest.mark.parametrize(
    "indices",
    [
        [1, 6],
        [-1, 2],
        [3, 1],
        [1, 1],
        [[0, 1], [2, 0]],
        [[0, 1], [0, -1]],
        [[0, 1, 2], [1, 1, 1]],
        [1],
    ],
)
def test_indices_of_sparse_tensors_are_checked(indices):
    with pytest.raises(InvalidModel):
        read_sparse(sparse([5, 7], indices, [2, 3]))


def test_a_sparse_tensor_is_charged_for_its_zeros():
    with pytest.raises(InvalidModel, match="one constant needs"):
        read_sparse(sparse([5], [1], [2**20, 2**20]))


# -- external data ---------------------------------------------------------------------------------


def external(location, **entries):
    tensor = TensorProto(
        name="w", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL
    )
    for key, value in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


@pytest.fixture
def folder(tmp_path):
    inside = tmp_path / "model"
    inside.mkdir()
    (inside / "w.bin").write_bytes(np.arange(6, dtype=np.float32).tobytes())
    (tmp_path / "secret.bin").write_bytes(b"\x01" * 64)
    return inside


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ({"length": 16}, [0, 1, 2, 3]),
        ({"offset": 8, "length": 16}, [2, 3, 4, 5]),
        ({"offset": 4}, [1, 2, 3, 4]),
    ],
)
def test_external_data_inside_the_folder(folder, entries, expected):
    array, _ = read(external("w.bin", **entries), folder=folder)
    np.testing.assert_array_equal(array, np.float32(expected))


@pytest.mark.parametrize(
    "location",
    ["../secret.bin", "a/../../secret.bin", "missing.bin", "", ".", "w.bin/x", "w.bin\0"],
)
def test_external_data_elsewhere(folder, location):
    with pytest.raises(InvalidModel, match="external data"):
        read(external(location, length=16), folder=folder)


def test_external_data_by_absolute_path_or_link(folder, tmp_path):
    secret = tmp_path / "secret.bin"
    (folder / "link.bin").symlink_to(secret)
    (folder / "hard.bin").hardlink_to(secret)
    (folder / "sub").symlink_to(tmp_path)
    for location in (str(secret), "link.bin", "hard.bin", "sub/secret.bin"):
        with pytest.raises(InvalidModel, match="cannot be read"):
            read(external(location, length=16), folder=folder)


@pytest.mark.parametrize(
    "entries",
    [
        {"length": 12},
        {"length": -16},
        {"length": "x"},
        {"length": "1" * 5000},  # more digits than Python reads
        {"offset": "1" * 5000},
        {"length": "١٦"},
        {"offset": 12, "length": 16},
        {"offset": -4},
        {"offset": "q"},
        {"offset": 10**30},
    ],
)
def test_external_offsets_and_lengths_are_checked(folder, entries):
    with pytest.raises(InvalidModel):
        read(external("w.bin", **entries), folder=folder)


def test_unknown_external_keys_reach_nobody(folder):
    array, _ = read(external("w.bin", length=16, evil="yes", __class__="x"), folder=folder)
    np.testing.assert_array_equal(array, np.float32([0, 1, 2, 3]))


def test_external_data_without_a_folder():
    with pytest.raises(InvalidModel, match="came without a folder") as caught:
        read(external("w.bin", length=16))
    assert "give the path of the model file" in caught.value.hint
