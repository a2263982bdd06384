"""The three laws of passes: meaning, stability, validity."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from laws.intervals import Box, run_boxes

from fqfuse.ir.graph import Graph
from fqfuse.ir.interpret import run_graph
from fqfuse.ir.text_print import print_graph
from fqfuse.ir.verify import WELL_FORMED, verify
from fqfuse.passes import Contract, Pass

Feeds = Mapping[str, np.ndarray]

GRANTED = 4.0
"""Roundings that each operation is granted, in units of 2^-24 of its largest operand: a rewrite
adds one or two to each operation.
"""


def broken_laws(
    step: Pass, before: Graph, feeds: Feeds, boxes: Mapping[str, Box] | None = None
) -> list[str]:
    """What a pass breaks on a graph, which stays as it is; empty when all three laws hold.

    `boxes`: the intervals of `before` on `feeds`, where they are known already.
    """
    after = before.copy()
    step.run(after)
    return broken_by(step, before, after, feeds, boxes)


def broken_by(
    step: Pass, before: Graph, after: Graph, feeds: Feeds, boxes: Mapping[str, Box] | None = None
) -> list[str]:
    """What `step` broke, which made `after` out of `before`."""
    if after == before and after.fates == before.fates:
        return []  # what changed nothing changes nothing again
    broken = [f"validity: {found}" for found in verify(after, WELL_FORMED)]
    if after.outputs != before.outputs or after.inputs != before.inputs:
        broken.append(
            f"validity: inputs {before.inputs} -> {after.inputs}, outputs {before.outputs} -> {after.outputs}"
        )
    if not broken and after != before and step.contract.real == "identity":
        broken += other_meaning(step.contract, before, after, feeds, boxes)
    again = after.copy()
    step.run(again)
    if again != after:
        first, second = (
            print_graph(graph, data="digest", explain=False) for graph in (after, again)
        )
        broken.append(f"stability: the second run changes the graph from\n{first}\nto\n{second}")
    if again.fates != after.fates:
        broken.append("stability: the second run settles more fates")
    return broken


def other_meaning(
    contract: Contract,
    before: Graph,
    after: Graph,
    feeds: Feeds,
    boxes: Mapping[str, Box] | None = None,
) -> list[str]:
    """Where the outputs of `after` differ from those of `before` by more than the contract
    allows.
    """
    found = run_graph(after, feeds)
    if contract.float == "bitwise":
        wanted = run_graph(before, feeds)
        return [
            f"meaning: {name} is not the same bits"
            for name in wanted
            if not np.array_equal(wanted[name], found[name], equal_nan=True)
        ]
    known = run_boxes(before, feeds, GRANTED) if boxes is None else boxes
    broken = []
    for name, array in found.items():
        far = ~known[name].holds(array)
        if far.any():
            where = tuple(int(i) for i in np.argwhere(far)[0])
            low, high = known[name].low[where], known[name].high[where]
            place = f"{int(far.sum())} of {far.size} elements of {name}, {where} first"
            broken.append(f"meaning: {place}: {array[where]!r} is not in {low!r}..{high!r}")
    return broken
