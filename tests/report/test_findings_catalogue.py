"""Each kind of the catalogue: a small model that provokes it, and the same model with the remedy, where
it is gone; and docs/findings.md, which describes them all.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from make.findings import findings_document
from support.finding_cases import CASES, OPTIONS

import fqfuse
from fqfuse.plan.types import Plan
from fqfuse.report.verdict.catalogue import CATALOGUE
from fqfuse.report.verdict.findings import Finding, verdict_of
from fqfuse.report.verdict.kind import Gain
from fqfuse.report.verdict.machine import machine_from
from fqfuse.report.verdict.remedies import Tool

VNNI = machine_from("flags\t\t: avx512_vnni\n", cores=2, clock=3.0)
AVX2 = machine_from("flags\t\t: avx2\n", cores=2, clock=3.0)


def found_in(plan: Plan, code: str) -> dict[str, Finding]:
    machine = AVX2 if code == "saturation-without-vnni" else VNNI
    return {finding.kind.code: finding for finding in verdict_of(plan, machine).findings}


def test_every_kind_has_a_case() -> None:
    assert set(CASES) | {"other"} == set(CATALOGUE)


@pytest.mark.each_case
@pytest.mark.parametrize("code", CASES)
def test_a_model_provokes_it(code: str) -> None:
    provoked = found_in(fqfuse.compile(CASES[code](False)), code)
    assert code in provoked
    gains = CATALOGUE[code].gain is Gain.TIME
    assert (provoked[code].ms > 0) == gains, "a gain in time is estimated"


@pytest.mark.each_case
@pytest.mark.parametrize("code", [code for code in CASES if CATALOGUE[code].remedies])
def test_the_remedy_removes_it(code: str) -> None:
    cured = fqfuse.compile(CASES[code](True), **OPTIONS.get(code, {}))
    assert code not in found_in(cured, code)


def test_what_no_rule_knows_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = fqfuse.compile(CASES["float-operation"](False))
    monkeypatch.setattr("fqfuse.report.verdict.recognize._RULES", {})
    found = found_in(plan, "other")
    assert list(found) == ["other"]
    assert [plan.steps[index].primitive for index in found["other"].steps] == ["matmul", "matmul"]
    assert "no rule here knows why" in found["other"].kind.why


def test_each_kind_says_what_to_change_or_why_nothing_helps() -> None:
    for kind in CATALOGUE.values():
        assert bool(kind.remedies) != bool(kind.no_remedy), kind.code
        assert not kind.remedies or Tool.ANY in kind.remedies, kind.code
        for tool in Tool:
            assert kind.remedy(tool)[1], kind.code


def test_the_document_is_the_catalogue() -> None:
    path = Path(__file__).parents[2] / "docs" / "findings.md"
    assert path.read_text(encoding="utf-8") == findings_document(), "run `make docs`"


def test_the_document_names_tests_that_there_are() -> None:
    """Each kind has its two, and each of them runs on the case that it names."""
    rows = dict(re.findall(r"^\| \[(\S+)\]\(#\1\) \| (.*) \|$", findings_document(), re.MULTILINE))
    assert set(rows) == set(CATALOGUE)
    texts = [
        (Path(__file__).parent / f"test_findings_{name}.py").read_text(encoding="utf-8")
        for name in ("catalogue", "without_remedy")
    ]
    for code, row in rows.items():
        provoking, curing = row.strip("`").split("` | `")
        for test in (provoking, curing):
            name, _, case = test.rstrip("]").partition("[")
            assert sum(text.count(f"def {name}(") for text in texts) == 1, test
            assert case in ("", code), test
        assert code in CASES or provoking == curing == "test_what_no_rule_knows_says_so"
        cures = code in CASES and bool(CATALOGUE[code].remedies)
        assert curing.startswith("test_the_remedy_removes_it[") == cures


def test_findings_as_data() -> None:
    first, *_ = fqfuse.findings(fqfuse.compile(CASES["f32-product"](False)))
    assert first["code"] == "f32-product"
    assert first["layers"] == ["conv2"]
    assert first["tool"] == "ONNX Runtime, quantize_static"
    assert "'conv2'" in first["change"]
