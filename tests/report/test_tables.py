"""Rows of plain data: what pandas and a spreadsheet get."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.finding_cases import CASES
from support.plan_text import parse_plan

import fqfuse
from fqfuse.models.digits import digits_model_path
from fqfuse.plan.types import Plan
from fqfuse.report.notebook import notebook_html
from fqfuse.report.tables import TABLES, csv_text, decisions_table, fates_table, steps_table
from fqfuse.report.verdict.findings import verdict_of
from fqfuse.report.verdict.machine import machine_from

MACHINE = machine_from("flags\t\t: avx512_vnni\n", cores=4, clock=3.0)
HOSTILE = '<script>a</script>\x1b[31m\u202e=b\nc"'


@pytest.fixture(scope="module")
def plan() -> Plan:
    return fqfuse.compile(digits_model_path("qdq"))


@pytest.mark.parametrize("name", TABLES)
def test_rows_are_plain_and_have_the_columns_of_their_table(name: str) -> None:
    plan = fqfuse.compile(CASES["f32-residual"](False))
    rows = getattr(plan, "steps_table" if name == "steps" else name)()
    assert rows
    assert all(tuple(row) == TABLES[name] for row in rows)
    assert json.loads(json.dumps(rows, allow_nan=False)) == rows


def test_costs_add_up_to_the_verdict(plan: Plan) -> None:
    verdict, rows = verdict_of(plan, MACHINE), steps_table(plan, machine=MACHINE)
    assert sum(row["macs"] for row in rows) == verdict.shares.macs
    assert sum(row["bytes"] for row in rows) == verdict.estimate.bytes
    assert sum(row["ms"] for row in rows) == pytest.approx(verdict.estimate.ms, rel=1e-3)
    assert sum(row["int8"] for row in rows) == 11


def test_steps_name_their_findings() -> None:
    plan = fqfuse.compile(CASES["f32-residual"](False))
    rows = steps_table(plan, machine=MACHINE)
    for finding in verdict_of(plan, MACHINE).findings:
        with_it = {row["index"] for row in rows if finding.kind.code in row["findings"]}
        assert with_it == set(finding.steps)
    assert any("f32-residual" in row["findings"] for row in rows)


def test_sizes_that_the_model_leaves_open_count(plan: Plan) -> None:
    one, eight = plan.steps_table(), plan.steps_table(sizes={"N": 8})
    assert sum(row["macs"] for row in eight) == 8 * sum(row["macs"] for row in one)
    with pytest.raises(fqfuse.InvalidInput):
        plan.steps_table(sizes={"M": 8})


@pytest.mark.parametrize("table", [steps_table, fates_table, decisions_table])
def test_what_is_no_plan_is_refused(table) -> None:
    with pytest.raises(fqfuse.InvalidInput, match="no plan"):
        table("model.onnx")


# -- CSV -------------------------------------------------------------------------------------------


def read(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text, newline=""), strict=True))


def test_csv_reads_back(plan: Plan) -> None:
    rows = steps_table(plan)
    header, *cells = read(csv_text(list(rows[0]), rows))
    assert header == list(rows[0])
    assert len(cells) == len(rows)
    assert cells[1][header.index("fused")] == "; ".join(rows[1]["fused"])
    assert float(cells[1][header.index("ms")]) == rows[1]["ms"]
    assert cells[1][header.index("int8")] == "true"


def test_csv_without_rows_has_its_header() -> None:
    assert csv_text(["a", "b"], []) == "a,b\r\n"


@given(st.lists(st.text(), min_size=1, max_size=3))
def test_no_cell_is_a_formula_a_line_or_a_control_character(names: list[str]) -> None:
    text = csv_text(["a", "b"], [{"a": name, "b": names} for name in names])
    assert all(line.isprintable() for line in text.removesuffix("\r\n").split("\r\n"))
    header, *rows = read(text)
    assert header == ["a", "b"]
    assert len(rows) == len(names)
    assert not [cell for row in rows for cell in row if cell.lstrip().startswith(tuple("=+-@"))]


def test_a_plain_name_is_written_as_it_is_and_numbers_are_no_formulas() -> None:
    rows = [{"a": "conv1, conv2", "b": -1.5, "c": None, "d": "=SUM(A1)"}]
    assert csv_text(list("abcd"), rows) == 'a,b,c,d\r\n"conv1, conv2",-1.5,,\'=SUM(A1)\r\n'


# -- notebooks -------------------------------------------------------------------------------------


class Tags(HTMLParser):
    """Collects tags and text."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""

    def handle_starttag(self, tag, attrs) -> None:  # noqa: ARG002 - the parser's signature
        self.tags.append(tag)

    def handle_data(self, data) -> None:
        self.text += data


def test_a_notebook_shows_the_verdict_and_no_foreign_markup() -> None:
    plan = fqfuse.compile(CASES["f32-residual"](False))
    steps = tuple(replace(step, origin=(HOSTILE,)) for step in plan.steps)
    html = notebook_html(replace(plan, steps=steps, name=HOSTILE), MACHINE)
    page = Tags()
    page.feed(html)
    assert set(page.tags) == {"p", "b", "br", "table", "thead", "tbody", "tr", "th", "td"}
    assert "of the multiply-adds run in int8" in page.text
    assert "<script>a</script>" in page.text
    assert page.text.isprintable()
    assert len(html) < 5000


def test_a_notebook_shows_a_plan_without_findings_in_a_line() -> None:
    assert "<table" not in notebook_html(
        parse_plan("plan p target=t\n  in %x : f32[1]\n  out %x\n")
    )
