"""Every step that writes floats, multiplies them or runs outside the primitives belongs to exactly one
finding, whatever the plan; and the screen shows any plan.
"""

from __future__ import annotations

import json
from collections import Counter

import pytest
from laws.budget import some
from laws.corpus import CORPUS
from support.plan_corpus import every_plan

from fqfuse.plan.types import Plan
from fqfuse.report.json import plan_json
from fqfuse.report.layout import PIPE, Layout
from fqfuse.report.lines import WIDTH
from fqfuse.report.verdict.catalogue import CATALOGUE
from fqfuse.report.verdict.findings import verdict_of
from fqfuse.report.verdict.kind import Gain
from fqfuse.report.verdict.machine import machine_from
from fqfuse.report.verdict.recognize import claims
from fqfuse.report.verdict.screen import findings_report, verdict_report
from fqfuse.report.verdict.view import View, is_suspect

MACHINES = [
    machine_from("flags\t\t: avx512_vnni avx512bw avx2\n", cores=4, clock=3.0),
    machine_from("flags\t\t: avx2\n", cores=2, clock=2.0),
]


@pytest.fixture(scope="module")
def plans() -> dict[str, Plan]:
    return dict(every_plan(some(tuple(CORPUS))))


def test_each_suspect_step_belongs_to_one_finding(plans: dict[str, Plan]) -> None:
    unknown = Counter()
    for name, plan in plans.items():
        view = View(plan)
        verdict = verdict_of(plan, MACHINES[0])
        belongs = Counter(
            index
            for finding in verdict.findings
            if finding.kind.gain in (Gain.TIME, Gain.NOTHING)
            for index in finding.steps
        )
        suspects = {index for index in range(len(plan.steps)) if is_suspect(view, index)}
        assert suspects <= set(belongs), name
        assert max(belongs.values(), default=1) == 1, name
        unknown.update(code for code in claims(view).values())
    assert not unknown["other"], "each step has its rule"


def test_no_source_of_codes_is_told_to_have_no_quantizer(plans: dict[str, Plan]) -> None:
    """What is f32 within a layer that multiplies codes has its reason there, not in front of the layer."""
    for name, plan in plans.items():
        view = View(plan)
        products = [each for each in range(len(plan.steps)) if view.is_product(each)]
        on_codes = {plan.steps[each].origin[:1] for each in products if view.in_int8(each)} - {()}
        claimed = claims(view)
        told = {each for each in products if claimed.get(each) == "f32-product"}
        assert not {plan.steps[each].origin[:1] for each in told} & on_codes, name


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
def test_numbers_are_sound_and_texts_whole(plans: dict[str, Plan], machine) -> None:
    for name, plan in plans.items():
        verdict = verdict_of(plan, machine)
        shares = verdict.shares
        assert 0 <= shares.int8_macs <= shares.macs, name
        assert 0 <= shares.f32_between <= shares.between, name
        for finding in verdict.findings:
            assert finding.layers, name
            assert 0 <= finding.ms <= verdict.estimate.ms, name
            assert 0 <= finding.bytes <= verdict.estimate.bytes, name
            assert "{names}" not in finding.change()
            assert (finding.ms == finding.bytes == 0) or finding.kind.gain is Gain.TIME
        assert json.dumps(plan_json(plan, machine), allow_nan=False)


@pytest.mark.parametrize("width", [None, 40, 80, 120])
def test_the_screen_fits(plans: dict[str, Plan], rendered, width: int | None) -> None:
    layout = PIPE if width is None else Layout(width, 200)
    for name, plan in plans.items():
        verdict = verdict_of(plan, MACHINES[0])
        for report in (verdict_report, findings_report):
            lines = rendered(report(plan, verdict, layout), layout)
            if layout is not PIPE or report is verdict_report:
                room = min(width or WIDTH, WIDTH)
                # what is to be copied stays whole, on a line of its own
                assert all(len(x) <= room or " " not in x.strip() for x in lines), name


def test_the_corpus_holds_most_kinds(plans: dict[str, Plan]) -> None:
    found = {
        finding.kind.code
        for plan in plans.values()
        for finding in verdict_of(plan, MACHINES[1]).findings
    }
    assert found <= set(CATALOGUE)
    assert len(found) >= 15, sorted(set(CATALOGUE) - found)
