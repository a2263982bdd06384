"""A difference as plain data, ready for `json.dumps`; docs/contributing/json-schema.md describes every key."""

from __future__ import annotations

from typing import Any

from ..json import record, verdict_json
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
        "verdicts": list(map(verdict_json, difference.verdicts)),
        "moved": [
            {"primitive": kind, "steps": count, "of": whole, "how": word}
            for kind, count, whole, word in difference.moved()
        ],
        "interface": list(map(record, difference.interface)),
        "only_first": list(map(record, difference.only_first)),
        "only_second": list(map(record, difference.only_second)),
        "not_aligned_first": list(map(record, difference.strange_first)),
        "not_aligned_second": list(map(record, difference.strange_second)),
        "changed": [
            {
                "name": pair.name,
                "first": pair.first,
                "second": pair.second,
                "only_numbers": pair.only_numbers,
                "changes": list(map(record, pair.changes)),
            }
            for pair in difference.pairs
        ],
        "fates": list(map(record, difference.fates)),
        "decisions": list(map(record, difference.decisions)),
        "quantizers": {
            "only_first": difference.quantizers[0],
            "only_second": difference.quantizers[1],
        },
    }
