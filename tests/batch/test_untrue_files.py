"""Files whose headers claim what they do not hold, disks that are full, and outputs that change: each
ends in a bad row or a clear error, and soon.
"""

from __future__ import annotations

import io
import resource
import zipfile
from pathlib import Path

import numpy as np
import pytest

import fqfuse
from fqfuse.batch import folder, sources
from fqfuse.batch.columns import check_type, values_of
from fqfuse.batch.job import Job
from fqfuse.batch.parts import Part, parts_of
from fqfuse.batch.reading import Reading, Wanted
from fqfuse.batch.run import Asked, checked
from fqfuse.batch.signature import RowType, Signature
from fqfuse.batch.worker import Worker

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

FAR = 10**12
PIXELS = RowType(np.dtype(np.uint8), (3, 8, 8))


def header(shape: tuple[int, ...], dtype: str = "<f4", *, fortran: bool = False) -> bytes:
    file = io.BytesIO()
    told = {"descr": dtype, "fortran_order": fortran, "shape": shape}
    np.lib.format.write_array_header_1_0(file, told)
    return file.getvalue()


def archive(content: bytes, claimed: int | None = None) -> bytes:
    """An .npz with an array x, whose directory may claim another size."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as written:
        with written.open("x.npy", "w", force_zip64=True) as member:
            member.write(content)
        if claimed is not None:
            written.getinfo("x.npy").file_size = claimed
    return file.getvalue()


def varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def parquet(rows: int, claimed: int) -> bytes:
    """A Parquet file whose footer claims another number of rows."""
    file = io.BytesIO()
    column = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(rows * 4, np.float32)), 4)
    pq.write_table(pa.table({"x": column}), file)
    data = file.getvalue()
    size = int.from_bytes(data[-8:-4], "little")
    footer = data[-8 - size : -8]
    for count in (rows, rows * 4):  # of the file, its row group, and the values of the column
        footer = footer.replace(varint(2 * count), varint(2 * claimed * count // rows))
    return data[: -8 - size] + footer + len(footer).to_bytes(4, "little") + b"PAR1"


UNTRUE = {
    "more-rows.npy": header((FAR, 4)),
    "more-rows-of-nothing.npy": header((FAR, 0)),
    "some-of-them.npy": header((FAR, 4)) + bytes(160),
    "across.npy": header((100, 4), fortran=True) + bytes(160),
    "across-far.npy": header((100, FAR), fortran=True),
    "member.npz": archive(header((FAR, 4))),
    "member-of-nothing.npz": archive(header((FAR, 0))),
    "directory.npz": archive(header((FAR, 4)) + bytes(160), FAR * 16 + 128),
    "across.npz": archive(header((100, 4), fortran=True) + bytes(160)),
    "footer.parquet": parquet(12345, FAR),
}


@pytest.mark.parametrize("name", UNTRUE)
def test_a_file_that_claims_what_it_does_not_hold_is_one_bad_row(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(UNTRUE[name])
    found = sources.data_set(tmp_path, {"x": 2}, Reading())
    assert (found.rows, found.damaged) == (1, {name})
    reader = sources.FORMATS[found.format].reader
    bad: list = []
    (part,) = parts_of(found.files, 32)
    assert not [*sources.rows_of(part, tmp_path, reader, bad)]
    ((row, reason),) = [(row.row, row.reason) for row in bad]
    assert row == 0
    assert reason.startswith("the file is damaged: ")
    assert str(tmp_path) not in reason


def test_files_of_many_rows_in_few_bytes_are_read(tmp_path: Path) -> None:
    """What they claim is true: one value many times takes no room."""
    (tmp_path / "a.parquet").write_bytes(parquet(30_000, 30_000))
    np.savez_compressed(tmp_path / "b.npz", x=np.zeros((30_000, 1), np.float32))
    np.save(tmp_path / "c.npy", np.zeros((30_000, 1), np.float32)[:, :0])
    for name, rows in {"a.parquet": 30_000, "b.npz": 30_000}.items():
        assert (tmp_path / name).stat().st_size < rows
        found = sources.data_set(tmp_path / name, {"x": 2}, Reading())
        assert (found.rows, found.damaged) == (rows, frozenset())


def test_bad_rows_name_files_as_the_data_set_does(tmp_path: Path) -> None:
    """Wherever it lies: two folders of the same data give the same bytes."""
    pytest.importorskip("PIL")
    told = []
    for place in ("one", "an'other\\"):
        below = tmp_path / place / "below"
        below.mkdir(parents=True)
        (below / "a.png").write_bytes(b"no image")
        (below / "b.png").write_bytes(b"\x89PNG\r\n\x1a\n")
        (tmp_path / place / "c.parquet").write_bytes(b"no table")
        told.append([])
        for data in (tmp_path / place / "c.parquet", below):
            found = sources.data_set(data, {"x": 4}, Reading())
            wanted = Wanted(Signature({"x": PIXELS}, (), 8, exactly=False), Reading())
            (part,) = parts_of(found.files, 8)
            reader = sources.FORMATS[found.format].reader(wanted)
            assert not [*sources.rows_of(part, found.root, reader, told[-1])]
    assert [row.file for row in told[0]] == ["c.parquet", "a.png", "b.png"]
    assert str(tmp_path) not in str(told)
    assert told[0] == told[1]


def job_of(plan: fqfuse.Plan, images: np.ndarray, place: Path, suffix: str) -> tuple[Job, Part]:
    """A job of one part."""
    data = place / "data"
    data.mkdir()
    if suffix == ".npz":
        np.save(data / "a.npy", images)
    else:
        column = pa.FixedShapeTensorArray.from_numpy_ndarray(images)
        pq.write_table(pa.table({"image": column}), data / "a.parquet")
    found, signature = checked(plan, Asked(data, place / "out", batch=32))
    wanted = Wanted(signature, Reading())
    job = Job(found.root, found.format, wanted, place / "out", "numpy", 1)
    job.plan.parent.mkdir(parents=True)
    fqfuse.save_plan(plan, job.plan)
    (part,) = parts_of(found.files, 32)
    return job, part


@pytest.mark.parametrize("suffix", [".npz", ".parquet"])
@pytest.mark.parametrize("count", [4, pytest.param(50, marks=pytest.mark.slow)])  # 10 s
def test_disks_of_many_sizes(
    tmp_path: Path, plan: fqfuse.Plan, images: np.ndarray, suffix: str, count: int
) -> None:
    """The output is there whole or not at all, and nothing beside it; a part counts as done as long as
    its bytes are those that were written.
    """
    job, part = job_of(plan, images[:100], tmp_path, suffix)
    worker, target = Worker(job), job.file_of(0)
    assert limited(worker, part, 1 << 20)
    whole = target.read_bytes()
    for size in range(0, len(whole) + len(whole) // (count - 2), len(whole) // (count - 2)):
        target.unlink(missing_ok=True)
        job.record_of(0).unlink(missing_ok=True)
        done = limited(worker, part, size)
        assert done == (size >= len(whole))
        assert [path.name for path in job.output.glob("*part*")] == [target.name] * done
        assert job.record_of(0).exists() == done
    assert target.read_bytes() == whole
    assert folder.done(job, [part])
    for at in range(0, len(whole), len(whole) // 20):
        target.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert not folder.done(job, [part])


def limited(worker: Worker, part: Part, size: int) -> bool:
    """True where a part is written although no file may be larger, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
        worker.run(part)
    except fqfuse.InvalidInput as error:
        if "the output cannot be written" not in error.what or not error.hint:
            raise
        return False
    finally:
        worker._reader.close()
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    return True


F32 = RowType(np.dtype(np.float32), (2,))
ROWS = [[1.0, 2.0], [3.0, 4.0]]
REFUSED = {
    "list views": (pa.array(ROWS, pa.list_view(pa.float32())), F32),
    "large list views": (pa.array(ROWS, pa.large_list_view(pa.float32())), F32),
    "lists of f64": (pa.array(ROWS, pa.list_(pa.float64())), F32),
    "tensors": (
        pa.FixedShapeTensorArray.from_numpy_ndarray(np.ones((3, 2, 2))),
        RowType(np.dtype(np.float32), (2, 2)),
    ),
    "a dictionary of views": (
        pa.array(["a", "b", "a"], pa.string_view()).dictionary_encode(),
        RowType(np.dtype(object), ()),
    ),
    "views of lists": (
        pa.array([ROWS], pa.list_view(pa.list_(pa.float32()))),
        RowType(np.dtype(np.float32), (2, 2)),
    ),
    "bytes": (
        pa.array([np.array(row, np.float32).tobytes() for row in ROWS], pa.binary_view()),
        F32,
    ),
    "texts": (pa.array(["a", "b"], pa.string_view()), RowType(np.dtype(object), ())),
    "lists of texts": (
        pa.array([["a", "b"]], pa.list_(pa.string_view())),
        RowType(np.dtype(object), (2,)),
    ),
    "booleans": (pa.array([[1, 0]], pa.list_(pa.int8())), RowType(np.dtype(bool), (2,))),
}


@pytest.mark.parametrize("name", REFUSED)
def test_the_hint_of_a_refused_column_makes_it_fit(name: str) -> None:
    column, row = REFUSED[name]
    with pytest.raises(fqfuse.InvalidInput) as caught:
        check_type("c", column.type, row, "here")
    assert caught.value.what.startswith("the column c has values of type ")
    how = caught.value.hint.removeprefix("convert it first: ")
    mended = eval(how, {"column": column, "pyarrow": pa})  # noqa: S307  (fqfuse's own words)
    check_type("c", mended.type, row, "here")
    fits, values = values_of(mended, row)
    assert fits.all()
    assert values.shape == (len(column), *row.shape)
