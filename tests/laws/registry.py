"""Where small graphs register: `CORPUS` maps a name to a function that builds the graph anew, and
`feeds_for` makes its inputs.

The graphs are as the frontend imports them, with a symbolic batch. Many scales are powers of two or
multiples of 0.5, so that ties are frequent.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from laws.build import Net, Value

from fqfuse.ir.graph import Graph
from fqfuse.ir.types import DType

CORPUS: dict[str, Callable[[], Graph]] = {}

Build = Callable[[Net], tuple[Value, ...] | Value]


def case(build: Build) -> Build:
    """Adds a graph to the corpus under the function's name."""

    def make() -> Graph:
        net = Net(build.__name__, seed=len(build.__name__))
        outputs = build(net)
        return net.done(*((outputs,) if isinstance(outputs, str) else outputs))

    assert build.__name__ not in CORPUS, build.__name__
    CORPUS[build.__name__] = make
    return build


def feeds_for(graph: Graph, seed: int = 0, batch: int = 2) -> dict[str, np.ndarray]:
    """Feeds on which ties are frequent: half of the numbers are multiples of 1/32, the others are
    normally distributed.
    """
    rng = np.random.default_rng(seed)
    feeds: dict[str, np.ndarray] = {}
    for name in graph.inputs:
        kind = graph.type(name)
        assert kind.shape is not None
        shape = tuple(batch if isinstance(d, str) else d for d in kind.shape)
        if kind.dtype.is_integer:
            low, high = kind.dtype.range if kind.dtype in (DType.U8, DType.S8) else (0, 2)
            feeds[name] = rng.integers(low, high + 1, shape).astype(kind.dtype.numpy)
            continue
        normal = rng.standard_normal(shape) * 1.5
        feeds[name] = np.where(rng.random(shape) < 0.5, np.rint(normal * 32) / 32, normal).astype(
            np.float32
        )
    return feeds
