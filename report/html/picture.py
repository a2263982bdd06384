"""The graph as a picture: an SVG that shows the fused steps and what goes between them, in light or
dark as the viewer is.

Places are those of the page; `assets/view.js` does the same arithmetic for what can be unfolded.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...plan.open_sizes import NO_SIZES
from ...plan.types import Plan
from ..notation import end_cut, middle_cut
from ..verdict.machine import Machine
from .data import CATEGORIES, document

_WIDE, _BESIDE, _BELOW = 236, 34, 34
_BASE, _MORE, _SMALL = 60, 52, 30
_WITH_FUSED = 74  # as high a box has room for what is fused
_EMPTY_RANK = 8
_ASIDE = 4.0  # columns by which a rank may begin further right than the next one
_HEAD = 92
_EDGE = 30
_FAR = "far"
_SPACE = 'xmlns="http://www.w3.org/2000/svg"'
_WORDS = {
    "int8": "computes in int8",
    "coded": "multiplies codes in f32",
    "f32": "computes in f32",
    "outside": "outside the primitives",
    "convert": "converts",
    "move": "moves data",
}
_KINDS = ("codes", "floats", "others")
_STYLE = """
svg { --paper: #f6f7f9; --card: #ffffff; --ink: #1c2430; --dim: #667085; --line: #d5dae3;
  --int8: #0d9480; --coded: #7c8a12; --f32: #d97706; --outside: #be2f74; --convert: #4a7fd1; --move: #98a2b3; --end: #667085; }
@media (prefers-color-scheme: dark) {
  svg { --paper: #12161d; --card: #1b212b; --ink: #e4e8ef; --dim: #94a0b3; --line: #303946;
    --int8: #2dc0a8; --coded: #b5c23c; --f32: #f2a33a; --outside: #ee6ba8; --convert: #7ba9ee; --move: #697488; --end: #94a0b3; } }
text { font: 11px system-ui, sans-serif; fill: var(--dim); }
.paper { fill: var(--paper); } .box { fill: var(--card); stroke: var(--line); }
.title { font-size: 17px; font-weight: 650; fill: var(--ink); } .what { font-size: 13px; font-weight: 620; fill: var(--ink); }
.name, .types { font: 10.2px ui-monospace, monospace; } .right { text-anchor: end; } .middle { text-anchor: middle; }
path { fill: none; stroke-width: 1.6; stroke: var(--move); }
.codes { stroke: var(--int8); } .floats { stroke: var(--f32); stroke-width: 2.2; } .far { stroke-width: 1.4; opacity: .4; }
"""


def to_svg(
    plan: Plan,
    *,
    title: str = "",
    sizes: Mapping[str, int] = NO_SIZES,
    machine: Machine | None = None,
) -> str:
    """The picture of a plan's graph.

    Args:
        plan: any plan.
        title: what it is called; the plan's name if empty.
        sizes: of what the model leaves open, for the costs; others are guessed.
        machine: what times are estimated for; None: this one.

    Raises:
        InvalidInput: the model has no such size.
    """
    return _Picture(document(plan, title=title, machine=machine, sizes=sizes)).text()


class _Picture:
    def __init__(self, data: Mapping[str, Any]) -> None:
        self._data = data
        self._texts: Sequence[str] = data["texts"]
        times = [step["ms"] for step in data["steps"]]
        most = max(times, default=0.0) or 1.0
        heights = [_BASE + round(_MORE * math.sqrt(time / most)) for time in times]
        self._heights = [
            *(_SMALL for _ in data["inputs"]),
            *heights,
            *(_SMALL for _ in data["outputs"]),
        ]
        self._places: Sequence[tuple[float, int]] = data["places"]
        self._tops, self._rooms = self._ranks()
        flats = [edge[7] for edge in data["edges"]]
        bends = [
            (x, int(rank)) for flat in flats for x, rank in zip(flat[::2], flat[1::2], strict=True)
        ]
        points = [*self._places, *bends]
        self._lefts = _lefts(points, len(self._rooms))
        self._right = max((x - self._lefts[rank] for x, rank in points), default=0.0)

    def _ranks(self) -> tuple[list[float], list[float]]:
        rooms = [_EMPTY_RANK] * (1 + max((rank for _, rank in self._places), default=0))
        for (_, rank), height in zip(self._places, self._heights, strict=True):
            rooms[rank] = max(rooms[rank], height)
        tops, at = [], float(_HEAD)
        for room in rooms:
            tops.append(at)
            at += room + (_BELOW if room > _EMPTY_RANK else 4)
        return tops, [float(room) for room in rooms]

    def _x(self, column: float, rank: int) -> float:
        return _EDGE + _WIDE / 2 + (column - self._lefts[rank]) * (_WIDE + _BESIDE)

    def _box(self, node: int) -> tuple[float, float, float]:
        """Middle, top and bottom."""
        column, rank = self._places[node]
        top = self._tops[rank] + (self._rooms[rank] - self._heights[node]) / 2
        return self._x(column, rank), top, top + self._heights[node]

    def text(self) -> str:
        """The file."""
        verdict = self._data["verdict"]
        told = f"multiply-adds {verdict['arithmetic']}; between steps {verdict['handed']}"
        wide = 2 * _EDGE + _WIDE + self._right * (_WIDE + _BESIDE)
        wide = max(wide, 2 * _EDGE + 6.5 * len(told), 2 * _EDGE + 10 * len(self._data["title"]))
        if any(edge[6] for edge in self._data["edges"]):
            wide += 120  # the bows of far edges
        high = self._tops[-1] + self._rooms[-1] + _EDGE
        size = f"{wide:.0f} {high:.0f}"
        lines = [
            f'<svg {_SPACE} viewBox="0 0 {size}" width="{wide:.0f}" height="{high:.0f}" role="img">',
            f"<title>{html.escape(self._data['title'])}</title>",
            f"<style>{_STYLE}</style>",
            f'<rect class="paper" width="{wide:.0f}" height="{high:.0f}"/>',
            _text(_EDGE, 28, self._data["title"], "title"),
            _text(_EDGE, 48, told, ""),
            *self._legend(),
            *self._edges(),
            *self._ends(),
            *self._steps(),
            "</svg>\n",
        ]
        return "\n".join(lines)

    def _legend(self) -> Iterator[str]:
        found = {step["category"] for step in self._data["steps"]}
        x = _EDGE
        for tone in sorted(found):
            kind = CATEGORIES[tone]
            yield f'<rect x="{x}" y="57" width="9" height="9" rx="3" fill="var(--{kind})"/>'
            yield _text(x + 14, 65, _WORDS[kind], "")
            x += 34 + 6 * len(_WORDS[kind])

    def _edges(self) -> Iterator[str]:
        for source, target, value, type_, kind, size, far, flat in self._data["edges"]:
            way = self._far(source, target) if far else self._way(source, target, flat)
            about = html.escape(f"{self._texts[value]}: {self._texts[type_]}, {size}")
            name = f"{_KINDS[kind]} {_FAR if far else ''}".strip()
            yield f'<path class="{name}" d="{way}"><title>{about}</title></path>'

    def _way(self, source: int, target: int, flat: Sequence[float]) -> str:
        x, _, y = self._box(source)
        parts = [f"M{x:.0f} {y:.0f}"]
        stops = [
            (self._x(column, int(rank)), self._tops[int(rank)], self._rooms[int(rank)])
            for column, rank in zip(flat[::2], flat[1::2], strict=True)
        ]
        end, top, _ = self._box(target)
        for to, above, room in [*stops, (end, top, 0.0)]:
            bend = max(12.0, (above - y) / 2)
            parts.append(
                f"C{x:.0f} {y + bend:.0f} {to:.0f} {above - bend:.0f} {to:.0f} {above:.0f}"
            )
            x, y = to, above + room
            parts.append(f"V{y:.0f}" if room else "")
        return "".join(parts)

    def _far(self, source: int, target: int) -> str:
        (x, top, bottom), (to, above, below) = self._box(source), self._box(target)
        x, to, y, end = x + _WIDE / 2, to + _WIDE / 2, (top + bottom) / 2, (above + below) / 2
        out = max(x, to) + min(60 + abs(end - y) / 12, 150)
        return f"M{x:.0f} {y:.0f}C{out:.0f} {y:.0f} {out:.0f} {end:.0f} {to:.0f} {end:.0f}"

    def _ends(self) -> Iterator[str]:
        data = self._data
        first = len(data["inputs"]) + len(data["steps"])
        ends = [*enumerate(data["inputs"]), *enumerate(data["outputs"], first)]
        for node, _ in ends:
            x, top, _ = self._box(node)
            left = x - _WIDE / 2
            yield f'<rect class="box" x="{left:.0f}" y="{top:.0f}" width="{_WIDE}" height="{_SMALL}" rx="15"/>'
            yield _text(x, top + 19.5, self._texts[data["boxes"][node]], "middle")

    def _steps(self) -> Iterator[str]:
        data = self._data
        for index, step in enumerate(data["steps"]):
            x, top, bottom = self._box(data["first"] + index)
            left, right = x - _WIDE / 2, x + _WIDE / 2
            tone = CATEGORIES[step["category"]]
            high = bottom - top
            yield f'<rect class="box" x="{left:.0f}" y="{top:.0f}" width="{_WIDE}" height="{high:.0f}" rx="8"/>'
            yield f'<rect x="{left:.0f}" y="{top:.0f}" width="5" height="{high:.0f}" rx="2.5" fill="var(--{tone})"/>'
            yield _text(left + 16, top + 20, middle_cut(self._texts[step["primitive"]], 24), "what")
            yield _text(right - 10, top + 20, f"#{index}", "right")
            yield _text(
                left + 16, top + 36, self._texts[data["boxes"][data["first"] + index]], "name"
            )
            yield _text(left + 16, top + 51, end_cut(self._texts[step["types"]], 33), "types")
            if step["fused"] and high >= _WITH_FUSED:
                fused = ", ".join(self._texts[each] for each in step["fused"])
                yield _text(left + 16, top + 66, end_cut(fused, 33), "types")


def _lefts(points: Sequence[tuple[float, int]], ranks: int) -> list[float]:
    """The column at which each rank begins: its first one, or a few more for each rank between it and one that begins
    further left. So a network begins at the left edge, where a picture opens, however wide it becomes below.
    """
    found = [math.inf] * ranks
    for column, rank in points:
        found[rank] = min(found[rank], column)
    for order in (range(1, ranks), range(ranks - 2, -1, -1)):
        for rank in order:
            before = found[rank - 1 if order.step > 0 else rank + 1]
            found[rank] = min(found[rank], before + _ASIDE)
    return found


def _text(x: float, y: float, text: str, name: str) -> str:
    named = f' class="{name}"' if name else ""
    return f'<text{named} x="{x:.0f}" y="{y:.1f}">{html.escape(text)}</text>'
