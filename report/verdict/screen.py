"""The first screen of `inspect`: the answer, three numbers, and what to change; 80 columns wide, the
same in a pipe.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.text import Text as RichText

from ...errors import printable
from ...plan.types import Plan
from ..layout import Layout, Text, heading
from ..lines import WIDTH, guess_lines, labelled, paragraph
from ..notation import bytes_text, count_text, cut_names, middle_cut, title_text
from .findings import Finding, Verdict
from .kind import Gain
from .remedies import Tool
from .shares import Shares, share_text

_SHOWN = 5
_FEW = 2
_LINES = 24  # of a screen, where nothing is to be changed
_NOTABLE = 0.02  # of the estimated time, or
_LEAST_MS = 0.001  # of an estimate; less is no number that anybody can use
_NOTABLE_BYTES = 0.1  # of the bytes read and written, if of the time at least
_WORTH = 0.01
_WITHOUT_REMEDY = 0.05
_LABEL = 7
_ONE_NAME = 56
_NAMES = 3
_TO_COPY = {"absurd-scale": 12, "few-codes": 12}
"""How many names of a kind are shown whose remedy is the list of them, where they fit in `_ROOM`."""
_ROOM = 420  # columns, of six lines
_UNSPECIFIC = {
    "f32-attention",
    "f32-product",
    "f32-rnn",
    "few-codes",
    "quantizer-apart",
    "whole-quantizer",
}  # of several reasons: other kinds are one each
_REASONS = 2


def verdict_report(
    plan: Plan, verdict: Verdict, layout: Layout, *, title: str = "", more: str = ""
) -> RenderableType:
    """The verdict, and the findings that matter most.

    Args:
        plan, verdict: the plan, and the verdict on it.
        layout: the room there is; lines end at 80 columns, or where the terminal does.
        title: stands in front; the plan's name if empty.
        more: a sentence to stand behind, where there is one.
    """
    width = min(layout.width or WIDTH, WIDTH)
    shown = _shown(verdict)
    lines = _lines(plan, verdict, shown, width, title, more)
    useful = any(not _only_explains(finding, verdict) for finding in shown)
    while not useful and len(shown) > 1 and len(lines) > _LINES:
        shown = shown[:-1]
        lines = _lines(plan, verdict, shown, width, title, more)
    return Group(*lines)


def _lines(
    plan: Plan, verdict: Verdict, shown: Sequence[Finding], width: int, title: str, more: str
) -> list[RenderableType]:
    """The screen with these findings, line by line."""
    parts: list[RenderableType] = [_heading(plan, title, width)]
    parts += guess_lines(verdict.guessed, width, timed=verdict.timed)
    parts += paragraph(_answer(verdict, shown), width, 2, _answer_style(verdict, shown))
    parts += [Text(), *_numbers(plan, verdict, width)]
    for number, finding in enumerate(shown, 1):
        parts += [Text(), *_finding(finding, verdict, width, number)]
    parts += [Text(), *(paragraph(more, width, 2) if more else ())]
    return [*parts, *paragraph(_further(verdict, shown), width, 2, "dim")]


def findings_report(
    plan: Plan, verdict: Verdict, layout: Layout, *, title: str = ""
) -> RenderableType:
    """Every finding, with all of its layers, one a line; in a pipe their names are whole."""
    width = min(layout.width or WIDTH, WIDTH)
    parts: list[RenderableType] = [_heading(plan, title, width)]
    parts += guess_lines(verdict.guessed, width, timed=verdict.timed)
    for number, finding in enumerate(verdict.findings, 1):
        room = None if layout.width is None else width - 3 - _LABEL
        parts += [Text(), *_finding(finding, verdict, width, number, room)]
    if not verdict.findings:
        parts += paragraph("No findings: nothing here writes f32 or runs outside int8.", width, 2)
    return Group(*parts)


def is_shown(finding: Finding, verdict: Verdict) -> bool:
    """True of a finding that belongs on the first screen: numbers may be wrong, or it takes a
    notable share of the estimated time or bytes, or of the f32 that steps hand to each other.
    """
    if finding.handed_on > _NOTABLE_BYTES * verdict.shares.between:
        return True
    if finding.kind.gain is not Gain.TIME:
        return finding.kind.gain is not Gain.NOTHING
    if finding.saves_calls(verdict.timed):
        return True
    if not finding.ms:
        return False
    time = finding.ms / verdict.estimate.ms if verdict.estimate.ms else 0.0
    moved = finding.bytes / verdict.estimate.bytes if verdict.estimate.bytes else 0.0
    least = _WITHOUT_REMEDY if finding.kind.no_remedy else _NOTABLE
    return time >= least or (moved >= _NOTABLE_BYTES and time >= _WORTH)


def _shown(verdict: Verdict) -> list[Finding]:
    """The first findings that belong there. Of those that only explain, the costliest says where the time
    goes, or two where nothing is to be changed at all.
    """
    found = [finding for finding in verdict.findings if is_shown(finding, verdict)]
    useful = [finding for finding in found if not _only_explains(finding, verdict)][:_SHOWN]
    others = [finding for finding in found if _only_explains(finding, verdict)]
    others.sort(key=lambda finding: -finding.ms)  # stable
    return [*useful, *others[: 1 if useful else _FEW]][:_SHOWN]


def _only_explains(finding: Finding, verdict: Verdict) -> bool:
    """True of a finding that nobody can change, or that gains nothing to speak of."""
    if finding.kind.no_remedy or finding.kind.gain is Gain.NOTHING:
        return True
    if finding.kind.gain is not Gain.TIME or finding.saves_calls(verdict.timed):
        return False
    return finding.ms < _WORTH * verdict.estimate.ms


def _further(verdict: Verdict, shown: Sequence[Finding]) -> str:
    """Where to see what the first screen leaves out."""
    tells = ["all layers"] if any(len(finding.layers) > 1 for finding in shown) else []
    left = len(verdict.findings) - len(shown)
    if left:
        little = not any(is_shown(each, verdict) for each in verdict.findings if each not in shown)
        kinds = (
            ("kind that costs little" if left == 1 else "kinds that cost little")
            if little
            else ("kind" if left == 1 else "kinds")
        )
        tells.append(f"{left} more {kinds}")
    findings = f"--findings: {', '.join(tells)}; " if tells else ""
    tables = "tables: --totals, --steps, --fates, --decisions, --weighed"
    one = "; one layer: fqfuse why MODEL NODE" if shown else ""
    return f"{findings}{tables}{one}."


# -- the answer ------------------------------------------------------------------------------------


def _heading(plan: Plan, title: str, width: int) -> RichText:
    done = "converted" if "converted" in plan.options else "compiled"
    note = f"{done} for {plan.target}"
    name = title or title_text(plan.name) or "(a model without a name)"
    return heading(middle_cut(name, max(width - len(note) - 2, 20)), note)


def answer_text(verdict: Verdict) -> str:
    """The verdict in two or three sentences, as the first screen begins."""
    return _answer(verdict, _shown(verdict))


def _answer(verdict: Verdict, shown: Sequence[Finding]) -> str:
    wrong = [finding for finding in shown if finding.kind.gain is Gain.NUMBERS]
    state = _state(verdict.shares) if verdict.quantized else "The model is not quantized."
    warning = f"The outputs may be far off: {wrong[0].what}. " if wrong else ""
    return f"{warning}{state} {_outlook(verdict, shown)}"


def _state(shares: Shares) -> str:
    f32 = f"{share_text(shares.f32_between, shares.between)} of the bytes between steps are f32"
    if not shares.macs:
        return f"There are no products; {f32}." if shares.between else "There are no products."
    if shares.int8_macs == shares.macs and not shares.f32_between:
        return "All multiply-adds run in int8, and no step hands f32 to another."
    int8 = share_text(shares.int8_macs, shares.macs).capitalize()
    if not shares.f32_code_macs:
        return f"{int8} of the multiply-adds run in int8; {f32}."
    codes = share_text(shares.f32_code_macs, shares.macs)
    return (
        f"{int8} of the multiply-adds run in int8, and {codes} multiply codes in f32, because this CPU has no "
        f"VNNI; {f32}."
    )


def _outlook(verdict: Verdict, shown: Sequence[Finding]) -> str:
    useful = [
        finding
        for finding in shown
        if finding.kind.gain is Gain.TIME
        and not finding.kind.no_remedy
        and finding.ms >= _WORTH * verdict.estimate.ms
    ]
    if not useful:
        wrong = any(finding.kind.gain is Gain.NUMBERS for finding in shown)
        if not wrong and any(finding.kind.gain is Gain.ACCURACY for finding in shown):
            return "Some accuracy may be lost, see below."
        if not verdict.timed and not wrong:
            return "Nothing in the quantization helps notably at the sizes that were guessed."
        return "" if wrong else "Nothing in the quantization would make it notably faster."
    if not verdict.timed:
        what = "One change" if len(useful) == 1 else f"{len(useful)} changes"
        return f"{what} may help; how much depends on sizes that the model leaves open."
    best = max(useful, key=lambda finding: finding.ms)
    what = "One change" if len(useful) == 1 else f"{len(useful)} changes help; the first"
    return f"{what} may save {_ms(best.ms)} of {_ms(verdict.estimate.ms)} ms."


def _answer_style(verdict: Verdict, shown: Sequence[Finding]) -> str:
    if any(finding.kind.gain is Gain.NUMBERS for finding in shown):
        return "bold red"
    useful = any(not _only_explains(finding, verdict) for finding in shown)
    return "bold yellow" if useful else "bold green"


# -- numbers ---------------------------------------------------------------------------------------


def without_vnni(layers: int) -> dict[str, str]:
    """The row about so many layers whose int8 sums may be others on CPUs that saturate pairs of products."""
    told = f"{count_text(layers, 'layer')} may saturate, or run in f32: fqfuse simulate MODEL"
    return {"without VNNI": told} if layers else {}


def _numbers(plan: Plan, verdict: Verdict, width: int) -> Iterator[RichText]:
    steps, shares = count_text(len(plan.steps), "step"), verdict.shares
    rows = [
        ("multiply-adds", shares.arithmetic),
        ("between steps", f"{shares.handed_on} ({steps})"),
        ("time", _time(verdict)),
    ]
    rows.extend(without_vnni(len(verdict.without_vnni)).items())
    told = any(finding.kind.gain in (Gain.NUMBERS, Gain.ACCURACY) for finding in verdict.findings)
    if verdict.quantized and not told:
        rows.append(("accuracy", "was not looked at: fqfuse compare F32_MODEL MODEL"))
    if verdict.loops:
        first = middle_cut(printable(verdict.loops[0]), _ONE_NAME)
        left = (
            f" and {len(verdict.loops) - 1:,} more (--json has all)"
            if len(verdict.loops) > 1
            else ""
        )
        rows.append(
            ("loops", f"counted as one trip, because data decide how many they take: {first}{left}")
        )
    for label, text in rows:
        yield from labelled(label, text, width, 2, len("between steps") + 2)


def _time(verdict: Verdict) -> str:
    if not verdict.timed:
        return "not known before the open sizes are"
    machine = verdict.machine
    rates = "the peak rates of" if machine == machine.at_peak else "what kernels reach on"
    return (
        f"{_ms(verdict.estimate.ms)} ms a run at {rates} {machine.description}: an estimate, not "
        "a measurement"
    )


def _ms(value: float) -> str:
    if 0 < value < _LEAST_MS:
        return f"under {_LEAST_MS}"
    return f"{value:.2g}" if value < 10 else f"{value:.0f}"


# -- findings --------------------------------------------------------------------------------------


def _finding(
    finding: Finding, verdict: Verdict, width: int, number: int, names: int | None = 0
) -> Iterator[RichText]:
    style = {Gain.NUMBERS: "bold red", Gain.NOTHING: "bold"}.get(finding.kind.gain, "bold yellow")
    head = f"{number}  {finding.what}"
    gain = gain_text(finding, verdict)
    if len(head) + len(gain) + 3 <= width:
        yield Text.assemble((head, style), (f"   {gain}", "dim"))
    else:
        yield from paragraph(head, width, 0, style)
        yield Text(f"   {gain}", style="dim")
    if names == 0:
        yield from labelled("at", layers_text(finding), width, 3, _LABEL)
    layers = cut_names(list(map(printable, finding.layers)), names) if names != 0 else []
    for place, layer in enumerate(layers):
        word = "" if place else "at"
        yield Text.assemble((f"   {word:<{_LABEL}}", "dim"), layer)
    yield from labelled("why", f"{finding.kind.why} ({finding.kind.code})", width, 3, _LABEL)
    if finding.reasons and finding.kind.code in _UNSPECIFIC:
        yield from labelled(
            "found", printable("; ".join(finding.reasons[:_REASONS])), width, 3, _LABEL
        )
    few = _named(finding)
    tool, change = change_text(finding, few, " (--findings lists them)" if names == 0 else "")
    spoken = f"{tool}: " if tool else ""
    # names are there to be copied: one that is longer than a line stays whole
    yield from labelled("change", f"{spoken}{change}", width, 3, _LABEL, "green", whole_words=True)


def _named(finding: Finding) -> int:
    """How many layers the remedy names on the first screen."""
    columns, count = 0, 0
    for layer in finding.layers[: _TO_COPY.get(finding.kind.code, 0)]:
        columns += len(repr(layer)) + 2
        count += columns <= _ROOM
    return max(count, _NAMES)


def change_text(finding: Finding, names: int | None, rest: str = "") -> tuple[str, str]:
    """Whose words the change is in, empty where those of any quantizer, and what to change, with at
    most `names` layers named, and `rest` behind the number of the others.
    """
    tool, _ = finding.kind.remedy(finding.tool)
    return "" if tool is Tool.ANY else tool.value, printable(finding.change(names, rest))


def gain_text(finding: Finding, verdict: Verdict) -> str:
    """`saves about 0.15 of 2.2 ms, 1.1 MiB`: what a change brings, or what these steps cost."""
    if finding.kind.gain is Gain.NUMBERS:
        return "makes outputs wrong"
    if finding.kind.gain is Gain.ACCURACY:
        return "costs accuracy"
    if finding.kind.gain is Gain.NOTHING or not finding.ms:
        handed_on = f"hands on {bytes_text(finding.handed_on)} of f32"
        return handed_on if finding.handed_on else "costs nothing to speak of"
    if finding.saves_calls(verdict.timed):
        return f"saves {len(finding.steps):,} of {count_text(len(verdict.costs.works), 'step')}"
    verb = "costs" if finding.kind.no_remedy else "saves"
    if not verdict.timed:
        share = share_text(finding.ms, verdict.estimate.ms)
        about = "about " if share[0].isdigit() else ""  # `under 1 %` says so itself
        return f"{verb} {about}{share} of the time at these sizes"
    moved = f", {bytes_text(finding.bytes)}" if finding.bytes else ""
    about = "" if finding.ms < _LEAST_MS else "about "  # `under 0.001` says so itself
    return f"{verb} {about}{_ms(finding.ms)} of {_ms(verdict.estimate.ms)} ms{moved}"


def layers_text(finding: Finding) -> str:
    """The costliest layer, and how many more there are."""
    first = middle_cut(printable(finding.layers[0]), _ONE_NAME)
    left = len(finding.layers) - 1
    return f"{first} and {left:,} more" if left else first
