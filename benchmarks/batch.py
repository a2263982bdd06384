"""`fqfuse batch` against a bare session, and against kills.

``python -m fqfuse.benchmarks.batch`` makes a network of convolutions (66 million multiply-adds a
row) and 100,000 rows of Parquet. In short turns, one beside the other, a session runs rows of
memory in a plain loop, and a worker of `fqfuse batch` as many rows from file to file, two parts at
once as its process does: each turn's CPU seconds and time are compared, so that other work of the
machine meets both. Then all rows go
through `fqfuse batch` as a whole. Then the command is killed 20 times at random moments (SIGKILL)
and let finish, and all bytes are compared with those of the run that nobody disturbed.

The exit code is 1 if the median rate is below 0.95 (by CPU seconds; by time, too, where the
machine is idle) or a byte differs. `--form tensor` reads nested lists, which Parquet takes five
times as long to decode as binary.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import fqfuse
from fqfuse.batch.folder import opened
from fqfuse.batch.job import PARTS_AT_ONCE, Job
from fqfuse.batch.parts import Part, parts_of
from fqfuse.batch.reading import Wanted
from fqfuse.batch.run import Asked, checked, run_batch
from fqfuse.batch.worker import Worker
from fqfuse.measure.turns import busy_note

ROW, CHANNELS, DEPTH, CHUNK = (3, 32, 32), 64, 8, 5000
LEAST_RATE = 0.95
PARTS_OF_A_TURN = 4


def build_model() -> onnx.ModelProto:
    """Convolutions 3x3 with ReLU and FakeQuantize, 16 x 16 pixels from the first on; 10 logits."""
    rng = np.random.default_rng(0)
    constants, nodes = {}, []

    def node(op: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        name = f"{op}_{len(nodes)}"
        nodes.append(helper.make_node(op, inputs, [name], name, domain=domain, **attributes))
        return name

    def constant(array: np.ndarray[Any, Any]) -> str:
        constants[f"c{len(constants)}"] = np.asarray(array, np.float32)
        return f"c{len(constants) - 1}"

    def quantized(value: str, low: float, high: float, levels: int) -> str:
        ends = [constant(np.array(end)) for end in (low, high, low, high)]
        return node("FakeQuantize", value, *ends, domain="org.openvinotoolkit", levels=levels)

    value, channels = quantized("input", 0, 1, 256), ROW[0]
    for layer in range(DEPTH):
        weights = rng.normal(size=(CHANNELS, channels, 3, 3)) / np.sqrt(channels * 4)
        most = float(np.abs(weights).max())
        kernel = quantized(constant(weights), -most, most, 255)
        stride = 1 if layer else 2
        value = node("Conv", value, kernel, pads=[1] * 4, strides=[stride] * 2)
        value, channels = quantized(node("Relu", value), 0, 4, 256), CHANNELS
    value = node("Flatten", node("GlobalAveragePool", value))
    nodes.append(
        helper.make_node("MatMul", [value, constant(rng.normal(size=(CHANNELS, 10)))], ["logits"])
    )
    tensors = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(
        nodes,
        "convolutions",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["N", *ROW])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["N", 10])],
        tensors,
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("org.openvinotoolkit", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def write_rows(folder: Path, rows: int, form: str) -> None:
    """Random images, 20,000 in a file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(1)
    tensor, size = pa.fixed_shape_tensor(pa.float32(), ROW), math.prod(ROW)
    for start in range(0, rows, 4 * CHUNK):
        schema = pa.schema([("input", tensor if form == "tensor" else pa.binary(4 * size))])
        with pq.ParquetWriter(
            folder / f"{start:09}.parquet", schema, compression="none", use_dictionary=False
        ) as writer:
            for at in range(start, min(rows, start + 4 * CHUNK), CHUNK):
                array = rng.random((min(CHUNK, rows - at), *ROW), np.float32)
                column = pa.FixedShapeTensorArray.from_numpy_ndarray(array)
                if form == "binary":
                    buffers = [None, column.storage.flatten().buffers()[1]]
                    column = pa.Array.from_buffers(schema.field(0).type, len(array), buffers)
                writer.write_table(pa.table([column], schema=schema))


@dataclass(frozen=True)
class Turn:
    """How long a session and a worker take for the same number of rows: CPU seconds and seconds."""

    bare: tuple[float, float]
    batch: tuple[float, float]

    def ratios(self) -> tuple[float, float]:
        """The worker's rate by the session's."""
        return self.bare[0] / self.batch[0], self.bare[1] / self.batch[1]


def turns(plan: fqfuse.Plan, job: Job, parts: Sequence[Part], batch: int) -> Iterator[Turn]:
    """A turn for each few parts, which the worker reads, runs, writes and records."""
    worker = Worker(job)
    session = fqfuse.InferenceSession(plan, threads=job.threads)
    data = np.random.default_rng(2).random((16 * batch, *ROW), np.float32)
    feeds = [{"input": data[at : at + batch]} for at in range(0, len(data), batch)]

    def bare(rows: int) -> None:
        for number in range(-(-rows // batch)):
            session.run(None, feeds[number % len(feeds)])

    bare(3 * batch)
    with ThreadPoolExecutor(PARTS_AT_ONCE) as threads:
        for start in range(0, len(parts), PARTS_OF_A_TURN):
            some = parts[start : start + PARTS_OF_A_TURN]
            began = _clocks()
            bare(sum(part.rows for part in some))
            between = _clocks()
            list(threads.map(worker.run, some))
            yield Turn(_passed(began, between), _passed(between, _clocks()))


def _clocks() -> tuple[float, float]:
    return time.process_time(), time.perf_counter()


def _passed(start: tuple[float, float], end: tuple[float, float]) -> tuple[float, float]:
    return end[0] - start[0], end[1] - start[1]


def measured(plan: fqfuse.Plan, asked: Asked, count: int) -> tuple[float, float]:
    """The median ratios of so many turns, by CPU seconds and by time; prints them."""
    data, signature = checked(plan, asked)
    assert asked.threads is not None
    job = Job(
        data.root.resolve(),
        data.format,
        Wanted(signature, asked.reading),
        asked.output.resolve(),
        asked.backend,
        asked.threads,
    )
    shutil.rmtree(asked.output, ignore_errors=True)
    with opened(job, {}, plan):
        parts = parts_of(data.files, signature.batch)[: count * PARTS_OF_A_TURN]
        found = [turn.ratios() for turn in turns(plan, job, parts, signature.batch)]
    cpu, wall = np.array(found).T
    for name, ratios in (("CPU seconds", cpu), ("time", wall)):
        low, middle, high = np.quantile(ratios, (0.25, 0.5, 0.75))
        print(
            f"rate of the bare session's by {name}: {middle:.3f} (quartiles {low:.3f} to {high:.3f}, {len(ratios)} turns)",
            flush=True,
        )
    return float(np.median(cpu)), float(np.median(wall))


def digests(folder: Path) -> dict[str, str]:
    """Of all that a reader of the output sees."""
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.iterdir())
        if path.is_file()
    }


def killed_runs(
    model: Path, data: Path, output: Path, kills: int, part_seconds: float, options: Sequence[str]
) -> int:
    """Starts the command and kills it, again and again, then lets it end; how often it was killed
    before it was done.

    Moments are random: before anything is done or behind one further part, and in between, by the
    time that a part takes; so kills meet all that a run does, however fast the machine is.
    """
    draw, done, parts = random.Random(0), 0, 0  # noqa: S311  (moments)
    shutil.rmtree(output, ignore_errors=True)
    command = [sys.executable, "-m", "fqfuse", "batch", str(model), "-i", str(data)]
    command += ["-o", str(output), *options]
    for number in range(kills):
        wanted = parts + draw.randint(0, 1)
        running = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        while running.poll() is None and _parts(output) < wanted:
            time.sleep(0.005)
        time.sleep(draw.uniform(0, 2 * part_seconds))
        done += running.poll() is None
        running.kill()
        running.wait()
        parts = _parts(output)
        print(f"kill {number + 1}: {parts} parts done", flush=True)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return done


def _parts(output: Path) -> int:
    return len(list(output.glob("_batch/part-*.json")))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures, kills, and says what came of it."""
    parser = argparse.ArgumentParser(prog="benchmarks.batch", description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--turns", type=int, default=12)
    parser.add_argument("--form", choices=("binary", "tensor"), default="binary")
    parser.add_argument("--kills", type=int, default=20)
    default = Path(__file__).resolve().parent / "build" / "batch"
    parser.add_argument("--folder", type=Path, default=default)
    options = parser.parse_args(arguments)
    folder: Path = options.folder
    data, model = folder / f"{options.form}-{options.rows}", folder / "convolutions.onnx"
    if not data.exists():
        beside = folder / "rows.tmp"
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir(parents=True)
        write_rows(beside, options.rows, options.form)
        beside.rename(data)
    onnx.save(build_model(), model)
    plan = fqfuse.compile(model)
    note = busy_note()
    print(note or "the machine was idle", flush=True)
    asked = Asked(
        data,
        folder / "turns",
        batch=options.batch,
        threads=options.threads,
        workers=options.workers,
    )
    cpu, wall = measured(plan, asked, options.turns)
    whole = replace(asked, output=folder / "whole")
    shutil.rmtree(whole.output, ignore_errors=True)
    outcome = run_batch(plan, whole, lambda *_: None)
    rate = outcome.written / outcome.seconds
    print(
        f"all {outcome.written:,} rows: {outcome.seconds:.1f} s, {rate:,.0f} a second", flush=True
    )
    words = ["--batch", str(options.batch), "--threads", str(options.threads)]
    words += ["--workers", str(options.workers)]
    part_seconds = outcome.seconds / outcome.parts
    killed = killed_runs(model, data, folder / "killed", options.kills, part_seconds, words)
    same = digests(folder / "whole") == digests(folder / "killed")
    print(f"{killed} kills in the middle: the bytes are {'the same' if same else 'DIFFERENT'}")
    fast = cpu >= LEAST_RATE and (wall >= LEAST_RATE or bool(note))
    return 0 if fast and same and outcome.written == options.rows else 1


if __name__ == "__main__":
    sys.exit(main())
