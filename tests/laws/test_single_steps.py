"""Each step of a plan, on each runtime, computes what the model says of the very numbers that it
read: random graphs, as drawn and with values of any magnitude, and transformers.

Behind a first step that is off, a whole result may be anything; a step by itself has limits. The
judge is held to find each kind of mistake, and to leave out few steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from laws.branches import BLOCKS
from laws.budget import examples, shard
from laws.build import Net
from laws.corpus import CORPUS, SLOW
from laws.exported import exported
from laws.judge import Verdict, judge
from laws.programs import source
from laws.registry import feeds_for
from laws.runtimes import RUNTIMES
from laws.step_mutants import mutants
from laws.strategies import graphs
from laws.wide_values import widened

from fqfuse import convert
from fqfuse.composer.compose import plan_from_graph
from fqfuse.frontend import graph_from_onnx
from fqfuse.ir.graph import Graph
from fqfuse.ir.text_print import print_graph
from fqfuse.passes import optimize
from fqfuse.plan.text import print_plan
from fqfuse.plan.types import Plan, Step
from fqfuse.runtime.session import InferenceSession

PARTS = 2
TARGETS = ("onednn-v3", "onednn-v2", "unified")
BACKENDS = tuple("auto" if runtime == "onednn" else runtime for runtime in RUNTIMES)
"""`auto` is oneDNN wherever its int8 products do not saturate."""

Arrays = Mapping[str, np.ndarray]


@dataclass
class Tally:
    """How much was judged.

    Attributes:
        steps, judged: of plans.
        missed: what was not judged: primitive, or operation of the model with the reason.
        verdicts, loose, dull: how many values were judged, how many of them with wide limits, how
            many are one number everywhere.
    """

    steps: int = 0
    judged: int = 0
    missed: Counter[str] = field(default_factory=Counter)
    verdicts: int = 0
    loose: float = 0.0
    dull: int = 0

    def add(self, plan: Plan, verdicts: list[Verdict], live: Arrays) -> None:
        right = [verdict for verdict in verdicts if not verdict.unjudged]
        judged = frozenset().union(*(verdict.among for verdict in right))
        self.steps += len(plan.steps)
        self.judged += len(judged)
        self.missed.update(f"{v.op}: {v.unjudged}" for v in verdicts if v.unjudged)
        self.missed.update(step.primitive for step in plan.steps if step.name not in judged)
        self.verdicts += len(right)
        self.loose += sum(verdict.loose for verdict in right)
        arrays = [live[verdict.step.output].ravel() for verdict in right]
        self.dull += sum(a.size > 1 and bool((a == a[0]).all()) for a in arrays)

    def check(self) -> None:
        """Fails where the law says too little."""
        assert self.judged >= 0.9 * self.steps, self
        assert self.loose <= 0.1 * self.verdicts, self
        assert self.dull <= 0.3 * self.verdicts, self


def hold(graph: Graph, feeds: Arrays, tally: Tally, target: str) -> None:
    made = plan_from_graph(optimize(graph.copy()), target)
    for backend in BACKENDS:
        if backend == "auto" and target == "unified":
            continue  # no library has it
        # the installed library's own form
        plan = convert(made) if backend == "auto" and target == "onednn-v2" else made
        live = InferenceSession(plan, backend, 1).run_steps(feeds)
        verdicts = judge(graph, plan, feeds, live)
        tally.add(plan, verdicts, live)
        wrong = "\n".join(str(verdict) for verdict in verdicts if verdict.told)
        shown = "\n".join(
            [print_graph(graph, explain=False), "->", print_plan(plan, explain=False)]
        )
        assert not wrong, f"{target}, {backend}\n{wrong}\n{shown}"


@pytest.mark.hypothesis
@pytest.mark.parametrize("part", range(PARTS))
def test_steps_of_random_graphs(part: int) -> None:
    tally = Tally()

    @shard(part)
    @examples(24, fuzz=3000)
    @given(
        graphs(tuple(BLOCKS.values())),
        st.integers(0, (1 << 32) - 1),
        st.booleans(),
        st.sampled_from(TARGETS),
    )
    def law(graph: Graph, seed: int, plain: bool, target: str) -> None:
        feeds = feeds_for(graph, seed)
        wide = (graph, feeds) if plain else widened(graph, feeds, np.random.default_rng(seed))
        hold(*wide, tally, target)

    law()
    tally.check()


@pytest.mark.hypothesis
def test_steps_of_transformers() -> None:
    tally = Tally()

    @shard(0)
    @examples(10, fuzz=1000)
    @given(
        st.integers(0, (1 << 32) - 1),
        st.sampled_from(["symbols", "sizes"]),
        st.booleans(),
        st.sampled_from(TARGETS),
    )
    def law(seed: int, dims: str, plain: bool, target: str) -> None:
        drawn = exported(source(seed))
        past = 2 if "P" in drawn.symbols() else 0
        sizes = {"N": 2, "S": 3, "P": past, "T": past + 3}
        model = drawn.model(sizes if dims == "sizes" else {name: name for name in sizes})
        graph, feeds = graph_from_onnx(model), drawn.feeds(sizes, seed)
        wide = (graph, feeds) if plain else widened(graph, feeds, np.random.default_rng(seed))
        hold(*wide, tally, target)

    law()
    tally.check()


# -- the judge -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Judged:
    """A graph of the corpus with its plan, and what the NumPy runtime makes of it."""

    graph: Graph
    plan: Plan
    feeds: Arrays
    live: dict[str, np.ndarray]

    @classmethod
    def of(cls, name: str) -> Judged:
        graph = CORPUS[name]()
        plan, feeds = plan_from_graph(optimize(graph.copy())), feeds_for(graph)
        return cls(graph, plan, feeds, InferenceSession(plan, "numpy", 1).run_steps(feeds))

    def told(self, live: Arrays, step: Step) -> bool:
        """Whether other numbers are found to be wrong, at a step or behind it."""
        return any(
            verdict.told and step.name in verdict.among
            for verdict in judge(self.graph, self.plan, self.feeds, live)
        )


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("factor", "step"), [(0.2137, 0.7), (0.02, 2.03)], ids=["z*s*a = 19", "z*s*a = 5"]
)
def test_a_zero_point_behind_a_factor_is_as_far_as_that_makes_it(
    factor: float, step: float, backend: str
) -> None:
    """z*s above 64, times the factor below it: two roundings of it are granted, and no more."""
    net = Net("factor behind codes")
    x, y = net.input((1, 2, 4, 4), "x"), net.input((1, 2, 4, 4), "y")
    total = net.op("Add", net.conv(y, 2, 1, style="float"), net.qdq(x, step, 128))
    out = net.op("Mul", total, factor)
    graph = net.done(out)
    rng = np.random.default_rng(0)
    feeds = {
        "x": (rng.integers(-3, 4, (1, 2, 4, 4)) * step).astype(np.float32),
        "y": (rng.normal(size=(1, 2, 4, 4)) * 1e-3).astype(np.float32),
    }
    plan = plan_from_graph(optimize(graph.copy()))
    live = InferenceSession(plan, backend, 1).run_steps(feeds)
    assert not [v for v in judge(graph, plan, feeds, live) if v.told]
    for sign in (1, -1):
        far = live[out] + np.float32(sign * 2.0**-20 * 128 * step * factor)
        assert [v for v in judge(graph, plan, feeds, {**live, out: far}) if v.told]


SOME = sorted(CORPUS.keys() - set(SLOW))[::9]


@pytest.mark.slow
def test_a_wrong_plan_is_found() -> None:
    """One number of a step is another one: what shows in its results is found, but where the limits
    have to be wide (an operand next to others that are far larger)."""
    found: Counter[tuple[str, bool]] = Counter()
    for case in map(Judged.of, SOME):
        for what, step, plan in mutants(case.plan):
            live = InferenceSession(plan, "numpy", 1).run_steps(case.feeds)
            if any(live[v].tobytes() != case.live[v].tobytes() for v in step.outputs if v):
                found[what, case.told(live, step)] += 1
    for what in ("scale", "zero point", "factor", "shift", "operation", "operand", "weights"):
        assert found[what, True] >= 5, found
        assert found[what, False] <= 0.05 * found[what, True], found


def test_one_wrong_element_is_found() -> None:
    """A code that is off by 1, or a number by 2^-12 of the largest."""
    rng, found = np.random.default_rng(0), Counter[bool]()
    for case in map(Judged.of, SOME):
        for verdict in judge(case.graph, case.plan, case.feeds, case.live):
            right = case.live[verdict.step.output]
            if verdict.unjudged or not right.size or right.dtype == np.bool_:
                continue
            wrong = right.copy()
            at = tuple(rng.integers(size) for size in right.shape)
            if right.dtype.kind in "iu":
                wrong[at] = (
                    right[at] - 1 if right[at] > np.iinfo(right.dtype).min else right[at] + 1
                )
            else:
                wrong[at] += np.float32(2.0**-12) * np.abs(right).max() or 1
            found[case.told({**case.live, verdict.step.output: wrong}, verdict.step)] += 1
    assert found[True] >= 50, found
    assert found[False] <= 0.03 * found[True], found
