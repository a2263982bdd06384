"""Data sets on processes of this machine: what comes out, what is refused, and what a kill costs."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import fqfuse
from fqfuse.batch import folder, local, worker, writers
from fqfuse.batch.job import Job
from fqfuse.batch.parts import Part, Piece, parts_of
from fqfuse.batch.reading import Pixels, Reading, Wanted
from fqfuse.batch.run import Asked, Outcome, checked, run_batch
from fqfuse.models.digits import digits_model_path
from fqfuse.plan.file import save_plan

ROOT = Path(__file__).parents[2]


def run(plan: fqfuse.Plan, data: Path, output: Path, **asked) -> Outcome:
    options = {"batch": 3, "backend": "numpy", "threads": 1, **asked}
    return run_batch(plan, Asked(data, output, **options), lambda *_: None)


def arrays_of(output: Path, name: str) -> np.ndarray:
    return np.concatenate([np.load(path)[name] for path in sorted(output.glob("part-*.npz"))])


def bad_rows(output: Path) -> list[dict]:
    return [json.loads(line) for line in (output / "_bad_rows.jsonl").read_text().splitlines()]


@pytest.fixture
def npz(tmp_path: Path, images: np.ndarray) -> Path:
    """The digits in files of different sizes, one of them a row by itself."""
    folder = tmp_path / "data"
    (folder / "b").mkdir(parents=True)
    np.savez(folder / "a.npz", image=images[:100], label=np.arange(100))
    np.save(folder / "b" / "c.npy", images[100])
    np.savez_compressed(folder / "b" / "d.npz", image=images[101:])
    (folder / "labels.txt").write_text("left alone")
    return folder


def test_rows_come_out_in_order_as_a_session_gives_them(
    tmp_path: Path, plan: fqfuse.Plan, npz: Path, logits: np.ndarray
) -> None:
    outcome = run(plan, npz, tmp_path / "out", workers=2)
    assert (outcome.written, outcome.bad, outcome.parts) == (360, 0, 2)
    assert np.array_equal(arrays_of(tmp_path / "out", "logits"), logits)
    assert np.array_equal(arrays_of(tmp_path / "out", "__row__"), np.arange(360))
    assert bad_rows(tmp_path / "out") == []
    manifest = json.loads((tmp_path / "out" / "_manifest.json").read_text())
    assert [part["rows"] for part in manifest["parts"]] == [192, 168]
    again = run(plan, npz, tmp_path / "out")
    assert (again.resumed, again.written) == (2, 360)


def test_a_plan_with_its_weights_in_a_second_file_runs(
    tmp_path: Path, plan: fqfuse.Plan, npz: Path, logits: np.ndarray, monkeypatch
) -> None:
    """As those beyond 2 GiB have them, which no pickle holds."""
    monkeypatch.setattr(folder, "save_plan", partial(save_plan, limit=0))
    run(plan, npz, tmp_path / "out", workers=2)
    assert len(list((tmp_path / "out" / "_batch").glob("plan.onnx.*.data"))) == 1
    assert np.array_equal(arrays_of(tmp_path / "out", "logits"), logits)
    assert run(plan, npz, tmp_path / "out").resumed == 2


def test_bad_rows_are_told_with_their_file_and_the_others_run(
    tmp_path: Path, plan: fqfuse.Plan, npz: Path, images: np.ndarray, logits: np.ndarray
) -> None:
    np.savez(npz / "b" / "a.npz", image=images[:4, :, :7])
    (npz / "b" / "b.npz").write_bytes((npz / "a.npz").read_bytes()[:999])
    np.save(npz / "b" / "short.npy", images[:9])
    with (npz / "b" / "short.npy").open("r+b") as file:
        file.truncate(128 + 5 * 256 + 7)
    outcome = run(plan, npz, tmp_path / "out")
    assert (outcome.data.rows, outcome.written, outcome.bad) == (374, 363, 11)
    told = {(row["file"], row["file_row"]): row["reason"] for row in bad_rows(tmp_path / "out")}
    assert (
        told["b/a.npz", 3] == "the array for image has rows of shape [1, 7, 8], expected [1, 8, 8]"
    )
    assert told["b/b.npz", 0].startswith("the file is damaged: ")
    assert told["b/short.npy", 8] == "the file is damaged: it is shorter than its header says"
    assert [row for file, row in told if file == "b/short.npy"] == list(range(3, 9))
    rows = arrays_of(tmp_path / "out", "__row__")
    assert sorted([*rows, *(row["row"] for row in bad_rows(tmp_path / "out"))]) == list(range(374))
    assert np.array_equal(arrays_of(tmp_path / "out", "logits")[:360], logits)


@pytest.mark.parametrize("threads", [2, 3])
def test_more_threads_give_the_same_bytes(
    tmp_path: Path, plan: fqfuse.Plan, npz: Path, contents, threads: int
) -> None:
    """Rows that are bad, too, and parts that end within a file."""
    np.savez(npz / "b" / "a.npz", image=np.zeros((4, 1, 7, 8), np.float32))
    run(plan, npz, tmp_path / "one", batch=2)
    outcome = run(plan, npz, tmp_path / "more", batch=2, threads=threads, backend="auto")
    assert (outcome.parts, outcome.bad) == (3, 4)
    other = run(plan, npz, tmp_path / "numpy", batch=2, threads=threads)
    assert other.threads == threads
    assert contents(tmp_path / "numpy") == contents(tmp_path / "one")
    for name in ("logits", "__row__"):
        assert np.array_equal(arrays_of(tmp_path / "more", name), arrays_of(tmp_path / "one", name))


@pytest.mark.parametrize(
    ("runs", "expected"),
    [(100, (6, 1, 4)), (4, (4, 1, 0)), (2, (2, 3, 0)), (0.5, (1, 6, 0))],
    ids=["plenty", "four", "two", "none"],
)
def test_as_many_batches_run_at_once_as_find_room(
    tmp_path: Path, plan: fqfuse.Plan, npz: Path, monkeypatch, runs: float, expected
) -> None:
    """(batches at once, threads of each, batches ready beside them) of six threads, by the memory of a
    machine of 12 processors: half of half of it is the worker's to fill.
    """
    asked = Asked(npz, tmp_path / "out", batch=32, backend="numpy", threads=6)
    data, signature = checked(plan, asked)
    wanted = Wanted(signature, asked.reading)
    job = Job(data.root, data.format, wanted, tmp_path / "out", "numpy", 6)
    one = fqfuse.InferenceSession(plan, backend="numpy", threads=1)
    image = np.zeros((32, 1, 8, 8), np.float32)
    (logits,) = one.run(None, {"image": image})
    memory = one.memory()
    # two parts have a batch each that waits, with its inputs or its outputs
    bytes_ = memory.arena + memory.scratchpad + 2 * (image.nbytes + logits.nbytes)
    monkeypatch.setattr(worker, "machine_bytes", lambda: int(runs * 4 * bytes_))
    monkeypatch.setattr(worker, "default_threads", lambda: 12)
    with folder.opened(job, {}, plan):
        session, count, beside = worker._session(job)
    assert (count, session.threads, beside) == expected


def test_outputs_that_wait_to_be_written_count_in_the_memory(tmp_path: Path, monkeypatch) -> None:
    """A row of 4 bytes gives one of 256 KB: eight threads could have 24 batches of them in memory,
    by the inputs' bytes.
    """
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 1])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 1 << 16])
    ones = helper.make_tensor("ones", TensorProto.FLOAT, [1, 1 << 16], [1.0] * (1 << 16))
    node = helper.make_node("Mul", ["x", "ones"], ["y"])
    opsets = [helper.make_opsetid("", 19)]
    model = helper.make_model(
        helper.make_graph([node], "large", [x], [y], [ones]), opset_imports=opsets, ir_version=9
    )
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    (tmp_path / "data").mkdir()
    np.save(tmp_path / "data" / "x.npy", np.zeros((9, 1), np.float32))
    plan = fqfuse.compile(tmp_path / "m.onnx")
    asked = Asked(tmp_path / "data", tmp_path / "out", batch=16, backend="numpy", threads=8)
    data, signature = checked(plan, asked)
    job = Job(data.root, "arrays", Wanted(signature, Reading()), tmp_path / "out", "numpy", 8)
    monkeypatch.setattr(worker, "machine_bytes", lambda: 128 << 20)
    monkeypatch.setattr(worker, "default_threads", lambda: 8)
    with folder.opened(job, {}, plan):
        session, count, beside = worker._session(job)
    assert count > 1
    waiting = 2 * (count + beside) * 16 * (1 << 18)
    assert count * session.memory().arena + waiting <= 64 << 20


def test_memory_that_ends_outside_of_a_run_is_told(
    tmp_path: Path, plan: fqfuse.Plan, npz: Path, monkeypatch
) -> None:
    """While outputs are joined to be written, say: it was told as an internal error."""
    asked = Asked(npz, tmp_path / "out", batch=3, backend="numpy", threads=2)
    data, signature = checked(plan, asked)
    job = Job(data.root, "arrays", Wanted(signature, Reading()), tmp_path / "out", "numpy", 2)

    def add(*_: object) -> None:
        raise MemoryError("Unable to allocate 122. MiB")

    with folder.opened(job, {}, plan):
        made = worker.Worker(job)
        parts = parts_of(data.files, 3)
        with monkeypatch.context() as patched:
            patched.setattr(writers.ArchiveWriter, "add", add)
            with pytest.raises(fqfuse.InvalidInput, match="not enough memory for part 1: Unable"):
                made.run(parts[1])
        assert not list((tmp_path / "out").glob("*part-*"))
        assert made.run(parts[1]).written == parts[1].rows  # the reader's lock is free again
    made._reader.close()


def gathering(path: Path) -> None:
    """`picked` is the element of a table of 4 that `index` names; batches of exactly 4."""
    index = helper.make_tensor_value_info("index", TensorProto.INT64, [4])
    picked = helper.make_tensor_value_info("picked", TensorProto.FLOAT, [4])
    table = helper.make_tensor("table", TensorProto.FLOAT, [4], [10.0, 11.0, 12.0, 13.0])
    node = helper.make_node("Gather", ["table", "index"], ["picked"], name="pick")
    graph = helper.make_graph([node], "gathering", [index], [picked], [table])
    opsets = [helper.make_opsetid("", 19)]
    path.write_bytes(
        helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()
    )


def test_a_row_that_the_model_refuses_is_bad_alone_and_batches_are_filled_up(
    tmp_path: Path,
) -> None:
    gathering(tmp_path / "gather.onnx")
    (tmp_path / "data").mkdir()
    np.save(tmp_path / "data" / "x.npy", np.array([0, 3, 99, 1, 2, 2], np.int64))
    plan = fqfuse.compile(tmp_path / "gather.onnx")
    outcome = run(plan, tmp_path / "data", tmp_path / "out", batch=None)
    assert outcome.signature.batch == 4
    assert arrays_of(tmp_path / "out", "picked").tolist() == [10, 13, 11, 12, 12]
    (bad,) = bad_rows(tmp_path / "out")
    assert (bad["row"], bad["file"], bad["file_row"]) == (2, "x.npy", 2)
    assert bad["reason"]
    with pytest.raises(fqfuse.InvalidInput, match="takes 4 rows at once, and --batch says 8"):
        run(plan, tmp_path / "data", tmp_path / "other", batch=8)


def test_another_job_does_not_get_into_the_folder(
    tmp_path: Path, plan: fqfuse.Plan, npz: Path, images: np.ndarray
) -> None:
    output = tmp_path / "out"
    run(plan, npz, output)
    with pytest.raises(fqfuse.InvalidInput, match="another job: batch, rows of a part differ"):
        run(plan, npz, output, batch=4)
    np.savez(npz / "a.npz", image=images[:100] + 1)
    with pytest.raises(fqfuse.InvalidInput, match="another job: data differ"):
        run(plan, npz, output)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("")
    with pytest.raises(fqfuse.InvalidInput, match=r"holds other files, such as thesis\.txt"):
        run(plan, npz, tmp_path / "mine")
    with pytest.raises(fqfuse.InvalidInput, match="lies in the folder of the data"):
        run(plan, npz, npz / "out")
    assert not (npz / "out").exists()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda _: None, "there are no data"),
        (lambda folder: np.savez(folder / "a.npz", other=np.zeros(3)), "has no array image"),
        (lambda folder: np.save(folder / "a.npy", np.zeros((2, 1, 8, 8))), "type float64, expected float32"),
        (
            lambda folder: [np.save(folder / "a.npy", np.zeros(3)), (folder / "b.png").touch()],
            r"several formats: 1 of arrays \(a\.npy\) and 1 of images \(b\.png\)",
        ),
    ],
)  # fmt: skip
def test_data_that_do_not_fit_are_refused_before_anything_is_written(
    tmp_path: Path, plan: fqfuse.Plan, make, message: str
) -> None:
    (tmp_path / "data").mkdir()
    make(tmp_path / "data")
    with pytest.raises(fqfuse.InvalidInput, match=message):
        run(plan, tmp_path / "data", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.each_case
@pytest.mark.parametrize("text", ['{"a":', "[1]", None], ids=["torn", "list", "folder"])
def test_a_job_that_cannot_be_read_is_told(tmp_path: Path, plan, npz: Path, text) -> None:
    run(plan, npz, tmp_path / "out")
    job = tmp_path / "out" / "_batch" / "job.json"
    job.unlink()
    if text is None:
        job.mkdir()
    else:
        job.write_text(text)
    with pytest.raises(fqfuse.InvalidInput, match="the job in the folder cannot be read"):
        run(plan, npz, tmp_path / "out")


def test_a_folder_that_may_not_be_written_is_told(tmp_path: Path, plan, npz: Path) -> None:
    run(plan, npz, tmp_path / "out")
    lock = tmp_path / "out" / "_batch" / "lock"
    lock.unlink()
    lock.mkdir()  # root may write all files
    with pytest.raises(fqfuse.InvalidInput, match="the folder cannot be written"):
        run(plan, npz, tmp_path / "out")


def test_images_of_more_than_8_bits_are_bad_rows(tmp_path: Path, plan: fqfuse.Plan) -> None:
    image = pytest.importorskip("PIL.Image")
    (tmp_path / "data").mkdir()
    image.fromarray(np.full((8, 8), 40_000, np.uint16)).save(tmp_path / "data" / "deep.png")
    image.fromarray(np.ones((8, 8), np.float32)).save(tmp_path / "data" / "float.tif")
    for mode in ("1", "L", "LA", "P", "RGB", "RGBA"):
        image.new(mode, (8, 8)).save(tmp_path / "data" / f"{mode}.png")
    outcome = run(plan, tmp_path / "data", tmp_path / "out")
    assert (outcome.written, outcome.bad) == (6, 2)
    told = {row["file"]: row["reason"] for row in bad_rows(tmp_path / "out")}
    assert (
        told["deep.png"]
        == "the image's pixels are neither grey, RGB nor CMYK of 8 bits (mode I;16)"
    )
    assert (
        told["float.tif"] == "the image's pixels are neither grey, RGB nor CMYK of 8 bits (mode F)"
    )


def test_images_are_resized_scaled_and_named(
    tmp_path: Path, plan: fqfuse.Plan, images: np.ndarray
) -> None:
    image = pytest.importorskip("PIL.Image")
    (tmp_path / "data").mkdir()
    pixels = np.round(images[:5, 0] / images.max() * 255).astype(np.uint8)
    for number, array in enumerate(pixels):
        image.fromarray(array).save(tmp_path / "data" / f"{number}.png")
    wide = np.concatenate([np.zeros((8, 4), np.uint8), pixels[0], np.zeros((8, 4), np.uint8)], 1)
    image.fromarray(wide).save(tmp_path / "data" / "wide.png")
    (tmp_path / "data" / "torn.png").write_bytes((tmp_path / "data" / "0.png").read_bytes()[:60])
    reading = Reading(pixels=Pixels("cover", (0.5,), (0.25,)))
    run(plan, tmp_path / "data", tmp_path / "out", reading=reading)
    fed = ((pixels.astype(np.float32) / np.float32(255)) - np.float32(0.5)) / np.float32(0.25)
    session = fqfuse.InferenceSession(plan, "numpy", 1)
    expected = session.run(None, {"image": fed[[0, 1, 2, 3, 4, 0]][:, np.newaxis]})[0]
    assert np.array_equal(arrays_of(tmp_path / "out", "logits"), expected)
    names = arrays_of(tmp_path / "out", "__file__").tolist()
    assert names == ["0.png", "1.png", "2.png", "3.png", "4.png", "wide.png"]
    (bad,) = bad_rows(tmp_path / "out")
    assert bad["file"] == "torn.png"
    exact = Reading(pixels=Pixels("exact"))
    run(plan, tmp_path / "data", tmp_path / "exact", reading=exact)
    assert (
        "the image has 8 x 16 pixels, expected 8 x 8" in bad_rows(tmp_path / "exact")[1]["reason"]
    )


def start(data: Path, output: Path) -> subprocess.Popen[bytes]:
    command = [
        sys.executable,
        "-m",
        "fqfuse",
        "batch",
        str(digits_model_path("qdq")),
        "-i",
        str(data),
    ]
    command += ["-o", str(output), "--batch", "1", "--workers", "2", "--backend", "numpy"]
    return subprocess.Popen([*command, "--threads", "1"], stdout=subprocess.DEVNULL)


def descendants(process: int) -> list[int]:
    found = []
    for child in Path(f"/proc/{process}/task/{process}/children").read_text().split():
        found += [int(child), *descendants(int(child))]
    return found


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="finds the workers in /proc")
def test_killed_again_and_again_it_gives_the_same_bytes(
    tmp_path: Path, plan: fqfuse.Plan, images: np.ndarray, contents
) -> None:
    data, output = tmp_path / "data", tmp_path / "out"
    data.mkdir()
    for number in range(7):
        np.savez(data / f"{number}.npz", image=images[number * 30 : number * 30 + 300])
    np.savez(data / "bad.npz", image=images[:9, :, :5])
    run(plan, data, tmp_path / "whole", batch=1)
    draw, kills = random.Random(7), 0  # noqa: S311  (moments)
    while kills < 6:
        before = len(list(output.glob("_batch/part-*.json"))) if output.exists() else 0
        running = start(data, output)
        deadline = time.monotonic() + 60
        while running.poll() is None and time.monotonic() < deadline:
            done = len(list(output.glob("_batch/part-*.json"))) if output.exists() else 0
            if done > before:
                break
            time.sleep(0.01)
        time.sleep(draw.random() * 0.3)
        workers = descendants(running.pid) if running.poll() is None else []
        if running.poll() is not None:
            break
        # the coordinator; every other time a worker, which is replaced
        if kills % 2 and workers:
            os.kill(draw.choice(workers), signal.SIGKILL)
            time.sleep(0.2)
        running.kill()
        running.wait()
        kills += 1
        ended = time.monotonic() + 10
        while any(alive(worker) for worker in workers) and time.monotonic() < ended:
            time.sleep(0.05)
        assert [worker for worker in workers if alive(worker)] == []
    assert kills >= 3
    assert start(data, output).wait() == 1  # for the bad rows
    assert contents(output) == contents(tmp_path / "whole")


def alive(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="finds the workers in /proc")
def test_a_second_run_keeps_out_and_a_killed_worker_is_replaced(
    tmp_path: Path, plan: fqfuse.Plan, images: np.ndarray, contents
) -> None:
    data, output = tmp_path / "data", tmp_path / "out"
    data.mkdir()
    for number in range(6):
        np.savez(data / f"{number}.npz", image=images)
    running = start(data, output)
    while not list(output.glob("_batch/part-*.json")):
        assert running.poll() is None
        time.sleep(0.01)
    with pytest.raises(fqfuse.InvalidInput, match="another run is writing to this folder"):
        run(plan, data, output, batch=1)
    # all workers, and multiprocessing's tracker of resources: whoever writes to that next must not
    # end by a broken pipe
    for process in descendants(running.pid):
        os.kill(process, signal.SIGKILL)
    assert running.wait() == 0
    run(plan, data, tmp_path / "whole", batch=1)
    assert contents(output) == contents(tmp_path / "whole")


def cmdline(process: int) -> bytes:
    return Path(f"/proc/{process}/cmdline").read_bytes()


@pytest.mark.parametrize(
    ("ending", "hint"), [("SIGKILL", "memory"), ("SIGBUS", "disk"), ("exit code 1", "above")]
)
def test_the_hint_fits_how_the_processes_ended(ending: str, hint: str) -> None:
    """A Python that could not start was told to take a smaller batch."""
    error = local._given_up(Part(3, 10, (Piece("a.npy", 0, 5, 10),)), ending)
    assert ending in error.what
    assert "rows 10 to 14" in error.what
    assert hint in error.hint
