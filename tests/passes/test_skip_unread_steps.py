"""skip_unread_steps: golden cases, each held to the laws; that of meaning by numbers, since intervals
know no recurrence. Random layers against ONNX Runtime: tests/laws/test_recurrent.py.
"""

from __future__ import annotations

import numpy as np
import pytest
from laws.registry import feeds_for
from support.graph_text import parse_graph
from support.onnx_cases import model, node

import fqfuse
from fqfuse.ir.cleanup import erase_dead
from fqfuse.ir.interpret import run_graph
from fqfuse.ir.text_print import print_graph
from fqfuse.ir.verify import WELL_FORMED, verify
from fqfuse.passes.skip_unread_steps import SKIP_UNREAD_STEPS


@pytest.mark.golden("skip_unread_steps")
def test_golden(golden) -> None:
    before = parse_graph(golden.input)
    after = before.copy()
    SKIP_UNREAD_STEPS.run(after)
    assert verify(after, WELL_FORMED) == []
    again = after.copy()
    SKIP_UNREAD_STEPS.run(again)
    assert print_graph(again, explain=False) == print_graph(after, explain=False)
    feeds = feeds_for(before)
    found = run_graph(after, feeds)
    for name, values in run_graph(before, feeds).items():
        # one product and a few sums a step: a product of fewer rows may add in another order
        np.testing.assert_allclose(found[name], values, rtol=1e-6, atol=1e-6)
    erase_dead(after)
    golden.check(print_graph(after))


def lstm(cut: list[str], **attributes: object) -> fqfuse.Plan:
    """The plan of a layer of both directions, and what reads its last step."""
    rng = np.random.default_rng(3)
    constants = {
        "w": rng.normal(size=(2, 8, 3)).astype(np.float32),
        "r": rng.normal(size=(2, 8, 2)).astype(np.float32),
        "i": np.int64(-1),
    }
    nodes = [
        node("LSTM", ["x", "w", "r"], ["y", "h"], direction="bidirectional", **attributes),
        node("Gather", ["y", "i"], ["z"], axis=0),
    ]
    return fqfuse.compile(model(nodes, inputs={"x": [9, "N", 3]}, outputs=cut, constants=constants))


def layers(plan: fqfuse.Plan) -> list[tuple[int, ...]]:
    """The shapes of what the layers of a plan read."""
    return [plan.type(step.arg("src")).shape for step in plan.steps if step.primitive == "rnn"]


def test_one_step_backwards_where_the_last_position_is_read() -> None:
    assert layers(lstm(["z"])) == [(9, "N", 3), (1, "N", 3)]
    for whole in (lstm(["z", "y"]), lstm(["z", "h"])):
        assert layers(whole) == [(9, "N", 3)]


@pytest.mark.parametrize("on_the_way", [[], ["Transpose"], ["Transpose", "Relu"]])
@pytest.mark.parametrize("op", ["Gather", "Slice"])
@pytest.mark.parametrize("outputs", [["z0", "z1"], ["z0", "r"], ["r", "z1"]])
def test_a_step_that_is_read_several_times(
    on_the_way: list[str], op: str, outputs: list[str]
) -> None:
    """The first reader that the graph returns gives its name to what computes the step."""
    rng = np.random.default_rng(5)
    constants = {
        "w": rng.normal(size=(1, 8, 3)).astype(np.float32),
        "r0": rng.normal(size=(1, 8, 2)).astype(np.float32),
        **{name: np.array([number]) for name, number in (("at", 0), ("end", 1))},
    }
    nodes = [node("LSTM", ["x", "w", "r0"], ["y0"], hidden_size=2)]
    for number, name in enumerate(on_the_way):
        attrs = {"perm": [0, 2, 1, 3]} if name == "Transpose" else {}
        nodes.append(node(name, [f"y{number}"], [f"y{number + 1}"], **attrs))
    y = f"y{len(on_the_way)}"
    read, attributes = ([y, "at"], {"axis": 0}) if op == "Gather" else ([y, "at", "end", "at"], {})
    nodes += [node(op, read, [f"z{number}"], **attributes) for number in range(2)]
    nodes.append(node("Sigmoid", ["z0" if "z1" in outputs else "z1"], ["r"]))
    proto = model(nodes, inputs={"x": [7, 4, 3]}, outputs=outputs, constants=constants)
    plan = fqfuse.compile(proto)
    assert layers(plan) == [(1, 4, 3)]
    feeds = {"x": rng.normal(size=(7, 4, 3)).astype(np.float32)}
    found = fqfuse.InferenceSession(plan, "numpy").run(None, feeds)
    every = fqfuse.compile(
        model(nodes, inputs={"x": [7, 4, 3]}, outputs=[*outputs, "y0"], constants=constants)
    )
    assert layers(every) == [(7, 4, 3)]
    wanted = fqfuse.InferenceSession(every, "numpy").run(outputs, feeds)
    for mine, whole in zip(found, wanted, strict=True):
        np.testing.assert_allclose(mine, whole, rtol=1e-6, atol=1e-6)


def test_activations_of_each_direction_go_with_it() -> None:
    names = ["Sigmoid", "Tanh", "Tanh", "HardSigmoid", "Softsign", "Tanh"]
    first, second = (
        step for step in lstm(["z"], activations=names).steps if step.primitive == "rnn"
    )
    assert (first.params["activations"], second.params["activations"]) == (
        tuple(names[:3]),
        tuple(names[3:]),
    )
    dealt = lstm(["z"], activations=names, activation_alpha=[0.3])
    assert layers(dealt) == [(9, "N", 3)]


@pytest.mark.parametrize("runtime", ["numpy", "onednn"])
def test_a_step_that_is_not_there_stays_an_error(runtime: str) -> None:
    constants = {
        "w": np.ones((1, 2, 3), np.float32),
        "r": np.ones((1, 2, 2), np.float32),
        "i": np.int64(0),
    }
    nodes = [
        node("RNN", ["x", "w", "r"], ["y", ""], hidden_size=2),
        node("Gather", ["y", "i"], ["z"], axis=0),
    ]
    proto = model(nodes, inputs={"x": ["T", 2, 3]}, outputs=["z"], constants=constants)
    session = fqfuse.InferenceSession(fqfuse.compile(proto), runtime)
    assert layers(fqfuse.compile(proto)) == [(1, 2, 3)]
    with pytest.raises(fqfuse.InvalidInput):
        session.run(None, {"x": np.zeros((0, 2, 3), np.float32)})
