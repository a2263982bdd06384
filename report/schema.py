"""The JSON Schemas of the documents that `--json` prints.

A document has one file, `report/schemas/<name>.json` (JSON Schema 2020-12). Its title is the document's
name and version, descriptions are those of the page. Each is complete in itself: what several documents
share (a finding, a decision) stands in each file, in the same words.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

from ..errors import InvalidInput

Schema = dict[str, Any]

_FIRST = ("inspect", "compile", "convert", "run")
_LAST = "error"


def documents() -> list[str]:
    """The names of the documents: those of the first commands, the others by name, errors."""
    found = {
        item.name.removesuffix(".json")
        for item in files(__package__).joinpath("schemas").iterdir()
        if item.name.endswith(".json")
    }
    others = sorted(found - {*_FIRST, _LAST})
    return [*(name for name in _FIRST if name in found), *others, _LAST]


def json_schema(name: str) -> Schema:
    """The schema of a document.

    Args:
        name: of the document without version, such as `inspect`.

    Raises:
        InvalidInput: there is none of this name.
    """
    if name not in documents():
        raise InvalidInput(
            f"there is no document {name!r}", hint=f"choose one of {', '.join(documents())}"
        )
    schema: Schema = json.loads(schema_text(name))
    return schema


@cache
def schema_text(name: str) -> str:
    """The file of a document."""
    return files(__package__).joinpath("schemas", f"{name}.json").read_text(encoding="utf-8")
