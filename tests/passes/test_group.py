"""Groups: passes that feed each other are run as one, to a fixed point, and say once what they
did.
"""

from __future__ import annotations

import pytest
from laws.build import Net
from laws.corpus import CORPUS

from fqfuse.composer.compose import plan_from_graph
from fqfuse.errors import InternalError
from fqfuse.ir.decision import Outcome
from fqfuse.ir.graph import Graph
from fqfuse.ir.node import Node, subject
from fqfuse.passes import PIPELINE, Contract, optimize, passes_of
from fqfuse.passes.base import swap
from fqfuse.passes.group import Group, Local, Rewrite, Visitor, group
from fqfuse.passes.move_dequantize import MOVE_DEQUANTIZE
from fqfuse.passes.unify_concat_types import UNIFY_CONCAT_TYPES

GROUPS = [step for step in PIPELINE if isinstance(step, Group)]


LOG: list[str] = []


def turn(before: str, after: str, promised: str = "bitwise") -> Local:
    """Makes one operation of another."""
    name = f"{before}_to_{after}"

    def turning(graph: Graph) -> Visitor:
        def visit(node: Node) -> Rewrite | None:
            if node.op != before:
                return None
            made = graph.add(after, [node.inputs[0]])
            swap(graph, node, made.output)
            return Rewrite([made.name], {node.name: made.name})

        return Visitor(
            visit,
            lambda anew: LOG.append(f"{name} follows {sorted(anew.values())}"),
            lambda: LOG.append(f"{name} is done"),
        )

    return Local(name, Contract("identity", promised), turning)


def chain(*ops: str) -> Graph:
    n = Net()
    value = n.input((4,))
    for op in ops:
        value = n.op(op, value)
    return n.done(value)


def test_what_one_pass_makes_another_takes_up_whatever_their_order() -> None:
    steps = turn("Abs", "Relu"), turn("Neg", "Abs"), turn("Exp", "Neg")
    for passes in (steps, steps[::-1]):
        graph = chain("Exp", "Abs", "Neg")
        group(*passes).run(graph)
        assert [node.op for node in graph.nodes()] == ["Relu"] * 3


def test_passes_follow_what_others_make_anew_and_are_told_the_end() -> None:
    LOG.clear()
    graph = chain("Neg")
    group(turn("Neg", "Abs"), turn("Abs", "Relu")).run(graph)
    (made,) = (node.name for node in graph.nodes())
    assert LOG[-4:] == [
        f"Neg_to_Abs follows ['{made}']",
        f"Abs_to_Relu follows ['{made}']",
        "Neg_to_Abs is done",
        "Abs_to_Relu is done",
    ]


def test_passes_that_undo_each_other_are_an_error_that_names_them() -> None:
    with pytest.raises(InternalError, match=r"Neg_to_Abs \+ Abs_to_Neg find no end"):
        group(turn("Neg", "Abs"), turn("Abs", "Neg")).run(chain("Neg", "Relu"))


def test_a_group_is_named_after_its_passes_and_promises_what_the_loosest_does() -> None:
    step = group(turn("Neg", "Abs"), turn("Abs", "Neg", "ties"))
    assert step.name == "Neg_to_Abs + Abs_to_Neg"
    assert step.contract == Contract("identity", "ties")
    assert passes_of([step, *step.passes]) == [*step.passes, *step.passes]


@pytest.mark.parametrize("name", CORPUS)
def test_no_pass_of_a_group_finds_anything_behind_it(name: str) -> None:
    graph = CORPUS[name]()
    for step in PIPELINE:
        step.run(graph)
        for each in passes_of([step]) if step in GROUPS else ():
            again = graph.copy()
            each.run(again)
            assert again == graph
            assert again.decisions == graph.decisions, "a second look has nothing new to say"


@pytest.mark.parametrize("name", CORPUS)
def test_no_concatenation_is_said_to_be_refused_and_crossed(name: str) -> None:
    graph = CORPUS[name]()
    concats = {subject(node) for node in graph.nodes() if node.op == "Concat"}
    found = {
        outcome: {(d.rule, d.subject) for d in optimize(graph).decisions if d.outcome is outcome}
        for outcome in Outcome
    }
    both = found[Outcome.FIRED] & found[Outcome.REFUSED]
    assert not concats & {
        place for rule, place in both if rule in (MOVE_DEQUANTIZE.name, UNIFY_CONCAT_TYPES.name)
    }


def test_a_nested_dense_block_works_on_codes() -> None:
    graph = optimize(CORPUS["concat_signs_mixed_and_nested"]())
    about = {
        d.subject
        for d in graph.decisions
        if d.rule == MOVE_DEQUANTIZE.name and d.outcome is Outcome.REFUSED
    }
    assert not [
        node.op
        for node in graph.nodes()
        if node.op == "Concat" and not graph.type(node.output).dtype.is_integer
    ]
    assert not [subject for subject in about if "concat" in subject]
    plan = plan_from_graph(graph)
    assert {plan.type(value).dtype.value for step in plan.steps for value in step.outputs} <= {
        "u8",
        "f32",
    }
