"""Rules at the store: exact in rational arithmetic, refused with a reason where the code would be
another.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from laws.rational import after_all

from fqfuse.composer.formula.formula import BasicOp, Clip, EltwiseOp, Round, ScaleBy, Store, vec
from fqfuse.composer.formula.store_rules import STORING, absorb
from fqfuse.composer.registry import AnyRule
from fqfuse.ir.rule import Refusal
from fqfuse.ir.types import DType

RULES = {rule.name: rule for rule in STORING}
CLIP, ROUND = RULES
RELU = f"{CLIP} | relu"


def store(
    scale: float | list[float] = 1.0,
    zero: float = 0.0,
    dtype: DType = DType.U8,
    low: int | None = None,
) -> Store:
    least, most = dtype.range
    return Store(dtype, vec(scale), vec(zero), least if low is None else low, most)


def rule_of(case: str) -> AnyRule:
    return RULES[case.split(" | ", maxsplit=1)[0]]


FIRES: dict[str, tuple[BasicOp, Store]] = {
    CLIP: (Clip(vec(-1.0), vec(127.5)), store(0.5)),
    RELU: (EltwiseOp("relu"), store(0.5, -128.0, DType.S8)),
    ROUND: (Round(), store(1.0, 128.0)),
}

REFUSES: dict[str, list[tuple[BasicOp, Store, str]]] = {
    CLIP: [
        (Clip(vec(-63.5), vec(63.5)), store(0.5, 0.0, DType.S8), "bounds whose codes"),
        (Clip(vec(-500.0), vec(500.0)), store(-0.5), "needs s > 0"),
    ],
    RELU: [
        (EltwiseOp("relu"), store(0.5, 1.0), "bounds whose codes"),
        # as an f32 the zero point is 1.5, and its code 2
        (
            EltwiseOp("relu"),
            store(0.5, 1.5 - 2.0**-40, low=1),
            "bounds whose codes",
        ),
        (EltwiseOp("relu"), store([0.5, -0.5, 0.5]), "needs s > 0"),
    ],
    ROUND: [(Round(), store(1.0, 3.0), "even z"), (Round(), store(0.5), "s = 1")],
}


def test_every_rule_fires_and_refuses_somewhere() -> None:
    assert FIRES.keys() == REFUSES.keys() == {*RULES, RELU}


@pytest.mark.parametrize("name", FIRES)
def test_rule_fires(name: str) -> None:
    last, end = FIRES[name]
    assert rule_of(name).apply(last, end) is True
    assert absorb([ScaleBy(vec(2.0)), last], end)[1:] == []


@pytest.mark.parametrize(
    ("name", "last", "end", "reason"),
    [(name, *case) for name, cases in REFUSES.items() for case in cases],
)
def test_rule_refuses_with_its_reason(name: str, last: BasicOp, end: Store, reason: str) -> None:
    found = rule_of(name).apply(last, end)
    assert isinstance(found, Refusal)
    assert reason in found.reason
    assert found.expected
    assert found.found
    assert absorb([last], end) == [last]


@pytest.mark.parametrize("name", RULES)
def test_rule_says_nothing_elsewhere(name: str) -> None:
    assert RULES[name].apply(EltwiseOp("tanh"), store()) is None
    assert RULES[name].apply(EltwiseOp("relu", 0.125), store()) is None


eighths = st.integers(-2400, 2400).map(lambda n: n / 8)
clips = st.tuples(st.just(-math.inf) | eighths, st.just(math.inf) | eighths).map(
    lambda ends: Clip(vec(min(ends)), vec(max(ends)))
)
lasts = clips | st.sampled_from([EltwiseOp("relu"), Round()])


@st.composite
def stores(draw: st.DrawFn) -> Store:
    dtype = draw(st.sampled_from([DType.U8, DType.S8]))
    least, most = dtype.range
    low, high = (
        draw(st.sampled_from([least, least, least + 1, -7])),
        draw(st.sampled_from([most, most, 100, 7])),
    )
    scale, zero = (
        draw(st.sampled_from([1.0, 1.0, 0.5, 2.0, -0.5])),
        draw(st.sampled_from([0.0, 0.0, 3.0, 128.0, -128.0, 0.5])),
    )
    return Store(dtype, vec(scale), vec(zero), max(low, least), high)


@given(ops=st.lists(lasts, min_size=1, max_size=3), end=stores(), x=eighths)
def test_the_code_stays_the_same(ops: list[BasicOp], end: Store, x: float) -> None:
    left = absorb(ops, end)
    assert after_all([*left, end], Fraction(x), 0, {}) == after_all([*ops, end], Fraction(x), 0, {})


def test_255_levels_would_lose_their_clip() -> None:
    """The defect that the refusal is about: without the clip the store gives -128."""
    last, end, _ = REFUSES[CLIP][0]
    codes = [after_all(ops, Fraction(-70), 0, {}) for ops in ([last, end], [end])]
    assert codes == [-127, -128]
    assert np.int8(codes[1]) == -128
