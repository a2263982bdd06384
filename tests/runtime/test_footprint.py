"""What `session.memory` says of constants, values and scratchpads, on both runtimes."""

from __future__ import annotations

import json

import numpy as np
import pytest
from support.runtime_networks import residual_network

from fqfuse.errors import BackendUnavailable, InvalidInput
from fqfuse.onednn.loading import load
from fqfuse.plan.types import Plan
from fqfuse.runtime.session import InferenceSession


@pytest.fixture(scope="module")
def plan() -> Plan:
    return residual_network()


@pytest.fixture(params=["numpy", "onednn"])
def backend(request: pytest.FixtureRequest) -> str:
    if request.param == "onednn":
        try:
            load()
        except BackendUnavailable as reason:
            pytest.skip(str(reason))
    return request.param


def run(session: InferenceSession, count: int) -> None:
    rng = np.random.default_rng(0)
    session.run(None, {"image": rng.normal(size=(count, 3, 10, 12)).astype(np.float32)})


def test_each_step_has_a_row_and_the_totals_hold_them(plan: Plan, backend: str) -> None:
    session = InferenceSession(plan, backend, threads=1)
    run(session, 2)
    memory = session.memory()
    assert [row.step for row in memory.steps] == list(plan.steps)
    assert [row.index for row in memory.steps] == list(range(len(plan.steps)))
    weights = sum(row.weights for row in memory.steps)
    assert 0 < weights <= memory.weights
    stored = sum(data.nbytes for data in plan.constants.values())
    assert memory.weights == stored if backend == "numpy" else memory.weights >= weights
    assert memory.scratchpad >= max(row.scratchpad for row in memory.steps)
    # Values share the arena where they never live together, so it takes no more than all of them
    # (each on cache lines of its own, layout changes in between not counted), and no less than one.
    results = [row.results for row in memory.steps]
    assert memory.arena >= max(results)
    if backend == "numpy":
        fed = 2 * 3 * 10 * 12 * 4
        assert memory.arena <= fed + sum(results) + 64 * (len(results) + 1)


def test_a_step_writes_what_run_steps_returns(plan: Plan) -> None:
    session = InferenceSession(plan, "numpy", threads=1)
    rng = np.random.default_rng(0)
    feeds = {"image": rng.normal(size=(2, 3, 10, 12)).astype(np.float32)}
    written = session.run_steps(feeds)
    for row in session.memory().steps:
        assert row.results == sum(written[name].nbytes for name in row.step.outputs if name)


def test_values_grow_with_the_batch_and_weights_do_not(plan: Plan, backend: str) -> None:
    session = InferenceSession(plan, backend, threads=1)
    run(session, 1)
    one = session.memory()
    run(session, 8)
    eight = session.memory()
    assert eight.arena >= 7 * one.arena
    assert sum(r.results for r in eight.steps) == 8 * sum(r.results for r in one.steps)
    # oneDNN may want the weights in another layout for the other batch, and then holds both
    assert eight.weights == one.weights if backend == "numpy" else eight.weights >= one.weights


def test_what_only_a_run_tells_is_not_told_before(plan: Plan, backend: str) -> None:
    session = InferenceSession(plan, backend)
    with pytest.raises(InvalidInput, match="nothing is bound yet"):
        session.memory()


def test_it_is_plain_data_and_one_line(plan: Plan, backend: str) -> None:
    session = InferenceSession(plan, backend)
    run(session, 1)
    memory = session.memory()
    data = json.loads(json.dumps(memory.as_dict()))
    assert list(data) == ["weights", "arena", "scratchpad", "steps"]
    assert list(data["steps"][0]) == [
        *("index", "name", "primitive", "op", "layers", "weights", "results", "scratchpad")
    ]
    assert repr(memory).startswith(f"<SessionMemory: weights {memory.weights:,}")
    assert "\n" not in repr(memory) + repr(memory.steps[0])
