"""Scan of opset 8, over a batch, gives what ONNX Runtime gives: random bodies, directions and lengths of sequences, a Scan in a
Scan, and old forms of operators in the body.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from laws.budget import examples
from laws.runtimes import RUNTIMES
from onnx import TensorProto, helper
from support.onnx_cases import model, node, run_ort, tensor

import fqfuse
from fqfuse.errors import InvalidModel

F32, S64 = TensorProto.FLOAT, TensorProto.INT64
WIDTH = 3
STEPS = ("Tanh", "Neg", "Add", "Mul", "weights", "around", "scan", "Log")


def _value(name: str, shape: Any = (WIDTH,)) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, F32, shape)


def _body(steps: list[str], states: int, scanned: int, level: int = 0) -> onnx.GraphProto:
    """The states and a row of each tensor are added, and go through the steps; a row of it and its double
    are made.
    """
    mark = f"{level}."
    ins = [f"{mark}s{k}" for k in range(states)] + [f"{mark}x{k}" for k in range(scanned)]
    nodes, value = [node("Sum", ins, [f"{mark}sum"])], f"{mark}sum"
    for number, step in enumerate(steps):
        made = f"{mark}{number}"
        if step in ("Tanh", "Neg", "Log"):
            nodes.append(node(step, [value], [made]))
        elif step in ("Add", "Mul"):
            nodes.append(node(step, [value, ins[-1]], [made]))
        elif step == "weights":
            nodes.append(node("MatMul", [value, f"{mark}w"], [made]))
        elif step == "around":
            nodes.append(node("Add", [value, "around"], [made]))
        elif level == 0:
            nodes += _nested(value, made, steps)
        else:
            nodes.append(node("Identity", [value], [made]))
        value = made
    outs = [f"{mark}y{k}" for k in range(states)]
    nodes += [node("Identity", [value], [name]) for name in outs]
    nodes += [node("Identity", [value], [f"{mark}row"])]
    weights = np.random.default_rng(len(steps)).standard_normal((WIDTH, WIDTH))
    constants = [tensor(f"{mark}w", weights.astype(np.float32) / 2)]
    values = [_value(name) for name in (*outs, f"{mark}row")]
    return helper.make_graph(
        nodes, f"body{level}", [_value(name) for name in ins], values, constants
    )


def _nested(value: str, made: str, steps: list[str]) -> list[onnx.NodeProto]:
    """A Scan over a batch of one sequence of two rows."""
    inner = _body([step for step in steps if step != "scan"], 1, 1, level=1)
    return [
        node("Unsqueeze", [value], [f"{made}.s"], axes=[0]),
        node("Concat", [f"{made}.s", f"{made}.s"], [f"{made}.two"], axis=0),
        node("Unsqueeze", [f"{made}.two"], [f"{made}.x"], axes=[0]),
        node(
            "Scan",
            ["", f"{made}.s", f"{made}.x"],
            [f"{made}.y", f"{made}.r"],
            body=inner,
            num_scan_inputs=1,
        ),
        node("Squeeze", [f"{made}.y"], [made], axes=[0]),
    ]


@given(
    st.lists(st.sampled_from(STEPS), max_size=4),
    st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(0, 2), st.integers(1, 2)),
    st.booleans(),
    st.data(),
)
@examples(60)
def test_a_scan_over_a_batch_gives_what_onnxruntime_gives(
    steps: list[str], sizes: tuple[int, int, int, int], told: bool, data: st.DataObject
) -> None:
    batch, length, states, scanned = sizes
    rng = np.random.default_rng(len(steps))
    back = data.draw(st.lists(st.integers(0, 1), min_size=scanned, max_size=scanned))
    inputs: dict[str, Any] = {}
    if told:
        lengths = data.draw(st.lists(st.integers(1, length), min_size=batch, max_size=batch))
        inputs["lengths"] = np.array(lengths, np.int64)
    inputs |= {f"s{k}": rng.standard_normal((batch, WIDTH)) for k in range(states)}
    inputs |= {f"x{k}": rng.standard_normal((batch, length, WIDTH)) for k in range(scanned)}
    given_ = [*([] if told else [""]), *inputs]
    scan = node(
        "Scan",
        given_,
        [f"y{k}" for k in range(states + 1)],
        name="scan",
        body=_body(steps, states, scanned),
        num_scan_inputs=scanned,
        directions=back,
    )
    inputs["around"] = rng.standard_normal(WIDTH)
    feeds = {n: v if n == "lengths" else np.abs(v).astype(np.float32) for n, v in inputs.items()}
    kinds = {n: helper.np_dtype_to_tensor_dtype(v.dtype) for n, v in feeds.items()}
    shapes = {n: v.shape for n, v in feeds.items()}
    proto = model([scan], inputs=shapes, outputs=scan.output, types=kinds, opset=8)
    wanted = run_ort(proto, feeds)
    plan = fqfuse.compile(proto)
    assert all(step.bodies for step in plan.steps if step.op == "Onnx")
    for runtime in RUNTIMES:
        found = fqfuse.InferenceSession(plan, backend=runtime, threads=1).run(None, feeds)
        for mine, theirs in zip(found, wanted, strict=True):
            assert mine.dtype == theirs.dtype
            np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5, err_msg=runtime)


@pytest.mark.parametrize("lengths", ["", "lengths"])
def test_old_forms_in_the_body_are_taken(lengths: str) -> None:
    """Operators whose form of opset 8 is another one than that of opset 9."""
    rng = np.random.default_rng(0)
    bn = [f"p{k}" for k in range(4)]
    body = helper.make_graph(
        [
            node("BatchNormalization", ["x", *bn], ["normalized"], spatial=1),
            node("Upsample", ["normalized"], ["row"], scales=[1.0, 1.0, 2.0, 2.0], mode="nearest"),
        ],
        "body",
        [_value("x", (1, 2, 2, 2))],
        [_value("row", (1, 2, 4, 4))],
        [tensor(name, rng.uniform(0.5, 2, 2).astype(np.float32)) for name in bn],
    )
    scan = node("Scan", [lengths, "xs"], ["y"], body=body, num_scan_inputs=1)
    feeds: dict[str, Any] = {"xs": rng.standard_normal((2, 3, 1, 2, 2, 2)).astype(np.float32)}
    if lengths:
        feeds["lengths"] = np.array([3, 1])
    kinds = {n: helper.np_dtype_to_tensor_dtype(v.dtype) for n, v in feeds.items()}
    shapes = {n: v.shape for n, v in feeds.items()}
    proto = model([scan], inputs=shapes, types=kinds, opset=8)
    (wanted,) = run_ort(proto, feeds)
    for runtime in RUNTIMES:
        (found,) = fqfuse.InferenceSession(proto, backend=runtime, threads=1).run(None, feeds)
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6, err_msg=runtime)


def test_what_does_not_fit_is_told() -> None:
    body = _body([], 1, 1)
    for inputs, attrs in (
        (["", "s0", "x0"], {"num_scan_inputs": 3}),
        (["", "x0"], {"num_scan_inputs": 1}),
    ):
        scan = node("Scan", inputs, ["y0", "y1"], body=body, **attrs)
        proto = model(
            [scan], inputs={"s0": [2, WIDTH], "x0": [2, 2, WIDTH]}, outputs=["y0", "y1"], opset=8
        )
        with pytest.raises(InvalidModel):
            fqfuse.compile(proto)
