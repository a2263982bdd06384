"""The story on a terminal: the answer first, 80 columns, the same in a pipe."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby

from rich.console import Group, RenderableType
from rich.text import Text as RichText

from ...errors import printable
from ...ir.decision import Decision, Fate, Outcome
from ...plan.types import Plan
from ..columns import columns
from ..layout import Layout, Text, heading
from ..lines import WIDTH, labelled, paragraph
from ..notation import Notation, count_text, middle_cut
from ..verdict.remedies import Tool
from ..weighed import weighed_text
from .index import Index
from .story import Story, ending_of

_LABEL = 9
_NOTHING = "nothing to change"
_NAME = 66
_FEW_FATES = 8
_SHOWN = 3  # layers of a finding, and nodes of a step that the answer names
_NODES = 12  # of a step
_ALL = "--all names them"
_CUT = "… stands for letters left out: --json has whole names"


def story_report(plan: Plan, story: Story, layout: Layout, *, title: str = "") -> RenderableType:
    """A story.

    Args:
        plan: the plan that it is about.
        story: what `story_of` told.
        layout: the room there is; without rows to fold to, every fate, node and layer is there.
        title: of the model or plan.
    """
    width = min(layout.width or WIDTH, WIDTH)
    kind = f"{story.kind}, {story.operator}" if story.operator else story.kind
    name = _name(story.name, width)
    note = f"  {kind}; {title or plan.name}"
    parts: list[RenderableType] = [heading(name)]
    if columns(name) + columns(printable(note)) <= width:
        parts = [heading(name, note.strip())]
    else:
        parts += paragraph(printable(note), width, 2, "dim")
    # no line of a message is indented so far: a name in the text cannot pass for one
    parts += paragraph(printable(story.answer), width, 3, "bold")
    groups = (
        ("Where it ended", _places(plan, story, width, layout)),
        ("Quantizers", _fates(story.fates, width, layout)),
        ("Rules, in the order in which they looked at it", _rules(story, width)),
        ("What comes next was not fused into it", _decisions(story, story.behind, width)),
        (_heading(story), _findings(story, width, layout)),
        ("What cannot be told", _unknown(story.unknown, width)),
    )
    for label, lines in groups:
        found = list(lines)
        if found:
            parts += [Text(), Text(label, style="bold"), *found]
    return Group(*parts, *_of_cuts(parts))


def _of_cuts(parts: Sequence[RenderableType]) -> Iterator[RichText]:
    """Where names are whole, if one was cut."""
    if any("…" in part.plain for part in parts if isinstance(part, RichText)):
        yield Text()
        yield Text(f"  {_CUT}", style="dim")


def _heading(story: Story) -> str:
    """What the findings are: in the way of better, where something can be changed."""
    useful = any(not finding.kind.no_remedy for finding in story.findings)
    return "In the way of better" if useful else "Findings"


def _name(name: str, width: int | None) -> str:
    """A name that begins a line: in quotes where it has blanks, so that it reads as no message."""
    shown = printable(name)
    if " " not in shown:
        return middle_cut(shown, width)
    return f"'{middle_cut(shown, None if width is None else width - 2)}'"


def matches_report(
    index: Index, name: str, matches: Sequence[str], layout: Layout
) -> RenderableType:
    """The nodes that a pattern or beginning stands for, each with where it ended."""
    width = min(layout.width or WIDTH, WIDTH)
    count, asked = count_text(len(matches), "node"), "ask for one of them"
    room = width - len(f"{count}  match : {asked}")
    shown = middle_cut(printable(name), room if layout.shortens else None)
    parts: list[RenderableType] = [heading(count, f"match {shown}: {asked}")]
    for ending, group in groupby(matches, partial(ending_of, index)):  # one text for neighbours
        parts += [
            Text(f"  {_name(match, None if layout.width is None else width - 2)}")
            for match in group
        ]
        parts += paragraph(printable(ending), width, 6, "dim")
    return Group(*parts, *_of_cuts(parts))


def _places(plan: Plan, story: Story, width: int, layout: Layout) -> Iterator[RichText]:
    notation = Notation(plan)
    for place in story.places:
        step = plan.steps[place.step]
        label = f"#{place.step}"
        yield from labelled(
            label, f"{notation.primitive(step)}: {notation.types(step)}", width, 2, _LABEL
        )
        yield from labelled("as", printable(place.role), width, 2, _LABEL)
        nodes = notation.origin(step)
        if len(nodes) > _SHOWN:  # the answer names some of them
            yield from labelled("nodes", _listed(nodes, layout, _NODES), width, 2, _LABEL)
        for number, op in enumerate(step.attr.post_ops, 1):
            here = "  <- here" if place.post_op == number - 1 else ""
            text = f"post-op {number}: {notation.post_op(op)}{here}"
            yield from labelled("", printable(text), width, 2, _LABEL, "cyan" if here else "")


def _listed(names: Sequence[str], layout: Layout, few: int) -> str:
    """Names, and how many more there are and how to see them."""
    shown = names if layout.rows is None else names[:few]
    left = f" and {len(names) - len(shown):,} more: {_ALL}" if len(shown) < len(names) else ""
    return f"{', '.join(map(printable, shown))}{left}"


def _fates(fates: Sequence[Fate], width: int, layout: Layout) -> Iterator[RichText]:
    shown = fates if layout.rows is None else fates[: max(_FEW_FATES, layout.rows // 10)]
    last = ""
    for fate in shown:
        if fate.quantizer != last:
            yield Text(f"  {_name(fate.quantizer, width - 2)}")
            last = fate.quantizer
        at = "" if fate.step is None else f" at step {fate.step}"
        reader = f", read by {fate.consumer}" if fate.consumer else ""
        text = f"{fate.fate.value}{at}: {fate.reason}{reader}"
        yield from labelled(fate.half.value, printable(text), width, 4, 12)
    if len(shown) < len(fates):
        yield Text(f"  and {len(fates) - len(shown):,} more: --all shows them", style="dim")


def _rules(story: Story, width: int) -> Iterator[RichText]:
    if story.decisions:
        return _decisions(story, story.decisions, width)
    return labelled("", "none had anything to decide about it", width, 2, 0, "dim")


def _decisions(story: Story, decisions: Sequence[Decision], width: int) -> Iterator[RichText]:
    # where no finding can be mended, a rule's hint says what it would have needed, and is no advice
    hint = "needs" if any(finding.kind.no_remedy for finding in story.findings) else "fix"
    hint = "fix" if any(not finding.kind.no_remedy for finding in story.findings) else hint
    for number, decision in enumerate(decisions, 1):
        refused = decision.outcome is Outcome.REFUSED
        word = "refused" if refused else "fired"
        rule = printable(decision.rule)
        yield Text.assemble(
            (f"  {number:<3}", "dim"),
            (rule, "yellow" if refused else "green"),
            (f"  {word}", "dim"),
        )
        if decision.subject != story.name:
            at = middle_cut(printable(decision.subject), width - 5 - _LABEL)
            yield from labelled("at", at, width, 5, _LABEL)
        yield from labelled("", printable(decision.reason), width, 5, 0)
        details = [
            ("expected", decision.expected),
            ("found", decision.found),
            ("fix" if decision.hint.startswith(_NOTHING) else hint, decision.hint),
            ("weighed", weighed_text(decision) if decision.alternatives else ""),
        ]
        for label, text in details:
            if text:
                style = "green" if label == "fix" and not text.startswith(_NOTHING) else ""
                yield from labelled(label, printable(text), width, 5, _LABEL, style)


def _findings(story: Story, width: int, layout: Layout) -> Iterator[RichText]:
    few = None if layout.rows is None else _SHOWN
    for finding in story.findings:
        yield Text(f"  {finding.kind.code}: {finding.what}", style="yellow")
        yield from labelled("why", finding.kind.why, width, 4, _LABEL)
        tool, _ = finding.kind.remedy(finding.tool)
        spoken = "" if tool is Tool.ANY else f"{tool.value}: "
        change = f"{spoken}{printable(finding.change(few, f' ({_ALL})'))}"
        yield from labelled("change", change, width, 4, _LABEL, "green")


def _unknown(texts: Sequence[str], width: int) -> Iterator[RichText]:
    for text in texts:
        yield from labelled("-", text, width, 2, 2, "dim")
