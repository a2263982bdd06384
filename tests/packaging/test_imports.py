"""Imports between files, whichever way they are written: at the top, inside functions, and those
that only the type checker follows.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).parents[2]
MOST_LEVELS = 7
ELSEWHERE = {"build", "dist", "docs", "site", "tests"}

Imports = Mapping[PurePosixPath, frozenset[PurePosixPath]]


def files_of(root: Path) -> list[PurePosixPath]:
    """The package's files, relative to its root."""
    inside = [
        top for top in root.iterdir() if top.name not in ELSEWHERE and not top.name.startswith(".")
    ]
    found = [top for top in inside if top.suffix == ".py"]
    found += [path for top in inside for path in top.rglob("*.py")]
    return sorted(PurePosixPath(path.relative_to(root).as_posix()) for path in found)


@cache
def imports_of(root: Path) -> Imports:
    """What each file imports of the package."""
    files = files_of(root)
    known = {
        path.parent if path.name == "__init__.py" else path.with_suffix(""): path for path in files
    }
    return {
        path: frozenset(
            known[name] for name in _modules((root / path).read_text("utf-8"), path, known)
        )
        - {path}
        for path in files
    }


def _modules(
    text: str, path: PurePosixPath, known: Iterable[PurePosixPath]
) -> Iterator[PurePosixPath]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names = [PurePosixPath(*alias.name.split(".")) for alias in node.names]
            yield from (
                name.relative_to("fqfuse") for name in names if name.is_relative_to("fqfuse")
            )
        elif isinstance(node, ast.ImportFrom):
            base = _base(node, path)
            if base is not None:
                # a name is a module, or something that the module it is taken from defines
                names = [base / alias.name for alias in node.names]
                yield from (name if name in known else base for name in names)


def _base(node: ast.ImportFrom, path: PurePosixPath) -> PurePosixPath | None:
    """The module that names are taken from; None for one of another package."""
    module = PurePosixPath(*(node.module or "").split("."))
    if node.level == 0:
        return module.relative_to("fqfuse") if module.is_relative_to("fqfuse") else None
    return path.parents[node.level - 1] / module


def circle(imports: Mapping[PurePosixPath, Iterable[PurePosixPath]]) -> list[PurePosixPath]:
    """Names that import each other in a circle; none where there is no circle."""
    left = {name: set(found) for name, found in imports.items()}
    while ends := [name for name, found in left.items() if not found & left.keys()]:
        for name in ends:
            del left[name]
    path = [min(left)] if left else []
    while path and path[-1] not in path[:-1]:
        path.append(min(left[path[-1]] & left.keys()))
    return path[path.index(path[-1]) :] if path else []


def levels(imports: Mapping[PurePosixPath, Iterable[PurePosixPath]]) -> list[list[PurePosixPath]]:
    """What stands on what: each level imports those in front of it alone. There is no circle."""
    found: list[list[PurePosixPath]] = []
    left = {name: set(names) for name, names in imports.items()}
    while left:
        found.append([name for name, names in left.items() if not names & left.keys()])
        for name in found[-1]:
            del left[name]
    return found


def inside(imports: Imports, room: PurePosixPath) -> dict[PurePosixPath, set[PurePosixPath]]:
    """The imports between what lies in a folder: its files, and its folders as one each."""

    def part(path: PurePosixPath) -> PurePosixPath:
        return room / path.relative_to(room).parts[0]

    found: dict[PurePosixPath, set[PurePosixPath]] = {}
    for path, names in imports.items():
        if path.is_relative_to(room):
            others = {part(name) for name in names if name.is_relative_to(room)}
            found.setdefault(part(path), set()).update(others - {part(path)})
    return found


ROOMS = sorted({path.parent for path in files_of(ROOT)} - {PurePosixPath()})


def test_no_files_import_each_other_in_a_circle() -> None:
    assert [str(path) for path in circle(imports_of(ROOT))] == []


@pytest.mark.each_case
@pytest.mark.parametrize("room", ROOMS, ids=str)
def test_a_room_has_few_levels_and_no_circle(room: PurePosixPath) -> None:
    # a folder inside is one thing: what it holds is counted there
    found = inside(imports_of(ROOT), room)
    assert [str(path) for path in circle(found)] == []
    stack = [" ".join(path.name for path in level) for level in levels(found)]
    assert len(stack) <= MOST_LEVELS, "\n".join(stack)


def test_imports_are_found_wherever_they_stand(tmp_path: Path) -> None:
    texts = {
        "__init__.py": "",
        "a.py": "from .room.b import x\n",
        "room/__init__.py": "from ..c import y\n",
        "room/b.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .. import a\n",
        "c.py": "def f():\n    from fqfuse.room import b\n    import fqfuse.d\n",
        "d.py": "import numpy\nfrom collections import abc\n",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    found = imports_of(tmp_path)
    assert {str(path): sorted(map(str, names)) for path, names in found.items() if names} == {
        "a.py": ["room/b.py"],
        "room/__init__.py": ["c.py"],
        "room/b.py": ["a.py"],
        "c.py": ["d.py", "room/b.py"],
    }
    assert [str(path) for path in circle(found)] == ["a.py", "room/b.py", "a.py"]
    whole = inside(found, PurePosixPath())
    assert [str(path) for path in circle(whole)] == ["a.py", "room", "a.py"]


def test_levels_are_counted_from_those_that_import_nothing() -> None:
    a, b, c, d = map(PurePosixPath, "abcd")
    assert levels({a: {b, d}, b: {c}, c: set(), d: set()}) == [[c, d], [b], [a]]
