"""A comparison as plain data: what `fqfuse.compare` returns and `--json` prints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..report.approximations import asked_for
from .compare import EXACT, Comparison
from .layers import Layer
from .measures import Measure
from .suggest import Suggestion, Trial


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
        "masked": found.masked,
        "outputs": {name: _measure(measure) for name, measure in found.outputs.items()},
        "against": found.peer or None,
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
    return {name: getattr(measure, name) for name in names}


def _layer(found: Comparison, layer: Layer, rank: int | None) -> dict[str, Any]:
    return {
        "rank": rank,
        "layer": layer.pair.layer,
        "op": layer.pair.op,
        "value": layer.pair.name,
        "added": layer.added.sqnr,
        "computed": layer.computed.sqnr,
        "rounded": layer.rounded.sqnr if layer.pair.quantizers else None,
        "sqnr": layer.total.sqnr,
        "cosine": layer.total.cosine,
        "codes": layer.codes,
        "saturated": layer.saturated,
        "step": layer.step,
        "masked": layer.total.masked,
        "broken": layer.total.broken,
        "again": layer.pair.again,
        "cause": None if rank is None else layer.cause.value,
        "findings": [finding.kind.code for finding in found.findings_at(layer)],
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
