"""Law: whatever script the names in a model are written in, no line of a report is wider than the
page: 80 columns on a terminal. Chinese and emoji take two columns a character, combining marks none.

What is laid out here is printed on a very wide terminal, too, so that rich cannot wrap what would not
have fitted.
"""

from __future__ import annotations

import io
import json
import unicodedata

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console, RenderableType
from support.finding_networks import U8, Net, codes

import fqfuse
from fqfuse.accuracy.compare import compared, drawn_for, read_models
from fqfuse.accuracy.screen import comparison_report
from fqfuse.accuracy.suggest import suggestion_of
from fqfuse.cli.bench_report import bench_report
from fqfuse.errors import printable
from fqfuse.explain import index_of
from fqfuse.plan.types import Plan
from fqfuse.report.columns import columns, head, tail
from fqfuse.report.diff.compare import difference_of
from fqfuse.report.diff.screen import diff_report
from fqfuse.report.layout import Layout
from fqfuse.report.lines import wrapped
from fqfuse.report.notation import middle_cut, title_text
from fqfuse.report.text import Table, plan_report
from fqfuse.report.verdict.findings import verdict_of
from fqfuse.report.verdict.machine import machine_from
from fqfuse.report.verdict.screen import findings_report, verdict_report
from fqfuse.report.why.screen import matches_report, story_report
from fqfuse.report.why.story import story_of

MACHINE = machine_from("flags\t\t: avx2\n", cores=4, clock=3.0)
PAGE = 80

_RANGES = (
    "az",
    "\u4e00\u9fa5",  # Chinese
    "\u3041\u30fa",  # Japanese
    "\uac00\ud7a3",  # Korean
    "\uff01\uff5e",  # wide forms of ASCII
    "\uff66\uff9d",  # narrow forms of Japanese
    "\U0001f300\U0001f5ff",  # emoji
    "\u0300\u036f",  # combining marks
    "\u0591\u05bd",  # of Hebrew
    "\u05d0\u05ea",  # from right to left
    "\u0627\u0649",
    "\u202a\u202e",  # turns the direction
    "\u2066\u2069",
    "/.",
)
LETTERS = st.one_of(
    *(
        st.characters(min_codepoint=ord(first), max_codepoint=ord(last))
        for first, last in _RANGES[:-1]
    ),
    st.sampled_from("/. -"),
)
NAMES = st.one_of(
    st.text(LETTERS, min_size=1, max_size=120),
    st.sampled_from(["漢字/", "🎉", "e\u0301", "שלום ", "a漢"]).flatmap(
        lambda text: st.integers(1, 60).map(lambda times: text * times)
    ),
)


def width(text: str) -> int:
    """Columns by the character database of Python, which rich's tables are not made from."""
    return sum(
        0
        if unicodedata.category(letter) in ("Mn", "Me")
        else 2
        if unicodedata.east_asian_width(letter) in "WF"
        else 1
        for letter in text
    )


def lines(content: RenderableType, room: int) -> list[str]:
    buffer = io.StringIO()
    Console(file=buffer, width=room, color_system=None, markup=False, emoji=False).print(content)
    return [line.rstrip() for line in buffer.getvalue().splitlines()]


def check(content: RenderableType, what: str, *, by_rich: bool = False) -> None:
    """`by_rich`: a table that rich folds to the terminal's width."""
    for room in (PAGE,) if by_rich else (PAGE, 4096):
        for line in lines(content, room):
            # a name that is there to be copied stays whole, alone on its line
            alone = line.strip().rstrip(",").startswith("'") and line.strip().rstrip(",")[-1] == "'"
            assert width(line) <= PAGE or alone, f"{what}: {width(line)} columns: {line}"


def network(name: str, *, relu: bool = True, second: bool = True) -> onnx.ModelProto:
    """conv1, a Tan that no primitive computes, relu, conv2; an open size; every name with `name` in
    front.
    """
    net = Net()
    hidden = net.conv(net.quantized("x"), f"{name}conv1")
    hidden = net.op("Tan", hidden, name=f"{name}tan", out=f"{name}hidden")
    hidden = net.op("Relu", hidden, name=f"{name}relu") if relu else hidden
    hidden = net.quantized(hidden, 0.1, U8(0)) if second else hidden
    net.conv(hidden, f"{name}conv2", out=f"{name}y")
    return net.proto(inputs={"x": [f"{name}N", 8, 16, 16]}, outputs=[f"{name}y"])


@settings(max_examples=15)
@given(NAMES)
def test_inspect(name: str) -> None:
    plan = fqfuse.compile(network(name))
    verdict, layout, title = verdict_of(plan, MACHINE), Layout(PAGE), title_text(f"{name}.onnx")
    check(verdict_report(plan, verdict, layout, title=title), "verdict")
    check(findings_report(plan, verdict, layout, title=title), "findings")
    for table in Table:
        check(plan_report(plan, layout, title=title, tables=[table]), table.value, by_rich=True)


@settings(max_examples=15)
@given(NAMES)
def test_why(name: str) -> None:
    proto = network(name)
    plan = fqfuse.compile(proto)
    index = index_of(plan, proto)
    names = [f"{name}conv1", f"{name}tan", f"{name}relu", f"{name}hidden", "x_QuantizeLinear", "#1"]
    for each in names:
        story = story_of(index, each, verdict_of(plan, MACHINE))
        check(story_report(plan, story, Layout(PAGE), title=title_text(name)), each)
    found = [each for each in index.node_names() if each.startswith(name)]
    check(matches_report(index, name, found, Layout(PAGE)), "matches")


@settings(max_examples=15)
@given(NAMES)
def test_diff(name: str) -> None:
    plan = fqfuse.compile(network(name))
    others: list[Plan] = [
        fqfuse.compile(network(name, relu=False, second=False)),
        fqfuse.compile(network(f"{name}2")),
        fqfuse.compile(network(name), target="onednn-v2"),
    ]
    for other in others:
        for all_rows in (False, True):
            found = difference_of(plan, other, MACHINE)
            titles = (f"{name}.onnx, onednn-v3", name)
            check(diff_report(found, titles, Layout(PAGE), all_rows=all_rows), "diff")


def twins(name: str) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    """Two layers in f32, and with a bad quantizer between them."""
    data = [codes((8, 8, 3, 3)), codes((8, 8, 3, 3), 20)]

    def made(*, quantized: bool) -> onnx.ModelProto:
        net = Net()
        value = net.quantized("x") if quantized else "x"
        for place, weights in enumerate(data):
            given_weights = (
                net.weights(weights)
                if quantized
                else net.constant(weights.astype(np.float32) * np.float32(0.01))
            )
            out = f"{name}v{place}"
            net.conv(value, f"{name}conv{place}", weights=given_weights, out=out)
            value = net.quantized(out, 0.01) if quantized and not place else out
        return net.proto(outputs=[f"{name}v1"])

    return made(quantized=False), made(quantized=True)


@settings(max_examples=8)
@given(NAMES)
def test_compare(name: str) -> None:
    models = read_models(*twins(name))
    found = compared(models, drawn_for(models))
    suggestion = suggestion_of(found)
    for all_rows in (False, True):
        report = comparison_report(
            found, suggestion, Layout(PAGE), title=title_text(name), all_rows=all_rows
        )
        check(report, "compare")


@pytest.fixture(scope="module")
def measured() -> dict:
    """A document of `bench`, whose names are put in below."""
    plan = fqfuse.compile(network("NAME"))
    return fqfuse.bench(plan, rounds=1, seconds=0.002, threads=1, backend="numpy")


@settings(max_examples=15)
@given(NAMES)
def test_bench(measured: dict, name: str) -> None:
    given_name = json.dumps(name)[1:-1]
    found = json.loads(json.dumps(measured).replace("NAME", given_name))
    for all_rows in (False, True):
        report = bench_report(
            found, Layout(PAGE), title=title_text(name), steps=9, all_rows=all_rows
        )
        check(report, "bench")


# -- columns ---------------------------------------------------------------------------------------

TEXTS = st.text(LETTERS, max_size=200).map(printable)


@given(TEXTS, st.integers(1, 60))
def test_beginnings_and_ends_are_the_longest_that_fit(text: str, room: int) -> None:
    front, end = head(text, room), tail(text, room)
    assert text.startswith(front)
    assert text.endswith(end)
    assert columns(front) <= room
    assert columns(end) <= room
    if columns(text) > room:
        assert room - columns(front) <= 1, "a wide character may not fit"
        assert room - columns(end) <= 1
    else:
        assert front == text
        assert columns(end) == columns(text)
    assert not end or columns(end[0]), "a mark is not taken from its character"
    cut = middle_cut(text, room)
    assert columns(cut) <= room
    assert cut == text or "…" in cut


@given(TEXTS, st.integers(20, 100), st.booleans())
def test_wrapping_keeps_every_character(text: str, room: int, whole: bool) -> None:
    found = wrapped(text, room, whole_words=whole)
    assert "".join(found).replace(" ", "") == text.replace(" ", "")
    assert all(line == line.strip() for line in found)
    if not whole:
        assert all(columns(line) <= room for line in found)
    else:
        assert all(columns(line) <= room or " " not in line for line in found)
    short = "".join(letter for letter in text if letter.isascii())
    assert all(len(line) <= room for line in wrapped(short, room))


def test_a_number_stays_with_its_unit() -> None:
    text = "x" * 17 + " 4 ms"
    assert wrapped(text, 20) == ["x" * 17, "4 ms"]
