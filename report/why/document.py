"""A story as plain data, ready for `json.dumps`; docs/contributing/json-schema.md describes every key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...ir.decision import Fate
from ...plan.types import Plan
from ..json import record
from ..notation import Notation
from ..verdict.findings import as_data
from .index import Index
from .story import Story, ending_of

WHY_SCHEMA = "fqfuse.why/1"
"""Name and version of the document; a new version where a key changes its meaning or goes away."""


def story_data(plan: Plan, story: Story) -> dict[str, Any]:
    """A story as plain data."""
    notation = Notation(plan)
    return {
        "schema": WHY_SCHEMA,
        "name": story.name,
        "kind": story.kind,
        "operator": story.operator,
        "answer": story.answer,
        "places": [
            {
                "step": place.step,
                "primitive": plan.steps[place.step].primitive,
                "types": notation.types(plan.steps[place.step]),
                "role": place.role,
                "post_op": place.post_op,
                "nodes": notation.origin(plan.steps[place.step]),
            }
            for place in story.places
        ],
        "fates": list(map(_fate, story.fates)),
        "decisions": list(map(record, story.decisions)),
        "behind": list(map(record, story.behind)),
        "findings": list(map(as_data, story.findings)),
        "unknown": list(story.unknown),
        "body": story.body,
    }


def matches_data(index: Index, matches: Sequence[str]) -> dict[str, Any]:
    """What a pattern stands for, as plain data."""
    return {
        "schema": WHY_SCHEMA,
        "matches": [{"name": name, "ending": ending_of(index, name)} for name in matches],
    }


def _fate(fate: Fate) -> dict[str, Any]:
    return {
        "quantizer": fate.quantizer,
        "half": fate.half.value,
        "fate": fate.fate.value,
        "step": fate.step,
        "reason": fate.reason,
        "consumer": fate.consumer,
    }
