"""Language models token by token: prefill, then 32 decoding steps at growing length, in one
session, batch 1 and then 2.

``python -m fqfuse.benchmarks.decoding`` exports the models of ``language.py``, quantizes each in
the ways that ONNX Runtime and NNCF offer, and runs each file on both runtimes of fqfuse and on ONNX
Runtime without optimizations. Each engine reads the caches that it wrote itself; all read the same
tokens. A model without caches reads the whole sequence at each step. Agreement is that of networks:

- f32: every output within 1e-4 of ONNX Runtime's, of the output's largest value;
- int8: SQNR to the f32 model, over all outputs of all steps, at most 0.5 dB below ONNX Runtime's.

The exit code is 1 if a file misses it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from fqfuse.accuracy.measures import Measure
from fqfuse.measure.arrays import Array, Feeds
from fqfuse.measure.engines import ENGINES as OPENED
from fqfuse.measure.engines import onnxruntime_session

from .language import EXPORTERS, LANGUAGE_MODELS, VOCABULARY, LanguageModel
from .quantizers import prepare, quantize_dynamic, quantize_static, quantize_with_nncf

PREFILL, STEPS, BATCHES = 7, 32, (1, 2)
CALIBRATION_STRIDE = 4
MOST_ERROR, MOST_DB_BELOW = 1e-4, 0.5

Run = Callable[[Feeds], Sequence[Array]]
Trace = list[Sequence[Array]]
Quantize = Callable[[Path, Path, Sequence[Feeds]], None]


def _static(source: Path, target: Path, feeds: Sequence[Feeds], **options: Any) -> None:
    quantize_static(source, target, feeds, exclude=_masked(onnx.load(source)), **options)


def _dynamic(source: Path, target: Path, feeds: Sequence[Feeds]) -> None:
    del feeds  # ranges are taken in each run
    quantize_dynamic(source, target)


VARIANTS: Mapping[str, Quantize] = {
    "qdq-u8s8": _static,
    "qdq-s8s8": partial(_static, activations="QInt8"),
    "qdq-u8s8-channel": partial(_static, per_channel=True),
    "qdq-s8s8-channel": partial(_static, activations="QInt8", per_channel=True),
    "qoperator-u8s8": partial(_static, layout="QOperator"),
    "qoperator-u8s8-channel": partial(_static, layout="QOperator", per_channel=True),
    "dynamic": _dynamic,
    "nncf": partial(quantize_with_nncf, transformer=True),
}


def _masked(model: onnx.ModelProto) -> list[str]:
    """Return the nodes that the mask goes through, each Softmax and what it reads: -3e38 in a
    tensor's range leaves all else one code.
    """
    makers = {name: node.name for node in model.graph.node for name in node.output}
    return [
        name
        for node in model.graph.node
        if node.op_type == "Softmax"
        for name in (makers[node.input[0]], node.name)
    ]


@dataclass
class Row:
    """What was measured of one file: by name, SQNR in dB or errors relative to the largest value;
    and what went wrong.
    """

    name: str
    figures: dict[str, float] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code: 0, 1 if an agreement is missed."""
    description = "Hold language models, token by token, against ONNX Runtime: f32 within 1e-4, int8 no more than 0.5 dB further from f32."
    parser = argparse.ArgumentParser(prog="benchmarks.decoding", description=description)
    parser.add_argument(
        "--build-dir",
        type=Path,
        default=Path(__file__).resolve().parent / "build",
        help="where models are cached",
    )
    parser.add_argument("--only", default="", help="files whose names hold this text")
    options = parser.parse_args(arguments)
    options.build_dir.mkdir(parents=True, exist_ok=True)
    print(_HEAD, flush=True)
    missed = False
    for model in LANGUAGE_MODELS.values():
        for row in (row for exporter in EXPORTERS for row in _family(model, exporter, options)):
            print(_line(row), flush=True)
            missed |= bool(row.faults)
    return int(missed)


def _family(model: LanguageModel, exporter: str, options: argparse.Namespace) -> Iterator[Row]:
    """The rows of a model from one exporter: f32 first, then each way to quantize it."""
    paths = {
        variant: options.build_dir / f"{model.name}-{exporter}-{variant}.onnx"
        for variant in ("f32", *VARIANTS)
    }
    wanted = {variant: path for variant, path in paths.items() if options.only in path.stem}
    if not wanted:
        return
    source, prepared = paths["f32"], options.build_dir / f"{model.name}-{exporter}-prepared.onnx"
    if not prepared.exists():
        model.export(source, exporter)
        prepare(source, prepared, symbolic=False)
    peer = _peer(source)
    reference = _trace(model, peer)
    for variant, path in wanted.items():
        if not path.exists():
            VARIANTS[variant](
                prepared,
                path,
                [feeds for feeds, _ in _decode(model, peer, _tokens(1, seed=1))][
                    ::CALIBRATION_STRIDE
                ],
            )
        yield _measure(model, path, reference)


def _measure(model: LanguageModel, path: Path, reference: Trace) -> Row:
    """Run all engines on the file; `reference` is what the f32 model gives."""
    row = Row(path.stem)
    found: dict[str, Trace] = {}
    for name, open_engine in ENGINES.items():
        try:
            found[name] = _trace(model, open_engine(path))
        except Exception as error:  # noqa: BLE001 - a crash is a row of the table
            row.faults.append(f"{name}: {_first_line(error)}")
    compare = _error if path.stem.endswith("f32") else _db
    row.figures = {name: compare(reference, trace) for name, trace in found.items()}
    if {"numpy", "onednn"} <= found.keys():
        row.figures["onednn to numpy"] = compare(found["numpy"], found["onednn"])
    row.faults += _missed(row.figures, compare)
    return row


def _missed(
    figures: Mapping[str, float], compare: Callable[[Trace, Trace], float]
) -> Iterator[str]:
    """The agreements that the figures miss."""
    for name in ("numpy", "onednn"):
        if compare is _error and not figures.get(name, 0.0) <= MOST_ERROR:
            yield f"{name}: off by {figures[name]:.1e} of the largest value"
        if (
            compare is _db
            and name in figures
            and "onnxruntime" in figures
            and not figures[name] >= figures["onnxruntime"] - MOST_DB_BELOW
        ):
            yield f"{name}: {figures['onnxruntime'] - figures[name]:.2f} dB below ONNX Runtime"


def _peer(path: Path) -> Run:
    session = onnxruntime_session(str(path), 1, optimized=False)
    return lambda feeds: session.run(None, dict(feeds))


def _fqfuse(backend: str, path: Path) -> Run:
    return OPENED[f"fqfuse-{backend}"].open(path, 1, None).run


ENGINES: Mapping[str, Callable[[Path], Run]] = {
    "onnxruntime": _peer,
    "numpy": partial(_fqfuse, "numpy"),
    "onednn": partial(_fqfuse, "onednn"),
}


def _trace(model: LanguageModel, run: Run) -> Trace:
    """Return the outputs of prefill and of each decoding step, for each batch in turn."""
    return [outputs for batch in BATCHES for _, outputs in _decode(model, run, _tokens(batch))]


def _decode(
    model: LanguageModel, run: Run, tokens: Array
) -> Iterator[tuple[Feeds, Sequence[Array]]]:
    """Yield feeds and outputs: the first tokens at once, then one by one behind the caches, or all
    tokens so far where there are none.
    """
    caches: Sequence[Array] = ()
    for end in range(PREFILL, tokens.shape[1] + 1):
        start = end - 1 if caches else 0
        feeds = model.feeds(tokens[:, start:end], caches)
        outputs = run(feeds)
        yield feeds, outputs
        caches = outputs[1:]


def _tokens(batch: int, seed: int = 0) -> Array:
    return np.random.default_rng([seed, batch]).integers(0, VOCABULARY, (batch, PREFILL + STEPS))


def _pairs(reference: Trace, trace: Trace) -> Iterator[tuple[Array, Array]]:
    for outputs, others in zip(reference, trace, strict=True):
        yield from zip(outputs, others, strict=True)


def _error(reference: Trace, trace: Trace) -> float:
    """Return the largest error, as a part of the largest value of its output."""
    return max(
        float(np.abs(found - wanted).max() / np.abs(wanted).max())
        for wanted, found in _pairs(reference, trace)
    )


def _db(reference: Trace, trace: Trace) -> float:
    """Return the SQNR over all outputs of all steps."""
    measure = Measure()
    for wanted, found in _pairs(reference, trace):
        measure.add(wanted, found)
    return measure.sqnr


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".partition("\n")[0]


_COLUMNS = (*ENGINES, "onednn to numpy")
_HEAD = (
    "| file | "
    + " | ".join(_COLUMNS)
    + " | faults |\n| --- |"
    + " ---: |" * len(_COLUMNS)
    + " --- |"
)


def _line(row: Row) -> str:
    return (
        f"| {row.name} | "
        + " | ".join(_figure(row, name) for name in _COLUMNS)
        + f" | {'; '.join(row.faults)} |"
    )


def _figure(row: Row, name: str) -> str:
    if name not in row.figures:
        return "-"
    return f"{row.figures[name]:.1e}" if row.name.endswith("f32") else f"{row.figures[name]:.2f} dB"


if __name__ == "__main__":
    sys.exit(main())
