"""A difference as plain data, ready for `json.dumps`; docs/json-schema.md describes every key."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ...ir.decision import Decision
from ..json import decision_json
from ..verdict.findings import Verdict
from .compare import Difference
from .screen import answer_of

DIFF_SCHEMA = "fqfuse.diff/1"
"""Name and version of the document; a new version where a key changes its meaning or goes away."""


def difference_data(difference: Difference) -> dict[str, Any]:
    """A difference as plain data."""
    return {
        "schema": DIFF_SCHEMA,
        "same": difference.is_empty,
        "answer": answer_of(difference),
        "steps": [len(difference.first.steps), len(difference.second.steps)],
        "equal": difference.equal,
        "verdicts": list(map(_verdict, difference.verdicts)),
        "moved": [
            {"primitive": kind, "steps": count, "of": whole, "how": word}
            for kind, count, whole, word in difference.moved()
        ],
        "interface": list(map(asdict, difference.interface)),
        "only_first": list(map(asdict, difference.only_first)),
        "only_second": list(map(asdict, difference.only_second)),
        "not_aligned_first": list(map(asdict, difference.strange_first)),
        "not_aligned_second": list(map(asdict, difference.strange_second)),
        "changed": [
            {
                "name": pair.name,
                "first": pair.first,
                "second": pair.second,
                "only_numbers": pair.only_numbers,
                "changes": list(map(asdict, pair.changes)),
            }
            for pair in difference.pairs
        ],
        "fates": [
            {
                "quantizer": row.quantizer,
                "half": row.half.value,
                "first": list(row.first),
                "second": list(row.second),
            }
            for row in difference.fates
        ],
        "decisions": [
            {
                "subject": row.subject,
                "rule": row.rule,
                "first": _decision(row.first),
                "second": _decision(row.second),
            }
            for row in difference.decisions
        ],
        "quantizers": {
            "only_first": difference.quantizers[0],
            "only_second": difference.quantizers[1],
        },
    }


def _verdict(verdict: Verdict) -> dict[str, Any]:
    return {
        "macs": verdict.shares.macs,
        "int8_macs": verdict.shares.int8_macs,
        "bytes_between": verdict.shares.between,
        "f32_bytes_between": verdict.shares.f32_between,
        "ms": float(f"{verdict.estimate.ms:.4g}"),
    }


def _decision(decision: Decision | None) -> dict[str, Any] | None:
    return None if decision is None else dict(decision_json(decision))
