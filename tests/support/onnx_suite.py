"""ONNX's own backend suite on fqfuse: every case it ships a model for, through `onnx.backend`, judged
by what it expects.

The suite's cases of the kind `real` are left out: their models are downloads.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx.backend.test.loader import load_model_tests
from onnx.backend.test.runner import Runner

import fqfuse
from fqfuse import FqfuseError
from fqfuse.runtime.onnx_backend import OnnxBackend, Prepared

RUNTIMES = {
    runtime: type(runtime, (OnnxBackend,), {"runtime": runtime}) for runtime in ("numpy", "onednn")
}
"""A backend of `onnx.backend` for each runtime."""

DRAWN = {"Bernoulli", "RandomUniformLike"}
"""Random operators of the suite."""

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")
BACKENDS = tuple(RUNTIMES)

EXACT = "exact"
"""Every output has the type, the shape and the values that the suite expects, within the case's own
tolerance.
"""
RANDOM = "random"
"""Exact in types and shapes; the values are drawn, by a generator that ONNX leaves open."""
REFUSED = "refused"
"""An FqfuseError."""
WRONG = "wrong"
"""Another type, shape or value."""
CRASHED = "crashed"
"""Any other exception."""


@dataclass(frozen=True)
class Case:
    """A model, and the arrays that it is fed with and should give."""

    kind: str
    name: str
    model: onnx.ModelProto
    data_sets: Sequence[tuple[Sequence[Any], Sequence[Any]]]
    rtol: float
    atol: float


@dataclass(frozen=True)
class Outcome:
    """What became of a case, and why it is not exact."""

    what: str
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.what}: {self.reason}" if self.reason else self.what


def cases(kinds: Sequence[str] = KINDS) -> Iterator[Case]:
    """All cases of these kinds."""
    for kind in kinds:
        with warnings.catch_warnings():
            # the suite computes its expectations with NumPy, infinities and all
            warnings.simplefilter("ignore")
            found = load_model_tests(kind=kind)
        for case in sorted(found, key=lambda case: case.name):
            model, data_sets = (
                (case.model, case.data_sets)
                if case.model is not None
                else _from_files(Path(case.model_dir))
            )
            yield Case(
                kind,
                case.name,
                model,
                [tuple(_arrays(half) for half in both) for both in data_sets],
                case.rtol,
                case.atol,
            )


def outcomes(case: Case) -> dict[str, Outcome]:
    """What becomes of the case on each backend."""
    try:
        plan = fqfuse.compile(case.model)
    except FqfuseError as error:
        return dict.fromkeys(BACKENDS, Outcome(REFUSED, error.what))
    except Exception as error:  # noqa: BLE001 - a crash is an outcome
        return dict.fromkeys(BACKENDS, _crash(error))
    return {backend: _run(case, plan, backend) for backend in BACKENDS}


def _run(case: Case, plan: fqfuse.Plan, backend: str) -> Outcome:
    try:
        prepared = RUNTIMES[backend].prepare(case.model, plan=plan, threads=1)
        found = [_judge(case, prepared, *both) for both in case.data_sets]
    except FqfuseError as error:
        return Outcome(REFUSED, error.what)
    except Exception as error:  # noqa: BLE001 - a crash is an outcome
        return _crash(error)
    return max(found, key=lambda outcome: (EXACT, RANDOM, WRONG).index(outcome.what))


def _crash(error: Exception) -> Outcome:
    return Outcome(CRASHED, f"{type(error).__name__}: {error}".partition("\n")[0])


def _judge(
    case: Case, prepared: Prepared, inputs: Sequence[Any], expected: Sequence[Any]
) -> Outcome:
    found: Sequence[Any] = prepared.run(inputs)
    drawn = sorted({node.op_type for node in case.model.graph.node} & DRAWN)
    if drawn:
        expected, found = ([np.zeros_like(value) for value in each] for each in (expected, found))
    try:
        Runner.assert_similar_outputs(expected, found, case.rtol, case.atol)
    except AssertionError as error:
        return Outcome(WRONG, " ".join(str(error).split()))
    return Outcome(RANDOM, f"{', '.join(drawn)} draws the values") if drawn else Outcome(EXACT)


def _arrays(values: Sequence[Any]) -> list[Any]:
    return [
        onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value
        for value in values
    ]


def _from_files(folder: Path) -> tuple[onnx.ModelProto, list[tuple[list[Any], list[Any]]]]:
    graph = (model := onnx.load(folder / "model.onnx")).graph
    folders = sorted(folder.glob("test_data_set*"))
    return model, [
        (_read(data, "input", graph.input), _read(data, "output", graph.output)) for data in folders
    ]


def _read(folder: Path, half: str, infos: Sequence[onnx.ValueInfoProto]) -> list[Any]:
    count = len(list(folder.glob(f"{half}_*.pb")))
    return [
        _value((folder / f"{half}_{index}.pb").read_bytes(), infos[index].type)
        for index in range(count)
    ]


def _value(content: bytes, type_: onnx.TypeProto) -> Any:
    if type_.HasField("sequence_type"):
        return onnx.numpy_helper.to_list(onnx.SequenceProto.FromString(content))
    if type_.HasField("optional_type"):
        return onnx.numpy_helper.to_optional(onnx.OptionalProto.FromString(content))
    return onnx.numpy_helper.to_array(onnx.TensorProto.FromString(content))
