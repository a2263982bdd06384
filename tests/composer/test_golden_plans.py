"""Golden plans: a graph in text form -> the plan for each of oneDNN's two generations, with
attributes, fates and decisions.
"""

from __future__ import annotations

import pytest
from support.graph_text import parse_graph

from fqfuse.composer.compose import plan_from_graph
from fqfuse.passes import optimize
from fqfuse.plan.text import print_plan
from fqfuse.plan.verify import verify_plan


@pytest.mark.golden("plans")
def test_golden(golden) -> None:
    graph = optimize(parse_graph(golden.input))
    plans = [plan_from_graph(graph.copy(), target) for target in ("onednn-v3", "onednn-v2")]
    assert [verify_plan(plan) for plan in plans] == [[], []]
    golden.check("\n\n".join(print_plan(plan, data="digest").rstrip() for plan in plans))
