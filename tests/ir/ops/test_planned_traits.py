"""What a row says becomes of its op is what becomes of it in plans."""

from __future__ import annotations

import numpy as np
import pytest
from laws.build import Net, Value

from fqfuse.composer.compose import plan_from_graph
from fqfuse.ir.graph import Graph
from fqfuse.ir.ops import OPS
from fqfuse.ir.ops.spec import OpSpec, Trait
from fqfuse.ir.types import DType
from fqfuse.passes import optimize
from fqfuse.plan.types import Plan

from .cases import CASES
from .harness import Case
from .own_cases import OWN_CASES

SCALE = 2.0**-6
BY_ELEMENT = [spec for spec in OPS.values() if Trait.ELEMENTWISE in spec.traits]
OTHERS = [
    spec for spec in OPS.values() if Trait.ELEMENTWISE not in spec.traits and spec.name != "Onnx"
]


def cases_of(spec: OpSpec) -> list[Case]:
    """Cases of f32 with one output."""
    found = [
        case for case in (*CASES, *OWN_CASES) if case.op == spec.name and len(spec.outputs) == 1
    ]
    return [
        case
        for case in found
        if case.inputs[0] is not None and case.inputs[0].dtype == np.float32 and case.inputs[0].size
    ]


def decoded(case: Case) -> Graph | None:
    """A case whose first input, or all of several, is decoded from codes, with a quantizer behind
    it; None where that takes no f32.
    """
    n, spec = Net(), OPS[case.op]
    inputs: list[Value] = []
    for place, array in enumerate(case.inputs):
        if array is None:
            inputs.append("")
        elif place == 0 or spec.inputs[0].variadic:
            inputs.append(n.dq(n.q(n.input(array.shape), SCALE)))
        elif place == 1 and Trait.PRODUCT in spec.traits:
            inputs.append(n.weights(array.shape))
        else:
            inputs.append(n.graph.add_constant("c", array))
    y = n.op(case.op, *inputs, **case.attrs)
    return n.done(n.q(y, SCALE)) if n.graph.type(y).dtype is DType.F32 else None


@pytest.mark.parametrize("spec", OTHERS, ids=lambda spec: spec.name)
def test_a_primitive_reads_codes_where_its_row_says_so(spec: OpSpec) -> None:
    graphs = [graph for case in cases_of(spec) if (graph := decoded(case)) is not None]
    joins = Trait.JOINS in spec.traits  # what decodes the codes that it joins stands behind it
    plans = [plan_from_graph(optimize(graph) if joins else graph) for graph in graphs]
    reads = [
        step
        for plan in plans
        for step in plan.steps
        if step.op == spec.name and plan.type(step.args[0][1]).dtype is DType.U8
    ]
    assert bool(reads) == (Trait.READS_CODES in spec.traits)


def behind_a_convolution(spec: OpSpec) -> Plan:
    """The plan of a convolution with the operation behind it, which reads constants besides; truth
    values become numbers.
    """
    n = Net()
    x = n.conv(n.input((1, 4, 4, 4)), 4, style="float")
    if spec.name in ("Quantize", "Dequantize"):
        return plan_from_graph(n.done(n.dq(n.q(x, SCALE))))
    if spec.name == "FakeQuantize":
        return plan_from_graph(n.done(n.fq(x, 0.0, 1.0)))
    count = (
        2
        if spec.inputs[0].variadic
        else len([param for param in spec.inputs if not param.optional])
    )
    attrs = {"to": DType.F64} if spec.name == "Cast" else {}
    y = n.op(spec.name, x, *([0.5] * (count - 1)), **attrs)
    return plan_from_graph(
        n.done(n.op("Cast", y, to=DType.F32) if n.graph.type(y).dtype is DType.BOOL else y)
    )


NO_FLOATS = {"And", "Or", "Xor", "Not", "Where", "Mod", "RunTimeDequantize"}
"""They read truth values, integers, or codes."""


@pytest.mark.parametrize(
    "spec", [spec for spec in BY_ELEMENT if spec.name not in NO_FLOATS], ids=lambda spec: spec.name
)
def test_a_chain_of_post_ops_has_a_form_where_the_row_says_so(spec: OpSpec) -> None:
    steps = behind_a_convolution(spec).steps
    assert (len(steps) == 1) == spec.is_post_op, [step.primitive for step in steps]


def test_quantizers_bear_names() -> None:
    n = Net()
    graph = n.done(n.fq(n.dq(n.q(n.input((2, 2)), SCALE)), 0.0, 1.0))
    assert {node.op for node in graph.nodes() if node.quantizer} == {
        s.name for s in OPS.values() if Trait.QUANTIZER in s.traits
    }


def test_every_row_of_floats_is_tried() -> None:
    tried = {spec.name for spec in OTHERS if cases_of(spec)}
    assert {spec.name for spec in OTHERS if Trait.READS_CODES in spec.traits} <= tried
    assert len(tried) > len(OTHERS) / 2
