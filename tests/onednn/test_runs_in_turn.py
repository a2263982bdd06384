"""The law of runs in turn: whatever a session was fed before, each run has the bytes of a new
session, and changes no array that the caller holds.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from laws.corpus import CORPUS, SLOW
from laws.registry import feeds_for

import fqfuse
from fqfuse.composer.compose import plan_from_graph
from fqfuse.passes import optimize
from fqfuse.runtime.lowering import program, runs

Array = npt.NDArray[np.generic]
RUNS = 4
LAYOUTS: tuple[Callable[[Array], Array], ...] = (
    np.copy,
    lambda array: np.array(array, order="F"),
    lambda array: np.repeat(array[..., None], 2, -1)[..., 0],
    lambda array: np.frombuffer(array.tobytes(), array.dtype).reshape(array.shape),  # read-only
)


@pytest.mark.parametrize("name", [name for name in CORPUS if name not in SLOW][::8])
def test_each_run_is_as_the_first(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (program, runs):
        monkeypatch.setattr(
            module, "WORTHWHILE", 0
        )  # each result that can be is handed out as it is
    graph = CORPUS[name]()
    plan = plan_from_graph(optimize(graph.copy()))
    session = fqfuse.InferenceSession(plan, "onednn", 1)
    held: list[tuple[Array, bytes]] = []
    for index in range(RUNS):
        feeds = feeds_for(graph, seed=index, batch=2 + index // 2 % 2)
        wanted = fqfuse.InferenceSession(plan, "onednn", 1).run(None, dict(feeds))
        lying = {
            key: LAYOUTS[(index + place) % len(LAYOUTS)](array)
            for place, (key, array) in enumerate(feeds.items())
        }
        found = session.run(None, lying)
        assert [array.tobytes() for array in found] == [array.tobytes() for array in wanted]
        held += [(array, array.tobytes()) for array in found[index % 2 :]]
        assert all(array.tobytes() == before for array, before in held)
