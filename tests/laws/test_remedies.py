"""No refusal without a remedy, or a sentence why there is none."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from support.finding_cases import CASES
from support.plan_corpus import every_plan

import fqfuse
from fqfuse.errors import FqfuseError
from fqfuse.ir.decision import Outcome
from fqfuse.plan.types import Plan

ROOT = Path(__file__).parents[2]
ROOMS = ("ir", "frontend", "passes", "composer", "plan")
ELSEWHERE = {"benchmarks", "build", "dist", "docs", "tests"}


def refusals() -> list[tuple[str, ast.Call]]:
    return [
        (f"{path.relative_to(ROOT)}, line {call.lineno}", call)
        for room in ROOMS
        for path in sorted((ROOT / room).rglob("*.py"))
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "Refusal"
    ]


def test_every_refusal_in_the_code_says_what_to_change() -> None:
    """`Refusal` demands the text; here it is looked at where it is written down."""
    found = refusals()
    assert len(found) > 200
    for place, call in found:
        named = {keyword.arg: keyword.value for keyword in call.keywords}
        starred = any(isinstance(argument, ast.Starred) for argument in call.args)
        hint = named.get("hint") or (call.args[-1] if starred or len(call.args) == 4 else None)
        assert hint is not None, place
        if isinstance(hint, ast.Constant):
            assert isinstance(hint.value, str), place
            assert len(hint.value.split()) >= 2, place
            assert hint.value[0].islower(), place
            assert not hint.value.endswith("."), place


def errors() -> list[tuple[str, ast.Call]]:
    kinds = {kind.__name__ for kind in FqfuseError.__subclasses__()}
    return [
        (f"{path.relative_to(ROOT)}, line {call.lineno}", call)
        for path in sorted(ROOT.rglob("*.py"))
        if path.relative_to(ROOT).parts[0] not in ELSEWHERE
        and not any(part.startswith(".") for part in path.relative_to(ROOT).parts)
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call)
        and getattr(call.func, "id", getattr(call.func, "attr", "")) in kinds
    ]


def test_every_error_says_how_to_fix_it() -> None:
    found = errors()
    assert len(found) > 200
    without = [
        place
        for place, call in found
        if not any(keyword.arg in {"hint", None} for keyword in call.keywords)
    ]
    assert without == []


def check(plan: Plan, name: str) -> None:
    for decision in plan.decision_records:
        if decision.outcome is Outcome.REFUSED:
            assert decision.hint, f"{name}: {decision}"


@pytest.mark.parametrize("code", CASES)
def test_refusals_of_the_findings_models_say_what_to_change(code: str) -> None:
    check(fqfuse.compile(CASES[code](False)), code)


@pytest.mark.slow
def test_refusals_of_the_corpus_say_what_to_change() -> None:
    for name, plan in every_plan():
        if name not in ("everything", "tiny"):  # written by hand
            check(plan, name)
