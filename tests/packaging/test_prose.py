"""The hand-written pages of docs/ are few, short and laid out to be read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
GENERATED = {
    "dialects.md",
    "findings.md",
    "json-schema.md",
    "onednn-defects.md",
    "operators.md",
    "rules.md",
}
MOST_PAGES = 18
"""In the navigation for users."""
MOST_WORDS = 40_000
MOST_IN_A_LINE, MOST_IN_A_PARAGRAPH, MOST_IN_A_CELL = 120, 80, 40


def pages() -> dict[str, str]:
    """Hand-written page -> its text without tables and sections that `make docs` or a benchmark writes."""
    found = {}
    for path in (*DOCS.glob("*.md"), *DOCS.glob("contributing/*.md"), ROOT / "CONTRIBUTING.md"):
        if path.name not in GENERATED:
            text = path.read_text(encoding="utf-8").partition("<!-- generated from here")[0]
            name = path.relative_to(ROOT).as_posix()
            found[name] = re.sub(r"<!-- table .*?<!-- end -->", "", text, flags=re.DOTALL)
    return found


def prose(text: str) -> str:
    return re.sub(r"^ *```.*?^ *```$", "", text, flags=re.MULTILINE | re.DOTALL)


def words(text: str) -> int:
    return len(re.sub(r"\]\([^)]*\)", "]", text).split())


def cells(text: str) -> Iterator[str]:
    for line in text.splitlines():
        if line.startswith("|"):
            yield from re.split(r"(?<!\\)\|", line)


def paragraphs(text: str) -> Iterator[str]:
    for block in re.split(r"\n\s*\n", text):
        if not block.lstrip().startswith(("|", "#")):
            yield from re.split(r"\n(?=\s*(?:[-*]|\d+\.)\s)", block)


def test_the_navigation_for_users_is_short() -> None:
    users = (DOCS / ".nav.yml").read_text(encoding="utf-8").partition("  - Contributing:")[0]
    assert 1 < len(re.findall(r"^ +- [\w-]+\.md$", users, flags=re.MULTILINE)) <= MOST_PAGES
    assert "glob" not in users


def test_hand_written_pages_are_short_together() -> None:
    assert (
        sum(len(text.split()) for name, text in pages().items() if name.startswith("docs/"))
        <= MOST_WORDS
    )


def test_lines_paragraphs_and_cells_are_short() -> None:
    long = []
    for name, text in pages().items():
        lines = [line for line in prose(text).splitlines() if not line.startswith(("|", "!["))]
        long += [f"{name}: {line}" for line in lines if len(line) > MOST_IN_A_LINE]
        long += [f"{name}: {cell}" for cell in cells(prose(text)) if words(cell) > MOST_IN_A_CELL]
        long += [
            f"{name}: {part}"
            for part in paragraphs(prose(text))
            if words(part) > MOST_IN_A_PARAGRAPH
        ]
    assert long == []
