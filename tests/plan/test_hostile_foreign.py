"""Foreign nodes of plan files that ONNX's own code crashes or never ends on, or over which it
raises what nobody expects.
"""

from __future__ import annotations

import numpy as np
import pytest
from onnx import AttributeProto, NodeProto, ValueInfoProto, helper

from fqfuse.errors import PlanError
from fqfuse.ir.types import DType, TensorType
from fqfuse.plan.file import _content, read_plan
from fqfuse.plan.types import Plan, Step

F32, S64 = DType.F32, DType.S64
X = {"x": TensorType(F32, (2, 3, 4, 5))}
AXES, NUMBERS, LIST = "no tensor has the axes", "has to be from", "list index out of range"


def resealed(plan: Plan) -> bytes:
    """The file of a plan that nobody looked at."""
    return b"".join(_content(plan, None))


def plan_of(
    node: NodeProto,
    opset: int,
    inputs: dict[str, TensorType],
    constants: dict[str, np.ndarray] | None = None,
) -> bytes:
    held = constants or {}
    args = tuple((f"x_{k}", name) for k, name in enumerate(node.input))
    params = {
        "op_type": node.op_type,
        "domain": "",
        "opset": opset,
        "proto": node.SerializeToString(),
    }
    step = Step("hostile", f"onnx.{node.op_type}", "Onnx", args, tuple(node.output), params)
    outputs = {name: TensorType(F32, None) for name in node.output}
    return resealed(
        Plan(
            "net", "onednn-v3", tuple(inputs), tuple(outputs), {**inputs, **outputs}, held, (step,)
        )
    )


def make(op: str, inputs: str = "x", outputs: str = "y", **attributes: object) -> NodeProto:
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


def rnn() -> NodeProto:
    node = make("RNN", "x w r", hidden_size=2)
    node.attribute.add(name="activations", type=AttributeProto.STRINGS)
    return node


I64 = {"i": TensorType(S64, (2, 1))}
GRAMS = {
    "mode": "TF",
    "min_gram_length": 1,
    "max_gram_length": 2,
    "max_skip_count": 0,
    "ngram_indexes": [0],
}
BODY = helper.make_graph(
    [make("Identity", "a", "b")], "body", [ValueInfoProto(name="a")], [ValueInfoProto(name="b")]
)
CASES = {
    "axis": (make("LayerNormalization", "x x", axis=2**63 - 1), 17, X, AXES),
    "batch": (make("GatherND", "x i", batch_dims=-2), 13, X | I64, AXES),
    "fewer-outputs": (make("Split", outputs="a b c", num_outputs=1), 18, X, "Split has 3 outputs"),
    "more-outputs": (make("Split", num_outputs=2**40), 18, X, "Split has 1 outputs"),
    "equation": (make("Einsum", equation="a-b"), 12, X, "no equation of an Einsum"),
    "block": (make("DequantizeLinear", "x x", block_size=2**40), 21, X, NUMBERS),
    "samples": (make("RoiAlign", "x x i", sampling_ratio=2**40), 16, X | I64, NUMBERS),
    "scan": (make("Scan", num_scan_inputs=2**63 - 1, body=BODY), 21, X, NUMBERS),
    "grams": (
        make("TfIdfVectorizer", "i", ngram_counts=[1, 2**40], pool_int64s=[1], **GRAMS),
        9,
        I64,
        "the starts of n-grams",
    ),
    "gram-lengths": (
        make("TfIdfVectorizer", "i", ngram_counts=[0], pool_int64s=[1], **GRAMS),
        9,
        I64,
        NUMBERS,
    ),
    "activations": (rnn(), 14, {name: TensorType(F32, (1, 2, 2)) for name in "xwr"}, LIST),
}


@pytest.mark.parametrize("case", CASES)
def test_a_hostile_foreign_node_is_refused(case: str) -> None:
    node, opset, inputs, message = CASES[case]
    with pytest.raises(PlanError, match=message):
        read_plan(plan_of(node, opset, inputs))


@pytest.mark.parametrize("case", [case for case in CASES if case != "activations"])
def test_a_hostile_node_in_a_branch_is_refused(case: str) -> None:
    node, opset, inputs, message = CASES[case]
    branch = helper.make_graph([node], "branch", [], [ValueInfoProto(name=node.output[0])])
    choice = helper.make_node("If", ["c"], ["out"], then_branch=branch, else_branch=branch)
    choice.metadata_props.add(key="fqfuse.inputs", value="\n".join(["c", *inputs]))
    choice.metadata_props.add(key="fqfuse.opsets", value=f" {opset}")
    types = {"c": TensorType(DType.BOOL, ()), **inputs}
    args = tuple((f"x_{k}", name) for k, name in enumerate(types))
    params = {"op_type": "If", "domain": "", "opset": 21, "proto": choice.SerializeToString()}
    step = Step("hostile", "onnx.If", "Onnx", args, ("out",), params)
    with pytest.raises(PlanError, match=message):
        read_plan(
            resealed(
                Plan(
                    "net",
                    "onednn-v3",
                    tuple(types),
                    ("out",),
                    {**types, "out": TensorType(F32, None)},
                    {},
                    (step,),
                )
            )
        )


def test_an_index_out_of_range_inside_inference_is_a_refusal() -> None:
    steps = {"i": np.zeros(0, np.int64)}
    with pytest.raises(PlanError, match="_M_range_check"):
        read_plan(plan_of(make("STFT", "x i"), 17, {"x": TensorType(F32, (4, 2, 1))}, steps))
