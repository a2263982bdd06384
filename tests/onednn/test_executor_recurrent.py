"""Recurrent layers on the library: which run there, in how many calls, and by several threads at
once.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import onnx
import pytest
from laws.recurrent import draw_dynamic
from support.onnx_cases import model, node, random, run_ort
from support.plan_text import parse_plan

import fqfuse
from fqfuse.plan.text import print_plan
from fqfuse.plan.types import Plan
from fqfuse.plan.verify import verify_plan

STEPS, BATCH, INPUTS, HIDDEN = 5, 3, 6, 8


def stacked(op: str, gates: int, **attrs: Any) -> onnx.ModelProto:
    """Two layers in both directions, as exporters write them."""
    nodes, constants, x, size = [], {"n": np.array([0, 0, -1])}, "x", INPUTS
    for at in range(2):
        constants |= {
            f"w{at}": random([2, gates * HIDDEN, size], at, 0.3),
            f"r{at}": random([2, gates * HIDDEN, HIDDEN], at + 5, 0.3),
        }
        nodes += [
            node(
                op,
                [x, f"w{at}", f"r{at}"],
                [f"y{at}"],
                hidden_size=HIDDEN,
                direction="bidirectional",
                **attrs,
            ),
            node("Transpose", [f"y{at}"], [f"t{at}"], perm=[0, 2, 1, 3]),
            node("Reshape", [f"t{at}", "n"], [f"out{at}"]),
        ]
        x, size = f"out{at}", 2 * HIDDEN
    return model(nodes, inputs={"x": [STEPS, BATCH, INPUTS]}, outputs=["out1"], constants=constants)


@pytest.mark.parametrize(
    ("op", "gates", "attrs"),
    [
        ("LSTM", 4, {}),
        ("GRU", 3, {}),
        ("GRU", 3, {"linear_before_reset": 1}),
        ("RNN", 1, {"activations": ["Relu", "Relu"]}),
    ],
)
def test_both_directions_are_one_call_and_what_is_behind_is_a_view(
    op: str, gates: int, attrs: dict[str, Any]
) -> None:
    session = fqfuse.InferenceSession(stacked(op, gates, **attrs), "onednn")
    session.run(None, {"x": random([STEPS, BATCH, INPUTS])})
    assert [placed.runtime for placed in session.placement()] == ["onednn", "view", "view"] * 2
    assert session._executor.reorders == 0


def _all_steps_in_int8(seed: int) -> bool:
    """Whether nothing of a drawn layer keeps its steps from the library."""
    case = draw_dynamic(seed)
    constants = {t.name: t for t in case.model.graph.initializer}
    layer = case.model.graph.node[0]
    names = {f"{role}{part}" for role in "wr" for part in ("", "_zero", "_scale")}
    if not names <= constants.keys():
        return False  # they are packed beforehand
    zero = np.stack([onnx.numpy_helper.to_array(constants[f"{role}_zero"]) for role in "wr"])
    middle = 128 if zero.dtype == np.uint8 else 0
    plain = {a.name for a in layer.attribute} <= {"hidden_size", "direction"}
    whole = not layer.input[4]
    if layer.input[4] in constants:  # lengths of all steps are no argument
        lens = onnx.numpy_helper.to_array(constants[layer.input[4]])
        whole = bool((lens == len(case.feeds["x"])).all())
    return plain and whole and not layer.input[7] and bool((zero == middle).all())


def test_products_quantized_at_run_time_run_on_the_library() -> None:
    """Where their weights are s8, or u8 around 128, and nothing else is asked for."""
    seen = set()
    for seed in range(40):
        case = draw_dynamic(seed)
        session = fqfuse.InferenceSession(case.model, "onednn")
        session.run(None, case.feeds)
        (placed,) = session.placement()
        assert (placed.runtime == "onednn") == _all_steps_in_int8(seed), (seed, placed.reason)
        seen.add(placed.runtime)
    assert seen == {"onednn", "numpy"}


@pytest.mark.parametrize(
    "make",
    [
        lambda: stacked("LSTM", 4),
        lambda: draw_dynamic(next(filter(_all_steps_in_int8, range(40)))).model,
    ],
)
def test_runs_at_the_same_time(make: Callable[[], onnx.ModelProto]) -> None:
    proto = make()
    session = fqfuse.InferenceSession(proto, "onednn", 1)
    rng = np.random.default_rng(0)
    feeds = [
        {
            info.name: rng.normal(
                size=[d.dim_value for d in info.type.tensor_type.shape.dim]
            ).astype(np.float32)
            for info in proto.graph.input
        }
        for _ in range(24)
    ]
    alone = [session.run(None, feed) for feed in feeds]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda feed: session.run(None, feed), feeds))
    for one, other in zip(alone, together, strict=True):
        for mine, theirs in zip(one, other, strict=True):
            np.testing.assert_array_equal(mine, theirs)


def test_lengths_that_follow_from_shapes() -> None:
    """As converters from TensorFlow write them: each sequence has all steps."""
    nodes = [
        node("Shape", ["x"], ["steps"], start=0, end=1),
        node("Shape", ["x"], ["batch"], start=1, end=2),
        node("Cast", ["steps"], ["count"], to=onnx.TensorProto.INT32),
        node("Expand", ["count", "batch"], ["lens"]),
        node("GRU", ["x", "w", "r", "", "lens"], hidden_size=HIDDEN),
    ]
    constants = {
        "w": random([1, 3 * HIDDEN, INPUTS], 1, 0.3),
        "r": random([1, 3 * HIDDEN, HIDDEN], 2, 0.3),
    }
    proto = model(nodes, inputs={"x": ["T", "N", INPUTS]}, constants=constants)
    session = fqfuse.InferenceSession(proto, "onednn")
    for steps, batch in ((4, 2), (2, 3)):
        feeds = {"x": random([steps, batch, INPUTS])}
        (found,) = session.run(None, feeds)
        # sums of a dozen products, and exp and tanh, in another order
        np.testing.assert_allclose(found, run_ort(proto, feeds)[0], rtol=0, atol=1e-6)
        assert session.placement()[-1].runtime == "onednn"


@pytest.mark.parametrize("backend", ["numpy", "onednn"])
@pytest.mark.parametrize(("op", "gates"), [("LSTM", 4), ("RNN", 1)])
def test_no_steps_leave_states_of_zero(op: str, gates: int, backend: str) -> None:
    """Whatever the states in front: as a sequence of length 0 does, and as ONNX Runtime has it
    (whose y_c is not written at all).
    """
    outputs = ["y", "y_h", "y_c"][: 3 if op == "LSTM" else 2]
    constants = {
        "w": random([1, gates * HIDDEN, INPUTS], 1, 0.3),
        "r": random([1, gates * HIDDEN, HIDDEN], 2, 0.3),
    }
    proto = model(
        [node(op, ["x", "w", "r", "", "", "h"], outputs, hidden_size=HIDDEN)],
        inputs={"x": ["T", 2, INPUTS], "h": [1, 2, HIDDEN]},
        outputs=outputs,
        constants=constants,
    )
    feeds = {"x": random([0, 2, INPUTS]), "h": random([1, 2, HIDDEN], 3)}
    found = fqfuse.InferenceSession(proto, backend).run(None, feeds)
    theirs = run_ort(proto, feeds)
    assert [one.shape for one in found] == [one.shape for one in theirs]
    np.testing.assert_array_equal(found[1], theirs[1], strict=True)
    assert not found[-1].any()


AUGRU = """
plan layer target=onednn-v3
  in %x : f32[7,2,5]
  in %a : f32[7,2,1]
  in %h : f32[D,2,9]
  const @w : f32[D,27,5] = fill(0)
  const @r : f32[D,27,9] = fill(0)
  const @b : f32[D,54] = fill(0)
  #0 %y : f32[7,D,2,9], %l : f32[D,2,9] = rnn<AUGRU>(src=%x, w=@w, r=@r, attention=%a, b=@b, initial_h=%h){direction="WAY"} ; layer
  out %y, %l
"""


@pytest.mark.parametrize("way", ["forward", "reverse", "bidirectional"])
def test_attention_weakens_the_update_gate(way: str) -> None:
    """A plan can say AUGRU, ONNX cannot; the library, which goes forward only, is the oracle."""
    directions = 2 if way == "bidirectional" else 1
    text = AUGRU.replace("D", str(directions)).replace("WAY", way)
    plan = parse_plan(text)
    assert parse_plan(print_plan(plan)) == plan
    constants = {name: random(data.shape, 1) for name, data in plan.constants.items()}
    plan = Plan(**{**vars(plan), "constants": constants})
    assert verify_plan(plan) == []
    feeds = {name: random(plan.type(name).static_shape, 2) for name in plan.inputs}
    feeds["a"] = np.abs(np.tanh(feeds["a"]))
    ours = fqfuse.InferenceSession(plan, "numpy").run(None, feeds)
    backwards = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[way]
    for d, turned in enumerate(backwards):
        alone = parse_plan(AUGRU.replace("D", "1").replace("WAY", "forward"))
        alone = Plan(
            **{**vars(alone), "constants": {n: data[d : d + 1] for n, data in constants.items()}}
        )
        session = fqfuse.InferenceSession(alone, "onednn")
        order = slice(None, None, -1 if turned else 1)
        given = {"x": feeds["x"][order], "a": feeds["a"][order], "h": feeds["h"][d : d + 1]}
        y, last = session.run(None, given)
        assert [placed.runtime for placed in session.placement()] == ["onednn"]
        # sums of a dozen products, and exp and tanh, in another order
        np.testing.assert_allclose(ours[0][order, d : d + 1], y, rtol=0, atol=2e-6)
        np.testing.assert_allclose(ours[1][d : d + 1], last, rtol=0, atol=2e-6)
