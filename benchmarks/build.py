"""Builds the benchmark's files into a folder: per network one f32 model and one quantized model for
each quantizer.

Beside each quantized ``<name>.onnx`` stands ``<name>.inputs.npz`` with one random feed. Files that
exist are left alone, so a second run costs nothing; a file appears under its name only when it is
whole and ONNX Runtime has run it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import onnx

from fqfuse.measure.arrays import save_arrays, split_feeds
from fqfuse.measure.engines import onnxruntime_session

from .networks import NETWORKS, Network
from .quantizers import QUANTIZERS

SEED = 0
CALIBRATION_SAMPLES = 8
# Streams of random numbers that never meet: [SEED, 1] calibrates the builders' statistics.
_CALIBRATION_STREAM, _FEED_STREAM = 2, 3


@dataclass(frozen=True)
class Case:
    """One quantized file: its network, its quantizer, and the paths of the family."""

    network: Network
    quantizer: str
    folder: Path

    @property
    def name(self) -> str:
        """``<network>-<quantizer>``, the row's name in every table."""
        return f"{self.network.name}-{self.quantizer}"

    @property
    def path(self) -> Path:
        """The quantized model."""
        return self.folder / f"{self.name}.onnx"

    @property
    def float_path(self) -> Path:
        """The f32 model it was made from."""
        return self.folder / f"{self.network.name}-f32.onnx"

    @property
    def inputs_path(self) -> Path:
        """One random feed, for trying the file by hand."""
        return self.folder / f"{self.name}.inputs.npz"


def cases(folder: Path, names: Sequence[str] = ()) -> list[Case]:
    """Return all cases, or those named, in table order. ValueError names an unknown one and
    lists the known.
    """
    known = {
        case.name: case
        for case in (Case(n, q, folder) for n in NETWORKS.values() for q in n.quantizers)
    }
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"no such file: {', '.join(unknown)}; choose from {', '.join(known)}")
    return [case for case in known.values() if not names or case.name in names]


def build_all(wanted: Sequence[Case], log: Callable[[str], None]) -> None:
    """Build what is missing of the wanted cases; ``log`` gets one line for each file."""
    for case in wanted:
        case.folder.mkdir(parents=True, exist_ok=True)
        if not case.float_path.exists():
            _publish(case.float_path, partial(_write_float, case), case)
            log(f"{case.float_path.name}: built, {case.float_path.stat().st_size:,} bytes")
        if not case.path.exists():
            _publish(case.path, partial(_write_quantized, case), case)
            log(f"{case.path.name}: quantized, {case.path.stat().st_size:,} bytes")
        if not case.inputs_path.exists():
            save_arrays(
                case.inputs_path, case.network.feeds(np.random.default_rng([SEED, _FEED_STREAM]), 1)
            )


def _write_float(case: Case, target: Path) -> None:
    onnx.save(case.network.build(SEED, CALIBRATION_SAMPLES), target)


def _write_quantized(case: Case, target: Path) -> None:
    calibration = case.network.feeds(
        np.random.default_rng([SEED, _CALIBRATION_STREAM]), CALIBRATION_SAMPLES
    )
    QUANTIZERS[case.quantizer](case.float_path, target, calibration, case.network.transformer)


def _publish(path: Path, write: Callable[[Path], None], case: Case) -> None:
    """Write to a temporary name, check, try, then rename: nobody ever reads half a file."""
    partial = path.with_name(f".{os.getpid()}-{path.name}")
    try:
        write(partial)
        onnx.checker.check_model(str(partial))
        _try(partial, case)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _try(path: Path, case: Case) -> None:
    """Run the file once on ONNX Runtime. ValueError if an output is not finite or constant."""
    session = onnxruntime_session(str(path))
    feed = next(split_feeds(case.network.feeds(np.random.default_rng([SEED, _FEED_STREAM]), 1)))
    for info, output in zip(session.get_outputs(), session.run(None, feed), strict=True):
        if not np.isfinite(output).all() or output.std() == 0:
            raise ValueError(
                f"{path.name}: output {info.name} is not finite or constant: the file would measure nothing"
            )
