"""The parts of a transformer: attention, its feed-forward half, its normalizations; what is one
primitive, and what is carried as codes.
"""

from __future__ import annotations

import numpy as np
import pytest
from laws.build import Net, Value
from laws.contracts import GRANTED
from laws.intervals import run_boxes
from laws.plans import kinds, steps
from laws.registry import feeds_for

from fqfuse.composer.compose import plan_from_graph
from fqfuse.ir.types import DType
from fqfuse.passes import optimize
from fqfuse.plan.types import Plan
from fqfuse.runtime.session import InferenceSession

HEADS, TOKENS, WIDTH = 2, 4, 8
targets = pytest.mark.parametrize("target", ["onednn-v3", "onednn-v2"])


def checked(n: Net, *outputs: Value, target: str = "onednn-v3") -> Plan:
    """The plan, its numbers inside the intervals of the imported graph."""
    graph = n.done(*outputs)
    plan = plan_from_graph(optimize(graph.copy()), target)
    feeds = feeds_for(graph)
    boxes = run_boxes(graph, feeds, GRANTED)
    for name, found in zip(
        plan.outputs, InferenceSession(plan, "numpy", 1).run(None, feeds), strict=True
    ):
        # polynomials of the primitives
        slack = 0 if found.dtype.kind in "iu" else 1e-6 + 1e-6 * np.abs(found).max(initial=0)
        assert boxes[name].outside(found) <= slack
    return plan


def projected(n: Net, x: Value, zero: int = 128) -> Value:
    """A projection of x, quantized to u8, in heads: [N, heads, tokens, width/heads]."""
    y = n.qdq(n.op("MatMul", x, n.weights((WIDTH, WIDTH), 2**-7)), 2**-4, zero)
    split = n.op("Reshape", y, n.ints(0, TOKENS, HEADS, WIDTH // HEADS))
    return n.op("Transpose", split, perm=(0, 2, 1, 3))


def source(n: Net) -> Value:
    return n.qdq(n.input(("N", TOKENS, WIDTH)), 2**-5, 128)


@targets
def test_scale_and_mask_of_attention_are_post_ops(target: str) -> None:
    n = Net()
    x = source(n)
    keys = n.op("Transpose", projected(n, x), perm=(0, 1, 3, 2))
    scores = n.op("Div", n.op("MatMul", projected(n, x), keys), np.sqrt(WIDTH / HEADS))
    masked = n.op("Add", scores, n.input(("N", 1, 1, TOKENS), "mask"))
    plan = checked(n, masked, target=target)
    product = steps(plan, "matmul")[-1]
    assert product.output == masked, "scale and mask are in the step"
    assert kinds(product)[-1] == "add"
    assert all(plan.type(product.arg(role)).dtype.is_integer for role in ("src", "weights"))


@targets
def test_the_second_operand_of_a_product_of_activations_is_made_as_s8(target: str) -> None:
    """u8 with zero point z is s8 with z - 128, written where it is produced; reshapes and
    transposes carry codes.
    """
    n = Net()
    x = source(n)
    keys = n.op("Transpose", projected(n, x, 121), perm=(0, 1, 3, 2))
    plan = checked(n, n.op("MatMul", projected(n, x), keys), target=target)
    product = steps(plan, "matmul")[-1]
    second = plan.type(product.arg("weights"))
    assert second.dtype is DType.S8
    assert second.quant is not None
    assert second.quant.zero_point == (121 - 128,)
    moved = [step for step in plan.steps if step.op in ("Transpose", "Reshape")]
    assert moved
    assert all(plan.type(step.output).dtype.is_integer for step in moved)


@pytest.mark.parametrize("form", ["erf", "tanh"])
@targets
def test_decomposed_gelu_is_a_post_op(form: str, target: str) -> None:
    n = Net()
    y = n.op("MatMul", source(n), n.weights((WIDTH, WIDTH), 2**-8))
    if form == "erf":
        gate = n.op("Add", n.op("Erf", n.op("Div", y, np.sqrt(2.0))), 1.0)
    else:
        cubed = n.op("Mul", n.op("Pow", y, 3.0), 0.044715)
        gate = n.op(
            "Add", n.op("Tanh", n.op("Mul", n.op("Add", y, cubed), np.sqrt(2 / np.pi))), 1.0
        )
    gelu = n.op("Mul", n.op("Mul", y, gate), 0.5)
    plan = checked(n, n.q(gelu, 2**-5, 10), target=target)
    assert [step.primitive for step in plan.steps] == ["reorder", "matmul"]
    assert f"gelu_{form}" in kinds(plan.steps[-1])
    assert plan.type(plan.outputs[0]).dtype is DType.U8


def test_softmax_stores_codes() -> None:
    n = Net()
    y = n.op("Softmax", n.input(("N", HEADS, TOKENS, TOKENS)), axis=-1)
    plan = checked(n, n.q(y, 1 / 256))
    (step,) = plan.steps
    assert step.primitive == "softmax"
    assert step.attr.scales["dst"].values == (1 / 256,)
    assert "src" not in step.attr.scales, "a source scale would multiply the output"
    assert plan.type(step.output).dtype is DType.U8


def test_layer_normalization_stores_codes() -> None:
    n = Net()
    y = n.op(
        "LayerNormalization",
        n.input(("N", TOKENS, WIDTH)),
        n.rng.uniform(0.5, 2, WIDTH),
        n.rng.uniform(-1, 1, WIDTH),
        axis=-1,
    )
    plan = checked(n, n.q(y, 2**-5, 0, DType.S8))
    (step,) = plan.steps
    assert step.primitive == "layer_normalization"
    assert "src" not in step.attr.scales, "a source scale would multiply the output"
    assert plan.type(step.output).dtype is DType.S8


@targets
def test_a_quantizer_between_a_product_and_its_bias_is_in_the_product(target: str) -> None:
    """As ONNX Runtime quantizes encoders."""
    n = Net()
    product = n.qdq(n.op("MatMul", source(n), n.weights((WIDTH, WIDTH), 2**-8)), 2**-5, 117)
    plan = checked(
        n, n.q(n.op("Add", product, n.rng.integers(-8, 9, WIDTH) / 8), 2**-5, 121), target=target
    )
    assert [step.primitive for step in plan.steps] == ["reorder", "matmul"]
