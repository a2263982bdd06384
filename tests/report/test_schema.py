"""The published schemas: complete, one for each command, and the page that is made of them."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from make.schemas import schemas_document
from support.json_documents import objects, problems

from fqfuse.cli.app import app
from fqfuse.errors import InvalidInput
from fqfuse.report.schema import documents, json_schema, schema_text

PAGE = Path(__file__).parents[2] / "docs" / "contributing" / "json-schema.md"


def test_the_page_is_generated() -> None:
    assert PAGE.read_text(encoding="utf-8") == schemas_document(), "run `make docs`"


@pytest.mark.parametrize("name", documents())
def test_a_schema_is_valid_complete_and_says_what_each_key_is(name: str) -> None:
    schema = json_schema(name)
    Draft202012Validator.check_schema(schema)
    assert schema["title"] == schema["properties"]["schema"]["const"] == f"fqfuse.{name}/1"
    assert ".json#" not in schema_text(name)  # `jsonschema.validate` takes the file as it is
    optional = {"unfused", "f32"}  # of `demo --form f32`, and of `compare --against --reduce`
    for part in objects(schema):
        ways = (part, *part.get("oneOf", ()))  # `why` tells of one name, or of several
        told = {key for way in ways for key in way["required"]}
        assert set(part["properties"]) - told <= optional
    for described in (schema, *(held for held in schema.get("$defs", {}).values())):
        if "title" in described and "properties" in described:
            assert [
                key
                for key, held in described["properties"].items()
                if not held.get("description") and key not in {"name", "primitive"}
            ] == []


def test_each_command_with_json_has_a_schema() -> None:
    with_json = {
        command.name
        for command in app.registered_commands
        if "as_json" in inspect.signature(command.callback).parameters
    }
    assert with_json == set(documents()) - {"error"}


def test_a_definition_means_the_same_in_every_document() -> None:
    for name in documents():
        for other in documents():
            one, two = (json_schema(item).get("$defs", {}) for item in (name, other))
            assert all(one[key] == two[key] for key in one.keys() & two.keys())


def test_there_is_no_other_document() -> None:
    with pytest.raises(InvalidInput, match="no document 'x'"):
        json_schema("x")


def test_a_key_that_is_not_told_is_found() -> None:
    document = {"schema": "fqfuse.error/1", "exit_code": 2, "error": {"kind": "x"}, "more": 1}
    assert len(problems(document)) == 5  # four texts of the error are not there, and `more` is


def test_why_tells_of_one_name_or_of_several() -> None:
    several = {"schema": "fqfuse.why/1", "matches": [{"name": "x", "ending": "step 0"}]}
    assert problems(several) == []
    assert problems({"schema": "fqfuse.why/1"}) != []
    assert problems({**several, "answer": "x"}) != []
