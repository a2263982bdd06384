"""Hoisting: a chain is the same however it was grown, and the work that it takes grows with its
length alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest
from laws.build import Net
from laws.formulas import CHANNELS, UNIFIED, V2, V3, conv
from laws.plans import compiled
from laws.programs import Draws, source

import fqfuse.composer.formula.algebra
from fqfuse.composer.formula.algebra import COMMUTING, SIMPLIFYING
from fqfuse.composer.formula.formula import (
    Add,
    BasicOp,
    Clip,
    EltwiseOp,
    Round,
    ScaleBy,
    Shift,
    Store,
    vec,
)
from fqfuse.composer.mapping.composed import Front
from fqfuse.composer.mapping.post_ops_composer import PostOpsComposer
from fqfuse.composer.mapping.scale_propagation import Fold, ScalePropagation, forward
from fqfuse.ir.rule import Refusal
from fqfuse.ir.types import DType

RULES = len(SIMPLIFYING) + len(COMMUTING) + 2
# nothing in front that a scale or shift could go into
BARE = Front("binary", "step", DType.F32, 4, 1, CHANNELS)


# -- the same result -------------------------------------------------------------------------------


@pytest.mark.parametrize("target", [V3, V2, UNIFIED], ids=lambda target: target.name)
@pytest.mark.parametrize("front", [conv(), BARE], ids=["convolution", "bare"])
@pytest.mark.parametrize("seed", range(40))
def test_a_chain_grown_step_by_step_is_the_chain_composed_at_once(
    target, front: Front, seed: int
) -> None:
    """Also behind refusals, which must leave nothing behind."""
    draws, grown = Draws(source(seed)), PostOpsComposer(target, front)
    for _ in range(4):
        ops: list[BasicOp | Store] = (
            [*draws.program()]
            if draws.random.random() < 0.7
            else [*draws.stored()[0], draws.stored()[1]]
        )
        for op in ops:
            grown.append([op])
    again, at_once = PostOpsComposer(target, front), PostOpsComposer(target, front)
    assert not any(again.append([op]) for op in grown.chain)
    assert repr(again.result) == repr(grown.result)
    assert at_once.append(grown.chain) is None
    assert without_parts(at_once) == without_parts(grown)


def without_parts(composer: PostOpsComposer) -> str:
    """The result, without what tells the operations apart that were taken in at once."""
    result = composer.result
    saved = [(home, post_op) for _, home, post_op in result.saved]
    unfolded = [why for _, why in result.unfolded]
    return repr((replace(result, parts=(), saved=(), unfolded=()), saved, unfolded))


def test_a_fold_computes_what_it_has_not_seen() -> None:
    calls: list[object] = []

    def step(done: tuple[object, ...], item: object) -> tuple[object, ...]:
        calls.append(item)
        return (*done, item)

    fold, (a, b, c, d) = Fold((), step), (object() for _ in range(4))
    assert fold([a, b, c]) == (a, b, c)
    assert fold([a, b, d]) == (a, b, d)
    assert fold([a]) == (a,)
    assert fold([a, b]) == (a, b)
    assert calls == [a, b, c, d, b]


def test_what_propagation_uncovers_is_simplified() -> None:
    """The shift between the two clips joins the one in front, and the clips are one."""
    found = ScalePropagation(BARE)(
        [Shift(vec(1.0)), Clip(vec(-4.0), vec(4.0)), Shift(vec(2.0)), Clip(vec(-3.0), vec(3.0))]
    )
    assert [type(op) for op in found.ops] == [Shift, Clip]
    assert found.ops[0].values == 3.0
    assert (found.ops[1].low, found.ops[1].high) == (-2.0, 3.0)


def test_two_factors_that_join_may_go_where_neither_could() -> None:
    """Each is negative, and stays behind relu; their product does not."""
    found = ScalePropagation(conv())(
        [EltwiseOp("relu"), ScaleBy(vec(-1.0)), Add("skip", DType.U8, 0.5, 3.0), ScaleBy(vec(-2.0))]
    )
    assert [type(op) for op in found.ops] == [EltwiseOp, Add]
    assert found.ops[1].scale == -1.0
    assert found.front.scale.tolist() == [1.0, 0.5, 0.25]


def test_a_factor_joins_the_farthest_place_that_it_reaches() -> None:
    ops = [
        EltwiseOp("tanh"),
        Shift(vec(1.0)),
        EltwiseOp("relu"),
        Shift(vec(3.0)),
        EltwiseOp("relu"),
        ScaleBy(vec(2.0)),
    ]
    _, found = forward(ops[:5], ops[5])
    assert found is not None
    assert found[1] == 1
    assert [float(op.values[0]) for op in found[0] if isinstance(op, ScaleBy | Shift)] == [
        2.0,
        2.0,
        6.0,
    ]
    assert forward([EltwiseOp("tanh")], ScaleBy(vec(2.0)))[1] is None


def test_each_reason_stays_with_its_operation() -> None:
    ops = [
        EltwiseOp("relu"),
        ScaleBy(vec(-1.0)),
        Round(),
        Shift(vec(3.0)),
        EltwiseOp("relu"),
        ScaleBy(vec(2.0)),
    ]
    found = ScalePropagation(BARE)(ops)
    assert [type(op) for op in found.ops] == [EltwiseOp, ScaleBy, Round, ScaleBy, Shift, EltwiseOp]
    reasons = [getattr(op, "why", "") for op in found.ops]
    assert [bool(reason) for reason in reasons] == [False, True, False, False, True, False]
    assert "needs s > 0" in reasons[1]
    assert "needs even n: 3" in reasons[4]


# -- the work --------------------------------------------------------------------------------------


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], int]]:
    """How many times neighbours were composed, or a rule of the algebra tried, since the last
    call.
    """
    count = 0

    def counting(apply):
        def counted(a: BasicOp, b: BasicOp):
            nonlocal count
            count += 1
            return apply(a, b)

        return counted

    def since() -> int:
        nonlocal count
        found, count = count, 0
        return found

    module = fqfuse.composer.formula.algebra
    for name in ("composed", "_distributed"):
        monkeypatch.setattr(module, name, counting(getattr(module, name)))
    for table in ("SIMPLIFYING", "COMMUTING"):
        counted = [replace(rule, apply=counting(rule.apply)) for rule in getattr(module, table)]
        monkeypatch.setattr(module, table, tuple(counted))
    return since


def _triple(number: int) -> list[BasicOp]:
    return [ScaleBy(vec(1 + number / 64)), EltwiseOp("relu"), Shift(vec(1.0 + number))]


@pytest.mark.parametrize("front", [conv(), BARE], ids=["convolution", "bare"])
@pytest.mark.parametrize("kind", ["scale", "relu", "shift", "store"])
def test_one_operation_more_is_a_walk_over_what_stayed(
    front: Front, kind: str, tried: Callable[[], int]
) -> None:
    """Two walks, to the front and to where it joins, past two operations of each triple; not all
    rules are tried at each place.
    """
    last: dict[str, BasicOp | Store] = {
        "scale": ScaleBy(vec(0.75)),
        "relu": EltwiseOp("relu"),
        "shift": Shift(vec(0.5)),
        "store": Store(DType.U8, vec(0.5), vec(3.0), 0, 255),
    }
    for length in (2, 5, 10, 15):
        composer = PostOpsComposer(V3, front)
        for number in range(length):
            for op in _triple(number):
                assert composer.append([op]) is None
        tried()
        assert not isinstance(composer.append([last[kind]]), Refusal)
        assert tried() <= 2 * RULES * (2 * length + 4)


@pytest.mark.parametrize("scalar", [True, False], ids=["scalar", "each channel"])
def test_rules_are_tried_in_proportion_to_the_length_of_a_chain(
    scalar: bool, tried: Callable[[], int]
) -> None:
    counts = {}
    for length in (50, 100, 200):
        n, draws = Net(), np.random.default_rng(0)
        y = n.conv(n.qdq(n.input(("N", 4, 4, 4)), 2**-6, 128), 4, scale=2**-8)
        for _ in range(length):
            factor, shift = draws.uniform(0.5, 2, (2, 1, 1 if scalar else 4, 1, 1)).astype(
                np.float32
            )
            y = n.op("Add", n.op("Relu", n.op("Mul", y, factor)), shift)
        tried()
        compiled(n, y)
        counts[length] = tried()
    # steps are not of equal length
    assert counts[200] <= 1.2 * 2 * counts[100] <= 1.2 * 1.2 * 4 * counts[50]
    # Each operation walks over those that stayed, of which there are 16 on the average while the 32
    # post-ops of a step fill.
    assert counts[200] <= 3 * 200 * 16 * RULES
