"""No rule without its parts: a docstring that argues, a contract, cases where it fires and, unless
it never refuses, where it does not.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from fqfuse.composer.formula.approximating import UNCLIPPED, UNROUNDED
from fqfuse.composer.registry import AnyRule, all_rules
from fqfuse.passes import PIPELINE, Pass, passes_of

TESTS = Path(__file__).parents[1]
# the tables of the tests of the algebra are the golden cases of its rules
sys.path[:0] = [
    str(TESTS / "composer"),
    str(TESTS / "plan"),
]

import test_algebra  # noqa: E402
import test_approximating  # noqa: E402
import test_comparing_rules  # noqa: E402
import test_convert_rules  # noqa: E402
import test_depthwise  # noqa: E402
import test_legacy_eltwise  # noqa: E402
import test_mapping_rules  # noqa: E402
import test_store_rules  # noqa: E402
import test_unary_rules  # noqa: E402

TABLES = (
    test_algebra,
    test_store_rules,
    test_mapping_rules,
    test_unary_rules,
    test_comparing_rules,
    test_legacy_eltwise,
    test_convert_rules,
    test_depthwise,
    test_approximating,
)
RULES: dict[str, AnyRule] = {rule.name: rule for rule in all_rules()}
PASSES: dict[str, Pass] = {step.name: step for step in passes_of(PIPELINE)}

BEYOND_F32 = {
    "f(f(x)) = f(x), f = relu, round",
    "x*A + B = (x + B/A)*A",
    "round(clip(x,a,b)) = clip(round(x),round(a),round(b))",
}
"""They refuse without a reason, since nothing that a user writes is at fault;
`test_rule_leaves_what_f32_does_not_hold` has the cases.
"""

NEVER = "Refuses when: never"


def clauses(text: str) -> dict[str, str]:
    """The docstring's first line as `does`, and what follows its clauses."""
    parts = re.split(
        r"^\s*(Before -> after|Legal because|Refuses when)[:]+", text, flags=re.MULTILINE
    )
    return {
        "does": parts[0].strip(),
        **{
            key: " ".join(value.split())
            for key, value in zip(parts[1::2], parts[2::2], strict=True)
        },
    }


@pytest.mark.parametrize("name", RULES)
def test_a_rule_argues_and_says_what_it_promises(name: str) -> None:
    rule = RULES[name]
    found = clauses(rule.apply.__doc__ or "")
    assert all(
        len(found.get(part, "")) > 4 for part in ("does", "Legal because", "Refuses when")
    ), found
    assert "=" in name, "the equation is the name"
    asked = rule in (UNROUNDED, UNCLIPPED)
    assert rule.real == ("approximation" if asked else "identity"), "approximations are opt-in"


@pytest.mark.parametrize("name", RULES)
def test_a_rule_has_golden_cases_on_both_sides(name: str) -> None:
    rule = RULES[name]
    assert any(name in table.FIRES for table in TABLES)
    if NEVER not in " ".join((rule.apply.__doc__ or "").split()):
        assert any(name in table.REFUSES for table in TABLES) or name in BEYOND_F32


@pytest.mark.parametrize("name", PASSES)
def test_a_pass_argues(name: str) -> None:
    found = clauses(PASSES[name].rewrite.__doc__ or "")
    assert all(
        len(found.get(part, "")) > 4
        for part in ("does", "Before -> after", "Legal because", "Refuses when")
    ), found


def halves(path: Path) -> tuple[list[str], list[str]]:
    before, _, after = path.read_text(encoding="utf-8").partition("\n# -----\n")
    return before.strip().splitlines(), after.strip().splitlines()


def rewritten(path: Path) -> bool:
    """True when the graph behind the pass is another, decisions and fates aside."""
    before, after = (
        [line for line in half if not line.strip().startswith(("decision", "fate"))]
        for half in halves(path)
    )
    return before != after


@pytest.mark.parametrize("name", PASSES)
def test_a_pass_has_golden_cases_on_both_sides(name: str) -> None:
    cases = sorted((TESTS / "golden" / name).glob("*.txt"))
    refusing = [
        path
        for path in cases
        if not rewritten(path)
        or any(f"decision refused {name}" in line for line in halves(path)[1])
    ]
    assert any(rewritten(path) for path in cases), "nowhere does it fire"
    if NEVER not in " ".join((PASSES[name].rewrite.__doc__ or "").split()):
        assert refusing, "nowhere does it refuse, or leave a graph as it is"
