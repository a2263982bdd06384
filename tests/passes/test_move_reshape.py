"""move_reshape: golden cases, each held to the laws; that it never costs a step; and what the groups
of axes are.
"""

from __future__ import annotations

from collections import Counter

import pytest
from laws.build import Net, Value
from laws.golden import check_pass
from laws.many import drawn

from fqfuse.composer.compose import plan_from_graph
from fqfuse.ir.graph import Graph
from fqfuse.ir.text_print import print_graph
from fqfuse.ir.types import Shape
from fqfuse.passes import PIPELINE, optimize, run_pipeline
from fqfuse.passes.move_reshape import MOVE_RESHAPE
from fqfuse.passes.reshaping import target_of, view_of
from fqfuse.plan.types import Plan


@pytest.mark.golden("move_reshape")
def test_golden(golden) -> None:
    check_pass(golden, MOVE_RESHAPE)


def _plan(graph: Graph, *, moved: bool) -> Plan:
    steps = [step for step in PIPELINE if moved or step.name != MOVE_RESHAPE.name]
    return plan_from_graph(run_pipeline(graph.copy(), steps))


@pytest.mark.hypothesis
def test_there_are_never_more_steps() -> None:
    saved: Counter[bool] = Counter()

    def hold(graph: Graph) -> None:
        before, after = (len(_plan(graph, moved=moved).steps) for moved in (False, True))
        assert after <= before, print_graph(graph, data="digest", explain=False)
        saved[after < before] += 1

    drawn("reshaped", 60, hold)
    assert saved[True] > saved[False], "the graphs are about it"


def _feed_forward(n: Net, x: Value, batch: str | int) -> Value:
    """The second half of a transformer's layer as ONNX Runtime quantizes it: both products work on
    flattened rows.
    """
    y = n.op("Reshape", x, n.ints(-1, 8))
    y = n.qdq(
        n.op(
            "Add", n.op("MatMul", y, n.weights((8, 16), 2.0**-7, 1)), n.rng.integers(-8, 9, 16) / 4
        ),
        2.0**-5,
        100,
    )
    y = n.qdq(n.op("Reshape", y, n.ints(-1, 4, 16)), 2.0**-5, 100)
    y = n.qdq(n.op("Gelu", y), 2.0**-5, 10)
    y = n.op(
        "MatMul",
        n.qdq(n.op("Reshape", y, n.ints(-1, 16)), 2.0**-5, 10),
        n.weights((16, 8), 2.0**-7),
    )
    y = n.op(
        "Reshape", n.qdq(y, 2.0**-5, 128), n.ints(batch if isinstance(batch, int) else -1, 4, 8)
    )
    return n.qdq(n.op("Add", n.qdq(y, 2.0**-5, 128), x), 2.0**-5, 128)


@pytest.mark.parametrize("batch", ["N", 1, 3])
def test_a_feed_forward_block_is_two_products(batch: str | int) -> None:
    n = Net()
    x = n.qdq(
        n.op("LayerNormalization", n.input((batch, 4, 8)), n.rng.standard_normal(8), axis=-1),
        2.0**-5,
        128,
    )
    y = _feed_forward(n, x, batch)
    graph = n.done(n.op("LayerNormalization", y, n.rng.standard_normal(8), axis=-1))
    plan = plan_from_graph(optimize(graph))
    assert [step.primitive for step in plan.steps] == [
        "layer_normalization",
        "matmul",
        "matmul",
        "layer_normalization",
    ]


Groups = tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]


@pytest.mark.parametrize(
    ("before", "after", "groups"),
    [
        ((2, 3, 4), (6, 4), (((0, 1), (0,)), ((2,), (1,)))),
        (("N", 3, 4), ("3*N", 4), (((0, 1), (0,)), ((2,), (1,)))),
        (("N", 8, 1, 1), ("N", 8), (((0,), (0,)), ((1,), (1,)))),
        (("N", 4, 6), ("N", 6, 4), (((0,), (0,)), ((1, 2), (1, 2)))),
        ((2, 12), (2, 3, 4), (((0,), (0,)), ((1,), (1, 2)))),
        # nothing is known of the first size: all is one group
        (
            ("?", 4),
            ("?", 2, 2),
            (((0, 1), (0, 1, 2)),),
        ),
        ((1, 1), (), ()),
        (("S", 4), (4,), (((0, 1), (0,)),)),
    ],
)
def test_axes_are_grouped_as_finely_as_can_be_told(
    before: Shape, after: Shape, groups: Groups
) -> None:
    assert view_of(before, after).groups == groups


def test_what_broadcasts_behind_a_reshape_does_so_in_front_of_it() -> None:
    view = view_of(("N", 3, 4, 5), ("N", 12, 1, 5))
    assert view.back(()) == (1, 1, 1, 1)
    assert view.back((5,)) == (1, 1, 1, 5)
    assert view.back((12, 1, 1)) == (1, 3, 4, 1)
    assert view.back(("N", 1, 1, 5)) == ("N", 1, 1, 5)
    assert view.back((3, 1)) is None, "it is no size of the values"
    assert view.back((1, 1, 1, 1, 5)) is None, "it has more axes"
    assert view.back((12, 2, 5)) is None, "it makes the values larger"
    assert [view.axis_back(axis) for axis in range(4)] == [0, None, None, 3]


def test_targets_copy_and_infer_what_is_symbolic() -> None:
    assert target_of(("N", 3, 4), ("3*N", 4)) == [-1, 4]
    assert target_of(("N", "S", 4), ("N", "S", 2, 2)) == [0, 0, 2, 2]
    assert target_of(("N", "S"), ("S", "N")) is None
