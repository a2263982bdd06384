"""Sessions on oneDNN: threads, processes, memory, and what they say about themselves."""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from support.executor_plans import F32, Builder
from support.runtime_networks import residual_network
from support.steps_compared import compare_steps
from support.versions import unexplained

import fqfuse
from fqfuse.errors import BackendUnavailable, InvalidInput
from fqfuse.onednn.library import Library
from fqfuse.onednn.slabs import Slabs, arena_bytes
from fqfuse.plan.file import save_plan
from fqfuse.plan.types import Plan
from fqfuse.runtime.lowering.executor import OneDnnExecutor
from fqfuse.runtime.session import InferenceSession

DATA = Path(fqfuse.__file__).parent / "models" / "data"
MODELS = ("digits_fakequantize.onnx", "digits_qdq.onnx")


@pytest.fixture(scope="module")
def plan() -> Plan:
    return residual_network()


@pytest.fixture(scope="module")
def session(plan: Plan) -> InferenceSession:
    return InferenceSession(plan, backend="onednn", threads=2)


def images(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, 3, 10, 12)).astype(np.float32)


# -- threads ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rows", "threads"), [(1, 1), (63, 1), (512, 2)])
def test_small_programs_run_by_one_thread(rows: int, threads: int, monkeypatch) -> None:
    """On a busy machine threads wait for each other behind each primitive."""
    taken = []
    set_threads = Library.set_threads

    def seen(library: Library, count: int) -> None:
        taken.append(count)
        set_threads(library, count)

    b = Builder()
    weights = b.constant("w", np.ones((128, 128), np.float32))
    product = {"src": b.input("x", ("N", 128)), "weights": weights}
    b.step("matmul", "MatMul", product, "y", F32, ("N", 128))
    session = InferenceSession(b.plan("y"), "onednn", 2)
    monkeypatch.setattr(Library, "set_threads", seen)
    session.run(None, {"x": np.ones((rows, 128), np.float32)})
    assert taken[0] == threads


# -- the digits ------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=MODELS)
def digits(request: pytest.FixtureRequest) -> Plan:
    return fqfuse.compile(DATA / request.param)


@pytest.fixture(scope="module")
def test_images() -> np.ndarray:
    return np.load(DATA / "digits_test.npz")["images"]


def test_the_digits_agree_with_numpy_in_every_byte(digits: Plan, test_images: np.ndarray) -> None:
    executor = OneDnnExecutor(digits, 2)
    assert unexplained(compare_steps(digits, executor, {"image": test_images})) == []
    assert {placement.runtime for placement in executor.placement()} == {"onednn", "view"}
    assert not any(
        part.startswith("ref")
        for p in executor.placement()
        for part in p.implementation.split(" + ")
    )
    assert executor.reorders == 0


def test_the_digits_are_recognized(digits: Plan, test_images: np.ndarray) -> None:
    labels = np.load(DATA / "digits_test.npz")["labels"]
    (scores,) = InferenceSession(digits, "onednn", 2).run(None, {"image": test_images})
    assert (scores.argmax(axis=1) == labels).mean() > 0.97


@pytest.mark.parametrize("name", MODELS)
def test_a_plan_for_the_older_attributes_agrees_too(name: str, test_images: np.ndarray) -> None:
    plan = fqfuse.compile(DATA / name, target="onednn-v2")
    executor = OneDnnExecutor(plan, 2)
    assert [str(d) for d in compare_steps(plan, executor, {"image": test_images[:50]})] == []
    assert {placement.runtime for placement in executor.placement()} == {"onednn", "view"}


# -- threads ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("runs", [250, pytest.param(2500, marks=pytest.mark.slow)])
def test_four_threads_on_one_session(digits: Plan, test_images: np.ndarray, runs: int) -> None:
    session = InferenceSession(digits, "onednn", 2)
    parts = [test_images[start : start + 1 + start % 3] for start in range(40)]
    expected = [session.run(None, {"image": part})[0] for part in parts]
    wrong: list[int] = []

    def work(seed: int) -> None:
        chosen = np.random.default_rng(seed).integers(0, len(parts), runs).tolist()
        wrong.extend(
            i
            for i in chosen
            if not np.array_equal(session.run(None, {"image": parts[i]})[0], expected[i])
        )

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_number_of_threads_changes_nothing(
    plan: Plan, session: InferenceSession, threads: int
) -> None:
    other = InferenceSession(plan, "onednn", threads)
    for mine, theirs in zip(
        other.run(None, {"image": images(5)}), session.run(None, {"image": images(5)}), strict=True
    ):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.of_3_2(
    "it sets threads of OpenMP, or loads by itself what only the environment finds on SYCL"
)
def test_the_callers_number_of_threads_is_given_back(library: Library, plan: Plan) -> None:
    before = library.max_threads()
    try:
        library.set_threads(3)
        session = InferenceSession(plan, "onednn", 1)
        session.run(None, {"image": images(1)})
        assert library.max_threads() == 3
    finally:
        library.set_threads(before)


def test_returned_arrays_belong_to_the_caller(session: InferenceSession) -> None:
    first = session.run(None, {"image": images(2, seed=1)})
    copies = [array.copy() for array in first]
    session.run(None, {"image": images(2, seed=2)})
    for array, copy in zip(first, copies, strict=True):
        np.testing.assert_array_equal(array, copy)
        assert array.flags.c_contiguous
        assert array.flags.writeable


def test_every_batch_size_gives_the_same_images(session: InferenceSession) -> None:
    scores, features = session.run(None, {"image": images(20)})
    for count in [*range(1, 12), 20, 1]:  # more sizes than stay bound
        part = session.run(None, {"image": images(20)[:count]})
        np.testing.assert_array_equal(part[0], scores[:count])
        np.testing.assert_array_equal(part[1], features[:count])


# -- processes -------------------------------------------------------------------------------------


def test_a_pickled_session(session: InferenceSession) -> None:
    again = pickle.loads(pickle.dumps(session))  # noqa: S301 - our own bytes
    assert (again.backend, again.threads) == ("onednn", 2)
    np.testing.assert_array_equal(
        again.run(None, {"image": images(2)})[0], session.run(None, {"image": images(2)})[0]
    )


def _answer(
    session: InferenceSession, x: np.ndarray, queue: multiprocessing.Queue[np.ndarray]
) -> None:
    queue.put(session.run(None, {"image": x})[0])


@pytest.mark.of_3_2("a library on SYCL does not compute in a forked process")
def test_a_forked_process(session: InferenceSession) -> None:
    (expected, _) = session.run(None, {"image": images(2)})
    context = multiprocessing.get_context("fork")
    queue: multiprocessing.Queue[np.ndarray] = context.Queue()
    process = context.Process(target=_answer, args=(session, images(2), queue))
    process.start()
    np.testing.assert_array_equal(queue.get(timeout=60), expected)
    process.join(timeout=60)
    assert process.exitcode == 0
    np.testing.assert_array_equal(session.run(None, {"image": images(2)})[0], expected)


def test_a_spawned_process(session: InferenceSession, tmp_path: Path) -> None:
    state, answer = tmp_path / "session", tmp_path / "answer.npy"
    state.write_bytes(pickle.dumps(session))
    script = (
        "import pickle, sys, numpy as np; session = pickle.load(open(sys.argv[1], 'rb'));"
        "np.save(sys.argv[2], session.run(None, {'image': np.ones((2, 3, 10, 12), np.float32)})[0])"
    )
    subprocess.run([sys.executable, "-c", script, str(state), str(answer)], check=True, timeout=120)
    np.testing.assert_array_equal(
        np.load(answer), session.run(None, {"image": np.ones((2, 3, 10, 12), np.float32)})[0]
    )


# -- memory ----------------------------------------------------------------------------------------


GROWTH = """
import gc, os, sys
from pathlib import Path

import numpy as np

from fqfuse import InferenceSession, load_plan

plan, what, count = load_plan(sys.argv[1]), sys.argv[2], int(sys.argv[3])
x = {"image": np.ones((1, 3, 10, 12), np.float32)}
session = InferenceSession(plan, "onednn", 1)


def megabytes():
    gc.collect()
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def one():
    (session if what == "runs" else InferenceSession(plan, "onednn", 1)).run(None, x)


for _ in range(100):  # the allocator and oneDNN's primitive cache reach their size
    one()
before = megabytes()
for _ in range(count):
    one()
print(megabytes() - before)
"""


@pytest.mark.skipif(
    not Path("/proc/self/statm").exists(), reason="resident memory is read from Linux's /proc"
)
@pytest.mark.parametrize(
    ("what", "count"),
    [
        ("runs", 3_000),
        pytest.param("sessions", 5_000, marks=pytest.mark.slow),
        pytest.param("runs", 1_000_000, marks=pytest.mark.slow),
    ],
)
def test_nothing_is_left_behind(plan: Plan, tmp_path: Path, what: str, count: int) -> None:
    """In a process of its own: the heap of one that ran other tests before grows by what those left
    in pieces.
    """
    save_plan(plan, tmp_path / "plan.onnx")
    command = [sys.executable, "-c", GROWTH, str(tmp_path / "plan.onnx"), what, str(count)]
    done = subprocess.run(command, check=True, timeout=1500, capture_output=True, text=True)
    # 420 bytes that stay of each of 5,000 sessions, which hold more than 100 kB each, or 2 of each of a million
    # runs; a process grows by .93, whatever their number
    assert float(done.stdout) < 2


def test_a_session_goes_when_its_last_reference_goes(plan: Plan) -> None:
    gc.collect()
    gc.disable()
    try:
        session = InferenceSession(plan, "onednn", 1)
        session.run(None, {"image": images(1)})
        state = session._executor._state
        run = next(iter(state.programs)).idle[0]
        arena = run._arena.base
        del state, run, session
        # ours and the call's: no cycle keeps the memory until it is collected
        assert sys.getrefcount(arena) == 2
    finally:
        gc.enable()


# -- what a session says ---------------------------------------------------------------------------


def test_placement(session: InferenceSession, plan: Plan) -> None:
    session.run(None, {"image": images(1)})
    placements = session.placement()
    assert [placement.step for placement in placements] == list(plan.steps)
    assert all(
        placement.implementation for placement in placements if placement.runtime == "onednn"
    )
    assert session.backend == "onednn"
    assert "oneDNN 3" in session.backend_reason


def test_placement_is_unknown_before_the_shapes_are(plan: Plan) -> None:
    session = InferenceSession(plan, "onednn", 1)
    with pytest.raises(InvalidInput, match="nothing is bound yet"):
        session.placement()


def test_placement_on_numpy(plan: Plan) -> None:
    placements = InferenceSession(plan, "numpy", 1).placement()
    assert {placement.runtime for placement in placements} == {"numpy"}
    assert {placement.reason for placement in placements} == {"the backend numpy was asked for"}


WITHOUT = """
import numpy as np, sys
import fqfuse
plan = fqfuse.compile(sys.argv[1])
session = fqfuse.InferenceSession(plan, "auto", 1)
print(session.backend, "|", session.backend_reason)
try:
    fqfuse.InferenceSession(plan, "onednn", 1)
except fqfuse.BackendUnavailable as error:
    print(error)
"""


def test_without_the_library() -> None:
    environment = {**os.environ, "FQFUSE_ONEDNN": "/nowhere/libdnnl.so.3"}
    command = [sys.executable, "-c", WITHOUT, str(DATA / MODELS[0])]
    said = subprocess.run(
        command, env=environment, check=True, capture_output=True, text=True, timeout=120
    ).stdout
    assert said.startswith("numpy | oneDNN cannot be used: ")
    assert 'pip install "fqfuse[onednn]"' in said
    assert BackendUnavailable.__name__ not in said


# -- buffers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("expected", [0, 1000, 5 << 20])
def test_slabs_hand_out_separate_aligned_buffers(expected: int) -> None:
    slabs = Slabs(expected)
    taken = [slabs.take(size) for size in (1, 100, 70_000, 3 << 20, 2 << 20, 9 << 20, 0, 64)]
    for number, buffer in enumerate(taken):
        assert buffer.size == 0 or buffer.ctypes.data % 64 == 0
        buffer[:] = number
    for number, buffer in enumerate(taken):
        assert (buffer == number).all()


@pytest.mark.parametrize("size", [1, 1 << 20, (5 << 20) + 3])
def test_arenas_have_their_size_and_alignment(size: int) -> None:
    arena = arena_bytes(size)
    assert arena.size == size
    assert arena.ctypes.data % 64 == 0
