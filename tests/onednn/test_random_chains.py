"""Random chains on both runtimes: one primitive, a result within the chain's interval, and the same
bytes from NumPy and oneDNN.

oneDNN computes transcendental functions by polynomials: where the chain has one, the interval
grants it their error, and the code one least significant bit. NumPy is granted neither.

2,000 chains in `make test-all`, 50,000 in `make fuzz`, drawn in 16 parts; and some that are as long as
chains may be. Without oneDNN the chains are held on NumPy and the parts then skipped, with the
reason.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import event, given
from laws.budget import examples, shard
from laws.chain_laws import chain_plan, interval_of, shown, within
from laws.chains import ANCHORS, DrawnChain, chains
from support.steps_compared import is_transcendental

from fqfuse.errors import BackendUnavailable
from fqfuse.onednn.loading import load
from fqfuse.runtime.session import InferenceSession

POLYNOMIALS = 1e-5
"""Measured on oneDNN 3.2 with AVX-512: log errs by 5e-6 absolute near 1, the others by less."""

PARTS = 4
"""Of the 500 chains of each anchor."""

REFUSALS = ("reference implementation", "failed with runtime_error", "may saturate")
"""Why a primitive is not oneDNN's: it has no compiled kernel for it, the kernel's code cannot be
generated, or loses bits.
"""

MOST_REFUSED = {"Conv": 0.02, "ConvTranspose": 0.3, "MatMul": 0.02, "Gemm": 0.02}
"""The largest share of an anchor's chains that runs on NumPy, over a part. In `make test-all` none of
1,500 does but deconvolutions, 70 of 500: grouped ones of signed or odd numbers of channels, and
those with a sum that is not the first post-op, have no compiled kernel."""


@dataclass
class _Seen:
    """What a part of the chains saw: how many were drawn and bound, why steps went to NumPy, and
    the kinds of post-ops.
    """

    chains: int = 0
    refusals: Counter[str] = field(default_factory=Counter)


def why_no_onednn() -> str:
    """Why the chains can be held on NumPy only; '' where there is oneDNN."""
    try:
        load()
    except BackendUnavailable as error:
        return f"no oneDNN: {error}"
    return ""


def check(chain: DrawnChain, seen: _Seen, *, onednn: bool) -> None:
    """Holds a chain to all that is claimed."""
    plan, feeds = chain_plan(chain), chain.feeds()
    box = interval_of(chain, feeds)
    (numpy,) = InferenceSession(plan, "numpy", 1).run(None, feeds)
    assert box is None or within(box, numpy), shown(chain.graph, plan)
    if not onednn:
        return
    session = InferenceSession(plan, "onednn", 1)
    (found,) = session.run(None, feeds)  # also where a value outgrows f32: it must not crash
    refused = [place.reason for place in session.placement() if place.runtime == "numpy"]
    assert all(any(known in reason for known in REFUSALS) for reason in refused), refused
    seen.chains += 1
    seen.refusals.update(
        "; ".join(known for known in REFUSALS if known in reason) for reason in refused
    )
    if box is None:
        event("a value outgrows f32")
    elif not any(is_transcendental(step, plan) for step in plan.steps):
        # the sign of a zero does not count
        assert np.array_equal(numpy, found), shown(chain.graph, plan)
    else:
        wider = interval_of(chain, feeds, POLYNOMIALS)
        assert wider is None or within(wider, found, slack=1.0), shown(chain.graph, plan)


@pytest.mark.hypothesis
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("anchor", ANCHORS)
def test_a_chain_on_both_runtimes(anchor: str, part: int) -> None:
    seen, reason = _Seen(), why_no_onednn()

    @shard(part)
    @examples(125, fuzz=3125)
    @given(chain=chains((anchor,)))
    def run(chain: DrawnChain) -> None:
        check(chain, seen, onednn=not reason)

    run()
    if reason:
        pytest.skip(f"held on NumPy only: {reason}")
    print(f"{anchor}: {seen.chains} chains, on NumPy: {dict(seen.refusals)}")
    assert seen.refusals.total() <= MOST_REFUSED[anchor] * seen.chains, seen


@examples(40, fuzz=5000)
@given(chain=chains(most=18))
def test_chains_around_the_most_post_ops(chain: DrawnChain) -> None:
    check(chain, _Seen(), onednn=not why_no_onednn())
