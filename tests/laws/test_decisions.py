"""Every decision that names an absorber, a step, a post-op or a cost is true of the plan, and so is each
fate; nothing that could fuse stays apart without a word.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import pytest
from laws.branches import BLOCKS
from laws.build import Net
from laws.corpus import CORPUS, SLOW
from laws.decided import untrue
from laws.many import drawn
from laws.plans import compiled

from fqfuse.composer.compose import plan_from_graph
from fqfuse.composer.steps import chain, records, residual
from fqfuse.composer.steps.builder import StepBuilder
from fqfuse.ir.decision import Outcome
from fqfuse.ir.graph import Graph, GraphError
from fqfuse.ir.node import subject
from fqfuse.ir.ops import OPS
from fqfuse.ir.ops.spec import ShapeError, Trait
from fqfuse.ir.types import DType, Quantization
from fqfuse.passes import optimize
from fqfuse.plan.targets import TARGETS
from fqfuse.plan.types import Plan

SAID = (
    "step",
    "post-op",
    "cost",
    "absorber",
    "the other branch",
    "sum",
    "binary",
    "store",
    "folded",
)


GRAPHS = [name for name in CORPUS if name not in SLOW]


def plans(names: Iterable[str]) -> Iterator[Plan]:
    for name in names:
        graph = optimize(CORPUS[name]())
        yield from (plan_from_graph(graph.copy(), target) for target in TARGETS)


@pytest.mark.parametrize(("every", "least"), [(8, 1), pytest.param(1, 6, marks=pytest.mark.slow)])
def test_what_is_said_of_the_corpus_is_true(every: int, least: int) -> None:
    told: Counter[str] = Counter()
    for plan in plans(GRAPHS[::every]):
        assert untrue(plan, told) == []
    assert min(told[kind] for kind in SAID) >= least, told


@pytest.mark.parametrize("dtype", [DType.U8, DType.S8])
@pytest.mark.parametrize("zero", [0, 100])
def test_a_gated_branch_meets_another_one(dtype: DType, zero: int) -> None:
    """Between a convolution and its add stands a product of two tensors: both branches could take the add."""
    n = Net()
    x = n.qdq(n.input(("N", 4, 4, 4)), 2**-6, 128)
    gate = n.dq(n.input(("N", 4, 1, 1), dtype=dtype, quant=Quantization((2**-7,), (float(zero),))))
    one, two = (n.conv(x, 4, scale=2**-8, name=name) for name in ("one", "two"))
    plan = compiled(n, n.q(n.op("Add", n.op("Mul", one, gate), two), 2**-5, 128))
    told: Counter[str] = Counter()
    assert untrue(plan, told) == []
    assert told["absorber"] == 1
    refused = {d.subject for d in plan.decision_records if d.rule == "operand in codes"}
    assert bool(refused) == bool(zero)  # the gate is decoded apart, and it is said why


def test_an_operation_that_does_not_fuse_says_why() -> None:
    count = 0
    for row in OPS.values():
        one = len(row.inputs) == 1 and not row.inputs[0].variadic
        if not (one and row.onnx and Trait.ELEMENTWISE in row.traits and "Quant" not in row.name):
            continue
        n = Net()
        x = n.conv(n.qdq(n.input(("N", 4, 4, 4)), 2**-6, 128), 4, scale=2**-8)
        try:
            value = n.op(row.name, x)
        except (ShapeError, GraphError, TypeError):
            continue  # not of f32
        if n.graph.type(value).dtype is not DType.F32:
            continue
        name = subject(n.graph.producer(value))
        plan = compiled(n, n.q(value, 2**-5, 128))
        alone = any(
            step.primitive == f"onnx.{row.name}" for step in plan.steps if name in step.origin
        )
        told = [d for d in plan.decision_records if d.subject == name]
        assert told or row.name == "Identity", row.name
        if alone:
            assert told[0].outcome is Outcome.REFUSED
            count += 1
    assert count > 5


@pytest.mark.slow
@pytest.mark.hypothesis
@pytest.mark.parametrize("block", BLOCKS)
def test_what_is_said_of_random_graphs_is_true(block: str) -> None:
    def hold(graph: Graph) -> None:
        optimized = optimize(graph)
        for target in TARGETS:
            assert untrue(plan_from_graph(optimized.copy(), target)) == []

    drawn(block, 50, hold)


MUTANTS = {
    "another step": (
        StepBuilder,
        "settled_decisions",
        lambda call: lambda s, i: call(s, dict.fromkeys(i, 0)),
    ),
    "another cost": (records, "post_op_cost", lambda call: lambda op: call(op) + 0.01),
    "the work of the one in front": (
        chain,
        "Link",
        lambda link: lambda node, found, part, made: link(node, found, part // 2, made),
    ),
    "the other branch": (
        residual,
        "_weighed",
        lambda call: lambda *args: (call(*args)[0], call(*args)[1][::-1]),
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_of_the_recorder_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, attribute, mutate = MUTANTS[name]
    monkeypatch.setattr(owner, attribute, mutate(getattr(owner, attribute)))
    assert any(map(untrue, plans(name for name in GRAPHS if "residual" in name)))
