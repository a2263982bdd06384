"""Rows of .npy and .npz files, piece by piece."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from laws.budget import some

from fqfuse.batch import arrays
from fqfuse.batch.arrays import Reader
from fqfuse.batch.parts import Part, Piece
from fqfuse.batch.reading import DAMAGED, Reading, Wanted, is_damage
from fqfuse.batch.rows import BadRow
from fqfuse.batch.signature import RowType, Signature
from fqfuse.batch.sources import data_set, rows_of
from fqfuse.errors import InvalidInput

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


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed], ids=["stored", "compressed"])
def test_no_row_of_an_archive_with_a_wrong_bit_comes_out_wrong(
    tmp_path: Path, save: Callable[..., None]
) -> None:
    """Whichever bit it is: the CRC stands behind the rows, and skipping rows switches it off."""
    path, rows = tmp_path / "a.npz", np.random.default_rng(0).random((300, 2, 3), np.float32)
    save(path, x=rows)
    content, damaged, count_of_bits = path.read_bytes(), 0, len(some(range(800)))
    for bit in np.random.default_rng(0).integers(8 * len(content), size=count_of_bits):
        broken = bytearray(content)
        broken[bit // 8] ^= 1 << bit % 8
        path.write_bytes(broken)
        try:
            count = arrays.count(path, {"x": 3}, Reading())
        # the data set refuses such a file or makes it a bad row
        except (*DAMAGED, InvalidInput):
            continue
        bad: list[BadRow] = []
        part = Part(0, 0, (Piece(path.name, 20, count, 0), Piece(path.name, 0, 20, 0)))
        reader = Reader(WANTED)
        found = [batch.feeds["x"] for batch in rows_of(part, tmp_path, reader, bad)]
        reader.close()
        if found:
            assert np.array_equal(np.concatenate(found), np.concatenate([rows[20:], rows[:20]]))
        assert len(bad) == (0 if found else count)
        damaged += bool(bad)
    assert damaged > count_of_bits * 3 // 8


def test_no_damaged_archive_stops_the_others(tmp_path: Path) -> None:
    """Whatever its bytes are: an empty one among inputs of two was told as an .npy file, one whose
    directory points far outside as a file that cannot be read.
    """
    rng, whole = np.random.default_rng(0), tmp_path / "a.npz"
    np.savez(whole, x=ROWS, y=ROWS)
    content, ranks = whole.read_bytes(), {"x": 3, "y": 3}
    place = content.index(b"PK\5\6") + 16  # where the archive says that its directory lies
    contents = [content[:length] for length in (0, 1, 2, 7, len(content) // 2, len(content) - 9)]
    contents += [b"\0" + content[1:], content[:place] + b"\xff" * 4 + content[place + 4 :]]
    for _ in range(300):
        broken = bytearray(content)
        for at in rng.integers(content.index(b"PK\1\2"), len(content), 3):
            broken[at] = rng.integers(256)
        contents.append(bytes(broken))
    for broken in contents:
        (tmp_path / "b.npz").write_bytes(broken)
        try:
            found = data_set(tmp_path, ranks, Reading())
        except InvalidInput as error:  # the name of an array is as good as another
            assert "no array" in error.what  # noqa: PT017  (not every content raises)
            continue
        assert found.damaged <= {"b.npz"}
        assert found.files[0].rows == 100


def test_a_system_that_cannot_read_is_no_damage() -> None:
    assert is_damage(OSError(errno.EINVAL, "a place that no file has"))
    assert not is_damage(OSError(errno.EIO, "the disk"))
    assert not is_damage(OSError(errno.EACCES, "no right"))


def test_checksums_of_a_file_are_taken_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that do not lie in order, and every piece of a damaged file, would cost a pass each."""
    taken = []
    real = arrays._check_sums
    monkeypatch.setattr(arrays, "_check_sums", lambda *given: taken.append(given) or real(*given))
    reader = Reader(WANTED)
    for start in (50, 0, 20):
        read(reader, path, start, start + 10)
    assert len(taken) == 1
    reader.close()
