"""What `fqfuse fix` prints: what was wrong, what was done and gained, and what was refused."""

from __future__ import annotations

import math
from collections.abc import Iterator

from rich.console import Group, RenderableType

from ..report.layout import Layout, Text, heading
from ..report.lines import WIDTH, guess_lines, labelled, paragraph
from .repair import Repair, Score
from .words import decibels, table_of


def fix_report(found: Repair, layout: Layout, *, title: str, written: str = "") -> RenderableType:
    """The whole report; `written`: the new file with its size, or nothing was written."""
    width = min(layout.width or WIDTH, WIDTH)
    kept, refused = (
        [step for step in found.steps if step.kept is wanted] for wanted in (True, False)
    )
    parts: list[RenderableType] = [heading(title, f"for {_FOR.get(found.target, found.target)}")]
    parts += guess_lines(found.samples.guessed, width, by="--size, --shape, --data")
    parts += paragraph(_answer(found, len(kept), len(refused)), width, 2, "bold green")
    if found.model is not None:
        parts += labelled(
            "file", written or "not written: --dry-run", width, 2, 7, whole_words=True
        )
    if kept:
        parts += [Text(), heading("what was done", "each step behind those in front of it")]
        table = table_of("step", "SQNR", "ms", "bytes")
        for step in kept:
            if step.before is not None and step.after is not None:
                table.add_row("", step.code, *_changed(step.before, step.after))
        parts.append(table)
        parts += [
            line
            for step in kept
            for line in labelled("", f"{step.code}: {step.what}; {step.done}", width, 2, 2)
        ]
    if refused:
        parts += [Text(), heading("what was refused", "")]
        for step in refused:
            parts += labelled(
                "", f"{step.code}: {step.what}; {step.done}: {step.why}.", width, 2, 2
            )
    return Group(*parts, Text(), *_notes(found, width))


_FOR = {"here": "fqfuse", "onnxruntime": "ONNX Runtime", "openvino": "OpenVINO"}


def _answer(found: Repair, kept: int, refused: int) -> str:
    if not found.steps:
        return "Nothing to repair: no remedy without training concerns this file."
    if not kept:
        return f"Nothing was changed: {refused:,} {'remedy was' if refused == 1 else 'remedies were'} looked at, and none helps."
    sqnr, ms, _ = _changed(found.before, found.after)
    codes = ", ".join(dict.fromkeys(step.code for step in found.steps if step.kept))
    return f"Repaired {codes}: {sqnr} SQNR, {ms} ms a run."


def _changed(before: Score, after: Score) -> tuple[str, str, str]:
    return (
        f"{_decibels(before.sqnr)} -> {_decibels(after.sqnr)}",
        f"{_ms(before.ms)} -> {_ms(after.ms)}",
        f"{before.bytes:,} -> {after.bytes:,}",
    )


def _decibels(value: float) -> str:
    return "not loaded" if math.isnan(value) else decibels(value)


def _ms(value: float) -> str:
    return "none" if math.isnan(value) else f"{value:.3g}"


def _notes(found: Repair, width: int) -> Iterator[RenderableType]:
    text = f"SQNR is the smallest of an output or a part of one, to {found.told}. Data: {found.samples.told}."
    yield from paragraph(text, width, 2, "dim")
    if found.samples.random:
        text = "No range was taken from random data. Real data tells more: --data FILE.npz, or a folder of them."
        yield from paragraph(text, width, 2, "dim")
