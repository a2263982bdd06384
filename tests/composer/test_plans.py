"""Whole plans of the corpus, for each target: sound, true about what became of each quantizer, and
right on the NumPy runtime.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from laws.build import Net
from laws.contracts import GRANTED
from laws.corpus import CORPUS
from laws.intervals import run_boxes
from laws.registry import feeds_for

from fqfuse.composer.compose import plan_from_graph
from fqfuse.ir.decision import DequantizeFate, Half
from fqfuse.ir.graph import Graph
from fqfuse.ir.types import DType
from fqfuse.passes import optimize
from fqfuse.plan.targets import TARGETS
from fqfuse.plan.types import Plan
from fqfuse.plan.verify import verify_plan
from fqfuse.runtime.session import InferenceSession

ANCHORS = ("Conv", "ConvTranspose", "MatMul", "Gemm")
SETTLED_AT_THE_READER = (*ANCHORS, "Softmax", "LayerNormalization")
"""Readers that no Dequantize moves across: the fate names them."""

both_targets = pytest.mark.parametrize("target", ["onednn-v3", "onednn-v2"])
whole_corpus = pytest.mark.parametrize("name", CORPUS)


@cache
def compiled(name: str, target: str) -> tuple[Graph, Plan]:
    """The imported graph and its plan."""
    graph = CORPUS[name]()
    return graph, plan_from_graph(optimize(graph.copy()), target)


@both_targets
@whole_corpus
def test_plan_computes_what_the_graph_says(name: str, target: str) -> None:
    graph, plan = compiled(name, target)
    feeds = feeds_for(graph)
    boxes = run_boxes(graph, feeds, GRANTED)
    results = InferenceSession(plan, "numpy", 1).run(None, feeds)
    for output, array in zip(plan.outputs, results, strict=True):
        assert array.dtype == graph.type(output).dtype.numpy
        # Decomposed activations are compared with the polynomials of the primitives: 1e-6 is what
        # oneDNN's promise.
        slack = 0 if graph.type(output).dtype.is_integer else 1e-6
        assert boxes[output].outside(array) <= slack, output


@both_targets
@whole_corpus
def test_plan_is_sound_and_fates_add_up(name: str, target: str) -> None:
    graph, plan = compiled(name, target)
    assert verify_plan(plan) == []
    halves = {(fate.quantizer, fate.half) for fate in plan.fate_records}
    assert halves == {(quantizer, half) for quantizer in graph.quantizers for half in Half}
    assert len(set(plan.fate_records)) == len(plan.fate_records), "each fate is told once"
    told = {
        (fate.quantizer, fate.consumer)
        for fate in plan.fate_records
        if fate.half is Half.DEQUANTIZE
    }
    assert wanted_fates(graph) <= told


def wanted_fates(graph: Graph) -> set[tuple[str, str]]:
    """(quantizer, reader) for every reader that no Dequantize moves across, and for every output
    that is a quantized value.
    """
    wanted = set()
    for node in graph.nodes():
        if node.op in ("FakeQuantize", "Dequantize"):
            readers = [
                reader.name
                for reader in graph.consumers(node.output)
                if reader.op in SETTLED_AT_THE_READER
            ]
            readers += [f"output {node.output}"] if graph.is_output(node.output) else []
            wanted |= {(quantizer, reader) for quantizer in node.quantizer for reader in readers}
    return wanted


@whole_corpus
def test_plans_are_deterministic(name: str) -> None:
    graph, plan = compiled(name, "onednn-v3")
    assert plan_from_graph(optimize(graph.copy()), "onednn-v3") == plan


def test_a_quantizer_that_a_concat_does_is_done_once() -> None:
    """The codes in front of it stay what the concatenation reads: no later chain may run through
    them into the second quantizer.
    """
    n = Net("concat_of_requantized_codes")
    x = n.input(("N", 2, 4, 4))
    inner = n.qdq(n.op("Conv", x, n.weights((2, 2, 1, 1), 0.01, style="float")), 0.02, 0, DType.S8)
    outer = [
        n.qdq(value, 0.5, 0, dtype)
        for value, dtype in ((inner, DType.U8), (n.op("Relu", x), DType.U8))
    ]
    graph = n.done(n.op("Concat", *outer, axis=1))
    plan = plan_from_graph(optimize(graph.copy()), "onednn-v3")
    assert verify_plan(plan) == []
    assert [step.primitive for step in plan.steps].count("concat") == 1
    feeds = feeds_for(graph)
    (found,) = InferenceSession(plan, "numpy", 1).run(None, feeds)
    assert run_boxes(graph, feeds, GRANTED)[plan.outputs[0]].outside(found) <= 0


def test_targets_that_exist() -> None:
    assert {"onednn-v3", "onednn-v2"} <= set(TARGETS)


@whole_corpus
def test_a_sum_says_so_in_the_fates(name: str) -> None:
    _, plan = compiled(name, "onednn-v3")
    steps = {fate.step for fate in plan.fate_records if fate.fate is DequantizeFate.SUM}
    for step in steps:
        assert step is not None
        operands = [
            op.operand for op in plan.steps[step].attr.post_ops if type(op).__name__ == "Sum"
        ]
        assert len(operands) == 1
        assert np.issubdtype(plan.type(operands[0]).dtype.numpy, np.integer)
