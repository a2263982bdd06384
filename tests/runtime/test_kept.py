"""Programs for many input shapes: bounded in memory, and bound while others run."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import pytest
from support.binding_library import no_primitive_cache
from support.onnx_cases import model, node

import fqfuse
from fqfuse.errors import InvalidInput
from fqfuse.onednn import memory
from fqfuse.onednn.loading import load
from fqfuse.runtime.kept import KeptPrograms
from fqfuse.runtime.lowering.executor import OneDnnExecutor
from fqfuse.runtime.numpy_runtime import NumpyExecutor

LIMIT = 2 << 20


def never() -> tuple[str, int]:
    raise AssertionError("it was kept")


def made(name: str, needed: int) -> Callable[[], tuple[str, int]]:
    return lambda: (name, needed)


def test_what_was_not_used_for_longest_goes_first() -> None:
    kept = KeptPrograms[str](10)
    keys = [((size,),) for size in range(4)]
    for key, name in zip(keys[:3], "abc", strict=True):
        kept.get(key, made(name, 3))
    assert kept.get(keys[0], never) == "a"
    kept.get(keys[3], made("d", 3))
    assert list(kept) == ["c", "a", "d"]
    assert kept.latest == "d"


def test_the_program_in_use_stays_whatever_it_takes() -> None:
    kept = KeptPrograms[str](10)
    kept.get(((1,),), made("small", 1))
    kept.get(((2,),), made("large", 100))
    assert list(kept) == ["large"]


def test_runs_of_known_shapes_do_not_wait_while_another_binds() -> None:
    kept = KeptPrograms[str](10)
    kept.get(((1,),), made("known", 1))
    started, goes_on = threading.Event(), threading.Event()

    def slow() -> tuple[str, int]:
        started.set()
        assert goes_on.wait(60)
        return "slow", 1

    binds = threading.Thread(target=kept.get, args=(((2,),), slow))
    binds.start()
    assert started.wait(60)
    assert kept.get(((1,),), never) == "known"
    goes_on.set()
    binds.join()
    assert kept.get(((2,),), never) == "slow"


def test_a_program_that_fails_to_bind_leaves_no_lock() -> None:
    kept = KeptPrograms[str](10)

    def fails() -> tuple[str, int]:
        raise InvalidInput("shapes")

    with pytest.raises(InvalidInput):
        kept.get(((1,),), fails)
    assert kept.get(((1,),), made("works", 1)) == "works"


def open_model() -> onnx.ModelProto:
    weights = np.linspace(-1, 1, 4 * 3 * 3, dtype=np.float32).reshape(4, 3, 3)
    return model(
        [
            node("Conv", ["x", "w"], ["c"], kernel_shape=[3], pads=[1, 1]),
            node("Relu", ["c"], ["y"]),
        ],
        inputs={"x": [1, 3, "W"]},
        constants={"w": weights},
    )


def resident() -> float:
    """MiB of this process that lie in memory."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * 4096 / 2**20


def grown(backend: str) -> tuple[int, float]:
    """How many programs a thousand sizes leave, and by how many MiB the latter half made the process grow."""
    memory._KEPT = 64  # the table of descriptors is full before this begins to measure
    plan = fqfuse.compile(open_model())
    if backend == "numpy":
        executor: NumpyExecutor | OneDnnExecutor = NumpyExecutor(plan, 1, kept_bytes=LIMIT)
        kept = executor._bound
    else:
        executor = OneDnnExecutor(plan, 1, kept_bytes=LIMIT)
        kept = executor._state.programs
    before = 0.0
    with no_primitive_cache(load()):  # the library keeps 1,024 primitives besides
        # in no order: where each is larger than the last, none fits where another was
        for done, width in enumerate(np.random.default_rng(0).permutation(1000)):
            executor.run({"x": np.ones((1, 3, 3 + width), np.float32)})
            before = before or (resident() if done == 500 else 0.0)
    return len(kept), resident() - before


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["numpy", "onednn"])
def test_memory_stays_bounded_over_a_thousand_sizes(backend: str) -> None:
    if not Path("/proc/self/statm").exists():
        pytest.skip("this system does not say what a process takes")
    # a process of its own: other tests leave garbage and holes
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        kept, more = pool.submit(grown, backend).result()
    assert 1 < kept < 100
    assert more < 3 * LIMIT / 2**20  # a program of each size would take 30 MiB


@pytest.mark.parametrize("backend", ["numpy", "auto"])
def test_prepared_shapes_are_bound(backend: str) -> None:
    session = fqfuse.InferenceSession(open_model(), backend=backend)
    threads = [
        threading.Thread(target=session.prepare, args=({"x": (1, 3, width)},))
        for width in (5, 6, 7, 5)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    executor = session._executor
    kept = executor._bound if isinstance(executor, NumpyExecutor) else executor._state.programs
    assert len(kept) == 3
    session.run(None, {"x": np.ones((1, 3, 6), np.float32)})
    assert len(kept) == 3


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"x": (1, 3, -1)}, "is no shape"),
        ({"x": "13"}, "is no shape"),
        ({"x": (1, 3)}, "expected 3"),
        ({"x": (2, 3, 5)}, "size 2 in dimension 0"),
        ({"z": (1,)}, "unknown inputs: z"),
        ({}, "missing inputs: x"),
    ],
)
def test_shapes_that_no_run_could_have_are_refused(shapes: object, message: str) -> None:
    session = fqfuse.InferenceSession(open_model(), backend="numpy")
    with pytest.raises(InvalidInput, match=message):
        session.prepare(shapes)
