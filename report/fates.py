"""The fate of every quantizer: where each half went, at which step, and why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rich.console import RenderableType
from rich.text import Text as RichText

from ..ir.decision import Fate, Half
from ..ir.text_write import name_text
from ..plan.types import Plan
from .layout import FATE_STYLES, Layout, Text, heading, more, plain_table
from .notation import count_text, cut_names
from .summary import COSTLY

Halves = tuple[list[Fate], list[Fate]]

FACTOR = "factor of the product"
"""What a step multiplies by as its weights' scale: theirs, with all that has joined it."""

_NO_FATE = Text("WITHOUT A FATE", style="bold red")
_NAME = 60  # columns of the name of an If, Loop or Scan
_NAME_SHARE = 0.4  # of the width, for the names of quantizers


def fates_by_quantizer(plan: Plan) -> dict[str, Halves]:
    """Quantizer -> (fates of its quantize half, of its dequantize half), in the order of the model
    and then of the steps.

    A quantizer has several quantize fates where its quantize half was moved into several branches.
    A list is empty where the compiler forgot the half, which `Summary.settled` shows.
    """
    found: dict[str, Halves] = {name: ([], []) for name in plan.quantizers}
    for fate in plan.fate_records:
        if fate.quantizer in found:
            found[fate.quantizer][fate.half is Half.DEQUANTIZE].append(fate)
    for halves in found.values():
        for half in halves:
            half.sort(key=lambda fate: (fate.step is None, fate.step or 0, fate.consumer))
    return found


def fates_part(plan: Plan, layout: Layout, *, reasons: bool = True) -> list[RenderableType]:
    """Heading and fates of all quantizers, those in bodies behind the others.

    On a terminal one line a quantizer, with letters for the reasons, which stand below; in a pipe
    one line a fate, with everything in it. A long list keeps the quantizers that cost a step of
    their own, and as many others as there is room for.
    """
    parts = _own_fates(plan, layout, reasons=reasons)
    for name, inner in plan.within:
        found = _own_fates(inner, layout, reasons=reasons)
        where = [heading(f"In a body of {cut_names([name_text(name)], _NAME)[0]}")] if found else []
        parts += [Text(), *where, *found] if found else []
    return parts


def _own_fates(plan: Plan, layout: Layout, *, reasons: bool) -> list[RenderableType]:
    """Those of a plan itself, without its bodies."""
    if not plan.quantizers:
        return []
    everything = fates_by_quantizer(plan)
    note = f"{count_text(len(everything), 'quantizer')}: where each half went"
    if layout.width is None and reasons:
        return [heading("Fates", f"{note}, and why"), _flat(everything)]
    shown = _shown(everything, layout)
    letters = (
        _letters(fate.reason for halves in shown.values() for half in halves for fate in half)
        if reasons
        else {}
    )
    why = ", and why (letters below)" if reasons else ""
    parts: list[RenderableType] = [heading("Fates", note + why), _table(shown, letters, layout)]
    if len(shown) < len(everything):
        parts.append(more(len(everything) - len(shown), "quantizers, none of which cost a step"))
    return [*parts, Text(), _legend(letters)] if letters else parts


def _shown(everything: dict[str, Halves], layout: Layout) -> dict[str, Halves]:
    """All; or those with a costly fate, then others as far as there is room; in the order of the
    model.
    """
    if layout.rows is None or len(everything) <= layout.rows:
        return everything
    costly_first = sorted(everything, key=lambda name: not _is_costly(everything[name]))  # stable
    kept = {
        *costly_first[: layout.rows],
        *(name for name in everything if _is_costly(everything[name])),
    }
    return {name: halves for name, halves in everything.items() if name in kept}


def _is_costly(halves: Halves) -> bool:
    return any(fate.fate in COSTLY for half in halves for fate in half)


def _letters(reasons: Iterable[str]) -> dict[str, str]:
    """Reason -> a, b ... z, aa, ab ..., in the order of their first use."""
    return {reason: _letter(number) for number, reason in enumerate(dict.fromkeys(reasons))}


def _letter(number: int) -> str:
    tail = chr(ord("a") + number % 26)
    return tail if number < 26 else _letter(number // 26 - 1) + tail


def _table(
    shown: Mapping[str, Halves], letters: Mapping[str, str], layout: Layout
) -> RenderableType:
    table = plain_table("quantizer", "quantize", "dequantize")
    room = None if layout.width is None else int(layout.width * _NAME_SHARE)
    table.columns[1].no_wrap = table.columns[2].no_wrap = True
    names = cut_names([name_text(name) for name in shown], room)
    for name, (encoded, decoded) in zip(names, shown.values(), strict=True):
        table.add_row(
            "",
            Text(name),
            _joined(encoded, letters),
            _joined(decoded, letters),
        )
    return table


def _joined(fates: Sequence[Fate], letters: Mapping[str, str]) -> RichText:
    if not fates:
        return _NO_FATE
    alike: dict[tuple[object, str], list[Fate]] = {}
    for fate in fates:
        alike.setdefault((fate.fate, letters.get(fate.reason, "")), []).append(fate)
    return Text(", ").join([_with_letter(group, letter) for (_, letter), group in alike.items()])


def _with_letter(fates: Sequence[Fate], letter: str) -> RichText:
    """`source_scale #2 #5 a`: fates of one kind for one reason, their steps, and the reason's
    letter.
    """
    text = _fate(fates[0])
    for step in dict.fromkeys(fate.step for fate in fates if fate.step is not None):
        text.append(f" #{step}", style="default")
    return text.append(f" {letter}" if letter else "", style="dim")


def _legend(letters: Mapping[str, str]) -> RenderableType:
    table = plain_table("", "", header=False)
    for reason, letter in letters.items():
        table.add_row("", Text(letter, style="dim"), Text(reason))
    return table


def _flat(everything: Mapping[str, Halves]) -> RenderableType:
    table = plain_table("quantizer", "half", "fate", "step", "reader", "reason")
    for name, halves in everything.items():
        for half, fates in zip(Half, halves, strict=True):
            for fate in fates:
                step = "-" if fate.step is None else f"#{fate.step}"
                table.add_row(
                    "",
                    Text(name_text(name)),
                    half.value,
                    _fate(fate),
                    step,
                    Text(fate.consumer or "-"),
                    Text(fate.reason),
                )
            if not fates:
                table.add_row("", Text(name_text(name)), half.value, _NO_FATE, "-", "-", "-")
    return table


def _fate(fate: Fate) -> RichText:
    # The style lies on the characters, not on the whole text: what is appended has its own.
    return Text.assemble((fate.fate.value, FATE_STYLES.get(fate.fate.value, "green")))
