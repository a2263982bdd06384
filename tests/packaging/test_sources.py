"""docs/contributing/sources.md: each row names tests that exist and that pytest collects, or says what is missing,
which is listed here.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "contributing" / "sources.md").read_text(encoding="utf-8")
TITLES = {
    "Q": "Primitive Attributes: Quantization",
    "S": "oneAPI 1.3 暫定仕様書 Rev. 1 の解説 (15)",
    "U": "Proposal for updating quantization scale functionality in oneDNN",
    "F": "FakeQuantize in OpenVINO",
    "N": "Nuances of int8 Computations",
}

NOT_YET: dict[str, str] = {}
"""What is missing -> the numbers of its rows. A row that is done leaves this list; one that joins it is a loss."""

Row = tuple[str, str, str, str]


def rows() -> dict[str, list[Row]]:
    """Title -> number, what it says, what does it here, and its tests."""
    found = {}
    for section in TEXT.split("\n## ")[1:]:
        title, _, body = section.partition("\n")
        lines = [line for line in body.splitlines() if line.startswith("|")]
        assert lines[:2] == ["| # | it says | here | test |", "|---|---|---|---|"], title
        cells = [line[2:].removesuffix(" |").split(" | ") for line in lines[2:]]
        assert [row for row in cells if len(row) != 4] == []
        found[title] = [(row[0], row[1], row[2], row[3]) for row in cells]
    return found


ALL = [row for part in rows().values() for row in part]


@cache
def collected(path: str) -> dict[str, str]:
    """The tests that pytest collects in a file -> the folder of their golden files, or ''."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    tests = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    tests = [node for node in tests if node.name.startswith("test")]
    assert len({node.name for node in tests}) == len(tests), "a test that another one hides"
    made = {name: "" for node in tree.body for name in made_by_a_call(node)}
    return made | {node.name: golden_folder(node) for node in tests}


def made_by_a_call(node: ast.stmt) -> Iterator[str]:
    """The tests of several files that one function makes: `test_a, test_b = tests_of(...)`."""
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
        names = (each for target in node.targets for each in ast.walk(target))
        yield from (n.id for n in names if isinstance(n, ast.Name) and n.id.startswith("test"))


def golden_folder(test: ast.FunctionDef) -> str:
    """What its mark `golden` names."""
    marks = [
        re.match(r"pytest\.mark\.golden\('(\w+)'\)", ast.unparse(d)) for d in test.decorator_list
    ]
    return next((mark[1] for mark in marks if mark), "")


def test_the_documents_are_those_five_and_their_rows_are_counted() -> None:
    found = rows()
    assert list(found) == list(TITLES.values())
    for letter, title in TITLES.items():
        assert [row[0] for row in found[title]] == [
            f"{letter}{number}" for number in range(1, len(found[title]) + 1)
        ]


@pytest.mark.each_case
@pytest.mark.parametrize("row", ALL, ids=lambda row: row[0])
def test_a_row_names_tests_that_exist_or_says_what_is_missing(row: Row) -> None:
    _, says, here, tests = row
    assert says
    if tests.startswith("not yet: "):
        return
    assert here
    named = tests.split(", ")
    for name in named:
        match = re.fullmatch(r"`(tests/[\w/]+/test_\w+\.py)::(test_\w+)(?:\[([\w.-]+)\])?`", name)
        assert match is not None, name
        path, function, case = match.groups()
        assert (ROOT / path).is_file(), path
        assert function in collected(path), name
        folder = collected(path)[function]
        assert bool(folder) == (case is not None), "a case, of golden files only"
        assert case is None or (ROOT / "tests" / "golden" / folder / f"{case}.txt").is_file(), name
    assert len(set(named)) == len(named)


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`([\w/]+(?:/|\.py))`", TEXT))))
def test_what_does_it_exists(path: str) -> None:
    assert (ROOT / path).exists()


def test_what_is_missing_is_listed() -> None:
    missing = [row[0] for row in ALL if row[3].startswith("not yet: ")]
    assert set(missing) == set(" ".join(NOT_YET.values()).split())
