"""The oracle itself: it must find what is broken, and must not grant more than rounding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from laws.build import Net
from laws.contracts import broken_laws
from laws.corpus import CORPUS
from laws.intervals import run_boxes
from laws.registry import feeds_for

from fqfuse.ir.graph import Graph
from fqfuse.ir.types import DType, Quantization
from fqfuse.passes import Contract
from fqfuse.passes.base import swap
from fqfuse.passes.fold_batch_norm import FoldBatchNorm


@dataclass(frozen=True)
class _Broken:
    """A pass that is wrong on purpose."""

    name: ClassVar[str] = "broken"
    contract: ClassVar[Contract] = Contract("identity", "ties")

    def run(self, graph: Graph) -> None:
        raise NotImplementedError


class _ZeroPointOffByOne(_Broken):
    def run(self, graph: Graph) -> None:
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


class _ScaleOffByAThousandth(_Broken):
    def run(self, graph: Graph) -> None:
        for node in graph.each("Mul"):
            data = graph.constant(node.inputs[1])
            if data is not None and not node.name.endswith("!"):
                factor = graph.add_constant(
                    "wrong", np.asarray(data * np.float32(1.001), np.float32)
                )
                swap(
                    graph,
                    node,
                    graph.add(
                        "Mul", [node.inputs[0], factor], name=f"{node.name}!", origin=node.origin
                    ).output,
                )


class _RelusSwapSides(_Broken):
    def run(self, graph: Graph) -> None:
        for node in graph.each("Mul"):
            front = graph.producer(node.inputs[0])
            if front is not None and front.op == "Relu":
                scaled = graph.add(
                    "Mul", [front.inputs[0], node.inputs[1]], origin=node.origin
                ).output
                swap(graph, node, graph.add("Relu", [scaled], origin=front.origin).output)
                graph.erase(front)


class _AddsARelu(_Broken):
    def run(self, graph: Graph) -> None:
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


class _ForgetsOrigins(_Broken):
    def run(self, graph: Graph) -> None:
        for node in graph.each("Relu"):
            if node.origin:
                swap(graph, node, graph.add("Relu", node.inputs).output)


class _RenamesOutputs(_Broken):
    def run(self, graph: Graph) -> None:
        value = graph.outputs[0]
        if not value.endswith("!"):
            graph.rename_value(value, value + "!")


class _ClaimsTheSameBits(FoldBatchNorm):
    contract: ClassVar[Contract] = Contract("identity", "bitwise")


@pytest.mark.parametrize(
    ("step", "name", "law"),
    [
        (_ZeroPointOffByOne(), "relu_behind_codes", "meaning"),
        (_ScaleOffByAThousandth(), "decoded_values_scaled_per_channel", "meaning"),
        (_RelusSwapSides(), "negative_factor_behind_relu", "meaning"),
        (_AddsARelu(), "conv_relu_qdq", "stability"),
        (_ForgetsOrigins(), "conv_relu_qdq", "validity"),
        (_RenamesOutputs(), "conv_relu_qdq", "validity"),
        (_ClaimsTheSameBits(), "batch_norm_float", "meaning"),
    ],
    ids=lambda value: (
        type(value).__name__ if isinstance(value, _Broken | FoldBatchNorm) else str(value)
    ),
)
def test_what_is_broken_is_found(step: _Broken, name: str, law: str) -> None:
    graph = CORPUS[name]()
    found = broken_laws(step, graph, feeds_for(graph))
    assert found
    assert any(line.startswith(f"{law}:") for line in found), found


def test_a_right_rewrite_breaks_nothing() -> None:
    graph = CORPUS["batch_norm_behind_conv"]()
    assert broken_laws(FoldBatchNorm(), graph, feeds_for(graph)) == []


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
