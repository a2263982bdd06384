"""The law of recurrent layers: random ones give what ONNX Runtime gives, on each runtime, three
times in poisoned memory, and each is one step of ours.
"""

from __future__ import annotations

import onnx
import pytest
from hypothesis import settings
from laws.recurrent import GATES, draw_layers
from laws.test_layouts import broken

import fqfuse

FUZZ = not settings.default.derandomize
CASES = 500 if FUZZ else 60


@pytest.mark.each_case
@pytest.mark.parametrize("seed", range(CASES))
def test_layers_are_those_of_onnx_runtime(seed: int) -> None:
    case = draw_layers(seed)
    nodes = "\n".join(map(onnx.printer.to_text, case.model.graph.node))
    found = broken(case)
    assert not found, f"{found}\n{nodes}"


def test_every_layer_is_one_step() -> None:
    for seed in range(CASES):
        proto = draw_layers(seed).model
        layers = sum(node.op_type in GATES for node in proto.graph.node)
        steps = [step.primitive for step in fqfuse.compile(proto).steps]
        assert steps.count("rnn") == layers, (seed, steps)
