"""Constants that lie in memory as half floats: the same numbers, bit for bit, in less of it."""

from __future__ import annotations

import pickle

import ml_dtypes
import numpy as np
import pytest

from fqfuse.ir.constants import LARGE, Constants, Halves, array_of, as_held, for_types, halved
from fqfuse.ir.graph import Graph
from fqfuse.ir.lifting import stored_pieces
from fqfuse.ir.types import DType

ROWS, COLUMNS = 96, 256
SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 6e-8, -6e-8, 65504.0]


def numbers(kind: type) -> np.ndarray:
    """f32 numbers that this kind of half floats holds, special ones among them."""
    data = np.random.default_rng(0).standard_normal((ROWS, COLUMNS), np.float32)
    data[:, : len(SPECIAL)] = SPECIAL
    return data.astype(kind).astype(np.float32)


def bits(data: np.ndarray) -> bytes:
    return np.ascontiguousarray(data).tobytes()


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("way", ["as it is", "transposed", "every other"])
def test_half_floats_that_hold_it_stand_for_an_array(kind: type, way: str) -> None:
    data = numbers(kind)
    data = {"as it is": data, "transposed": data.T, "every other": np.repeat(data, 2, 1)[:, ::2]}[
        way
    ]
    found = halved(data)
    assert isinstance(found, Halves)
    assert (found.shape, found.nbytes, found.dtype) == (data.shape, data.nbytes, data.dtype)
    wide = found.wide()
    assert wide.dtype == np.float32
    assert wide.shape == data.shape
    assert not wide.flags.writeable
    assert bits(wide) == bits(data)
    assert found.wide() is wide  # one array for all that hold it
    assert b"".join(stored_pieces(found)) == bits(data)
    again = pickle.loads(pickle.dumps(found))  # noqa: S301
    assert bits(again.wide()) == bits(data)


def test_what_half_floats_do_not_hold_stays() -> None:
    data = numbers(np.float16)
    for place, value in (((5, 40), 1.0 + 2.0**-12), ((ROWS - 1, COLUMNS - 1), 1e-30)):
        other = data.copy()
        other[place] = value
        assert halved(other) is other
    payload = data.copy()  # a NaN whose lowest bit is set: no half float has it
    payload.view(np.uint32)[3, 4] = 0x7FC00001
    assert halved(payload) is payload
    for other in (data.astype(np.float64), data[:1], np.broadcast_to(data[0], (512, COLUMNS))):
        assert halved(other) is other


def test_a_mapping_hands_out_arrays_and_tells_sizes_without() -> None:
    data, small = numbers(np.float16), np.ones(3, np.float32)
    held = {"w": halved(data), "b": small}
    constants = Constants(held)
    assert list(constants) == ["w", "b"]
    assert len(constants) == 2
    assert "w" in constants
    assert constants["b"] is small
    assert constants.get("no") is None
    assert bits(constants["w"]) == bits(data) == bits(dict(constants)["w"])
    assert as_held(constants)["w"] is held["w"]
    assert as_held(dict(constants))["b"] is small
    assert for_types(constants, "b") is small
    assert for_types(constants, "w") is None
    copied = pickle.loads(pickle.dumps(constants))  # noqa: S301
    assert isinstance(as_held(copied)["w"], Halves)
    assert bits(copied["w"]) == bits(data)
    with pytest.raises(KeyError):
        constants["no"]


def test_a_graph_of_half_floats_keeps_what_they_hold() -> None:
    data = numbers(np.float16)
    assert data.nbytes >= LARGE
    for halves in (False, True):
        graph = Graph()
        graph.halved = halves
        name = graph.add_constant("w", data)
        assert isinstance(as_held(graph.constants)[name], Halves) is halves
        assert graph.type(name).dtype is DType.F32
        found = graph.constant(name)
        assert found is not None
        assert bits(found) == bits(data)
        assert graph == graph.copy()
        assert bits(array_of(graph.give_up_constant(name))) == bits(data)


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16])
def test_views_of_a_widened_array_are_views_of_its_half_floats(kind: type) -> None:
    found = halved(numbers(kind))
    assert isinstance(found, Halves)
    data = found.wide()
    views = {
        "transposed": lambda a: a.T,
        "a part": lambda a: a[3:90, 5:250],
        "backwards": lambda a: a[::-1, ::-1],
        "reshaped": lambda a: a.reshape(4, 24, 256).transpose(2, 0, 1),
    }
    for name, view in views.items():
        part = view(data)
        seen = halved(part)
        assert isinstance(seen, Halves), name
        assert np.shares_memory(seen._stored, found._stored), name
        assert bits(seen.wide()) == bits(part), name
        assert b"".join(stored_pieces(seen)) == bits(part), name
    turned = halved(data.T)
    again = halved(array_of(turned).T[1:])  # of what lies in memory another way around
    assert np.shares_memory(again._stored, found._stored)
    assert bits(again.wide()) == bits(data[1:])
    other = array_of(halved(data[:80].copy()))  # of another array, wherever it lies in memory
    assert bits(array_of(halved(other.T))) == bits(other.T)
