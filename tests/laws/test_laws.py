"""Three laws, passes x corpus: meaning (within the contract that the pass declares), stability
(twice is once), validity.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from laws.contracts import GRANTED, broken_by, broken_laws
from laws.corpus import CORPUS, SLOW
from laws.intervals import Box, run_boxes
from laws.registry import feeds_for

from fqfuse.ir.graph import Graph
from fqfuse.ir.interpret import run_graph
from fqfuse.passes import PIPELINE, passes_of

PASSES = tuple(dict.fromkeys([*PIPELINE, *passes_of(PIPELINE)]))


@cache
def imported(name: str) -> tuple[Graph, dict[str, np.ndarray], dict[str, Box]]:
    graph = CORPUS[name]()
    feeds = feeds_for(graph)
    return graph, feeds, run_boxes(graph, feeds, GRANTED)


@pytest.mark.parametrize("name", CORPUS)
def test_the_intervals_hold_the_reference_run_and_say_something(name: str) -> None:
    graph, feeds, boxes = imported(name)
    for output, array in run_graph(graph, feeds).items():
        assert boxes[output].holds(array).all()
        if name not in SLOW and graph.type(output).dtype.is_integer:
            assert np.mean(boxes[output].high > boxes[output].low) < 0.5, (
                "codes are certain in most places"
            )


@pytest.mark.parametrize("name", CORPUS)
def test_laws_of_every_pass_on_the_imported_graph(name: str) -> None:
    graph, feeds, boxes = imported(name)
    broken = {step.name: broken_laws(step, graph, feeds, boxes) for step in PASSES}
    assert not any(broken.values()), broken


@pytest.mark.parametrize("name", CORPUS)
def test_laws_at_every_stage_of_the_pipeline(name: str) -> None:
    graph, feeds, _ = imported(name)
    for number, step in enumerate(PIPELINE):
        after = graph.copy()
        step.run(after)
        assert broken_by(step, graph, after, feeds) == [], f"#{number} {step.name}"
        graph = after
