"""Approximations inside a chain: each within its bound, in fractions, on random programs; where asked
for alone, and where it saves something.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from laws.budget import ENOUGH, examples
from laws.formulas import CHANNELS, UNIFIED, V2, V3, conv, store
from laws.programs import Draws, points, source
from laws.rational import after_all, composed_value, entry, front_value
from laws.rule_cases import Fires, Refuses, rule_tests
from support.graph_text import parse_graph

from fqfuse.composer.compose import plan_from_graph
from fqfuse.composer.formula.approximating import APPROXIMATING
from fqfuse.composer.formula.formula import (
    Add,
    BasicOp,
    BinaryOp,
    ChainOp,
    Clip,
    CodesOp,
    EltwiseOp,
    Round,
    ScaleBy,
    Shift,
    Store,
    decoding,
    vec,
)
from fqfuse.composer.formula.store_rules import written_out
from fqfuse.composer.formula.writing import Written
from fqfuse.composer.mapping.composed import Composed
from fqfuse.composer.mapping.post_ops_composer import PostOpsComposer
from fqfuse.ir.approximations import MIDDLE_ROUNDING, RESIDUAL_ROUNDING
from fqfuse.ir.decision import Outcome
from fqfuse.ir.types import DType
from fqfuse.passes import optimize
from fqfuse.plan.attributes import Binary, Eltwise
from fqfuse.plan.targets import Target
from fqfuse.plan.verify import verify_plan

RULES = {rule.name: rule for rule in APPROXIMATING.values()}
RESIDUAL, MIDDLE = (APPROXIMATING[name].name for name in (RESIDUAL_ROUNDING, MIDDLE_ROUNDING))
LEAST = 50
GOLDEN = Path(__file__).parents[1] / "golden/plans/requantized_inside_a_chain.txt"

ADD, RELU = Add("skip", DType.U8, 0.5, 3.0), EltwiseOp("relu")
CODES = [Round(), Clip(vec(0.0), vec(255.0))]
SIGNED, UNSIGNED = (decoding(0.5, zero) for zero in (128.0, 0.0))
IN_SOME = decoding(0.5, [128.0, 0.0, 3.0])

FIRES: Fires = {
    MIDDLE: (
        ([EltwiseOp("abs"), *CODES, *SIGNED], RELU),
        Written(4, (CODES[1], *SIGNED)),
    ),
    RESIDUAL: (([EltwiseOp("abs"), *CODES, *SIGNED], ADD), Written(4, tuple(SIGNED))),
}
REFUSES: Refuses = {
    MIDDLE: [
        (([*CODES, *SIGNED], BinaryOp("gt", "other")), "half a step becomes any difference"),
        (([*CODES, *SIGNED], Round(to_codes=False)), "half a step becomes any difference"),
        (
            ([*CODES, *SIGNED], CodesOp("max", "skip", DType.U8, 0.5, 0.0)),
            "half a step becomes any difference",
        ),
    ],
    RESIDUAL: [(([*CODES, *IN_SOME], ADD), "in every channel or in none")],
}

test_every_rule_has_a_place_where_it_fires, test_rule_fires, test_rule_refuses_with_its_reason = (
    rule_tests(RULES, FIRES, REFUSES)
)


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("behind", [ScaleBy(vec(2.0)), Shift(vec(1.0))])
def test_a_last_quantizer_rounds(name: str, behind: BasicOp) -> None:
    """A scale and a shift are the other half of it, however many there are."""
    assert RULES[name].apply([*CODES, *SIGNED], behind) is None


def test_the_models_own_rounding_stays() -> None:
    for rule in RULES.values():
        assert rule.apply([Round(to_codes=False), *SIGNED], ADD) is None


def test_a_clip_of_the_model_behind_a_quantizer_stays() -> None:
    chain = [*CODES, *SIGNED, Clip(vec(0.0), vec(6.0))]
    assert RULES[RESIDUAL].apply(chain, ADD) is None
    found = RULES[MIDDLE].apply(chain, ADD)
    assert isinstance(found, Written)
    assert found.ops[-1] is chain[-1]


@pytest.mark.parametrize(
    ("decode", "kept"),
    [
        (UNSIGNED, [RELU]),
        (decoding(-0.5, 255.0), [RELU]),
        (decoding(0.5, 255.0), [Clip(vec(-np.inf), vec(0.0))]),
        (decoding(-0.5, 0.0), [Clip(vec(-np.inf), vec(0.0))]),
        (SIGNED, []),
    ],
)
def test_a_bound_of_zero_is_a_relu(decode: list[BasicOp], kept: list[BasicOp]) -> None:
    found = RULES[RESIDUAL].apply([*CODES, *decode], ADD)
    assert isinstance(found, Written)
    assert repr(found.ops[2:]) == repr(tuple(kept))


def test_a_grid_that_is_clipped_in_front_of_its_rounding() -> None:
    """As a FakeQuantize that stays whole is written."""
    grid = [Clip(vec(0.0), vec(15.0)), Round()]
    found = RULES[RESIDUAL].apply([*grid, ScaleBy(vec(0.5)), Shift(vec(-3.0))], ADD)
    assert isinstance(found, Written)
    assert repr(found.ops) == repr((ScaleBy(vec(0.5)), Shift(vec(-3.0))))


# -- the bound, in fractions -----------------------------------------------------------------------


def beyond(y: Fraction, ends: Sequence[Fraction]) -> Fraction:
    """How far y lies beyond a range."""
    return max(Fraction(0), min(ends) - y, y - max(ends))


def quantizers(draws: Draws) -> tuple[list[BasicOp], list[BasicOp]]:
    """A quantizer and what decodes it, as a chain has them, and whatever stands in front."""
    draw = draws.random
    front = draws.program()[: draw.randint(0, 2)]
    decode = [draws._shift(), draws._scale()][: draw.choice([2, 2, 1])]
    if draw.random() < 0.7:
        end = draws._store()
        if draw.random() < 0.3:  # the way an unsigned quantizer is, whose clip is a relu
            decode[0] = Shift(vec(-float(end.low)))
        return front, [*written_out(end), *decode]
    grid = [Clip(vec(0.0), vec(float(draw.choice([2, 15, 255])))), Round()]
    return front, [draws._scale(), draws._shift(), *grid, *decode]


@pytest.mark.parametrize("rough", [False, True])
@pytest.mark.parametrize("name", RULES)
def test_the_bound_holds_in_fractions(name: str, rough: bool) -> None:
    """|y - y'| is at most the bound; without the clip, plus what y' lies beyond the range."""
    draws, fired, moved = Draws(source(len(name)), rough), 0, 0
    for _ in range(6 * LEAST):
        front, end = quantizers(draws)
        behind = draws.random.choice([ADD, RELU, BinaryOp("add", "other"), store()])
        found = RULES[name].apply([*front, *end], behind)
        if not isinstance(found, Written):
            continue
        fired += 1
        assert found.error is not None
        chain = [*front, *end]
        start = len(chain) - found.replaced
        held = draws.operands()
        for channel in range(CHANNELS):
            bound = Fraction(entry(found.error, channel))
            before = chain[start:]
            ends = [after_all(before, Fraction(y), channel, held) for y in (-(10**9), 10**9)]
            turns = points(before, channel, held)
            for x in {*draws.numbers(), *draws.random.sample(turns, min(20, len(turns)))}:
                y, other = (after_all(ops, x, channel, held) for ops in (before, found.ops))
                more = beyond(other, ends) if name == RESIDUAL else 0
                # f64 forms the bound of factors of 53 bits
                assert abs(y - other) <= bound * (1 + Fraction(1, 2**50)) + more, (
                    f"channel {channel}, x = {x}: {chain} as {found}"
                )
                moved += y != other
    assert fired >= LEAST
    assert moved, "an approximation changes something"


def test_the_bound_is_met() -> None:
    """Half a step is reached at a tie, so that no smaller bound would do."""
    chain: list[ChainOp] = [*CODES, *SIGNED]
    for rule in RULES.values():
        found = rule.apply(chain, ADD)  # type: ignore[arg-type]
        assert isinstance(found, Written)
        assert found.error is not None
        values = [after_all(ops, Fraction(5, 2), 0, {}) for ops in (chain, found.ops)]
        assert abs(values[0] - values[1]) == Fraction(float(found.error[0])) == Fraction(1, 4)


# -- in a chain ------------------------------------------------------------------------------------


def of(target: Target, ops: Sequence[ChainOp], *names: str) -> Composed:
    composer = PostOpsComposer(target, conv(), names)
    for op in ops:
        assert composer.append([op]) is None
    return composer.result


@pytest.mark.parametrize("target", [V3, V2, UNIFIED], ids=lambda target: target.name)
@pytest.mark.parametrize("name", APPROXIMATING)
def test_attributes_stay_within_the_bound(target: Target, name: str) -> None:
    """Constants of few bits, so that the attributes hold them exactly; an addition hands a difference
    on as it is.
    """
    draws, made = Draws(source(3)), 0
    for _ in range(examples(4 * LEAST).max_examples):
        # powers of two, whose reciprocals are exact
        steps = [vec(draws.random.choices([0.5, 2.0, 0.25, -1.0], k=k)) for k in (1, 1, CHANNELS)]
        end = replace(draws._store(), scale=draws.random.choice(steps))
        chain = [end, *decoding(draws.random.choice(steps), end.zero_point), ADD]
        exact, other = of(target, chain), of(target, chain, name)
        assert not exact.approximated
        if not other.approximated:
            continue
        made += 1
        (each,) = other.approximated
        assert each.name == name
        assert len(other.post_ops) < len(exact.post_ops)
        held, front = draws.operands(), conv()
        for channel in range(CHANNELS):
            bound = Fraction(entry(each.error, channel))
            skip = after_all([ADD], Fraction(0), channel, held)
            ends = [after_all(chain[:3], Fraction(y), channel, held) for y in (-(10**9), 10**9)]
            for x in draws.numbers():
                y, found = (
                    composed_value(target, front, composed, x, channel, held)
                    for composed in (exact, other)
                )
                real = after_all(
                    chain, front_value(front.scale, front.bias, x, channel), channel, held
                )
                assert y == real
                more = beyond(found - skip, ends) if name == RESIDUAL_ROUNDING else 0
                assert abs(y - found) <= bound + more
    assert made >= (LEAST if ENOUGH else 1)


def test_the_one_that_saves_more_is_taken() -> None:
    end: list[ChainOp] = [store(), *decoding(0.5, 3.0)]
    both = [*APPROXIMATING]
    assert [each.name for each in of(V3, [*end, ADD], *both).approximated] == [RESIDUAL_ROUNDING]
    assert [each.name for each in of(V3, [*end, RELU], *both).approximated] == [MIDDLE_ROUNDING]


def test_nothing_is_approximated_that_saves_nothing() -> None:
    """Codes that are exact already are not rounded, and a store at the end rounds anyway."""
    codes = Store(DType.U8, vec(1.0), vec(0.0), 0, 255, exact=True)
    for ops in ([codes, *decoding(1.0, 0.0), RELU], [store()], [store(), *decoding(0.5, 0.0)]):
        assert of(V3, ops, *APPROXIMATING).approximated == ()


def test_a_chain_goes_on_where_the_exact_one_is_too_long() -> None:
    end: list[ChainOp] = [store(), *decoding(0.5, 3.0), RELU]
    many = end * 16
    taken = []
    for names in ((), (MIDDLE_ROUNDING,)):
        composer = PostOpsComposer(V3, conv(), names)
        taken.append(sum(composer.append([op]) is None for op in many))
    assert taken[0] < taken[1] == len(many)


def test_a_residual_block() -> None:
    """Scale, shift and clip as they are in f32 remain of a quantizer in front of an addition, or only
    the scale; the store rounds and clips.
    """
    graph = optimize(parse_graph(GOLDEN.read_text(encoding="utf-8").partition("\n# -----\n")[0]))
    found = {}
    for name in APPROXIMATING:
        plan = plan_from_graph(graph.copy(), "onednn-v3", {"approximate": (name,)})
        assert verify_plan(plan) == []
        (decision,) = [one for one in plan.decision_records if one.rule == name]
        assert (decision.subject, decision.outcome) == ("q10", Outcome.FIRED)
        assert "at most 0.25 off" in decision.reason
        (fate,) = [one for one in plan.fate_records if one.reason.count(name)]
        assert fate.quantizer == "q10"
        step = plan.steps[2]
        assert step.attr.scales["weights"].values == (2.0,)  # combined with that of the quantizer
        found[name] = step.attr.post_ops
    assert found == {
        MIDDLE_ROUNDING: (Eltwise("clip", -256.0, 254.0), Binary("add", "q6_y")),
        RESIDUAL_ROUNDING: (Binary("add", "q6_y"),),
    }


def test_the_pages_example_approximates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = Path(__file__).parents[2]
    page = (root / "docs" / "numerics.md").read_text(encoding="utf-8")
    (program,), (told,) = (
        re.findall(rf"^```{kind}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
        for kind in ("python", "text")
    )
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").symlink_to(root / "models")
    exec(program, {})  # noqa: S102  # the document's own
    assert capsys.readouterr().out == told
    assert len(set(re.findall(r"[0-9]+ post-ops", told))) == 3
