"""The worker pool, the guard of BLAS threads, and the buffers that liveness lets share memory."""

from __future__ import annotations

import gc
import threading
import time
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.runtime_networks import residual_network
from threadpoolctl import threadpool_info

from fqfuse.errors import InternalError
from fqfuse.ir.types import DType, TensorType
from fqfuse.plan.types import Plan, Step
from fqfuse.runtime.arena import place, trace
from fqfuse.runtime.kernels.base import Scratch, tiles
from fqfuse.runtime.pool import WorkerPool, single_threaded_blas
from fqfuse.runtime.session import InferenceSession


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("count", [0, 1, 3, 40])
def test_every_task_runs_once(threads: int, count: int) -> None:
    pool, seen, lock = WorkerPool(threads), [], threading.Lock()

    def body(index: int, slot: int) -> None:
        with lock:
            seen.append((index, slot))

    for _ in range(20):
        seen.clear()
        pool.run(count, body)
        assert sorted(index for index, _ in seen) == list(range(count))
        assert all(0 <= slot < threads for _, slot in seen)


def nothing(index: int, slot: int) -> None:
    """A task."""


def test_a_slot_is_never_shared() -> None:
    pool, busy = WorkerPool(4), [threading.Lock() for _ in range(4)]

    def body(_: int, slot: int) -> None:
        assert busy[slot].acquire(blocking=False)
        time.sleep(0.0005)
        busy[slot].release()

    for _ in range(10):
        pool.run(12, body)


def test_an_error_reaches_the_caller_and_the_pool_goes_on() -> None:
    pool = WorkerPool(3)

    def body(index: int, _: int) -> None:
        if index == 5:
            raise ValueError("task 5")

    for _ in range(3):
        with pytest.raises(ValueError, match="task 5"):
            pool.run(9, body)
    pool.run(9, nothing)


def test_workers_stop_with_their_pool() -> None:
    before = set(threading.enumerate())
    pools = [WorkerPool(3) for _ in range(5)]
    for pool in pools:
        pool.run(3, nothing)
    started = set(threading.enumerate()) - before
    assert len(started) == 10
    del pool, pools
    gc.collect()
    for thread in started:
        thread.join(10)
        assert not thread.is_alive()


def blas_threads() -> list[int]:
    np.matmul(np.ones((2, 2)), np.ones((2, 2)))
    return [info["num_threads"] for info in threadpool_info() if info["user_api"] == "blas"]


def test_blas_is_single_threaded_inside_and_as_before_outside() -> None:
    before = blas_threads()
    if not before:
        pytest.skip("NumPy's BLAS is one that threadpoolctl does not know")
    with single_threaded_blas():
        assert set(blas_threads()) == {1}
        with single_threaded_blas():
            assert set(blas_threads()) == {1}
        assert set(blas_threads()) == {1}
    assert blas_threads() == before


def test_any_thread_may_begin_and_end_the_limit() -> None:
    before = blas_threads()
    if not before:
        pytest.skip("NumPy's BLAS is one that threadpoolctl does not know")
    with single_threaded_blas():
        pass  # this thread set the limit once
    inside: list[int] = []

    def begin() -> None:
        guard.__enter__()
        inside.extend(blas_threads())

    guard = single_threaded_blas()
    for target in (begin, lambda: guard.__exit__(None, None, None)):
        thread = threading.Thread(target=target)
        thread.start()
        thread.join()
    assert set(inside) == {1}
    assert blas_threads() == before


@given(st.lists(st.integers(1, 9), min_size=1, max_size=5), st.integers(1, 200), st.integers(1, 4))
def test_tiles_cover_a_shape_once(shape: list[int], limit: int, workers: int) -> None:
    counts = np.zeros(shape, int)
    starts = []
    flat = np.arange(counts.size).reshape(shape)
    for tile in tiles(shape, limit, workers):
        part = counts[tile]
        part += 1
        assert part.size <= max(limit, 1) or all(cut.stop - cut.start == 1 for cut in tile[:-1])
        places = flat[tile].reshape(-1)
        assert places[-1] - places[0] == places.size - 1, "a tile is contiguous"
        starts.append(int(places[0]))
    assert (counts == 1).all()
    assert starts == sorted(starts)


@pytest.mark.parametrize(("rows", "count"), [(56, 8), (57, 8), (28, 4), (9, 2), (8, 1)])
def test_every_worker_gets_as_many_tiles(rows: int, count: int) -> None:
    cut = tiles((1, rows, 10), 80, 2)
    assert len(cut) == count
    sizes = [tile[1].stop - tile[1].start for tile in cut]
    assert max(sizes) - min(sizes) <= 1


def test_no_tiles_of_nothing() -> None:
    assert tiles((3, 0, 2), 10) == []


def test_scratch_says_when_a_kernel_announced_too_little() -> None:
    scratch = Scratch(128)
    first = scratch.take((16,), np.float32)
    mark = scratch.mark()
    scratch.take((64,), np.uint8)
    scratch.release(mark)
    second = scratch.take((8,), np.float64)
    assert not np.may_share_memory(first, second)
    assert first.ctypes.data % 64 == 0
    with pytest.raises(InternalError, match="announced 128"):
        scratch.take((1,), np.uint8)


def chain(reads: list[list[int]], owns: list[bool]) -> tuple[Plan, dict[str, int]]:
    """A plan whose step i reads the outputs of the steps in reads[i] (-1: the input), and buffer
    sizes of those that own one.
    """
    type_ = TensorType(DType.F32, (1,))
    names = [f"v{i}" for i in range(len(reads))]
    steps = tuple(
        Step(
            f"s{i}",
            "onnx.Identity",
            "Identity",
            tuple((f"x_{j}", "x" if r < 0 else names[r]) for j, r in enumerate(inputs)),
            (names[i],),
        )
        for i, inputs in enumerate(reads)
    )
    values = dict.fromkeys(("x", *names), type_)
    return Plan("chain", "onednn-v3", ("x",), (names[-1],), values, {}, steps), {
        n: 64 * (i % 5 + 1) for i, n in enumerate(names) if owns[i]
    }


@given(st.data())
def test_buffers_that_live_together_lie_apart(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 14))
    reads = [
        data.draw(st.lists(st.integers(-1, i - 1), min_size=1, max_size=3)) for i in range(count)
    ]
    owns = data.draw(st.lists(st.booleans(), min_size=count, max_size=count))
    plan, sizes = chain(reads, owns)
    lives = trace(plan, sizes)
    offsets, total = place(lives, sizes)
    # What a value without a buffer may be a view of: the buffers of its inputs, through any number
    # of such values.
    roots: dict[str, set[str]] = {"x": set()}
    for step in plan.steps:
        name = step.output
        roots[name] = {name} if name in sizes else set().union(*(roots[v] for v in step.inputs))
    for index, step in enumerate(plan.steps):
        needed = set()  # buffers that may be read at this step or later, and exist by now
        for later in plan.steps[index:]:
            for value in later.inputs:
                needed |= {r for r in roots[value] if int(r[1:]) < index}
        for value in plan.outputs:
            needed |= {r for r in roots[value] if int(r[1:]) < index}
        if step.output in sizes:
            needed.add(step.output)
        spans = sorted((offsets[name], offsets[name] + sizes[name]) for name in needed)
        assert all(a[1] <= b[0] for a, b in pairwise(spans))
    assert all(offsets[name] + size <= total for name, size in sizes.items())
    dead = [name for names in lives.dead for name in names]
    assert len(dead) == len(set(dead))
    assert set(plan.outputs).isdisjoint(dead)


def test_a_chain_needs_two_buffers() -> None:
    plan, _ = chain([[i - 1] for i in range(100)], [True] * 100)
    sizes = {f"v{i}": 1000 for i in range(100)}
    assert place(trace(plan, sizes), sizes)[1] == 2 * 1024


def test_a_session_holds_one_arena_for_each_run_at_a_time() -> None:
    session = InferenceSession(residual_network(), backend="numpy", threads=1)
    x = np.zeros((2, 3, 10, 12), np.float32)
    for _ in range(5):
        session.run(None, {"image": x})
    (bound,) = session._executor._bound
    assert len(bound.idle) == 1


@pytest.mark.parametrize("backend", ["numpy", "onednn"])
@pytest.mark.parametrize("threads", [1, 3])
def test_where_the_system_starts_no_threads_the_caller_works(
    monkeypatch: pytest.MonkeyPatch, backend: str, threads: int
) -> None:
    model = residual_network()
    session = InferenceSession(model, backend, threads)
    feeds = {
        given.name: np.ones([n if isinstance(n, int) else 2 for n in given.shape], np.float32)
        for given in session.get_inputs()
    }
    expected = session.run(None, feeds)

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    for found, wanted in zip(
        InferenceSession(model, backend, threads).run(None, feeds), expected, strict=True
    ):
        np.testing.assert_array_equal(found, wanted)
