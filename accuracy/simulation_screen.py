"""What `fqfuse simulate` prints: what a CPU without VNNI would answer, which layers make it so, and
what to change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.text import Text as RichText

from ..report.layout import Layout, Text, heading
from ..report.lines import WIDTH, guess_lines, labelled, paragraph
from ..report.notation import count_text
from .remedy import Change, Outcome, What, changes_for
from .simulation import Answer, Effect, Simulation, layer_of
from .words import all_named, decibels, share_shown, table_of

_CPUS = {
    "vnni": "VNNI",
    "avx512_core": "AVX-512 without VNNI",
    "avx2": "AVX2 without VNNI",
    "sse41": "SSE4.1",
}
_SHOWN = 8
_SMALL = 30.0  # dB: hardly seen beside what 8 bits cost
_REMEDIES = {
    What.WEIGHTS: "weights",
    What.EVEN: "even",
    What.ACTIVATION: "activation",
}
_LEGEND = (
    "channels: that can differ; differ: numbers that do, fed with exact inputs; alone, so far: SQNR "
    "of these, and with all in front of it"
)


def simulation_report(
    found: Simulation,
    outcome: Outcome | None,
    layout: Layout,
    *,
    title: str,
    written: str = "",
    all_rows: bool = False,
) -> RenderableType:
    """The whole report.

    Args:
        found: what was measured.
        outcome: of the changed model, if one was made.
        layout: the room there is.
        title: stands in front.
        written: where the changed model is.
        all_rows: every layer that can differ, in the model's order, instead of the worst.
    """
    width = min(layout.width or WIDTH, WIDTH)
    parts: list[RenderableType] = [heading(title, f"on a CPU with {_CPUS[found.subject.isa]}")]
    parts += guess_lines(found.samples.guessed, width, by="--size, --shape, --data")
    parts += _lines(_answer(found), width, _style(found))
    if found.void:
        parts += _lines(_void(found), width, "bold yellow")
    if found.subject.sums:
        parts += [Text(), _outputs(found.outputs, "to exact")]
    if found.differing or (found.effects and all_rows):
        parts += [Text(), *_layers(found, layout, width, all_rows)]
    if outcome is not None:
        parts += [Text(), *_fixed(found, outcome, width, written)]
    elif found.effects:
        parts += [Text(), *_change(found, width)]
    rounded = _rounded(found, outcome)
    if rounded:
        parts += [Text(), *_lines(rounded, width)]
    return Group(*parts, Text(), *_notes(found, width))


def _answer(found: Simulation) -> str:
    every, risky = len(found.subject.sums), len(found.effects)
    if not every:
        return "The model has no products of codes that could differ there."
    layers = count_text(every, "int8 layer")
    if not risky:
        return f"Proven for any data: no sum of {layers} saturates there."
    where = "On random data" if found.samples.random else "On this data"
    differing = len(found.differing)
    if not found.differs:
        also = "no output differs" if differing else "none does"
        return f"{risky:,} of {layers} may give other numbers there. {where} {also}."
    worst = min(found.outputs.values(), key=lambda answer: answer.there.sqnr)
    text = f"{where} {differing:,} of {layers} give other numbers there: {_loss(worst)}"
    more = risky - differing
    return f"{text} {more:,} more may on other data." if more else text


def _void(found: Simulation) -> str:
    """What no emulation tells."""
    count, first = len(found.void), found.void[0].layer
    which = f"{first} is" if count == 1 else f"{first} and {count - 1:,} more are"
    why = "oneDNN may take code there that is not emulated"
    return f"The figures are void where {which} concerned: {why}. What is proven, and --fix, hold for it as well."


def _loss(worst: Answer) -> str:
    text = f"{decibels(worst.there.sqnr)} SQNR to the exact result"
    if worst.rows:
        text += f", {worst.changed:,} of {count_text(worst.rows, 'label')} changed"
    return f"{text}."


def _style(found: Simulation) -> str:
    if not found.differs:
        return "bold yellow" if found.effects else "bold green"
    return "bold yellow" if found.worst >= _SMALL else "bold red"


def _outputs(
    outputs: Mapping[str, Answer],
    first: str,
    to_f32: tuple[str, str] = ("exact to f32", "there to f32"),
) -> RenderableType:
    """The outputs; `first` and `to_f32` head what is held against what."""
    told = any(answer.exact_to_f32 is not None for answer in outputs.values())
    labels = any(answer.rows for answer in outputs.values())
    columns = ["output", first, "differ", *(["labels"] if labels else [])]
    columns += to_f32 if told else ()
    table = table_of(*columns)
    names = all_named(list(outputs))
    for name, answer in zip(names, outputs.values(), strict=True):
        row: list[RichText | str] = [name, decibels(answer.there.sqnr)]
        row.append(share_shown(answer.differ / answer.entries if answer.entries else 0.0))
        if labels:
            row.append(f"{answer.changed:,} of {answer.rows:,}" if answer.rows else "")
        held = (answer.exact_to_f32, answer.there_to_f32) if told else ()
        table.add_row("", *row, *("" if one is None else decibels(one.sqnr) for one in held))
    return table


def _layers(
    found: Simulation, layout: Layout, width: int, all_rows: bool
) -> Iterator[RenderableType]:
    shown = list(found.effects) if all_rows else found.differing[:_SHOWN]
    left = len(found.effects) - len(shown)
    what = "layers that can differ" if all_rows else "layers that differ most"
    yield heading(what, f"--all lists {left:,} more" if left else "")
    changes = changes_for(found.subject.plan, found.subject.at_risk)
    table = table_of("layer", "channels", "differ", "alone", "so far", "7 bits")
    room = None if layout.width is None and all_rows else 30
    names = all_named([effect.layer for effect in shown], room)
    for effect, name in zip(shown, names, strict=True):
        table.add_row("", name, *_row(effect, changes))
    yield table
    yield from _lines(_LEGEND, width, "dim")


def _row(effect: Effect, changes: list[Change]) -> list[RichText | str]:
    sums = effect.sums
    own = next((change for change in changes if effect.layer in change.layers), None)
    return [
        f"{len(sums.channels)}/{sums.of}",
        share_shown(effect.share),
        decibels(effect.alone.sqnr).removesuffix(" dB"),
        decibels(effect.total.sqnr).removesuffix(" dB"),
        "" if own is None else _REMEDIES[own.what],
    ]


# -- the remedy ------------------------------------------------------------------------------------


def _change(found: Simulation, width: int) -> Iterator[RichText]:
    changes = changes_for(found.subject.plan, found.subject.at_risk)
    if changes:
        text = f"{_told(changes)}, and no others: --fix OUT.onnx writes that model"
        yield from labelled("change", text, width, 2, 9, "green")
    told = {layer for change in changes for layer in change.layers}
    without = [effect.layer for effect in found.effects if effect.layer not in told]
    if without:
        text = f"{count_text(len(without), 'layer')} without a quantizer that could be given 7 bits: {without[0]}"
        yield from labelled("but", text, width, 2, 9)


def _told(changes: list[Change] | tuple[Change, ...]) -> str:
    """`weights of 5 layers to 7 bits, activations in front of 2 to 0..127`."""
    # two quantizers of one layer, a recurrent one's, are one; an activation is one for all its layers
    layers = {what: {n for c in changes if c.what is what for n in c.layers} for what in What}
    activations = sum(change.what is What.ACTIVATION for change in changes)
    count = {what: len(names) for what, names in layers.items()} | {What.ACTIVATION: activations}
    words = {
        What.WEIGHTS: ("the weights of {} to 7 bits", "layer"),
        What.EVEN: ("the weights of {} to even codes", "layer"),
        What.ACTIVATION: ("{} to the codes 0..127", "activation"),
    }
    return ", ".join(
        text.format(count_text(count[what], noun))
        for what, (text, noun) in words.items()
        if count[what]
    )


def _fixed(
    found: Simulation, outcome: Outcome, width: int, written: str
) -> Iterator[RenderableType]:
    changes = outcome.fixed.changes
    yield heading("with 7 bits where needed", written)
    done = f"Changed: {_told(changes)}" if changes else "Nothing had to change"
    yield from _lines(f"{done}. {_NONE_SATURATES}", width, "bold green")
    yield from _lines(_elsewhere(outcome.fixed.left), width)
    yield from _lines(_ROUNDS_ITSELF if outcome.agree else f"{_ROUNDS_ITSELF} {_ORDER}", width)
    if changes:
        yield from _lines(_price(found, outcome), width)
    yield Text()
    yield _outputs(outcome.answers, "to before", ("before to f32", "now to f32"))


def _elsewhere(left: Mapping[str, tuple[str, ...]]) -> str:
    """On which other CPUs layers of the changed model may saturate."""
    told = [
        f"on {_CPUS[isa]} {count_text(len(names), 'layer')} can still differ ({_first(names)}): --isa {isa} --fix on the changed model"
        for isa, names in left.items()
        if names
    ]
    free = " and ".join(f"on {_CPUS[isa]}" for isa, names in left.items() if not names)
    told += [f"{free} none"] if free and told else []
    return f"That is for this CPU; {'; '.join(told)}." if told else f"The same holds {free}."


def _first(names: Sequence[str]) -> str:
    more = len(names) - 1
    return f"{names[0]} and {more:,} more" if more else names[0]


def _rounded(found: Simulation, outcome: Outcome | None) -> str:
    """Of which layers sums may pass what f32 holds; '' where there is none."""
    own = [layer_of(found.subject.plan, sums) for sums in found.subject.rounded]
    names = own if outcome is None else outcome.fixed.rounded
    if not names:
        return ""
    which = f"{count_text(len(names), 'layer')} ({_first(names)})"
    return f"Sums of {which} can pass 2^24: {_ON_ITS_WAY}."


def _price(found: Simulation, outcome: Outcome) -> str:
    lost = min(answer.there.sqnr for answer in outcome.answers.values())
    text = f"What the bits cost: {decibels(lost)} SQNR to the model as it was"
    if lost >= found.worst:
        return f"{text}; saturation leaves {decibels(found.worst)} on this data."
    if not found.differs:
        return f"{text}. On this data saturation costs nothing."
    return f"{text}. On this data saturation costs less: it leaves {decibels(found.worst)}."


_ON_ITS_WAY = (
    "some code rounds them to f32 on its way, on any CPU, and their results may be one rounding off"
)
_NONE_SATURATES = "No sum of codes saturates there, whatever the data."
_ROUNDS_ITSELF = (
    "Layers on codes give the same bits there for the same codes. What a CPU computes in f32 (exp, softmax, "
    "normalizations, products) it may round in its own way, and codes behind it with it."
)
_ORDER = "SSE4.1 has no fused multiply-add: on this data numbers differ in the last bit."


# -- notes and words -------------------------------------------------------------------------------


def _notes(found: Simulation, width: int) -> Iterator[RichText]:
    if found.subject.reference is not None and found.subject.sums:
        yield from _lines(f"f32 is {found.subject.told}.", width, "dim")
    yield from _lines(f"Data: {found.samples.told}.", width, "dim")
    if found.samples.random:
        text = "Real data tells more: --data FILE.npz, or a folder of them."
        yield from _lines(text, width, "dim")


def _lines(text: str, width: int, style: str = "") -> list[RichText]:
    return paragraph(text, width, 2, style)
