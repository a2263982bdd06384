"""Golden cases of passes: graph in text form -> what the pass makes of it; each case is held to the
three laws, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from laws.contracts import broken_by
from laws.registry import feeds_for
from support.graph_text import parse_graph

from fqfuse.ir.cleanup import erase_dead
from fqfuse.ir.graph import Graph
from fqfuse.ir.text_print import print_graph
from fqfuse.ir.verify import WELL_FORMED, verify
from fqfuse.passes import Pass

if TYPE_CHECKING:
    from conftest import GoldenCase


def check_pass(golden: GoldenCase, step: Pass) -> Graph:
    """Runs a pass on the case's graph, holds it to the expected text (with decisions and fates) and
    to the laws; gives the graph.
    """
    before = parse_graph(golden.input)
    assert verify(before, WELL_FORMED) == []
    after = before.copy()
    step.run(after)
    assert broken_by(step, before, after, feeds_for(before)) == []
    erase_dead(after)
    golden.check(print_graph(after))
    return after
