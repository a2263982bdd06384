"""Holds JSON documents to their published schemas, more strictly than a reader would: a key that the
schema does not know is refused, too.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from jsonschema import Draft202012Validator

from fqfuse.report.schema import json_schema


def objects(schema: Any) -> list[dict[str, Any]]:
    """Every part of a schema that lists keys."""
    if isinstance(schema, list):
        return [part for item in schema for part in objects(item)]
    if not isinstance(schema, dict):
        return []
    inner = [part for item in schema.values() for part in objects(item)]
    return [schema, *inner] if isinstance(schema.get("properties"), dict) else inner


@cache
def _strict(name: str) -> Draft202012Validator:
    schema = json_schema(name)
    Draft202012Validator.check_schema(schema)
    for part in objects(schema):
        part["additionalProperties"] = False
    return Draft202012Validator(schema)


def problems(document: dict[str, Any]) -> list[str]:
    """What a document has that its schema does not say, or lacks."""
    name = document["schema"].removeprefix("fqfuse.").partition("/")[0]
    return [
        f"{error.json_path}: {error.message[:300]}" for error in _strict(name).iter_errors(document)
    ]
