"""The oracle itself: it must find what is broken, and must not grant more than rounding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from laws.build import Net
from laws.contracts import broken_laws
from laws.corpus import CORPUS
from laws.intervals import run_boxes
from laws.registry import feeds_for

from fqfuse.ir.graph import Graph
from fqfuse.ir.types import DType, Quantization
from fqfuse.passes import Contract, Pass
from fqfuse.passes.base import swap
from fqfuse.passes.fold_batch_norm import FOLD_BATCH_NORM


def _zero_point_off_by_one(graph: Graph) -> None:
    for node in graph.each("Dequantize"):
        quant = node.attr("quant", Quantization)
        if quant.symmetric and graph.constant(node.inputs[0]) is None:
            wrong = Quantization(
                quant.scale, tuple(zero + 1 for zero in quant.zero_point), quant.axis
            )
            swap(
                graph,
                node,
                graph.add(
                    "Dequantize",
                    node.inputs,
                    {"quant": wrong},
                    origin=node.origin,
                    quantizer=node.quantizer,
                ).output,
            )


def _scale_off_by_a_thousandth(graph: Graph) -> None:
    for node in graph.each("Mul"):
        data = graph.constant(node.inputs[1])
        if data is not None and not node.name.endswith("!"):
            factor = graph.add_constant("wrong", np.asarray(data * np.float32(1.001), np.float32))
            swap(
                graph,
                node,
                graph.add(
                    "Mul", [node.inputs[0], factor], name=f"{node.name}!", origin=node.origin
                ).output,
            )


def _relus_swap_sides(graph: Graph) -> None:
    for node in graph.each("Mul"):
        front = graph.producer(node.inputs[0])
        if front is not None and front.op == "Relu":
            scaled = graph.add("Mul", [front.inputs[0], node.inputs[1]], origin=node.origin).output
            swap(graph, node, graph.add("Relu", [scaled], origin=front.origin).output)
            graph.erase(front)


def _adds_a_relu(graph: Graph) -> None:
    for node in graph.each("Relu"):
        swap(
            graph,
            node,
            graph.add(
                "Relu",
                [graph.add("Relu", node.inputs, origin=node.origin).output],
                origin=node.origin,
            ).output,
        )


def _forgets_origins(graph: Graph) -> None:
    for node in graph.each("Relu"):
        if node.origin:
            swap(graph, node, graph.add("Relu", node.inputs).output)


def _renames_outputs(graph: Graph) -> None:
    value = graph.outputs[0]
    if not value.endswith("!"):
        graph.rename_value(value, value + "!")


@pytest.mark.parametrize(
    ("broken", "name", "law"),
    [
        (_zero_point_off_by_one, "relu_behind_codes", "meaning"),
        (_scale_off_by_a_thousandth, "decoded_values_scaled_per_channel", "meaning"),
        (_relus_swap_sides, "negative_factor_behind_relu", "meaning"),
        (_adds_a_relu, "conv_relu_qdq", "stability"),
        (_forgets_origins, "conv_relu_qdq", "validity"),
        (_renames_outputs, "conv_relu_qdq", "validity"),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_what_is_broken_is_found(broken: Callable[[Graph], None], name: str, law: str) -> None:
    step = Pass("broken", Contract("identity", "ties"), broken)
    assert_found(step, name, law)


def test_a_promise_of_the_same_bits_that_is_not_kept_is_found() -> None:
    step = replace(FOLD_BATCH_NORM, contract=Contract("identity", "bitwise"))
    assert_found(step, "batch_norm_float", "meaning")


def assert_found(step: Pass, name: str, law: str) -> None:
    graph = CORPUS[name]()
    found = broken_laws(step, graph, feeds_for(graph))
    assert found
    assert any(line.startswith(f"{law}:") for line in found), found


def test_a_right_rewrite_breaks_nothing() -> None:
    graph = CORPUS["batch_norm_behind_conv"]()
    assert broken_laws(FOLD_BATCH_NORM, graph, feeds_for(graph)) == []


def test_a_tie_has_two_codes_and_its_neighbours_one() -> None:
    n = Net()
    graph = n.done(n.q(n.input((3,)), 0.5, 0, DType.S8))
    box = run_boxes(graph, {"x": np.asarray([0.25, 0.2501, 0.2499], np.float32)})["q1_y"]
    assert box.low.tolist() == [0, 1, 0]
    assert box.high.tolist() == [1, 1, 0]


def test_both_codes_of_a_tie_are_followed() -> None:
    n = Net()
    y = n.op("Mul", n.qdq(n.input((2,)), 0.5, 0, DType.S8), 4.0)
    box = run_boxes(n.done(y), {"x": np.asarray([0.25, 0.5], np.float32)})[y]
    assert box.low == pytest.approx([0, 2], abs=1e-5)
    assert box.high == pytest.approx([2, 2], abs=1e-5)


def test_an_inverted_range_jumps_at_its_bounds() -> None:
    n = Net()
    y = n.fq(n.input((4,)), 1.0, -1.0, 0.0, 255.0)
    box = run_boxes(n.done(y), {"x": np.asarray([-2.0, -1.0, 0.9, 2.0], np.float32)})[y]
    assert box.high - box.low == pytest.approx([0, 255, 0, 0], abs=1e-3)


def test_products_are_as_wide_as_their_operands_make_them() -> None:
    n = Net()
    y = n.op("MatMul", n.qdq(n.input((1, 2)), 1.0, 0, DType.S8), [[1.0, -2.0], [3.0, 4.0]])
    box = run_boxes(n.done(y), {"x": np.asarray([[0.5, 7.0]], np.float32)})[y]
    assert box.low == pytest.approx(np.asarray([[21.0, 26.0]]), abs=1e-4)
    assert box.high == pytest.approx(np.asarray([[22.0, 28.0]]), abs=1e-4)
