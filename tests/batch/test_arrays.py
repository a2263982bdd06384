"""Rows of .npy and .npz files, piece by piece."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fqfuse.batch import arrays
from fqfuse.batch.arrays import Reader
from fqfuse.batch.parts import Piece
from fqfuse.batch.reading import Reading, Wanted
from fqfuse.batch.signature import RowType, Signature

ROWS = np.arange(100 * 6, dtype=np.float32).reshape(100, 2, 3)
SIGNATURE = Signature({"x": RowType(np.dtype(np.float32), (2, 3))}, ("y",), 7, exactly=False)
WANTED = Wanted(SIGNATURE, Reading())


def read(reader: Reader, path: Path, start: int, stop: int) -> np.ndarray:
    piece = Piece(path.name, start, stop, 0)
    return np.concatenate([found.feeds["x"] for found in reader.read(path, piece)])


@pytest.fixture(params=["a.npz", "compressed.npz", "a.npy", "fortran.npz"])
def path(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    target = tmp_path / request.param
    if target.name == "a.npy":
        np.save(target, ROWS)
    elif target.name == "compressed.npz":
        np.savez_compressed(target, x=ROWS)
    else:
        np.savez(target, x=np.asfortranarray(ROWS) if "fortran" in target.name else ROWS)
    return target


@pytest.mark.parametrize(
    "pieces",
    [
        [(0, 30), (30, 31), (31, 100)],
        [(10, 20), (40, 60), (60, 61)],
        [(50, 60), (0, 10), (10, 20)],
        [(5, 5 + 7), (5, 5 + 7), (99, 100), (0, 1)],
    ],
    ids=["neighbours", "gaps", "backwards", "again"],
)
def test_pieces_in_any_order_hold_their_rows(path: Path, pieces: list[tuple[int, int]]) -> None:
    reader = Reader(WANTED)
    for start, stop in pieces:
        assert np.array_equal(read(reader, path, start, stop), ROWS[start:stop])
    reader.close()


def test_a_piece_that_was_left_in_between_does_not_move_the_next(path: Path) -> None:
    reader = Reader(WANTED)
    left = reader.read(path, Piece(path.name, 10, 40, 0))
    next(left)
    left.close()
    assert np.array_equal(read(reader, path, 40, 50), ROWS[40:50])
    reader.close()


def test_neighbours_are_unpacked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part of a large archive would be found from its beginning otherwise."""
    path, opened = tmp_path / "a.npz", []
    np.savez_compressed(path, x=ROWS)
    real = arrays._stored
    monkeypatch.setattr(arrays, "_stored", lambda *given: opened.append(given) or real(*given))
    reader = Reader(WANTED)
    for start in range(0, 100, 10):
        read(reader, path, start, start + 10)
    assert len(opened) == 1
    reader.close()
