"""A plan compiled with symbols computes what the plan compiled for the static shape computes, for
each shape, in one session.

The bytes are equal where the two plans compute in the same steps. Where the static one knows more
(that two sizes are one, that a size is 1) it may fuse more, and each is held to what the graph
allows; most bytes are equal there, too, and the tests say how many.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random

import numpy as np
import pytest
from hypothesis import settings
from laws.branches import BLOCKS
from laws.corpus import CORPUS, SLOW
from laws.exported import Exported, exported
from laws.many import boxes_of, drawn, within
from laws.programs import source
from laws.registry import feeds_for

from fqfuse import compiler
from fqfuse.composer.compose import plan_from_graph
from fqfuse.ir.graph import Graph
from fqfuse.ir.ops import OPS, dims
from fqfuse.ir.ops.spec import Trait
from fqfuse.ir.types import Dim, DType
from fqfuse.passes import optimize
from fqfuse.plan.attributes import PrimitiveAttr
from fqfuse.plan.text import print_plan
from fqfuse.plan.types import Plan
from fqfuse.plan.verify import verify_plan
from fqfuse.runtime.session import InferenceSession

EXPORTED = 16
"""So many random models as exporters write them; `make fuzz` draws thirty times as many."""

MOVING = frozenset({"Reshape", "Expand", "Where", "ConstantOfShape", "Trilu"})
"""Ops on floats that move values beside those of the trait: a static plan has their results as
constants, or does without them.
"""

BACKENDS = ("numpy", "auto")
"""`auto` is oneDNN wherever its int8 products do not saturate."""

LENGTHS = (0, 1, 2, 7, 16, 17)
BATCHES = (2, 1, 3, 1, 0, 2)
"""One after the other in one session, back to earlier ones too."""


def same_steps(a: Plan, b: Plan) -> bool:
    """True when the plans compute the same in the same steps; they may differ in what moves values,
    and computes shapes.
    """
    return list(_arithmetic(a)) == list(_arithmetic(b))


def _arithmetic(plan: Plan) -> Iterator[tuple[object, ...]]:
    """What each step on floats or codes does that is more than moving them, without the names of
    values.
    """
    for step in plan.steps:
        kinds = {plan.type(value).dtype for value in step.outputs if value}
        if (
            # a reorder that encodes or decodes is an Identity, too
            (Trait.LAYOUT_ONLY in OPS[step.op].traits and step.attr == PrimitiveAttr())
            or step.op in MOVING
            or not kinds & {DType.F32, DType.U8, DType.S8}
        ):
            continue
        post_ops = [
            replace(op, operand="") if hasattr(op, "operand") else op for op in step.attr.post_ops
        ]
        yield (
            step.primitive,
            step.op,
            dict(step.params),
            [role for role, _ in step.args],
            replace(step.attr, post_ops=tuple(post_ops)),
        )


# -- graphs with branches and the corpus: the batch ------------------------------------------------

Resize = Callable[[tuple[Dim, ...]], Sequence[Dim]]

SYMBOLIC: dict[str, Resize] = {
    "named batch": lambda shape: shape,
    "unknown batch": lambda shape: [d if isinstance(d, int) else dims.UNKNOWN for d in shape],
    "named space": lambda shape: [*shape[:2], *(f"L{d}" for d in shape[2:])],
    "unknown space": lambda shape: [*shape[:2], *(dims.UNKNOWN for _ in shape[2:])],
    "all unknown": lambda shape: [dims.UNKNOWN for _ in shape],
}
"""What the dimensions of an input become."""


def with_sizes(graph: Graph, size: Resize) -> Graph:
    """The graph with other dimensions for its inputs."""
    made = Graph(graph.name)
    for name in graph.inputs:
        kind = graph.type(name)
        made.add_input(name, replace(kind, shape=tuple(size(kind.shape or ()))))
    for name, data in graph.constants.items():
        made.add_constant(name, data, graph.type(name).dtype, graph.type(name).quant)
    for node in graph.nodes():
        given = {
            "name": node.name,
            "outputs": node.outputs,
            "origin": node.origin,
            "quantizer": node.quantizer,
            "after_all": True,
        }
        made.add(node.op, node.inputs, node.attrs, **given)
    made.quantizers |= graph.quantizers
    made.set_outputs(graph.outputs)
    return made


def with_batch(batch: int, shape: tuple[Dim, ...]) -> list[Dim]:
    return [d if isinstance(d, int) else batch for d in shape]


def planned(graph: Graph) -> Plan:
    plan = plan_from_graph(optimize(graph))
    assert verify_plan(plan) == []
    return plan


def hold_batches(graph: Graph, counts: Counter[str]) -> None:
    """Symbolic dimensions against each static batch."""
    static = {
        batch: planned(with_sizes(graph, partial(with_batch, batch)))
        for batch in sorted(set(BATCHES))
    }
    for kind, size in SYMBOLIC.items():
        plan = planned(with_sizes(graph, size))
        sessions = {runtime: InferenceSession(plan, runtime, 1) for runtime in BACKENDS}
        for batch in BATCHES:
            feeds = feeds_for(graph, seed=batch, batch=batch)
            equal = same_steps(plan, static[batch])
            counts[f"{kind}: {'equal' if equal else 'other'} steps"] += 1
            for runtime, session in sessions.items():
                found = dict(zip(plan.outputs, session.run(None, dict(feeds)), strict=True))
                if equal:
                    expected = InferenceSession(static[batch], runtime, 1).run(None, dict(feeds))
                    same_bytes(
                        plan,
                        found,
                        dict(zip(plan.outputs, expected, strict=True)),
                        f"{runtime}, batch {batch} as {kind}",
                    )
                elif batch:
                    within(graph, plan, runtime, found, boxes_of(graph, feeds))


def same_bytes(
    plan: Plan, found: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray], case: str
) -> None:
    for name, array in found.items():
        wanted = expected[name]
        same = (
            array.dtype == wanted.dtype
            and array.shape == wanted.shape
            and array.tobytes() == wanted.tobytes()
        )
        shown = f"{array.shape}, {wanted.shape} expected\n{array}\n{wanted}\n" + print_plan(
            plan, data="digest", explain=False
        )
        assert same, f"{case}: {name} {shown}"


@pytest.mark.hypothesis
@pytest.mark.parametrize("block", BLOCKS)
def test_batch_of_random_graphs(block: str) -> None:
    counts: Counter[str] = Counter()
    drawn(block, 1, lambda graph: hold_batches(graph, counts))
    mostly_equal(counts)


@pytest.mark.slow
def test_batch_of_the_corpus() -> None:
    counts: Counter[str] = Counter()
    for name in sorted(CORPUS.keys() - set(SLOW))[::16]:
        hold_batches(CORPUS[name](), counts)
    mostly_equal(counts)


def mostly_equal(counts: Counter[str]) -> None:
    """A named batch gives the steps of a static one in four of five, but for what random draws miss
    that by (three standard deviations); else the law would say little.
    """
    equal, other = (counts[f"named batch: {which} steps"] for which in ("equal", "other"))
    drawn = equal + other
    assert equal >= 0.8 * drawn - 3 * math.sqrt(0.16 * drawn), counts


# -- what exporters write: batch, length, cache ----------------------------------------------------


@dataclass(frozen=True)
class Case:
    """One random model with some of its dimensions symbolic, and the sizes that it is run with, in
    order.
    """

    model: Exported
    dims: Mapping[str, int | str | None]
    visits: Sequence[Mapping[str, int]]


def drawn_case(random: Random) -> Case:
    """A static dimension has one size in all visits; each symbolic one is named, as exporters do,
    or has no name.
    """
    model = exported(random)
    names = {"N": "batch", "S": "seq", "P": "past", "T": "past + seq"}
    fixed = {d: random.choice((1, 2, 7)) for d in "NSP" if random.random() < 0.25}
    visits = []
    for _ in range(4):
        sizes = {
            "N": random.choice((1, 2, 3)),
            "S": random.choice(LENGTHS[1:]),
            "P": random.choice(LENGTHS),
        }
        if "P" not in model.symbols():
            sizes["P"] = 0
        sizes |= {d: size for d, size in fixed.items() if d != "P" or "P" in model.symbols()}
        visits.append(sizes | {"T": sizes["P"] + sizes["S"]})
    if random.random() < 0.25 and not {"N", "S"} & fixed.keys():
        empty = {**visits[0], random.choice("NS"): 0}
        visits.append(empty | {"T": empty["P"] + empty["S"]})
    static = {"S", *({"P"} & set(model.symbols()))} <= fixed.keys()
    dims_: dict[str, int | str | None] = {
        d: random.choice((names[d], names[d], None)) for d in "NSPT"
    }
    dims_ |= fixed | ({"T": visits[0]["T"]} if static else {})
    return Case(model, dims_, [*visits, visits[0]])


def hold_case(case: Case, seed: int, counts: Counter[str]) -> None:
    """The plan with symbols against the static one of each visit, on each runtime."""
    plan = compiler.compile(case.model.model(case.dims))
    sessions = {runtime: InferenceSession(plan, runtime, 1) for runtime in BACKENDS}
    for sizes in case.visits:
        feeds = case.model.feeds(sizes, seed)
        static = compiler.compile(case.model.model(sizes))
        equal = same_steps(plan, static)
        counts["equal steps" if equal else "other steps"] += 1
        for runtime, session in sessions.items():
            where = f"{runtime}, {dict(sizes)} of {dict(case.dims)}"
            found = session.run(None, dict(feeds))
            expected = InferenceSession(static, runtime, 1).run(None, dict(feeds))
            for name, array, wanted in zip(plan.outputs, found, expected, strict=True):
                same = array.tobytes() == wanted.tobytes()
                counts["equal bytes" if same else "other bytes"] += 1
                if equal:
                    same_bytes(plan, {name: array}, {name: wanted}, where)
                else:
                    assert array.shape == wanted.shape, where
                    shown = f"{where}: {name}\n{array}\n{wanted}\n" + print_plan(
                        plan, data="digest", explain=False
                    )
                    assert close(array, wanted, case.model.quantized), shown


def close(found: np.ndarray, expected: np.ndarray, quantized: float) -> bool:
    """Rounding in another order moves a value by some ulp: 100 dB of the whole result. Where there
    are codes, one that lies on a tie may
    move by 1, which is much where results are small, as behind a cancellation: 25 dB."""
    noise, signal = (
        math.fsum(np.square(a.astype(np.float64)).ravel()) for a in (found - expected, expected)
    )
    return bool(np.isfinite(found).all()) and noise <= signal * 10 ** (-2.5 if quantized else -10)


@pytest.mark.parametrize("part", range(4))
def test_models_as_exporters_write_them(part: int) -> None:
    counts: Counter[str] = Counter()
    more, fresh = settings.default.max_examples / 100, np.random.default_rng()
    for index in range(part, int(EXPORTED * more), 4):
        seed = index if settings.default.derandomize else int(fresh.integers(1 << 40))
        hold_case(drawn_case(source(seed)), seed, counts)
    assert counts["equal bytes"] >= 9 * counts["other bytes"], counts
