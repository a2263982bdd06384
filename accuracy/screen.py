"""What `fqfuse compare` prints: how good the outputs are, which layers lose most and why, what to change."""

from __future__ import annotations

import math
from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text as RichText

from ..errors import printable
from ..report.approximations import approximated_text
from ..report.layout import Layout, Text, heading
from ..report.lines import WIDTH, guess_lines, labelled, paragraph
from ..report.notation import count_text
from ..report.verdict.kind import Gain
from .compare import EXACT, LOST, OURS, Comparison
from .layers import Cause, Layer
from .measures import Measure
from .parts import Part, Whole
from .suggest import NOTABLE, Suggestion, Trial
from .words import (
    LONGEST_NAME,
    advice_on,
    all_named,
    decibels,
    reason_of,
    share_shown,
    table_of,
    why,
)

_SHOWN = 8
_WHYS = 3
_DOUBT = "Was the second not quantized from the first, nothing below means anything: compare it with its own"
_CLEAN = 32.0  # dB: what 8 bits leave at least of a value with a well chosen range

_SAME = (
    3.0  # dB: two runs of one file that differ in ties are hardly farther apart than int8 from f32
)
_APART = 6.0  # dB: one is right and the other is not

_WORDS = (  # from how many dB on, what that means for the outputs, style
    (30.0, "very close to f32", "bold green"),
    (20.0, "close to f32", "bold green"),
    (10.0, "noticeably off: expect some accuracy to be lost", "bold yellow"),
    (-math.inf, "far from f32: expect wrong results", "bold red"),
)
_CLOSE = 20.0  # dB: from here on the words say that nothing is wrong
_WITHIN = "On random data drawn from the input quantizer's own range, which cannot show that it is too narrow for yours"
_LEGEND = "adds: fed with f32's values; so far: with all in front of it; codes: largest error so far; beyond: what its quantizer cuts off"
_SHORT = {
    Cause.BROKEN: "NaN, inf",
    Cause.MISSING: "missing",
    Cause.COMPUTED: "weights",
    Cause.TOO_WIDE: "too wide",
    Cause.SATURATED: "saturates",
    Cause.COARSE: "step",
}


def comparison_report(
    found: Comparison,
    suggestion: Suggestion | None,
    layout: Layout,
    *,
    title: str,
    all_rows: bool = False,
) -> RenderableType:
    """The whole report.

    Args:
        found: what was measured.
        suggestion: what was tried, if it was.
        layout: the room there is.
        title: stands in front.
        all_rows: every layer in the model's order instead of the worst.
    """
    width = min(layout.width or WIDTH, WIDTH)
    parts: list[RenderableType] = [heading(title, "int8 against f32")]
    parts += guess_lines(found.samples.guessed, width, by="--size, --shape, --data")
    if found.models.are_doubtful:
        doubt = f"These may be two different networks: {found.models.evidence}. {_DOUBT}."
        parts += [*_lines(printable(doubt), width, "bold red"), Text()]
    parts += _answer(found, width)
    parts += [Text(), _outputs(found), Text()]
    if approximated := approximated_text(found.models.plan):
        parts += [*_lines(approximated, width), Text()]
    if found.peer:
        parts += [*_lines(_about_peer(found), width), Text()]
    parts += _about_layers(found, layout, width, all_rows)
    if suggestion is not None:
        parts += [Text(), *_suggested(suggestion, width)]
    parts += [Text(), *_notes(found, width, suggested=suggestion is not None)]
    return Group(*parts)


def _answer(found: Comparison, width: int) -> list[RichText]:
    dead = [(name, whole, part) for name, whole in found.outputs.items() for part in whole.dead]
    if dead:
        return _constant(found, *dead[0], width)
    name, worst = min(found.outputs.items(), key=lambda item: item[1].least)
    word, style = next((word, style) for bound, word, style in _WORDS if worst.least >= bound)
    alone = len(found.outputs) == 1
    whose = "the output is" if alone else f"the worst output, {printable(name)}, is"
    if worst.least < worst.sqnr:
        part = min(worst.parts, key=lambda part: part.measure.sqnr)
        whose = f"the worst part of {'the output' if alone else printable(name)}, {part.name}, is"
    if found.samples.within:
        whose = f"{_WITHIN}, {whose}"
        style = "bold yellow" if worst.least >= _CLOSE else style
    else:
        whose = f"On random data {whose}" if found.samples.random else f"T{whose[1:]}"
    text = f"{whose} {word}"
    if worst.broken:
        text += f" (NaN or infinite: {count_text(worst.broken, 'entry', 'entries')})"
    return _lines(f"{text}. {_loudest(found)}", width, style)


def _constant(found: Comparison, name: str, whole: Whole, part: Part, width: int) -> list[RichText]:
    """What is constant of an output, and the quantizers that have hardly a code for their values."""
    where = "the output" if len(found.outputs) == 1 else f"output {printable(name)}"
    others = [each for each in whole.parts if each.constant is None]
    figures = [f"{each.name}: {decibels(each.measure.sqnr)}" for each in others]
    text = (
        f"{part.name[0].upper()}{part.name[1:]} of {where} are all {part.constant:.3g}, where f32 has {part.low:.3g} to "
        f"{part.high:.3g}: expect wrong results ({'; '.join([decibels(part.measure.sqnr), *figures])})."
    )
    causes = [each for each in found.findings if each.kind.gain is Gain.NUMBERS and each.reasons]
    why_so = f"{printable(causes[0].reasons[0])}." if causes else _loudest(found)
    told = _lines(f"{text} {why_so}", width, "bold red")
    for cause in causes[:1]:
        told += _labelled("change", cause.change(3), width, "green")
    return told


def _loudest(found: Comparison) -> str:
    """Which layer adds most noise."""
    ranking = found.ranking
    if not ranking:
        return "No layer adds any noise."
    first = ranking[0]
    if first.adds >= _CLEAN:
        return "No layer stands out: none adds more noise than 8 bits must."
    clause, layer = why(first), printable(first.pair.layer)
    if first.cause is Cause.MISSING:
        return f"{clause[0].upper()}{clause[1:]}: {layer} adds most noise."
    return f"{layer} adds most noise: {clause}."


def _outputs(found: Comparison) -> Table:
    runs = [(EXACT, "exact"), (found.peer, found.peer)]
    if found.peer and found.deployed != found.peer:
        runs = [(EXACT, "exact"), (found.deployed, found.peer), (found.peer, "not optimized")]
    measured = found.measured.outputs
    others = {name: measured[key] for key, name in runs if key in measured}
    table = table_of("output", "SQNR", "cosine", "largest", *others)
    shown = all_named(list(found.outputs))
    for label, (name, whole) in zip(shown, found.outputs.items(), strict=True):
        row = [decibels(other[name].sqnr) for other in others.values()]
        table.add_row("", label, *_figures(whole), *row)
        theirs = [{part.name: part for part in other[name].parts} for other in others.values()]
        for part in whole.parts:
            same = [parts.get(part.name) for parts in theirs]
            row = ["" if each is None else decibels(each.measure.sqnr) for each in same]
            table.add_row("", Text(f"  {part.name}"), *_figures(part.measure), *row)
    return table


def _figures(measure: Measure) -> list[str]:
    return [decibels(measure.sqnr), _cosine(measure.cosine), f"{measure.largest:.3g}"]


def _about_peer(found: Comparison) -> str:
    """Who is to blame, and what the other program's optimizations do: what its users get."""
    told = _who_is_wrong(found)
    if found.refusal:
        told += (
            f" With its optimizations, which are on unless a session turns them off, {found.peer} does not load the model: "
            f"{found.refusal}"
        )
    if found.deployed != found.peer:
        told += (
            f" As it is deployed, with its optimizations, {found.peer} is {decibels(found.worst_of(found.deployed))} from f32, "
            f"and {decibels(found.worst_of(found.peer))} without them."
        )
    if found.loses_as_deployed:
        told += f" {_cured(found)}"
    return told


def _cured(found: Comparison) -> str:
    """What makes the other program as good as the file, of what was tried."""
    helps = [(name, sqnr) for name, sqnr in found.cures if sqnr >= found.worst - LOST]
    if helps:
        cure, sqnr = helps[0]
        return f"What cures it, tried here: {cure} gives {decibels(sqnr)}."
    tried = "; ".join(f"{name}: {decibels(sqnr)}" for name, sqnr in found.cures)
    off = ", but to turn the optimizations off" if found.deployed != found.peer else ""
    return f"Nothing that was tried cures it{off} ({tried or 'there is nothing to try'})."


def _who_is_wrong(found: Comparison) -> str:
    """The quantization, if both runs agree; else one of the programs."""
    agreement = found.measured.agreement
    ours = min(measure.sqnr for measure in agreement[OURS].values())
    theirs = min(measure.sqnr for measure in agreement[found.peer].values())
    told = f"SQNR to that: fqfuse {decibels(ours)}, {found.peer} {decibels(theirs)}"
    if min(ours, theirs) >= found.worst - _SAME:
        return f"Both run what the file means, but for ties of rounding: the error is the quantization's ({told})."
    if ours >= theirs + _APART:
        return f"{found.peer} does not compute what the file means, fqfuse does ({told})."
    if theirs >= ours + _APART:
        return (
            f"fqfuse may be wrong: it is far from what the file means ({told}). --reduce cuts out where; "
            "please report it with that."
        )
    return (
        f"Both are far from what the file means: ties of rounding grow along this network ({told})."
    )


# -- layers ----------------------------------------------------------------------------------------


def _about_layers(
    found: Comparison, layout: Layout, width: int, all_rows: bool
) -> Iterator[RenderableType]:
    ranking = found.ranking
    shown = list(found.layers) if all_rows else ranking[:_SHOWN]
    if not shown:
        return
    what = "every layer, in the model's order" if all_rows else "the layers that add most noise"
    yield heading(what, "SQNR in dB")
    room = None if layout.width is None and all_rows else LONGEST_NAME
    columns = ["layer", "adds", "so far", "codes", "beyond", "why"]
    legend = _LEGEND
    if found.told_by_peer:
        legend += f"; so far and codes are {found.peer}'s"
    operators = all_rows and layout.is_wide
    table = table_of(*columns, *(["operator"] if operators else []))
    names = all_named([layer.pair.layer for layer in shown], room)
    for layer, name in zip(shown, names, strict=True):
        noisy = layer.added.noise or layer.added.broken
        table.add_row(
            "",
            name,
            _number(layer.adds),
            _number(layer.total.sqnr),
            "" if layer.codes is None else str(layer.codes),
            share_shown(layer.saturated),
            "moved" if layer.pair.again else _SHORT[layer.cause] if noisy else "",
            *([Text(layer.pair.op)] if operators else []),
        )
    yield table
    yield from _lines(legend, width, "dim")
    if all_rows:
        return
    told = [layer for layer in ranking[:_WHYS] if layer.adds < _CLEAN]
    seen: set[str] = set()
    heads = all_named([layer.pair.layer for layer in told], width - 3)
    for number, (layer, head) in enumerate(zip(told, heads, strict=True), 1):
        yield Text()
        yield Text.assemble((f"{number}  ", "bold yellow"), (head.plain, "bold"))
        yield from _explained(found, layer, width, seen)


def _explained(found: Comparison, layer: Layer, width: int, seen: set[str]) -> Iterator[RichText]:
    yield from _labelled("why", reason_of(layer), width)
    findings = found.findings_at(layer)[:2]
    for finding in findings:
        code = finding.kind.code
        if code in seen:
            yield from _labelled("finding", f"{code}, as above", width)
            continue
        seen.add(code)
        yield from _labelled("finding", f"{finding.kind.why} ({code})", width)
        yield from _labelled("change", finding.change(3, " (--json names them)"), width, "green")
    if not findings:
        yield from _labelled("change", advice_on(layer), width, "green")


# -- suggestion ------------------------------------------------------------------------------------


def _suggested(found: Suggestion, width: int) -> Iterator[RenderableType]:
    yield heading("left in f32, tried", "SQNR and cosine of the worst output, nothing fused")
    table = table_of("left out", "for the noise of", "SQNR", "gain", "cosine")
    notable = [trial for trial in found.trials if trial.sqnr >= found.before.sqnr + NOTABLE]
    rows = [found.before, *notable]
    if found.chosen.layers and found.chosen not in found.trials:
        rows.append(found.chosen)
    names = all_named([trial.why if trial.layers else "" for trial in rows])
    for trial, name in zip(rows, names, strict=True):
        style = "bold green" if trial is found.chosen and trial.layers else ""
        table.add_row(
            "",
            Text(_count(trial), style=style),
            name,
            decibels(trial.sqnr),
            "" if trial is found.before else _gain(trial.sqnr - found.before.sqnr),
            _cosine(trial.cosine),
        )
    yield table
    left = len(found.trials) - len(notable)
    if left:
        text = f"{count_text(left, 'other trial')} gained less than {NOTABLE:g} dB: too little to tell from chance"
        yield from _labelled("others", text, width)
    if found.change:
        yield from _labelled("change", found.change, width, "green")
    else:
        text = (
            f"no layer alone is to blame: leaving one of the worst in f32 gains less than {NOTABLE:g} dB. More or better "
            "calibration data, weights per channel, or quantization-aware training help more"
        )
        yield from _labelled("change", text, width, "green")


def _count(trial: Trial) -> str:
    return count_text(len(trial.layers), "layer") if trial.layers else "nothing"


def _gain(gain: float) -> str:
    return "" if math.isnan(gain) else f"{gain:+.1f} dB"


# -- notes and words -------------------------------------------------------------------------------


def _notes(found: Comparison, width: int, *, suggested: bool) -> Iterator[RichText]:
    models = found.models
    every = len(models.pairs) + len(models.unmatched)
    text = f"{len(models.pairs):,} of {every:,} values matched by name"
    if models.unmatched:
        text += f"; the int8 model has no {printable(models.unmatched[0])}"
        left = len(models.unmatched) - 1
        text += (
            f" and {left:,} others (--json has all): the quantizer fused or renamed them"
            if left
            else ""
        )
    yield from _lines(f"{text}.", width, "dim")
    if found.masked:
        yield from _lines(
            f"Left out: {found.masked:,} entries of attention masks (f32 is below -9,000 there, far from all others).",
            width,
            "dim",
        )
    yield from _lines(f"Data: {found.samples.told}.", width, "dim")
    if found.samples.random:
        yield from _lines(
            "Real data tells more: --data FILE.npz, or a folder of them.", width, "dim"
        )
    if not suggested:
        yield from _lines(
            "--suggest tries which layers to leave in f32, --all lists every layer.", width, "dim"
        )


def _labelled(label: str, text: str, width: int, style: str = "") -> Iterator[RichText]:
    return labelled(label, text, width, 3, 9, style)


def _lines(text: str, width: int, style: str = "") -> list[RichText]:
    return paragraph(text, width, 2, style)


def _number(value: float) -> str:
    return decibels(value).removesuffix(" dB")


def _cosine(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.4f}"
