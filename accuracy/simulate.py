"""The whole simulation in one call, and as plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any

import numpy.typing as npt

from ..exporter.file import save_model
from ..exporting import refuse_over
from ..frontend import ModelSource
from ..plan.open_sizes import NO_SIZES
from .data import given, listed
from .measures import Measure
from .remedy import Change, Outcome, changes_for, fixed, outcome_of
from .simulation import Answer, Effect, Simulation, layer_of, samples_for, simulated, subject_of


def simulate(
    model: ModelSource,
    isa: str = "avx2",
    *,
    f32: ModelSource | None = None,
    data: Mapping[str, npt.ArrayLike] | Sequence[Mapping[str, npt.ArrayLike]] | None = None,
    sizes: Mapping[str, int] = NO_SIZES,
    fix: str | PathLike[str] | None = None,
) -> dict[str, Any]:
    """What a quantized model answers on a CPU without VNNI: which layers saturate, how often, what
    that costs, and what to change.

    Args:
        model: a path, bytes or `onnx.ModelProto`.
        isa: the CPU's newest instruction set: `avx2`, `avx512_core` or `sse41` (`vnni`: exact).
        f32: the f32 model that it was made from; None: the model itself without rounding.
        data: an array for each input, or several such samples; None: one sample of random data.
        sizes: for random data: of what the model leaves open.
        fix: a file to write the model to with 7 bits for the layers that need it, and for no others: that
            CPU sums codes exactly then; what it computes in f32 it may round in its own way.

    Returns:
        A dictionary with the keys of docs/contributing/json-schema.md, `fqfuse.simulate/1`; SQNR in dB.

    Raises:
        FqfuseError: a model or the data is wrong, the file cannot be written, or a layer needs a
            change that its quantizer has no form for.
    """
    if fix is not None:
        refuse_over(fix, model, f32)
    subject = subject_of(model, isa, f32)
    samples = (
        samples_for(subject, sizes)
        if data is None
        else given(subject.graph, listed(data), "the caller's data")
    )
    found = simulated(subject, samples)
    outcome = None
    if fix is not None:
        outcome = outcome_of(subject, fixed(subject), samples)
        save_model(outcome.fixed.model, fix)
    return as_data(found, outcome)


# -- as data ---------------------------------------------------------------------------------------


def as_data(found: Simulation, outcome: Outcome | None = None) -> dict[str, Any]:
    """The document `fqfuse.simulate/1`, with infinite numbers as they are."""
    subject = found.subject
    changes = changes_for(subject.plan, subject.at_risk)
    return {
        "schema": "fqfuse.simulate/1",
        "model": subject.plan.name,
        "isa": subject.isa,
        "data": found.samples.told,
        "random": found.samples.random,
        "samples": len(found.samples.feeds),
        "int8_layers": len(subject.sums),
        "reference": subject.told if subject.reference is not None else None,
        "outputs": {name: _answer(answer) for name, answer in found.outputs.items()},
        "layers": [_effect(effect, changes) for effect in found.effects],
        "rounded": [layer_of(subject.plan, sums) for sums in subject.rounded],
        "fix": None if outcome is None else _outcome(outcome),
    }


def _answer(answer: Answer) -> dict[str, Any]:
    return {
        "sqnr": answer.there.sqnr,
        "largest": answer.there.largest,
        "entries": answer.entries,
        "differ": answer.differ,
        "labels": answer.rows,
        "labels_changed": answer.changed,
        "sqnr_f32": _sqnr(answer.exact_to_f32),
        "sqnr_f32_there": _sqnr(answer.there_to_f32),
    }


def _sqnr(measure: Measure | None) -> float | None:
    return None if measure is None else measure.sqnr


def _effect(effect: Effect, changes: Sequence[Change]) -> dict[str, Any]:
    told = effect.sums.as_dict()
    own = [change for change in changes if effect.layer in change.layers]
    return {
        "layer": effect.layer,
        "step": told["index"],
        "primitive": told["primitive"],
        "sums": told["sums"],
        "codes": told["codes"],
        "emulated": told["emulated"],
        "channels": len(told["channels"]),
        "of": told["of"],
        "entries": effect.entries,
        "differ": effect.differ,
        "sqnr": effect.alone.sqnr,
        "sqnr_so_far": effect.total.sqnr,
        "remedy": own[0].what.value if own else None,
        "quantizers": [change.quantizer.name for change in own],
    }


def _outcome(outcome: Outcome) -> dict[str, Any]:
    return {
        "agree": outcome.agree,
        "rounded": list(outcome.fixed.rounded),
        "left": {isa: list(names) for isa, names in outcome.fixed.left.items()},
        "outputs": {name: _answer(answer) for name, answer in outcome.answers.items()},
        "changes": [
            {
                "what": change.what.value,
                "quantizer": change.quantizer.name,
                "layers": list(change.layers),
                "channels": len(change.channels),
                "of": change.of,
            }
            for change in outcome.fixed.changes
        ],
    }
