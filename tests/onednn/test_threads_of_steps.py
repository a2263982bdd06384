"""Steps of little work take one thread in the middle of a run that has several: with the same bytes,
and the caller's own number of threads is what it was.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

import numpy as np
import pytest
from laws.corpus import CORPUS, SLOW
from laws.registry import feeds_for
from onnx import ModelProto
from support.onnx_cases import model, node

import fqfuse
from fqfuse.composer.compose import plan_from_graph
from fqfuse.errors import InvalidInput
from fqfuse.onednn.library import Library
from fqfuse.passes import optimize
from fqfuse.runtime.lowering import binding
from fqfuse.runtime.lowering.executor import OneDnnExecutor
from fqfuse.runtime.lowering.pace import alike_with_any_threads
from fqfuse.runtime.lowering.program import Program, ThreadsAction

pytestmark = [
    pytest.mark.usefixtures("vnni"),
    pytest.mark.of_3_2("the threads of others are not ours to choose"),
]

WIDTH = 768


@pytest.fixture
def callers_threads(library: Library) -> Iterator[int]:
    """A number of the caller's own."""
    before = library.max_threads()
    library.set_threads(3)
    yield 3
    library.set_threads(before)


def two_products() -> ModelProto:
    """Two large products, a softmax of little work behind each, and a row of the caller's choice."""
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((2, WIDTH, WIDTH)).astype(np.float32)
    nodes = [
        node("MatMul", ["x", "w0"], ["a"]),
        node("Softmax", ["a"], ["b"], axis=-1),
        node("MatMul", ["b", "w1"], ["c"]),
        node("Softmax", ["c"], ["d"], axis=-1),
        node("Gather", ["d", "index"], ["y"], axis=0),
    ]
    return model(
        nodes,
        constants={f"w{i}": part for i, part in enumerate(weights)},
        inputs={"x": [4, WIDTH], "index": [1]},
        types={"index": 7},
        outputs=["y"],
    )


def program_of(session: fqfuse.InferenceSession) -> Program:
    assert isinstance(session._executor, OneDnnExecutor)
    return session._executor._latest()


def test_steps_of_little_work_take_one_thread() -> None:
    session = fqfuse.InferenceSession(two_products(), "onednn", 2)
    kinds = [
        action.count if isinstance(action, ThreadsAction) else "step"
        for action in program_of(session).actions
    ]
    assert kinds[:6] == ["step", 1, "step", 2, "step", 1]
    assert kinds[-1] == 2
    alone = fqfuse.InferenceSession(two_products(), "onednn", 1)
    assert not any(isinstance(action, ThreadsAction) for action in program_of(alone).actions)


def test_the_callers_number_of_threads_stays(library: Library, callers_threads: int) -> None:
    """Also behind a run that ends in the middle, and where it is the session's."""
    for threads in (2, callers_threads):
        session = fqfuse.InferenceSession(two_products(), "onednn", threads)
        x = np.ones((4, WIDTH), np.float32)
        for index in (1, 9):
            feeds = {"x": x, "index": np.array([index])}
            if index == 1:
                session.run(None, feeds)
            else:
                with pytest.raises(InvalidInput):
                    session.run(None, feeds)
            assert library.max_threads() == callers_threads


@pytest.mark.parametrize("name", [name for name in CORPUS if name not in SLOW][::8])
def test_the_law_of_steps_with_any_number_of_threads(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever steps take one thread: where the bytes do not depend on the number of threads, they do
    not depend on that.
    """
    graph, rng = CORPUS[name](), random.Random(name)  # noqa: S311  (no secret)
    plan = plan_from_graph(optimize(graph.copy()))
    feeds = feeds_for(graph)
    wanted = fqfuse.InferenceSession(plan, "onednn", 1).run(None, dict(feeds))
    monkeypatch.setattr(OneDnnExecutor, "_threads_for", lambda *_: 2)
    monkeypatch.setattr(binding, "work_of", lambda *_: rng.choice((0.0, math.inf)))
    monkeypatch.setattr(binding, "work_of_moving", lambda *_: rng.choice((0.0, math.inf)))
    for _ in range(3):
        session = fqfuse.InferenceSession(plan, "onednn", 2)
        found = session.run(None, dict(feeds))
        if alike_with_any_threads(plan, program_of(session)):
            assert [array.tobytes() for array in found] == [array.tobytes() for array in wanted]
