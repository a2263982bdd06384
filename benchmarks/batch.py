"""`fqfuse batch` against a bare session, and against kills.

``python -m fqfuse.benchmarks.batch`` makes a network of convolutions (66 million multiply-adds a
row) and 100,000 rows of Parquet, runs them through a session in a plain loop over arrays in memory
and through `fqfuse batch` from file to file, in turns, and prints the rates. Then it kills the
command 20 times at random moments (SIGKILL), lets it finish, and compares all bytes with those of
the run that nobody disturbed. The exit code is 1 if the rate is below 0.95 or a byte differs.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import fqfuse
from fqfuse.batch.run import Asked, run_batch
from fqfuse.measure.turns import busy_note

ROW, CHANNELS, DEPTH, CHUNK = (3, 32, 32), 64, 8, 5000
LEAST_RATE = 0.95


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


def write_rows(folder: Path, rows: int) -> None:
    """Random images, 20,000 in a file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(1)
    schema = pa.schema([("input", pa.fixed_shape_tensor(pa.float32(), ROW))])
    for start in range(0, rows, 4 * CHUNK):
        with pq.ParquetWriter(
            folder / f"{start:09}.parquet", schema, compression="none", use_dictionary=False
        ) as writer:
            for at in range(start, min(rows, start + 4 * CHUNK), CHUNK):
                array = rng.random((min(CHUNK, rows - at), *ROW), np.float32)
                column = pa.FixedShapeTensorArray.from_numpy_ndarray(array)
                writer.write_table(pa.table([column], schema=schema))


def bare_rate(plan: fqfuse.Plan, rows: int, batch: int, threads: int) -> float:
    """Rows a second of a session in a loop, data in memory."""
    session = fqfuse.InferenceSession(plan, threads=threads)
    data = np.random.default_rng(2).random((16 * batch, *ROW), np.float32)
    feeds = [{"input": data[at : at + batch]} for at in range(0, len(data), batch)]
    session.run(None, feeds[0])
    started = time.perf_counter()
    count = -(-rows // batch)
    for number in range(count):
        session.run(None, feeds[number % len(feeds)])
    return count * batch / (time.perf_counter() - started)


def batch_rates(
    plan: fqfuse.Plan, data: Path, output: Path, batch: int, threads: int, workers: int
) -> tuple[float, float]:
    """Rows a second from file to file: of the whole run, and behind its first part (a worker starts
    Python and makes its session in that).
    """
    moments: list[tuple[float, int]] = []
    shutil.rmtree(output, ignore_errors=True)
    asked = Asked(data, output, batch=batch, threads=threads, workers=workers)
    started = time.perf_counter()
    outcome = run_batch(
        plan, asked, lambda part, rows: moments.append((time.perf_counter(), rows if part else 0))
    )
    whole = outcome.written / (time.perf_counter() - started)
    first, last = moments[1][0], moments[-1][0]
    later = sum(rows for _, rows in moments[2:]) / (last - first) if last > first else whole
    return whole, later


def digests(folder: Path) -> dict[str, str]:
    """Of all that a reader of the output sees."""
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.iterdir())
        if path.is_file()
    }


def killed_runs(model: Path, data: Path, output: Path, kills: int, options: Sequence[str]) -> int:
    """Starts the command and kills it, again and again, then lets it end; how often it was killed
    before it was done.

    Moments are random: behind up to three further parts, and in between; so kills meet all that a
    run does, however fast the machine is.
    """
    draw, done, parts = random.Random(0), 0, 0  # noqa: S311  (moments)
    shutil.rmtree(output, ignore_errors=True)
    command = [sys.executable, "-m", "fqfuse", "batch", str(model), "-i", str(data)]
    command += ["-o", str(output), *options]
    for number in range(kills):
        wanted = parts + draw.randint(0, 3)
        running = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        while running.poll() is None and _parts(output) < wanted:
            time.sleep(0.005)
        time.sleep(draw.uniform(0, 1))
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
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kills", type=int, default=20)
    default = Path(__file__).resolve().parent / "build" / "batch"
    parser.add_argument("--folder", type=Path, default=default)
    options = parser.parse_args(arguments)
    folder: Path = options.folder
    data, model = folder / f"rows-{options.rows}", folder / "convolutions.onnx"
    if not data.exists():
        beside = folder / "rows.tmp"
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir(parents=True)
        write_rows(beside, options.rows)
        beside.rename(data)
    onnx.save(build_model(), model)
    plan = fqfuse.compile(model)
    print(busy_note() or "the machine was idle", flush=True)
    ratios, whole_ratios = [], []
    for number in range(options.rounds):
        bare = bare_rate(plan, options.rows, options.batch, options.threads)
        whole, later = batch_rates(
            plan, data, folder / "whole", options.batch, options.threads, options.workers
        )
        ratios.append(later / bare)
        whole_ratios.append(whole / bare)
        print(
            f"round {number + 1}: bare {bare:,.0f} rows/s; batch {whole:,.0f} in all ({whole / bare:.3f}), "
            f"{later:,.0f} behind the first part ({later / bare:.3f})",
            flush=True,
        )
    ratio, whole_ratio = float(np.median(ratios)), float(np.median(whole_ratios))
    words = ["--batch", str(options.batch), "--threads", str(options.threads)]
    words += ["--workers", str(options.workers)]
    killed = killed_runs(model, data, folder / "killed", options.kills, words)
    same = digests(folder / "whole") == digests(folder / "killed")
    print(f"median ratio {whole_ratio:.3f} in all, {ratio:.3f} behind the first part")
    print(f"{killed} kills: the bytes are {'the same' if same else 'DIFFERENT'}")
    return 0 if whole_ratio >= LEAST_RATE and same else 1


if __name__ == "__main__":
    sys.exit(main())
