"""Outcomes as Markdown, and their place in a guide: between `<!-- table NAME -->` and
`<!-- end -->`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

_PLACE = re.compile(r"(<!-- table ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
_HEADER = (
    "| setting | int8 | f32 between steps | steps | findings left | saturates without VNNI | SQNR |\n"
    "|---|---|---|---|---|---|---|"
)


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """The outcomes (`Outcome.as_json`), one a line, in order."""
    return "\n".join([_HEADER, *(_row(row) for row in rows)]) + "\n"


def places(guide: str) -> list[str]:
    """The names of the tables in a guide."""
    return [name for _, name, _ in _PLACE.findall(guide)]


def filled(guide: str, tables: Mapping[str, str]) -> str:
    """The guide with the tables that are given; others stay as they are."""

    def replace(found: re.Match[str]) -> str:
        return f"{found[1]}{tables[found[2]]}{found[3]}" if found[2] in tables else found[0]

    return _PLACE.sub(replace, guide)


def _row(row: Mapping[str, Any]) -> str:
    if row["failed"]:
        return f"| {row['shown']} | {row['failed']} | | | | | |"
    cells = [
        row["shown"],
        _percent(row["int8"]),
        f"{row['f32_bytes'] / 1024:,.0f} KiB" if row["f32_bytes"] else "none",
        str(row["steps"]),
        ", ".join(f"[{code}](findings.md#{code}) {n}" for code, n in row["findings"].items()),
        str(row["saturating"] or ""),
        "exact" if row["sqnr_db"] is None else f"{row['sqnr_db']:.1f} dB",
    ]
    return "| " + " | ".join(cells) + " |"


def _percent(share: float) -> str:
    """`100 %` of all only, and `0 %` of nothing only."""
    if 0.99 < share < 1:
        return "over 99 %"
    return "under 1 %" if 0 < share < 0.01 else f"{share:.0%}".replace("%", " %")
