"""Two plans side by side on a terminal: the answer first, 80 columns, the same in a pipe."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import starmap
from typing import TypeVar

from rich.console import Group, RenderableType
from rich.text import Text as RichText

from ...errors import printable
from ...ir.decision import Decision, Outcome
from ..columns import columns
from ..layout import Layout, Text, heading
from ..lines import WIDTH, guess_lines, labelled, paragraph
from ..notation import count_text, cut_names, middle_cut
from ..verdict.shares import share_text
from .compare import Alone, Change, Decided, Difference, Pair, Settled

Item = TypeVar("Item")

_LABEL = 12
_NAME = 30  # columns that a name has at least
_SHOWN = 10  # rows of each part, without --all
_SAME = 3  # of those that differ in numbers only
_WHAT = 3  # kinds of steps in the answer
_EQUAL = 0.005  # of a time, below which it counts as the same


def diff_report(
    difference: Difference, titles: tuple[str, str], layout: Layout, *, all_rows: bool = False
) -> RenderableType:
    """What differs.

    Args:
        difference: between two plans.
        titles: what they are called.
        layout: the room there is.
        all_rows: with every row of every part.
    """
    width = min(layout.width or WIDTH, WIDTH)
    limit = None if all_rows else _SHOWN
    parts: list[RenderableType] = []
    for letter, title in zip("AB", titles, strict=True):
        parts.append(Text(f"{letter}  {middle_cut(printable(title), width - 3)}", style="bold"))
    told = () if difference.is_silent else difference.verdicts
    for guessed in dict.fromkeys(tuple(verdict.guessed.items()) for verdict in told):
        parts += guess_lines(dict(guessed), width)
    parts += paragraph(printable(answer_of(difference)), width, 2, "bold")
    if difference.is_silent:
        return Group(*parts)
    parts += paragraph(_quantizers(difference), width, 2) if any(difference.quantizers) else []
    if not difference.is_empty:
        parts += [Text(), *_verdicts(difference, width)]
    structural = [pair for pair in difference.pairs if not pair.only_numbers]
    numeric = [pair for pair in difference.pairs if pair.only_numbers]
    of_numbers = _pairs(numeric, width)
    for label, rows in (
        ("Inputs, outputs and target", [_changes([c], width, 2) for c in difference.interface]),
        ("Only in A", _alone(difference.only_first, "B", width)),
        ("Only in B", _alone(difference.only_second, "A", width)),
        ("Differ", _pairs(structural, width)),
        ("Differ in numbers only", of_numbers),
        ("Could not be aligned", _strange(difference, width)),
        ("Quantizers that went elsewhere", _settled(difference.fates, width)),
        ("Rules that decided otherwise", _decided(difference.decisions, width)),
    ):
        parts += _part(label, rows, limit if rows is not of_numbers else limit and _SAME)
    return Group(*parts)


# -- the answer ------------------------------------------------------------------------------------


def answer_of(difference: Difference) -> str:
    """What differs, in a few sentences."""
    counts = [len(plan.steps) for plan in (difference.first, difference.second)]
    if difference.is_empty:
        same = f"A and B are the same: {count_text(counts[0], 'step')}, equal in all numbers."
        other = len(difference.decisions)
        return f"{same} {_rules(other)}." if other else same
    return " ".join(
        filter(
            None,
            [
                _steps(counts),
                _moved(difference),
                _changed(difference),
                _outcome(difference),
                _interface(difference),
                _not_aligned(difference),
            ],
        )
    )


def _quantizers(difference: Difference) -> str:
    """How many each has, and how many quantize a value that both name: tools name values in
    different ways.
    """
    first, second = (len(plan.quantizers) for plan in (difference.first, difference.second))
    shared = first - difference.quantizers[0]
    left = "; nothing of the difference is left in the steps" if difference.is_empty else ""
    return (
        f"Quantizers: {first:,} in A, {second:,} in B, of values of the same name {shared:,}{left}."
    )


def _rules(count: int) -> str:
    return f"{count_text(count, 'rule')} decided otherwise on the way"


def _steps(counts: Sequence[int]) -> str:
    more = counts[1] - counts[0]
    if not more:
        return f"B has as many steps as A ({counts[0]:,})."
    word = "more" if more > 0 else "fewer"
    return (
        f"B has {count_text(abs(more), 'step')} {word} than A ({counts[1]:,}, not {counts[0]:,})."
    )


def _moved(difference: Difference) -> str:
    moved = difference.moved()
    parts = [
        f"{n} of {whole} {kind.removeprefix('onnx.')} steps {word}"
        for kind, n, whole, word in moved[:_WHAT]
    ]
    left = f" and so did others ({len(moved) - _WHAT})" if len(moved) > _WHAT else ""
    return f"{', '.join(parts)}{left}." if parts else ""


def _changed(difference: Difference) -> str:
    numbers = sum(pair.only_numbers for pair in difference.pairs)
    other = len(difference.pairs) - numbers
    parts = (
        [f"{count_text(other, 'step')} {'differs' if other == 1 else 'differ'}"] if other else []
    )
    if numbers:
        verb = "differs" if numbers == 1 else "differ"
        parts.append(f"{count_text(numbers, 'step')} {verb} in numbers only")
    parts += [f"{difference.equal:,} {'is' if difference.equal == 1 else 'are'} equal"]
    return f"{', '.join(parts)}."


def _outcome(difference: Difference) -> str:
    rows = [
        f"{label} {one} -> {other}" for label, one, other in _numbers(difference) if one != other
    ]
    if not rows:
        return "Shares of int8 and f32 and the estimated time are the same."
    text = "; ".join(rows)
    return f"{text[0].upper()}{text[1:]}."


def _interface(difference: Difference) -> str:
    what = [change.what for change in difference.interface]
    return f"Other {' and '.join(what)}." if what else ""


def _not_aligned(difference: Difference) -> str:
    first, second = len(difference.strange_first), len(difference.strange_second)
    if not first + second:
        return ""
    return (
        f"{first:,} of A's steps and {second:,} of B's could not be aligned: the other names none of "
        "their nodes."
    )


def _numbers(difference: Difference) -> Iterator[tuple[str, str, str]]:
    one, other = (verdict.shares for verdict in difference.verdicts)
    yield (
        "Multiply-adds in int8:",
        share_text(one.int8_macs, one.macs),
        share_text(other.int8_macs, other.macs),
    )
    yield (
        "f32 between steps:",
        share_text(one.f32_between, one.between),
        share_text(other.f32_between, other.between),
    )
    ms = [verdict.estimate.ms if verdict.timed else 0.0 for verdict in difference.verdicts]
    if all(ms) and abs(ms[0] - ms[1]) > _EQUAL * max(ms):
        yield "estimated time:", f"{ms[0]:.3g} ms", f"{ms[1]:.3g} ms"


def _verdicts(difference: Difference, width: int) -> Iterator[RichText]:
    for letter, verdict in zip("AB", difference.verdicts, strict=True):
        time = f"about {verdict.estimate.ms:.3g} ms" if verdict.timed else "no time at these sizes"
        text = f"{verdict.shares.arithmetic}; between steps {verdict.shares.handed_on}; {time}"
        yield from labelled(f"  {letter}", text, width, 0, 5, "")


# -- rows ------------------------------------------------------------------------------------------


def _part(label: str, rows: Sequence[Iterator[RichText]], limit: int | None) -> list[RichText]:
    if not rows:
        return []
    shown = rows[:limit]
    lines = [Text(), heading(label, f"{len(rows):,}"), *(line for row in shown for line in row)]
    left = len(rows) - len(shown)
    return [*lines, Text(f"  … {left:,} more: --all shows them", style="dim")] if left else lines


def _alone(items: Sequence[Alone], other: str, width: int) -> list[Iterator[RichText]]:
    rows = []
    for item, called in zip(items, _called(items, width - 9), strict=True):
        inside = f"; in {other} inside step {item.inside}" if item.inside is not None else ""
        rows.append(labelled(f"#{item.step}", f"{called}{inside}", width, 2, 7))
    return rows


def _strange(difference: Difference, width: int) -> list[Iterator[RichText]]:
    items = (*difference.strange_first, *difference.strange_second)
    letters = "A" * len(difference.strange_first) + "B" * len(difference.strange_second)
    return [
        labelled(f"{letter} #{item.step}", called, width, 2, 8)
        for letter, item, called in zip(letters, items, _called(items, width - 10), strict=True)
    ]


def _called(items: Sequence[Alone], room: int) -> list[str]:
    """`reorder: /conv1/Conv`, each on one line: a name is cut rather than broken."""
    texts = [printable(item.text) for item in items]
    longest = max(map(columns, texts), default=0)
    names = _cut([item.name for item in items], max(room - longest - 2, _NAME))
    return [f"{text}: {name}" for text, name in zip(texts, names, strict=True)]


def _cut(names: Sequence[str], room: int) -> list[str]:
    return cut_names(list(map(printable, names)), room)


def _pairs(pairs: Sequence[Pair], width: int) -> list[Iterator[RichText]]:
    numbers = [
        f"#{pair.first}" if pair.first == pair.second else f"#{pair.first} -> #{pair.second}"
        for pair in pairs
    ]
    room = width - max(map(len, numbers), default=0) - 4
    names = _cut([pair.name for pair in pairs], room)
    return list(starmap(partial(_pair, width), zip(pairs, names, numbers, strict=True)))


def _pair(width: int, pair: Pair, name: str, number: str) -> Iterator[RichText]:
    yield Text.assemble(f"  {name}", (f"  {number}", "dim"))
    yield from _changes(pair.changes, width, 4)


def _changes(changes: Sequence[Change], width: int, indent: int) -> Iterator[RichText]:
    for change in changes:
        told = (
            f"{change.first} -> {change.second}" if change.second else f"{change.first}: other data"
        )
        text = printable(told)
        yield from labelled(change.what, text, width, indent, _LABEL)


def _settled(rows: Sequence[Settled], width: int) -> list[Iterator[RichText]]:
    names = _cut([row.quantizer for row in rows], width - 2)
    return list(starmap(partial(_settling, width), zip(rows, names, strict=True)))


def _settling(width: int, row: Settled, name: str) -> Iterator[RichText]:
    yield Text(f"  {name}")
    one, other = (", ".join(side) or "nowhere" for side in (row.first, row.second))
    yield from labelled(row.half.value, f"{one} -> {other}", width, 4, _LABEL)


def _decided(rows: Sequence[Decided], width: int) -> list[Iterator[RichText]]:
    names = _cut([f"{row.rule} at {row.subject}" for row in rows], width - 2)
    return list(starmap(partial(_deciding, width), zip(rows, names, strict=True)))


def _deciding(width: int, row: Decided, name: str) -> Iterator[RichText]:
    yield Text(f"  {name}")
    for letter, decision in (("A", row.first), ("B", row.second)):
        yield from labelled(letter, printable(_said(decision)), width, 4, 3)


def _said(decision: Decision | None) -> str:
    if decision is None:
        return "said nothing"
    word = "refused: " if decision.outcome is Outcome.REFUSED else ""
    fix = f" (fix: {decision.hint})" if word and decision.hint else ""
    return f"{word}{decision.reason}{fix}"
