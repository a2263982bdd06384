"""What `fqfuse fix` gains on files with one fault (`support/planted.py`), for each runtime: the table of docs/contributing/results.md.

PYTHONPATH=tests python tests/fix_table.py
"""

from __future__ import annotations

import sys
from typing import Any

from support.planted import PLANTED, Planted

import fqfuse
from fqfuse.accuracy.fixing import SATURATION, TARGETS


def told(case: Planted, runtime: str) -> str:
    """SQNR and time before and after."""
    only = [case.code, "layout"] if case.code == SATURATION else []
    asked: dict[str, Any] = {"f32": case.f32, "data": list(case.feeds), "sizes": case.sizes}
    found = fqfuse.fix(case.int8, runtime=runtime, only=only, **asked)
    before, after = found["before"], found["after"]
    for step in found["steps"]:
        if step["code"] == case.code and step["code"] == SATURATION and step["after"]:
            before, after = ({**found[k], "sqnr": step[k]["sqnr"]} for k in ("before", "after"))
    figures = f"{before['sqnr']:.1f} -> {after['sqnr']:.1f} dB, {before['ms']:.3f} -> {after['ms']:.3f} ms"
    kept = [step["code"] for step in found["steps"] if step["kept"]]
    if not kept:
        why = next((s["why"] for s in found["steps"] if s["code"] == case.code), "not tried")
        return f"unchanged ({why})"
    return figures.replace("nan -> ", "not loaded -> ")


def main() -> None:
    """Prints the table."""
    print("| fault | step |", *(f"{name} |" for name in TARGETS))
    print("|---|---|", *("---|" for _ in TARGETS))
    for name, make in PLANTED.items():
        case = make()
        cells = []
        for runtime in TARGETS:
            try:
                cells.append(told(case, runtime))
            except fqfuse.FqfuseError as error:
                cells.append(error.what)
        print(f"| {name} | {case.code} |", *(f"{cell} |" for cell in cells))
        sys.stdout.flush()


if __name__ == "__main__":
    main()
