"""Parquet in and out, and the forms of a tensor column."""

from __future__ import annotations

import json
import mmap
import os
import signal
from pathlib import Path

import numpy as np
import pytest

import fqfuse
from fqfuse.batch import parquet
from fqfuse.batch.columns import check_type, column_of, reason_of, row_shape, values_of
from fqfuse.batch.parts import Part, Piece
from fqfuse.batch.reading import Reading, Wanted
from fqfuse.batch.rows import Rows
from fqfuse.batch.run import Asked, Outcome, run_batch
from fqfuse.batch.signature import RowType, Signature
from fqfuse.batch.writers import written

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

ROW = RowType(np.dtype(np.float32), (2, 3))


def run(plan: fqfuse.Plan, data: Path, output: Path, **asked) -> Outcome:
    options = {"batch": 3, "backend": "numpy", "threads": 1, **asked}
    return run_batch(plan, Asked(data, output, **options), lambda *_: None)


def forms(array: np.ndarray) -> dict[str, object]:
    """One array as each kind of column."""
    nested = array.tolist()
    fixed = pa.list_(pa.list_(pa.float32(), 3), 2)
    tensor = pa.FixedShapeTensorArray.from_numpy_ndarray(np.ascontiguousarray(array))
    turned = pa.ExtensionArray.from_storage(
        pa.fixed_shape_tensor(pa.float32(), (3, 2), permutation=(1, 0)),
        pa.array(array.transpose(0, 2, 1).reshape(-1, 6).tolist(), pa.list_(pa.float32(), 6)),
    )
    return {
        "tensor": tensor,
        "turned": turned,
        "lists": pa.array(nested, pa.list_(pa.list_(pa.float32()))),
        "large": pa.array(nested, pa.large_list(pa.large_list(pa.float32()))),
        "fixed": pa.array(nested, fixed),
        "flat": pa.array(array.reshape(-1, 6).tolist(), pa.list_(pa.float32())),
        "flat_fixed": pa.array(array.reshape(-1, 6).tolist(), pa.list_(pa.float32(), 6)),
    }


@pytest.mark.each_case
@pytest.mark.parametrize("form", list(forms(np.zeros((1, 2, 3), np.float32))))
def test_each_form_of_a_column_is_the_same_array(form: str) -> None:
    array = np.arange(30, dtype=np.float32).reshape(5, 2, 3)
    column = forms(array)[form]
    fits, values = values_of(column, ROW)
    assert fits.all()
    assert np.array_equal(values, array)
    fits, values = values_of(column.slice(2, 2), ROW)
    assert fits.tolist() == [True, True]
    assert np.array_equal(values, array[2:4])
    fits, values = values_of(column.take(pa.array([0, None, 3])), ROW)
    assert fits.tolist() == [True, False, True]
    assert np.array_equal(values, array[[0, 3]])
    wrong = RowType(np.dtype(np.float32), (2, 2))
    fits, values = values_of(column, wrong)
    assert not fits.any()
    assert values.shape == (0, 2, 2)


@pytest.mark.each_case
@pytest.mark.parametrize("type_", [pa.binary(), pa.large_binary(), pa.binary(24)], ids=str)
def test_bytes_are_rows_and_those_of_another_number_are_told(type_) -> None:
    array = np.arange(30, dtype=np.float32).reshape(5, 2, 3)
    packed = [row.tobytes() for row in array]
    column = pa.array(packed, type_)
    check_type("x", type_, ROW, "here")
    assert row_shape(type_) is None
    columns = [column, pa.array([b"\0" * 24, *packed], type_).slice(1), column.dictionary_encode()]
    for one in columns:
        fits, values = values_of(one, ROW)
        assert fits.all()
        assert np.array_equal(values, array)
        fits, values = values_of(one.slice(2, 2), ROW)
        assert np.array_equal(values, array[2:4])
        fits, values = values_of(one.take(pa.array([0, None, 3])), ROW)
        assert fits.tolist() == [True, False, True]
        assert np.array_equal(values, array[[0, 3]])
    fits, values = values_of(column, RowType(np.dtype(np.float32), (2, 2)))
    assert (fits.any(), values.shape) == (False, (0, 2, 2))
    assert values_of(column.slice(0, 0), ROW)[1].shape == (0, 2, 3)


def test_bytes_between_others_are_found_wherever_they_begin() -> None:
    array = np.arange(12, dtype=np.float32).reshape(2, 2, 3)
    rows = [b"odd", array[0].tobytes(), None, b"", array[1].tobytes()]
    fits, values = values_of(pa.array(rows).slice(1), ROW)
    assert fits.tolist() == [True, False, False, True]
    assert np.array_equal(values, array)
    fits, values = values_of(pa.array(rows).slice(1, 1), ROW)
    assert values.flags.aligned
    assert np.array_equal(values, array[:1])
    told = reason_of("x", b"odd", ROW)
    assert told == "the column x holds 3 bytes, expected 24: float32[2, 3]"
    lists = pa.list_(pa.binary())
    with pytest.raises(fqfuse.InvalidInput, match="values of type binary"):
        check_type("x", lists, ROW, "here")


def test_lists_with_holes_are_found_row_by_row() -> None:
    good = [[1, 2, 3], [4, 5, 6]]
    rows = [good, [[1, 2, 3]], good, [[1, 2], [3, 4]], [[1, None, 3], [4, 5, 6]], [[1, 2, 3], None]]
    fits, values = values_of(pa.array(rows, pa.list_(pa.list_(pa.float32()))), ROW)
    assert fits.tolist() == [True, False, True, False, False, False]
    assert values.tolist() == [good, good]
    lists = [[None, [1, 2, 3]], rows[4], rows[5], [[1, 2, 3], [4]]]
    assert [reason_of("x", value, ROW) for value in lists] == [
        *["the column x holds null"] * 3,
        "the column x holds lists of different lengths",
    ]


@pytest.mark.each_case
@pytest.mark.parametrize(
    "array",
    [
        np.arange(4, dtype=np.int64),
        np.arange(12, dtype=np.uint8).reshape(4, 3),
        np.arange(24, dtype=np.float16).reshape(4, 2, 3),
        np.array([[True, False], [False, False], [True, True]]),
        np.zeros((0, 2), np.float32),
    ],
    ids=lambda array: f"{array.dtype}{array.shape}",
)
def test_outputs_come_back_as_they_were(array: np.ndarray) -> None:
    row = RowType(array.dtype, array.shape[1:])
    fits, values = values_of(column_of(array), row)
    assert fits.all()
    assert values.dtype == array.dtype
    assert np.array_equal(values, array)


def test_parquet_in_and_out_with_kept_columns_and_bad_rows(
    tmp_path: Path, plan: fqfuse.Plan, images: np.ndarray, logits: np.ndarray
) -> None:
    rows = [image.tolist() for image in images]
    rows[7], rows[250] = None, [[[1.0]]]
    names = [f"digit {number}" for number in range(360)]
    table = pa.table(
        {"name": names, "pixels": pa.array(rows, pa.list_(pa.list_(pa.list_(pa.float32()))))}
    )
    (tmp_path / "data").mkdir()
    pq.write_table(table.slice(0, 200), tmp_path / "data" / "a.parquet", row_group_size=70)
    pq.write_table(table.slice(200), tmp_path / "data" / "b.parquet")
    (tmp_path / "data" / "c.parquet").write_bytes(b"PAR1 torn")
    reading = Reading({"image": "pixels"}, ("name",))
    outcome = run(plan, tmp_path / "data", tmp_path / "out", reading=reading, workers=2)
    assert (outcome.data.rows, outcome.written, outcome.bad) == (361, 358, 3)
    found = pq.read_table(tmp_path / "out")
    good = [number for number in range(360) if number not in (7, 250)]
    assert found.column("__row__").to_pylist() == good
    assert found.column("name").to_pylist() == [names[number] for number in good]
    answers = found.column("logits").combine_chunks().to_numpy_ndarray()
    assert np.array_equal(answers, logits[good])
    text = (tmp_path / "out" / "_bad_rows.jsonl").read_text()
    told = [json.loads(line) for line in text.splitlines()]
    assert [(row["row"], row["file"], row["file_row"]) for row in told] == [
        (7, "a.parquet", 7),
        (250, "b.parquet", 50),
        (360, "c.parquet", 0),
    ]
    assert told[0]["reason"] == "the column pixels is null"
    assert told[1]["reason"] == "the column pixels has shape [1, 1, 1], expected [1, 8, 8]"
    assert told[2]["reason"].startswith("the file is damaged: ")


def test_a_torn_row_group_costs_its_own_rows_alone(
    tmp_path: Path, plan: fqfuse.Plan, images: np.ndarray, logits: np.ndarray
) -> None:
    table = pa.table({"image": pa.FixedShapeTensorArray.from_numpy_ndarray(images)})
    path = tmp_path / "a.parquet"
    pq.write_table(table, path, row_group_size=90, compression="zstd", use_dictionary=False)
    chunk = pq.ParquetFile(path).metadata.row_group(1).column(0)
    with path.open("r+b") as file:
        file.seek(chunk.data_page_offset)
        file.write(b"\xff" * min(200, chunk.total_compressed_size))
    run(plan, path, tmp_path / "out")
    found = pq.read_table(tmp_path / "out")
    good = [*range(90), *range(180, 360)]
    assert found.column("__row__").to_pylist() == good
    answers = found.column("logits").combine_chunks().to_numpy_ndarray()
    assert np.array_equal(answers, logits[good])
    assert len((tmp_path / "out" / "_bad_rows.jsonl").read_text().splitlines()) == 90


def test_a_page_with_a_wrong_bit_is_found_by_its_checksum(
    tmp_path: Path, plan: fqfuse.Plan, images: np.ndarray, logits: np.ndarray
) -> None:
    table = pa.table({"image": pa.FixedShapeTensorArray.from_numpy_ndarray(images)})
    path = tmp_path / "a.parquet"
    options = {"compression": "none", "use_dictionary": False, "write_page_checksum": True}
    pq.write_table(table, path, row_group_size=90, **options)
    content = bytearray(path.read_bytes())
    content[content.index(images[100].tobytes()) + 2] ^= 1
    path.write_bytes(content)
    run(plan, path, tmp_path / "out")
    found = pq.read_table(tmp_path / "out")
    good = [*range(90), *range(180, 360)]
    assert found.column("__row__").to_pylist() == good
    answers = found.column("logits").combine_chunks().to_numpy_ndarray()
    assert np.array_equal(answers, logits[good])
    assert "CRC" in (tmp_path / "out" / "_bad_rows.jsonl").read_text()


@pytest.mark.parametrize("mapped", [True, False])
def test_a_file_system_that_maps_no_files_is_read_all_the_same(
    tmp_path: Path, images: np.ndarray, monkeypatch, mapped: bool
) -> None:
    """Row groups of 128 KB, which are mapped where they can be, and a last one that is shorter."""
    rows = np.concatenate([images] * 3)
    table = pa.table({"image": pa.FixedShapeTensorArray.from_numpy_ndarray(rows)})
    path = tmp_path / "a.parquet"
    pq.write_table(table, path, row_group_size=512, compression="none", use_dictionary=False)
    maps = []
    monkeypatch.setattr(parquet, "_can_be_mapped", lambda _: mapped)
    monkeypatch.setattr(
        parquet.mmap, "mmap", lambda *a, mmap=mmap.mmap, **k: maps.append(a) or mmap(*a, **k)
    )
    row = RowType(np.dtype(np.float32), images.shape[1:])
    reader = parquet.Reader(Wanted(Signature({"image": row}, (), 100, False), Reading()))
    found = [*reader.read(path, Piece("a.parquet", 5, len(rows), 0))]
    reader.close()
    assert np.array_equal(np.concatenate([some.feeds["image"] for some in found]), rows[5:])
    assert bool(maps) == mapped


def test_reads_of_a_mapped_file_are_its_bytes_wherever_they_lie(
    tmp_path: Path, monkeypatch
) -> None:
    """Within a block, across the ends of some, at the end of the file, and beyond it."""
    monkeypatch.setattr(parquet, "_BLOCK", 1 << 17)
    draw = np.random.default_rng(3)
    content = draw.bytes((1 << 20) + 12_345)
    (tmp_path / "a").write_bytes(content)
    with parquet._Mapped(tmp_path / "a") as file:
        held = []
        for size in draw.integers(0, 300_000, 200).tolist():
            start = int(draw.integers(0, len(content) - size + 1))
            file.seek(start)
            held.append((start, file.read(size)))
            assert file.tell() == start + size
        assert all(read == content[start : start + len(read)] for start, read in held)
        for start in (len(content) - 70_000, 1 << 20, len(content), 1 << 30):
            file.seek(start)
            with pytest.raises(ValueError, match="shorter"):
                file.read(70_001)
        file.seek(len(content) - 70_000)
        assert file.read(70_000) == content[-70_000:]


def descriptors() -> int:
    return len([*Path("/proc/self/fd").iterdir()])


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="counts descriptors in /proc")
def test_a_row_group_of_many_columns_takes_few_descriptors(tmp_path: Path) -> None:
    """Each map holds one, and a system gives a process 1,024: as many columns could not be read."""
    names = [f"c{number}" for number in range(100)]
    numbers = np.arange(10_000.0)
    table = pa.table({name: numbers + at for at, name in enumerate(names)})
    path = tmp_path / "a.parquet"
    pq.write_table(table, path, compression="none", use_dictionary=False)
    wanted = Wanted(
        Signature({"c0": RowType(np.dtype(np.float64), ())}, (), 999, False),
        Reading(keep=tuple(names[1:])),
    )
    reader, before = parquet.Reader(wanted), descriptors()
    most, found = 0, []
    for some in reader.read(path, Piece("a.parquet", 0, 10_000, 0)):
        most = max(most, descriptors())
        found.append(some.kept)
    reader.close()
    assert pa.Table.from_batches(found).equals(table.drop_columns("c0"))
    assert most <= before + 4
    del some, found
    assert descriptors() == before


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGBUS"), reason="the system cuts no mapped files")
def test_rows_of_a_file_that_is_cut_short_meanwhile_are_bad(
    tmp_path: Path, plan: fqfuse.Plan, images: np.ndarray
) -> None:
    """The worker dies, and the one that replaces it finds a damaged file."""
    rows = np.resize(images, (60_000, *images.shape[1:]))
    table = pa.table({"image": pa.FixedShapeTensorArray.from_numpy_ndarray(rows)})
    (tmp_path / "data").mkdir()
    path = tmp_path / "data" / "a.parquet"
    pq.write_table(table, path, compression="none", use_dictionary=False)

    def cut(part: Part | None, _: int) -> None:
        if part is not None and path.stat().st_size > 5 << 20:
            os.truncate(path, 5 << 20)

    asked = Asked(tmp_path / "data", tmp_path / "out", batch=32, backend="numpy", threads=1)
    outcome = run_batch(plan, asked, cut)
    assert outcome.written + outcome.bad == 60_000
    assert 2048 <= outcome.written <= 20_480  # what had been decoded by then
    assert outcome.written % 2048 == 0  # whole parts
    told = (tmp_path / "out" / "_bad_rows.jsonl").read_text().splitlines()
    assert all("the file is damaged" in json.loads(line)["reason"] for line in told)


def test_columns_of_other_types_are_refused_with_the_file(
    tmp_path: Path, plan: fqfuse.Plan, images: np.ndarray
) -> None:
    wide = pa.FixedShapeTensorArray.from_numpy_ndarray(images.astype(np.float64))
    pq.write_table(pa.table({"image": wide}), tmp_path / "a.parquet")
    with pytest.raises(fqfuse.InvalidInput, match="values of type double") as caught:
        run(plan, tmp_path / "a.parquet", tmp_path / "out")
    assert caught.value.where.endswith("a.parquet")
    with pytest.raises(fqfuse.InvalidInput, match="the file has no column other"):
        run(plan, tmp_path / "a.parquet", tmp_path / "out", reading=Reading({"image": "other"}))
    twice = pa.Table.from_arrays([wide, wide], names=["image", "image"])
    pq.write_table(twice, tmp_path / "a.parquet")
    with pytest.raises(fqfuse.InvalidInput, match="the file has 2 columns image"):
        run(plan, tmp_path / "a.parquet", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.each_case
@pytest.mark.parametrize("suffix", [".parquet", ".npz"])
def test_outputs_whose_rows_change_their_shape_are_refused(tmp_path: Path, suffix: str) -> None:
    def write() -> None:
        rows = Rows({}, np.arange(2), (("a", 0, 2),))
        with written(tmp_path / f"part{suffix}", files=False) as writer:
            for size in (3, 4):
                writer.add(rows, {"x": np.zeros((2, size), np.float32)})

    with pytest.raises(fqfuse.InvalidInput, match="x have different shapes"):
        write()
    assert list(tmp_path.iterdir()) == []


def test_another_extension_type_is_what_it_is_stored_as() -> None:
    class Grid(pa.ExtensionType):
        shape = (2, 3)

        def __init__(self) -> None:
            super().__init__(pa.large_list(pa.float32()), "grid")

        def __arrow_ext_serialize__(self) -> bytes:
            return b""

    array = np.arange(18, dtype=np.float32).reshape(3, 2, 3)
    stored = pa.array(array.reshape(3, 6).tolist(), pa.large_list(pa.float32()))
    column = pa.ExtensionArray.from_storage(Grid(), stored)
    check_type("grid", column.type, ROW, "here")
    assert row_shape(column.type) == (2, 3)
    fits, values = values_of(column.slice(1), ROW)
    assert fits.all()
    assert np.array_equal(values, array[1:])
