"""What `fqfuse bench` prints: the answer, the engines, and the steps that take longest."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text as RichText

from ..errors import printable
from ..report.columns import columns
from ..report.layout import Layout, Text, heading, plain_table
from ..report.lines import WIDTH, guess_lines, labelled, paragraph
from ..report.notation import cut_names, middle_cut

Data = Mapping[str, Any]

_SHOWN = 10
_KERNEL = 26
_LABEL = 10
_NUMBERS = 2 + (7 + 2) + (5 + 2) + (5 + 2)
"""Columns of a step's row in front of its kernel."""

_PREFIX = 4  # characters of a path, to be worth leaving out

_UNSTEADY = 0.2  # of a run, between the rounds and the runs whose steps are timed
_DISTURBED = 0.05  # of a run, that timing its steps may add or a busy machine move


def bench_report(
    found: Data, layout: Layout, *, title: str, steps: int, all_rows: bool
) -> RenderableType:
    """The report.

    Args:
        found: what `fqfuse.bench` returns.
        layout: the room there is: at least 80 columns are used, in a pipe names are whole.
        title: stands in front.
        steps: how many the plan has.
        all_rows: list all of them.
    """
    cases = found["cases"]
    plural = "" if steps == 1 else "s"
    note = f"{steps:,} step{plural}, compiled for {found['target']}"
    parts: list[RenderableType] = [heading(middle_cut(title, WIDTH - len(note) - 2), note)]
    parts += [
        *guess_lines(cases[0]["guessed_sizes"], WIDTH, by="--size, --shape, --data"),
        *_answer(cases, idle=found["idle"]),
        Text(),
        _engines(cases),
        Text(),
        *_remarks(found),
    ]
    if len(cases) > 1 and not all_rows:
        note = "The steps stand here for one combination of sizes, or with --all."
        return Group(*parts, Text(), Text(f"  {note}", style="dim"))
    for case in cases:
        parts += [Text(), *_steps(case, layout, several=len(cases) > 1, all_rows=all_rows)]
    return Group(*parts)


# -- engines ---------------------------------------------------------------------------------------


def _answer(cases: Sequence[Data], *, idle: bool) -> Iterator[RichText]:
    for number, case in enumerate(cases, 1):
        ours, *peers = case["engines"]
        at = f"At {_sizes(case)}: " if len(cases) > 1 else ""
        text = f"{at}{_ms(ours['ms'])} ms a run"
        told = [_compared(peer) for peer in peers]
        text += f": {'; '.join(told)}." if told else "."
        if number == len(cases) and not idle:
            text += " The machine was not idle, see below."
        yield from paragraph(text, WIDTH, 2, "bold")


def _compared(peer: Data) -> str:
    name, ratio = peer["engine"], peer["time_ratio"]
    if ratio is None:
        return f"{name} did not run it"
    low, high = peer["time_ratio_low"], peer["time_ratio_high"]
    if low is not None and low <= 1 <= high:
        return f"no certain difference to {name}"
    about = "about " if low is None else ""
    if ratio >= 1:
        return f"{about}{ratio:.2f} times as fast as {name}"
    return f"{about}{1 / ratio:.2f} times as long as {name}"


def _engines(cases: Sequence[Data]) -> Table:
    table = plain_table("engine", "ms", "rounds", "runs/s", "time / fqfuse's")
    for column in table.columns[2:-1]:
        column.justify = "right"
    for case in cases:
        if len(cases) > 1:
            table.add_row("", Text(_sizes(case), style="bold"))
        for engine in case["engines"]:
            table.add_row("", *_engine_cells(engine))
    return table


def _engine_cells(engine: Data) -> list[RenderableType]:
    name = Text(f"{engine['engine']} {engine['version']}".strip())
    if engine["ms"] is None:
        return [name, "-", "-", "-", Text("did not run", style="yellow")]
    ratio = engine["time_ratio"]
    text = "1" if ratio is None else f"{ratio:.2f}"
    if engine["time_ratio_low"] is not None:
        text += f" ({engine['time_ratio_low']:.2f}-{engine['time_ratio_high']:.2f})"
    spread = f"{_ms(engine['low_ms'])}-{_ms(engine['high_ms'])}"
    return [name, _ms(engine["ms"]), spread, _rate(engine["runs_per_second"]), text]


def _remarks(found: Data) -> Iterator[RichText]:
    case = found["cases"][0]
    several = len(case["engines"]) > 1
    ratio = (
        "; the ratio is taken round by round, with the 95 % interval of its median"
        if several and found["rounds"] >= 6
        else ""
    )
    threads = f"{found['threads']} thread{'s' if found['threads'] > 1 else ''}"
    rounds = f"median of {found['rounds']} rounds" if found["rounds"] > 1 else "one round"
    text = f"{rounds}, {threads}, warm, each engine in a process of its own"
    yield from _labelled("measured", text + ratio)
    yield from _labelled("inputs", _inputs(case))
    for engine in case["engines"]:
        if engine["ms"] is None:
            yield from _labelled("not run", f"{engine['engine']}: {engine['reason']}", "yellow")
        elif engine["note"]:
            yield from _labelled("settings", f"{engine['engine']}: {engine['note']}")
    yield from _labelled("runtime", f"{case['backend']}: {case['backend_reason']}")
    load = f"load average {found['load_average'][0]:.1f} at the start"
    machine = f"{found['machine']}; {load}"
    if found["idle"]:
        yield from _labelled("machine", machine)
        return
    busy = (
        ": it was NOT idle. Other programs slow all engines down, and threads that wait for each "
        "other most of all: measure again on a quiet machine."
    )
    yield from _labelled("machine", machine + busy, "yellow")


def _inputs(case: Data) -> str:
    types = ", ".join(f"{each['name']} {each['type']}" for each in case["inputs"][:3])
    more = (
        f" and {len(case['inputs']) - 3} more (--json has all)" if len(case["inputs"]) > 3 else ""
    )
    how = "made up" if case["made_up"] else "given"
    return f"{how}: {types}{more}"


# -- steps -----------------------------------------------------------------------------------------


def _steps(case: Data, layout: Layout, *, several: bool, all_rows: bool) -> list[RenderableType]:
    timed = [step for step in case["steps"] if step["runtime"] != "view"]
    timed.sort(key=lambda step: -step["ms"])
    shown = timed if all_rows or len(timed) <= _SHOWN + 2 else timed[:_SHOWN]
    profile, whole = case["profile"], case["profile"]["ms"]
    kernels, isa = _kernels(shown, layout)
    layers = _layers(shown, layout, max(map(columns, kernels), default=0))
    at = f" at {_sizes(case)}" if several else ""
    note = "slowest first; limit: least time at the machine's peak rates, over ms"
    table = plain_table("ms", "share", "limit", "kernel", "layer")
    for place, column in enumerate(table.columns[1:]):
        column.no_wrap = True
        column.justify = "right" if place < 3 else "left"
    for step, kernel, layer in zip(shown, kernels, layers, strict=True):
        style = "yellow" if step["runtime"] == "numpy" else ""
        cells = [_ms(step["ms"]), f"{step['share']:.1%}", _limit(step["limit_share"])]
        table.add_row("", *cells, Text(kernel, style=style), Text(layer))
    if left := len(timed) - len(shown):
        rest = sum(step["ms"] for step in timed[_SHOWN:])
        table.add_row("", *_sum_cells(rest, whole), "", f"{left:,} more steps: --all")
    outside = "no step: inputs, outputs, calls"
    table.add_row("", *_sum_cells(profile["rest_ms"], whole), "", outside)
    runs = f"the run, {profile['runs']} times"
    table.add_row(
        "", _ms(whole), "100%", _limit(case["limit_ms"] / whole), "", Text(runs, style="bold")
    )
    parts: list[RenderableType] = [heading(f"Steps{at}", note), table]
    if isa:
        parts += _labelled("kernels", f"of {isa}, where nothing else is said")
    parts += _labelled("by kind", _kinds(timed, whole))
    parts += _apart(case)
    return parts


def _apart(case: Data) -> Iterator[RichText]:
    """What to make of it where the run whose steps were timed took another time than others."""
    whole, plain = case["profile"]["ms"], case["profile"]["plain_ms"]
    rounds = case["engines"][0]["ms"]
    if abs(rounds - plain) > _UNSTEADY * plain:
        text = (
            f"the rounds above took {_ms(rounds)} ms a run, runs in between these {_ms(plain)}: the machine "
            "was not steady, so look at shares rather than times"
        )
        yield from _labelled("apart", text, "yellow")
    elif abs(plain - whole) > _DISTURBED * whole:
        text = (
            f"runs in between, without a look at the clock: {_ms(plain)} ms; the look takes a "
            "little, and the machine may not have been steady"
        )
        yield from _labelled("apart", text, "yellow")


def _kernels(steps: Sequence[Data], layout: Layout) -> tuple[list[str], str]:
    """What computes each step; where there is little room without the instruction set that most
    kernels are made for, and that.
    """
    names = [
        printable(
            f"numpy {step['what'].removeprefix('onnx.')}"
            if step["runtime"] == "numpy"
            else step["implementation"]
        )
        for step in steps
    ]
    if layout.width is None:
        return names, ""
    sets = Counter(
        part.partition(":")[2]
        for name, step in zip(names, steps, strict=True)
        if step["runtime"] == "onednn"
        for part in name.split(" + ")
        if ":" in part
    )
    isa = sets.most_common(1)[0][0] if sets else ""
    short = [
        " + ".join(part.removesuffix(f":{isa}") if isa else part for part in name.split(" + "))
        for name in names
    ]
    return cut_names(short, _KERNEL), isa


def _layers(steps: Sequence[Data], layout: Layout, kernel: int) -> list[str]:
    """The first node of each; where there is little room without the path that all share."""
    names = [printable(step["layers"][0] if step["layers"] else step["name"]) for step in steps]
    if layout.width is None:
        return names
    shared = os.path.commonprefix(names) if len(names) > 1 else ""  # noqa: RUF071  (a path ends below)
    cut = (shared.rfind("/") if "/" in shared else shared.rfind(".")) + 1
    short = [f"…{name[cut:]}" if cut >= _PREFIX else name for name in names]
    room = max(layout.width, WIDTH) - _NUMBERS - kernel - 2
    return cut_names(short, room)


def _limit(share: float | None) -> str:
    if share is None:
        return ""
    if share > 1:
        return ">100%"  # in a nearer cache than the limit counts with
    return f"{share:.0%}" if share >= 0.01 else "<1%"


def _kinds(timed: Sequence[Data], whole: float) -> str:
    """Which kinds of steps the time goes to."""
    kinds: Counter[str] = Counter()
    for step in timed:
        name = step["primitive"].removeprefix("onnx.")
        how = " of codes in f32" if step["codes_in_f32"] else ""
        kinds[f"{name} on NumPy" if step["runtime"] == "numpy" else f"{name}{how}"] += step["ms"]
    told = [f"{kind} {ms / whole:.0%}" for kind, ms in kinds.most_common(6) if ms >= 0.01 * whole]
    return ", ".join(told) or "nothing takes 1 %"


def _sum_cells(ms: float, whole: float) -> list[RenderableType]:
    return [_ms(ms), f"{ms / whole:.1%}", ""]


# -- texts -----------------------------------------------------------------------------------------


def _labelled(label: str, text: str, style: str = "") -> Iterator[RichText]:
    return labelled(label, text, WIDTH, 2, _LABEL, style)


def _sizes(case: Data) -> str:
    return ", ".join(f"{printable(name)}={size}" for name, size in case["sizes"].items()) or "-"


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _ms(value: float) -> str:
    digits = 1 if value >= 100 else 2 if value >= 1 else 3 if value >= 0.1 else 4
    return f"{value:,.{digits}f}"
