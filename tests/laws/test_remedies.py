"""No refusal without a remedy, or a sentence why there is none."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import pytest
from support.finding_cases import CASES
from support.plan_corpus import every_plan
from support.refusals import problem_of

import fqfuse
from fqfuse.errors import FqfuseError
from fqfuse.ir.decision import Outcome
from fqfuse.ir.rule import Refusal
from fqfuse.plan.types import Plan

ROOT = Path(__file__).parents[2]
ELSEWHERE = {"benchmarks", "build", "dist", "docs", "site", "tests"}


@functools.cache
def _calls() -> list[tuple[str, str, ast.Call]]:
    """The calls that these tests look at: what is called, and where."""
    wanted = {"Refusal", "Decision", *(kind.__name__ for kind in FqfuseError.__subclasses__())}
    return [
        (name, f"{path.relative_to(ROOT)}, line {call.lineno}", call)
        for path in sorted(ROOT.rglob("*.py"))
        if path.relative_to(ROOT).parts[0] not in ELSEWHERE
        and not any(part.startswith(".") for part in path.relative_to(ROOT).parts)
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call)
        and (name := getattr(call.func, "id", getattr(call.func, "attr", ""))) in wanted
    ]


def calls(*names: str) -> list[tuple[str, ast.Call]]:
    """All calls of functions of these names in the package, `module.name` too, and where they are."""
    return [(place, call) for name, place, call in _calls() if name in names]


def test_every_refusal_in_the_code_says_what_to_change() -> None:
    """`Refusal` demands the text; here it is looked at where it is written down. What is put together
    at run time `conftest.py` looks at, whichever test makes it.
    """
    found = calls("Refusal")
    assert len(found) > 200
    for place, call in found:
        named = {keyword.arg: keyword.value for keyword in call.keywords}
        starred = any(isinstance(argument, ast.Starred) for argument in call.args)
        hint = named.get("hint") or (call.args[-1] if starred or len(call.args) == 4 else None)
        assert hint is not None, place
        branches = [hint.body, hint.orelse] if isinstance(hint, ast.IfExp) else [hint]
        for text in branches:
            if isinstance(text, ast.Constant):
                assert problem_of(text.value) == "", place


def test_every_refused_decision_has_the_text_of_its_refusal() -> None:
    """A decision without it would be one that no `Refusal` demanded it of."""
    refused = [
        (place, call)
        for place, call in calls("Decision")
        if any(getattr(argument, "attr", "") == "REFUSED" for argument in ast.walk(call))
    ]
    assert refused
    for place, call in refused:
        told = [*call.args[6:], *(keyword.value for keyword in call.keywords)]
        handed = any(isinstance(argument, ast.Starred) for argument in call.args)
        assert handed or any(getattr(value, "attr", "") == "hint" for value in told), place
    from_a_refusal = "ir/rule.py"  # (reason, expected, found, hint) of one, as *why
    assert all(
        place.split(",")[0].endswith(from_a_refusal)
        for place, call in refused
        if any(isinstance(argument, ast.Starred) for argument in call.args)
    )


@pytest.mark.parametrize("hint", ["", " ", "no", "Nothing to change here", "nothing to change."])
def test_a_refusal_that_says_nothing_fails_any_test(hint: str) -> None:
    with pytest.raises(AssertionError, match="a refusal that"):
        Refusal("a predicate failed", "this", "that", hint)


def test_every_error_says_how_to_fix_it() -> None:
    found = calls(*(kind.__name__ for kind in FqfuseError.__subclasses__()))
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
