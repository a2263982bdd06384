"""A walk over a graph computes what is asked for, and keeps no more than is still read."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from support.onnx_cases import model, node, random

from fqfuse.accuracy.walk import Walk
from fqfuse.errors import InvalidInput
from fqfuse.frontend import graph_from_onnx
from fqfuse.ir.graph import Graph
from fqfuse.runtime.fallback import Foreigners


def chain(length: int = 20) -> Graph:
    names = ["x", *(f"v{number}" for number in range(length))]
    nodes = [node("Neg", [a], [b]) for a, b in pairwise(names)]
    return graph_from_onnx(model(nodes, inputs={"x": [4]}, outputs=[names[-1]]))


def test_values_go_after_their_last_reader() -> None:
    x = random([4])
    walk = Walk(chain(), {"x": x}, ["v3", "v19"], Foreigners())
    assert (walk["v19"] == x).all()
    assert set(walk._arrays) == {"v3", "v19"}
    assert (walk["v3"] == x).all()
    walk.release("v3")
    assert set(walk._arrays) == {"v19"}


def test_nothing_runs_that_nobody_asked_for() -> None:
    walk = Walk(chain(), {"x": np.zeros(4, np.float32)}, ["v3"], Foreigners())
    assert (walk["v3"] == 0).all()
    assert set(walk._arrays) == {"v3"}
    assert next(walk._nodes).output == "v4"


def test_feeds_are_checked() -> None:
    with pytest.raises(InvalidInput, match="expected shape"):
        Walk(chain(), {"x": np.zeros(5, np.float32)}, [], Foreigners())
