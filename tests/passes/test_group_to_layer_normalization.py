"""group_to_layer_normalization: golden cases, each held to the laws, and both runtimes against ONNX
Runtime.
"""

from __future__ import annotations

import numpy as np
import pytest
from laws.golden import check_pass
from support.judge import ort_session
from support.onnx_cases import model, node, random

import fqfuse
from fqfuse.passes.group_to_layer_normalization import GROUP_TO_LAYER_NORMALIZATION


@pytest.mark.golden("group_to_layer_normalization")
def test_golden(golden) -> None:
    check_pass(golden, GROUP_TO_LAYER_NORMALIZATION)


@pytest.mark.parametrize("backend", ["numpy", "onednn"])
@pytest.mark.parametrize(
    "shape", [(2, 6, 5), (1, 6, 4, 4), (3, 12, 1, 1), (2, 6, 3, 2, 2)], ids=str
)
@pytest.mark.parametrize("groups", [1, 2, 6, None], ids=str)
def test_both_runtimes_agree_with_onnx_runtime(backend, shape, groups) -> None:
    channels = shape[1]
    told = {} if groups is None else {"num_groups": groups}
    op = "InstanceNormalization" if groups is None else "GroupNormalization"
    nodes = [node(op, ["x", "s", "b"], ["n"], epsilon=1e-3, **told), node("Relu", ["n"])]
    constants = {"s": random([channels], 1), "b": random([channels], 2)}
    proto = model(nodes, inputs={"x": ["N", *shape[1:]]}, constants=constants, opset=21)
    session = fqfuse.InferenceSession(proto, backend=backend)
    assert "layer_normalization" in {step.primitive for step in session.plan.steps}
    x = random(shape, 3, scale=4)
    (found,) = session.run(None, {"x": x})
    oracle = ort_session(proto, optimized=True)
    (expected,) = oracle.run(None, {"x": x})
    # Means and variances of up to 72 numbers are summed in another order.
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)
