"""The law of recurrent layers: random ones give what ONNX Runtime gives, on each runtime, three
times in poisoned memory, and each is one step of ours; in int8 the NumPy runtime gives what the
library gives.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import onnx
import pytest
from hypothesis import settings
from laws.budget import ENOUGH
from laws.layouts import Case
from laws.poison import BYTES, poisoned
from laws.recurrent import GATES, draw_dynamic, draw_layers, draw_read_steps
from laws.recurrent_int8 import draw_int8
from laws.runtimes import RUNTIMES
from laws.test_layouts import broken
from support.qparams import with_qparams

import fqfuse
from fqfuse.ir.decision import Outcome
from fqfuse.onednn.loading import load
from fqfuse.plan.recurrent_parameters import with_scales
from fqfuse.plan.types import Plan
from fqfuse.plan.verify import verify_plan

FUZZ = not settings.default.derandomize
CASES = 500 if FUZZ else 60 if ENOUGH else 20


@pytest.mark.parametrize("seeds", [range(n, n + 10) for n in range(0, CASES, 10)], ids=str)
@pytest.mark.parametrize("draw", [draw_layers, draw_dynamic, draw_read_steps])
def test_layers_are_those_of_onnx_runtime(draw: Callable[[int], Case], seeds: range) -> None:
    for seed in seeds:
        case = draw(seed)
        nodes = "\n".join(map(onnx.printer.to_text, case.model.graph.node))
        found = broken(case)
        assert not found, f"{seed}: {found}\n{nodes}"


def test_codes_of_the_hidden_state_are_those_of_onnx_runtime() -> None:
    """But where rounding errors of sigmoid and tanh take one over a tie."""
    apart = 0
    for seed in range(CASES):
        case = draw_dynamic(seed)
        case.errors.update(dict.fromkeys(case.errors, 1e-5))
        apart += bool(broken(case))
    assert apart <= 1 + CASES // 100


def test_every_layer_is_one_step() -> None:
    for seed in range(CASES):
        proto = draw_layers(seed).model
        layers = sum(node.op_type in GATES for node in proto.graph.node)
        steps = [step.primitive for step in fqfuse.compile(proto).steps]
        assert steps.count("rnn") == layers, (seed, steps)


def test_layers_skip_steps_that_nobody_reads() -> None:
    """In some of the cases of the law above: others read what all steps lead to, or more of them."""
    rule = "skip_unread_steps"
    plans = [fqfuse.compile(draw_read_steps(seed).model) for seed in range(CASES)]
    decisions = [decision for plan in plans for decision in plan.decision_records]
    outcomes = [decision.outcome for decision in decisions if decision.rule == rule]
    assert outcomes.count(Outcome.FIRED) > CASES // 10


def hidden_codes(plan: Plan, name: str, array: np.ndarray) -> np.ndarray:
    """The codes that a result of a layer in int8 is, or decodes."""
    data = plan.steps[0].attr.rnn_data_qparams
    assert data is not None
    if array.dtype == np.uint8:
        return array.astype(np.float64)
    codes = array.astype(np.float64) * data.values[0] + data.values[1]
    # decoded in f32: 2 ulp of 8.5, which is the most that such a code stands for here
    assert np.abs(codes - np.rint(codes)).max(initial=0) < 1e-3, name
    return np.rint(codes)


@pytest.mark.skipif("onednn" not in RUNTIMES, reason="no oneDNN")
def test_layers_in_int8_are_those_of_the_library() -> None:
    """Codes are the same, but where the two approximations of exp and tanh take one to the other
    side of a tie: then it is the next one. The cell state is off by what those are.
    """
    apart = count = 0
    for seed in range(CASES):
        plan, feeds = draw_int8(seed)
        assert not verify_plan(plan)
        with poisoned(BYTES[seed % len(BYTES)], apart=bool(seed % 2)):
            ours = fqfuse.InferenceSession(plan, "numpy", 1 + seed % 2).run(None, feeds)
            # which promises exact products on a CPU without VNNI, too
            session = fqfuse.InferenceSession(plan, "auto")
            theirs = session.run(None, feeds)
        isa, ran = load().effective_isa(), session.placement()[0].runtime
        # the library's code for AMX is passed over, and it has no other
        assert ran == "onednn" or isa.has_amx or not isa.has_vnni
        for name, mine, real in zip(plan.outputs, ours, theirs, strict=True):
            if name == "c":
                np.testing.assert_allclose(mine, real, rtol=0, atol=1e-5)
                continue
            far = np.abs(hidden_codes(plan, name, mine) - hidden_codes(plan, name, real))
            assert far.max(initial=0) <= 1
            apart, count = apart + np.count_nonzero(far), count + far.size
    assert apart <= count / 10_000


def test_parameters_in_either_sense_give_the_same() -> None:
    """1/(1/x) of f32 may be the next number, which takes a code over a tie now and then."""
    apart = count = 0
    for seed in range(CASES // 2):
        plan, feeds = draw_int8(seed)
        (step,) = plan.steps
        unified = replace(step, attr=with_scales(step.attr))
        other = Plan(**{**vars(plan), "target": "unified", "steps": (unified,)})
        assert not verify_plan(other)
        back = with_qparams(unified.attr)
        for name in ("rnn_data_qparams", "rnn_weights_qparams"):
            before, after = getattr(step.attr, name), getattr(back, name)
            assert before.mask == after.mask
            np.testing.assert_allclose(before.array, after.array, rtol=2.0**-22)
        found = [fqfuse.InferenceSession(p, "numpy").run(None, feeds)[0] for p in (plan, other)]
        far = np.abs(np.subtract(*(hidden_codes(plan, "y", array) for array in found)))
        assert far.max(initial=0) <= 1
        apart, count = apart + np.count_nonzero(far), count + far.size
    assert apart <= count / 1000
