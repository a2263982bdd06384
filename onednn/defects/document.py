"""The rows as a page."""

from __future__ import annotations

from collections.abc import Sequence

from .defect import Defect

_INTRODUCTION = """# What oneDNN computes wrongly

Written by `make docs` from `onednn/defects/`. Each was measured on the bare library against exact integers or float64, and
`tests/onednn/test_defects.py` shows it again, on whichever library `FQFUSE_ONEDNN` names. All rows were tried with oneDNN 3.2.0 and 3.13.2:
"wrong in" names the versions that were seen to be wrong. Where that is 3.2.0 alone and nothing is mended, 3.13.2 refuses the request or has
another implementation for it. A row concerns all versions from the first named on, but for those behind "right in". fqfuse passes such an
implementation over; `session.placement()` says where that sends a step to NumPy. What oneDNN's int8 code loses by design on CPUs without
VNNI (sums of products saturate to 16 bits) is no part of this list.
"""


def document(defects: Sequence[Defect]) -> str:
    """docs/onednn-defects.md."""
    parts = [_INTRODUCTION, *(_section(defect) for defect in defects)]
    return "\n".join(parts)


def _section(defect: Defect) -> str:
    implementation = defect.implementation.rstrip("$").replace("|", "`, `")
    lines = [
        f"## {defect.name}",
        "",
        f"- Implementation: {defect.kind}, `{implementation}`",
        f"- When: {defect.when}",
        f"- Result: {defect.symptom}",
        f"- Measured: {defect.figure}",
        f"- Instead: {defect.instead}",
        f"- Wrong in: {', '.join(defect.versions)}",
    ]
    if defect.mended is not None:
        lines.append(f"- Right in: {'.'.join(map(str, defect.mended))}")
    return "\n".join([*lines, ""])
