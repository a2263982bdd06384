"""Results keep their numbers for as long as somebody sees them, and then their memory is used again."""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest
from support.executor_plans import F32, Builder

from fqfuse.runtime.lowering.executor import OneDnnExecutor
from fqfuse.runtime.results import WORTHWHILE, ResultMemory


def address(array: np.ndarray) -> int:
    return array.ctypes.data


def test_what_nobody_holds_is_used_again() -> None:
    memory = ResultMemory((3, 5), np.float32)
    first = memory.take()
    assert first.shape == (3, 5)
    assert first.dtype == np.float32
    assert first.flags.c_contiguous
    assert first.flags.writeable
    where = address(first)
    del first
    assert address(memory.take()) == where


@pytest.mark.parametrize(
    "seen",
    [
        lambda array: array[1:, ::2],
        lambda array: array.reshape(-1)[4:5],
        lambda array: array.T.view(np.uint32),
        memoryview,
        lambda array: memoryview(array)[1:],
        lambda array: np.asarray(memoryview(array)),
        np.from_dlpack,
        lambda array: np.lib.stride_tricks.as_strided(array, (2,), (4,)),
        lambda array: [array],
        lambda array: array.view(np.recarray),
    ],
)
def test_a_view_of_any_kind_keeps_it(seen) -> None:
    memory = ResultMemory((3, 5), np.float32)
    array = memory.take()
    where = address(array)
    held = seen(array)
    del array
    gc.collect()
    other = memory.take()
    assert address(other) != where
    del held
    assert address(memory.take()) == where


def test_few_are_kept() -> None:
    memory = ResultMemory((4,), np.int8)
    held = [memory.take() for _ in range(5)]
    assert len({address(array) for array in held}) == 5
    held.clear()
    assert len(memory._free) == 2
    assert not memory._lent


def test_results_outlive_what_they_came_from() -> None:
    memory = ResultMemory((2,), np.int32)
    array = memory.take()
    array[:] = 7, 8
    del memory
    gc.collect()
    assert array.tolist() == [7, 8]


ROWS = WORTHWHILE // 4 // 16


def doubled() -> OneDnnExecutor:
    b = Builder()
    x = b.input("x", (ROWS, 16), F32)
    w = b.constant("w", 2 * np.eye(16, dtype=np.float32))
    b.step("matmul", "MatMul", {"src": x, "weights": w}, "y", F32, (ROWS, 16))
    return OneDnnExecutor(b.plan("y"), 1)


@pytest.mark.usefixtures("library")
def test_a_run_writes_nothing_that_is_held() -> None:
    executor, held = doubled(), []
    for number in range(6):
        (found,) = executor.run({"x": np.full((ROWS, 16), number, np.float32)})
        held.append(found[number::2, number])
    for number, part in enumerate(held):
        assert (part == 2 * number).all()
    where = {address(executor.run({"x": np.zeros((ROWS, 16), np.float32)})[0]) for _ in range(5)}
    assert len(where) == 1


@pytest.mark.usefixtures("library")
def test_threads_get_results_of_their_own() -> None:
    executor, wrong = doubled(), []

    def work(number: int) -> None:
        last = None
        for step in range(50):
            value = 100 * number + step
            (found,) = executor.run({"x": np.full((ROWS, 16), value, np.float32)})
            if not (found == 2 * value).all() or (
                last is not None and not (last == 2 * value - 2).all()
            ):
                wrong.append(value)
            last = found

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
