"""The whole repair in one call, and as plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any

import numpy.typing as npt

from ..exporter.file import save_model
from ..exporting import refuse_over
from ..frontend import ModelSource
from ..plan.open_sizes import NO_SIZES, sizes_of_shapes
from ..report.verdict.machine import this_machine
from .data import Samples, given, listed
from .fixing import HERE, Repair, Score, repaired
from .simulation import Subject, samples_for, subject_of


def fix(
    model: ModelSource,
    path: str | PathLike[str] | None = None,
    *,
    f32: ModelSource | None = None,
    data: Mapping[str, npt.ArrayLike] | Sequence[Mapping[str, npt.ArrayLike]] | None = None,
    sizes: Mapping[str, int] = NO_SIZES,
    runtime: str = HERE,
    only: Sequence[str] = (),
) -> dict[str, Any]:
    """Repairs a quantized model without training: remedies are tried one by one, measured, and kept
    where they help. Where none does, nothing is written.

    Args:
        model: a path, bytes or `onnx.ModelProto`.
        path: the file to write; None: nothing is written.
        f32: the f32 model that it was made from; None: the model itself without rounding.
        data: an array for each input, or several such samples; None: one sample of random data, and no
            range is taken from it.
        sizes: of what the model leaves open; they become fixed where that helps.
        runtime: for which one: `here` (fqfuse), `onnxruntime` or `openvino`.
        only: codes of findings, `range`, `suggest` and `layout`; empty: all.

    Returns:
        A dictionary with the keys of docs/json-schema.md, `fqfuse.fix/1`; SQNR in dB.

    Raises:
        FqfuseError: a model, the data or a name is wrong, the runtime is missing, or the file cannot be
            written.
    """
    if path is not None:
        refuse_over(path, model, f32)
    subject = subject_to_repair(model, f32)
    samples = (
        samples_for(subject, sizes)
        if data is None
        else given(subject.graph, listed(data), "the caller's data")
    )
    fixed = sizes_to_fix(subject, samples, sizes)
    found = repaired(subject, samples, f32=f32, sizes=fixed, target=runtime, only=only)
    if path is not None and found.model is not None:
        save_model(found.model, path)
    return as_data(found)


def subject_to_repair(model: ModelSource, f32: ModelSource | None) -> Subject:
    """A model, looked at as this CPU sums its codes; where that is exact, as one with AVX2 does."""
    machine = this_machine()
    return subject_of(model, "avx2" if machine.exact_int8 else machine.isa, f32)


def sizes_to_fix(subject: Subject, samples: Samples, sizes: Mapping[str, int]) -> Mapping[str, int]:
    """The open sizes that somebody gave, by name or by data."""
    if samples.random:
        return sizes
    shapes = {name: tuple(map(int, array.shape)) for name, array in samples.feeds[0].items()}
    return sizes_of_shapes(subject.graph, shapes)


def as_data(found: Repair) -> dict[str, Any]:
    """The document `fqfuse.fix/1`, with infinite numbers as they are."""
    return {
        "schema": "fqfuse.fix/1",
        "model": found.subject.plan.name,
        "for": found.target,
        "changed": found.model is not None,
        "data": found.samples.told,
        "random": found.samples.random,
        "samples": len(found.samples.feeds),
        "reference": found.told,
        "before": _score(found.before),
        "after": _score(found.after),
        "steps": [
            {
                "code": step.code,
                "what": step.what,
                "done": step.done,
                "kept": step.kept,
                "why": step.why or None,
                "before": None if step.before is None else _score(step.before),
                "after": None if step.after is None else _score(step.after),
            }
            for step in found.steps
        ],
    }


def _score(score: Score) -> dict[str, Any]:
    return {"sqnr": score.sqnr, "ms": score.ms, "bytes": score.bytes}
