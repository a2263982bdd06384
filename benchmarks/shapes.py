"""What input sizes cost that come for the first time: networks with open sizes, one size after the other, each
engine in turn on the same one.

The first run with a size is timed, and later runs with it: the difference is what the new size costs. All engines compute in
one process and with one thread; times are of the processor.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import onnx

from fqfuse.measure.arrays import Array, split_feeds
from fqfuse.measure.engines import ENGINES, PEERS, Unavailable

from .build import CALIBRATION_SAMPLES, SEED
from .networks import Network
from .networks.bert import build_bert, sample_tokens
from .networks.recognizer import build_recognizer, sample_lines
from .networks.yolo import build_yolo, sample_scenes
from .quantizers import quantize_nncf, quantize_static

OURS = "fqfuse-onednn"
_AGAIN = 3  # runs of each size behind the first
_STREAM = 5  # of random numbers; see build.py for the others


@dataclass(frozen=True)
class Subject:
    """A network with open sizes, and the feeds of a sequence of sizes.

    ``axes`` are the open axes of each input, by the name of the size; ``feeds`` makes the inputs of each size. NNCF
    quantizes it, or ONNX Runtime.
    """

    network: Network
    axes: Mapping[str, Mapping[int, str]]
    sizes: Sequence[tuple[int, ...]]
    feeds: Callable[[tuple[int, ...]], Mapping[str, Array]]
    by_nncf: bool = False


@dataclass(frozen=True)
class SizeCosts:
    """Of one file and engine: milliseconds beyond a later run that each size costs when it comes first, and all
    first runs together.
    """

    file: str
    engine: str
    extra: tuple[float, ...]
    total: float

    @property
    def usual(self) -> float:
        """The geometric mean of the extra times; those under 0.1 ms count as 0.1."""
        return statistics.geometric_mean(max(each, 0.1) for each in self.extra)


def _lines(sizes: tuple[int, ...]) -> Mapping[str, Array]:
    (columns,) = sizes
    whole = sample_lines(np.random.default_rng(columns), 1)["x"]
    return {"x": np.ascontiguousarray(np.resize(whole, (1, 3, whole.shape[2], columns)))}


def _scenes(sizes: tuple[int, ...]) -> Mapping[str, Array]:
    return {"images": np.random.default_rng(sizes).standard_normal((1, 3, *sizes), np.float32)}


def _tokens(sizes: tuple[int, ...]) -> Mapping[str, Array]:
    batch, length = sizes
    drawn = sample_tokens(np.random.default_rng(sizes), batch)
    return {name: np.ascontiguousarray(value[:, :length]) for name, value in drawn.items()}


_TOKEN_AXES = {
    name: {0: "batch", 1: "length"} for name in ("input_ids", "attention_mask", "token_type_ids")
}
SUBJECTS = (
    Subject(
        Network("recognizer", build_recognizer, sample_lines, "probabilities"),
        {"x": {3: "columns"}},
        [(columns,) for columns in range(64, 64 + 30 * 32, 32)],
        _lines,
    ),
    Subject(
        Network("yolo", build_yolo, sample_scenes, "boxes"),
        {"images": {2: "rows", 3: "columns"}},
        [(rows, columns) for rows in (96, 160) for columns in range(96, 96 + 5 * 64, 64)],
        _scenes,
        by_nncf=True,  # OpenVINO refuses what ONNX Runtime writes of it
    ),
    Subject(
        Network(
            "bert_any",
            partial(build_bert, any_length=True),
            sample_tokens,
            "logits",
            transformer=True,
        ),
        _TOKEN_AXES,
        [(batch, length) for batch in (1, 2, 4) for length in range(8, 128, 18)],
        _tokens,
    ),
)


def costs_of_sizes(
    folder: Path, engines: Sequence[str], log: Callable[[str], None]
) -> list[SizeCosts]:
    """Measures each subject with each engine that is installed."""
    found = []
    for subject in SUBJECTS:
        path = folder / f"{subject.network.name}-open.onnx"
        if not path.exists():
            _build(subject, path)
            log(f"{path.name}: built")
        found += _measured(subject, path, engines)
        for cost in found[-len(engines) :]:
            log(f"{cost.file:16} {cost.engine:16} a new size {cost.usual:.1f} ms")
    return found


def _build(subject: Subject, path: Path) -> None:
    """Opens the f32 model's sizes, then quantizes it: ONNX Runtime's pre-processing would write down sizes that it
    computes.
    """
    network = subject.network
    path.parent.mkdir(parents=True, exist_ok=True)
    source = path.with_name(f"{network.name}-f32-open.onnx")
    model = network.build(SEED, CALIBRATION_SAMPLES)
    onnx.save(with_open_sizes(model, subject.axes), source)
    samples = network.feeds(np.random.default_rng([SEED, _STREAM]), CALIBRATION_SAMPLES)
    if subject.by_nncf:
        quantize_nncf(source, path, samples, network.transformer)
    else:
        quantize_static(source, path, list(split_feeds(samples)), per_channel=True)


def with_open_sizes(
    model: onnx.ModelProto, axes: Mapping[str, Mapping[int, str]]
) -> onnx.ModelProto:
    """The model with these axes of its inputs open; what it says of other shapes is dropped."""
    for value in model.graph.input:
        for axis, name in axes.get(value.name, {}).items():
            value.type.tensor_type.shape.dim[axis].dim_param = name
    del model.graph.value_info[:]
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")
    return model


def _measured(subject: Subject, path: Path, engines: Sequence[str]) -> list[SizeCosts]:
    runs = {}
    for name in engines:
        try:
            ENGINES[name].load_library()
        except Unavailable:
            continue
        runs[name] = ENGINES[name].open(path, 1, None).run
    first: dict[str, list[float]] = {name: [] for name in runs}
    extra: dict[str, list[float]] = {name: [] for name in runs}
    for sizes in subject.sizes:
        feeds = subject.feeds(sizes)
        for name, run in runs.items():
            took = [_timed(run, feeds) for _ in range(1 + _AGAIN)]
            first[name].append(took[0])
            extra[name].append(took[0] - statistics.median(took[1:]))
    # the first size of all pays for what an engine puts off until then
    return [
        SizeCosts(path.stem, name, tuple(extra[name][1:]), math.fsum(first[name][1:]))
        for name in runs
    ]


def _timed(run: Callable[[Mapping[str, Array]], object], feeds: Mapping[str, Array]) -> float:
    started = time.process_time()
    run(feeds)
    return 1e3 * (time.process_time() - started)


def sizes_table(found: Sequence[SizeCosts]) -> str:
    """The times as Markdown."""
    heads = ["file", "engine", "a new size, ms", "the dearest, ms", "all first runs, ms", "ratio"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    totals = {(cost.file, cost.engine): cost.total for cost in found}
    for cost in found:
        ours = totals.get((cost.file, OURS), math.nan)
        ratio = f"{ours / cost.total:.2f}" if cost.engine in PEERS else ""
        cells = [cost.file, cost.engine, f"{cost.usual:.1f}", f"{max(cost.extra):.1f}"]
        lines.append(f"| {' | '.join([*cells, f'{cost.total:.0f}', ratio])} |")
    return "\n".join(lines) + "\n"
