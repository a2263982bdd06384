"""A comparison as plain data: what `fqfuse.compare` returns and `--json` prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy.typing as npt

from ..errors import InvalidInput
from ..frontend import ModelSource
from ..measure.bench import check_timeout
from ..plan.open_sizes import NO_SIZES
from ..report.approximations import asked_for
from .compare import EXACT, Comparison, compared, drawn_for, read_models
from .data import given, listed
from .layers import Layer
from .measures import Measure
from .parts import Part, Whole
from .peers import TRIAL_SECONDS
from .suggest import Suggestion, Trial, suggestion_of
from .words import advice_on, reason_of


def compare(
    f32: ModelSource,
    int8: ModelSource,
    *,
    data: Mapping[str, npt.ArrayLike] | Sequence[Mapping[str, npt.ArrayLike]] | None = None,
    sizes: Mapping[str, int] = NO_SIZES,
    against: str | None = None,
    suggest: bool = False,
    approximate: Sequence[str] = (),
    timeout: float = TRIAL_SECONDS,
) -> dict[str, Any]:
    """How far a quantized model is from the f32 model it was made from, and which layers make it so.

    Args:
        f32: the model as it was: a path, bytes or `onnx.ModelProto`.
        int8: the quantized model, likewise.
        data: an array for each input, or several such samples; None: one sample of random data of the right kind.
        sizes: for random data: of what the model leaves open.
        against: `onnxruntime` or `openvino`: runs the int8 model, too, which tells a bad quantization from a wrong fqfuse.
        suggest: try which layers to leave in f32.
        approximate: names of approximations that the int8 model is compiled with, and without.
        timeout: seconds that OpenVINO may take for a first run, in a process of its own, before it is ended.

    Returns:
        A dictionary with the keys of docs/contributing/json-schema.md, `fqfuse.compare/1`; SQNR in dB.

    Raises:
        FqfuseError: a model or the data is wrong, or the other program is missing.
    """
    if not isinstance(suggest, bool):
        raise InvalidInput(
            f"suggest is of type {type(suggest).__name__}",
            where="suggest",
            hint="give True or False",
        )
    models = read_models(f32, int8, approximate)
    samples = (
        drawn_for(models, sizes)
        if data is None
        else given(models.f32, listed(data), "the caller's data")
    )
    check_timeout(timeout)
    found = compared(models, samples, against, timeout=timeout)
    return as_data(found, suggestion_of(found) if suggest else None)


def as_data(found: Comparison, suggestion: Suggestion | None = None) -> dict[str, Any]:
    """The document `fqfuse.compare/1`, with infinite numbers as they are."""
    ranks = {id(layer): rank for rank, layer in enumerate(found.ranking, 1)}
    measured = found.measured
    return {
        "schema": "fqfuse.compare/1",
        "f32": found.models.f32.name,
        "int8": found.models.int8.name,
        "tool": found.tool.value,
        "data": found.samples.told,
        "random": found.samples.random,
        "samples": len(found.samples.feeds),
        "matched": len(found.models.pairs),
        "unmatched": list(found.models.unmatched),
        "doubt": found.models.evidence if found.models.are_doubtful else None,
        "masked": found.masked,
        "outputs": _measures(found.outputs),
        "against": found.peer or None,
        "against_refuses": found.refusal or None,
        "cures": [{"what": what, "sqnr": sqnr} for what, sqnr in found.cures],
        "peer": _measures(measured.outputs.get(found.peer, {})),
        "approximate": list(asked_for(found.models.plan)),
        "exact": _measures(measured.outputs.get(EXACT, {})),
        "agreement": {run: _measures(one) for run, one in measured.agreement.items()},
        "layers": [_layer(found, layer, ranks.get(id(layer))) for layer in found.layers],
        "suggestion": None if suggestion is None else _suggestion(suggestion),
    }


def _measures(found: Mapping[str, Measure]) -> dict[str, dict[str, Any]]:
    return {name: _measure(measure) for name, measure in found.items()}


def _measure(measure: Measure) -> dict[str, Any]:
    names = ("sqnr", "cosine", "largest", "entries", "masked", "broken")
    parts = measure.parts if isinstance(measure, Whole) else ()
    return {**{name: getattr(measure, name) for name in names}, "parts": list(map(_part, parts))}


def _part(part: Part) -> dict[str, Any]:
    names = ("axis", "first", "last", "constant", "low", "high")
    own = {name: getattr(part, name) for name in names}
    return own | {"sqnr": part.measure.sqnr, "cosine": part.measure.cosine}


def _layer(found: Comparison, layer: Layer, rank: int | None) -> dict[str, Any]:
    findings = found.findings_at(layer)
    changes = [finding.change() for finding in findings]
    return {
        "rank": rank,
        "layer": layer.pair.layer,
        "op": layer.pair.op,
        "value": layer.pair.name,
        "added": layer.adds,
        "computed": layer.computed.sqnr,
        "rounded": layer.rounded.sqnr if layer.pair.quantizers else None,
        "sqnr": layer.total.sqnr,
        "cosine": layer.total.cosine,
        "codes": layer.codes,
        "saturated": layer.saturated,
        "step": layer.step,
        "low": None if layer.step is None else layer.low,
        "high": None if layer.step is None else layer.high,
        "masked": layer.total.masked,
        "broken": layer.total.broken,
        "again": layer.pair.again,
        "cause": None if rank is None else layer.cause.value,
        "reason": None if rank is None else reason_of(layer),
        "findings": [finding.kind.code for finding in findings],
        "changes": changes or ([] if rank is None else [advice_on(layer)]),
    }


def _trial(trial: Trial) -> dict[str, Any]:
    return {
        "why": trial.why,
        "layers": list(trial.layers),
        "sqnr": trial.sqnr,
        "cosine": trial.cosine,
    }


def _suggestion(found: Suggestion) -> dict[str, Any]:
    return {
        "before": _trial(found.before),
        "trials": [_trial(trial) for trial in found.trials],
        "chosen": _trial(found.chosen),
        "nodes": list(found.nodes),
        "change": found.change,
    }
