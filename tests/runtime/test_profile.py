"""What `session.profile` says of the steps, on both runtimes."""

from __future__ import annotations

import json

import numpy as np
import pytest
from support.runtime_networks import residual_network, shape_arithmetic

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


def images(count: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {"image": rng.normal(size=(count, 3, 10, 12)).astype(np.float32)}


def test_steps_and_rest_add_up_to_the_run(plan: Plan, backend: str) -> None:
    session = InferenceSession(plan, backend, threads=1)
    profile = session.profile(images(2), runs=8)
    assert profile.runs == 8
    assert [step.placement for step in profile.steps] == list(session.placement())
    assert [step.index for step in profile.steps] == list(range(len(plan.steps)))
    # the sums of a few floats, in another order
    assert sum(step.ms for step in profile.steps) + profile.rest_ms == pytest.approx(profile.ms)
    assert 0 < profile.rest_ms < profile.ms
    assert profile.plain_ms > 0
    for step in profile.steps:
        assert (step.ms == 0) == (step.placement.runtime == "view"), step.placement
        assert step.share == pytest.approx(step.ms / profile.ms)
    line = profile.timeline
    assert len(line.steps_ms) == len(plan.steps)
    assert line.lead_ms + sum(line.steps_ms) < line.ms


def test_a_profile_is_plain_data(plan: Plan, backend: str) -> None:
    profile = InferenceSession(plan, backend, threads=1).profile(images(1), runs=1)
    data = json.loads(json.dumps(profile.as_dict()))
    assert list(data) == ["runs", "ms", "plain_ms", "rest_ms", "steps", "timeline"]
    assert [step["layers"] for step in data["steps"]] == [list(s.origin) for s in plan.steps]
    assert data["steps"][0]["runtime"] == backend


def test_a_profile_is_told_on_one_line(plan: Plan) -> None:
    profile = InferenceSession(plan, "numpy", threads=1).profile(images(1), runs=1)
    assert repr(profile).startswith(f"<Profile: {profile.ms:.4f} ms a run, ")
    assert len(repr(profile)) < 300
    assert repr(profile.steps[0]).startswith("<StepTime 0 ")


def test_runs_give_the_same_outputs_behind_a_profile(plan: Plan, backend: str) -> None:
    session = InferenceSession(plan, backend, threads=2)
    before = session.run(None, images(3))
    session.profile(images(3), runs=2)
    for one, other in zip(before, session.run(None, images(3)), strict=True):
        np.testing.assert_array_equal(one, other)


def test_shapes_that_follow_from_shapes(backend: str) -> None:
    plan = shape_arithmetic()
    shapes = [plan.type(name) for name in plan.inputs]
    feeds = {
        name: np.zeros([d if isinstance(d, int) else 2 for d in type_.shape], type_.dtype.numpy)
        for name, type_ in zip(plan.inputs, shapes, strict=True)
    }
    profile = InferenceSession(plan, backend).profile(feeds, runs=2)
    assert len(profile.steps) == len(plan.steps)


@pytest.mark.parametrize("runs", [0, -1, 1.5, "many", 1 << 40])
def test_wrong_numbers_of_runs(plan: Plan, runs: object) -> None:
    with pytest.raises(InvalidInput, match="runs must be an integer from 1"):
        InferenceSession(plan, "numpy").profile(images(1), runs=runs)


def test_wrong_feeds_are_named(plan: Plan, backend: str) -> None:
    with pytest.raises(InvalidInput, match="missing inputs: image"):
        InferenceSession(plan, backend).profile({})
