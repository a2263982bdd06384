"""Random primitives with random attributes: both engines refuse them with one status, or compute the
same. Some hundred, 10,000 in `make fuzz`, of which half are recurrent layers.
"""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from laws.budget import ENOUGH, examples, shard
from laws.primitives import MAKERS, complaint, scheme_complaint
from laws.recurrent_primitives import complaint as complaint_of_layers

from fqfuse.onednn.library import Engine

PARTS = 2


@pytest.mark.hypothesis
@pytest.mark.usefixtures("of_the_rules")
@pytest.mark.parametrize("part", range(PARTS))
def test_status_and_result_are_the_librarys(part: int, engine: Engine) -> None:
    seen: Counter[str] = Counter()

    @shard(part)
    @examples(300, fuzz=2500)
    @given(seed=st.integers(0, 2**40))
    def run(seed: int) -> None:
        found = complaint(seed, engine, seen=seen)
        assert not found, found

    run()
    if ENOUGH:
        # not all of one answer
        assert min(seen[f"status {status}"] for status in (0, 2, 3)) > 20


@pytest.mark.usefixtures("of_the_rules")
@pytest.mark.parametrize("kind", MAKERS)
def test_each_kind(kind: str, engine: Engine) -> None:
    seen: Counter[str] = Counter()
    found = [complaint(seed, engine, kind, seen) for seed in range(500, 540)]
    assert [text for text in found if text] == []
    assert seen["status 0"] > seen["neglected"]  # some are made


@pytest.mark.hypothesis
@pytest.mark.usefixtures("of_the_rules")
@pytest.mark.parametrize("target", ["onednn-v2", "unified"])
def test_other_schemes_run_on_the_library(target: str) -> None:
    """Of `onednn-v2` nearly all, of `unified` what `onednn-v3` has words for."""
    seen: Counter[str] = Counter()

    @examples(300, fuzz=2500)
    @given(seed=st.integers(0, 2**40))
    def run(seed: int) -> None:
        found = scheme_complaint(seed, target, seen)
        assert not found, found

    run()
    if ENOUGH:
        assert min(seen[answer] for answer in ("made", "refused")) > 10


@pytest.mark.hypothesis
@pytest.mark.usefixtures("of_the_rules")
@pytest.mark.parametrize("part", range(PARTS))
def test_recurrent_layers_are_the_librarys(part: int, engine: Engine) -> None:
    """Codes are the same, but where the two approximations of exp and tanh take one to the other
    side of a tie, and those behind it: in 2 of 15,000 layers.
    """
    seen: Counter[str] = Counter()

    @shard(part)
    @examples(300, fuzz=2500)
    @given(seed=st.integers(0, 2**40))
    def run(seed: int) -> None:
        found = complaint_of_layers(seed, engine, seen)
        assert not found, found

    run()
    assert seen["layers apart"] <= 1 + seen["made"] / 1000
    # of bf16 about one number in 10,000: one next to a tie, and what becomes of it
    assert seen["halves apart"] <= 100 + seen["halves"] / 1000
    if ENOUGH:
        assert min(seen[f"status {status}"] for status in (0, 2, 3)) > 20
        assert seen["made"] > 100
