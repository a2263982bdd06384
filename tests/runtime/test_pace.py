"""A session takes one thread where its threads wait for each other, and all of them again when they
no longer do; its results stay the same bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from laws.anchor_law import drawn
from laws.exact_anchors import Anchor, model_of
from onnx import TensorProto, helper, numpy_helper
from support.one_query import keys_of

import fqfuse
from fqfuse.errors import InvalidInput
from fqfuse.runtime.budget import RunBudget
from fqfuse.runtime.lowering.executor import OneDnnExecutor, _Bound
from fqfuse.runtime.lowering.pace import Pace, alike_with_any_threads

PRICE = 0.3
OF_OPENMP = pytest.mark.of_3_2("the threads of others are not ours to choose")


class Machine:
    """Runs a network of 2 ms with two threads and of 3 with one, as a clock would see it."""

    def __init__(self, alone: float = 0.003, actions: int = 60) -> None:
        self.pace, self.now = Pace(PRICE, actions), 0.0
        self.seconds = {True: alone, False: 0.002}

    def runs(self, count: int, *, waits: float) -> float:
        """Makes runs that wait so long where they have two threads; how long they took."""
        started = self.now
        for _ in range(count):
            alone = self.pace.alone
            waited = 0.0 if alone else waits
            seconds = self.seconds[alone] + waited
            self.now += seconds
            self.pace.took(alone=alone, seconds=seconds, waited=waited, now=self.now)
        return self.now - started


def test_on_an_idle_machine_it_takes_all_threads() -> None:
    machine = Machine()
    assert machine.runs(1000, waits=0.0009) == pytest.approx(1000 * 0.0029)
    assert not machine.pace.alone


def test_a_short_wait_now_and_then_is_borne() -> None:
    machine = Machine()
    for _ in range(100):
        machine.runs(1, waits=0.03)
        machine.runs(9, waits=0.0)
        assert not machine.pace.alone


def test_on_a_busy_machine_it_loses_no_more_than_a_binding_and_the_trials() -> None:
    machine = Machine()
    took = machine.runs(2000, waits=0.06)
    # all threads are tried 0.1, 0.2, 0.4 ... seconds apart, 3 runs each time: 7 times in these runs
    trials = 7 * 3 * 0.062
    assert took < 2000 * 0.003 + PRICE + 6 * 0.062 + trials
    assert machine.pace.alone


def test_all_threads_come_back() -> None:
    machine = Machine()
    machine.runs(2000, waits=0.06)
    before = machine.now
    while machine.pace.alone or machine.pace._left:
        machine.runs(1, waits=0.0)
    assert machine.now - before < 5.1
    assert machine.runs(500, waits=0.0) == pytest.approx(500 * 0.002)


def test_a_short_program_takes_what_is_faster() -> None:
    for alone, threads in ((0.0003, 2), (0.0001, 1)):
        machine = Machine(alone)
        machine.seconds[False] = 0.0002
        took = machine.runs(30_000, waits=0.0)
        assert machine.pace.alone == (threads == 1)
        assert took < 30_000 * min(alone, 0.0002) + PRICE + 0.1


def test_so_does_one_of_many_short_actions() -> None:
    """Also where some runs take long."""
    for alone, threads in ((0.003, 2), (0.0015, 1)):
        machine = Machine(alone, actions=130)
        for _ in range(100):
            machine.runs(1, waits=0.0009)
            machine.runs(9, waits=0.0)
        while machine.pace._left:  # a trial
            machine.runs(1, waits=0.0)
        assert machine.pace.alone == (threads == 1)


def test_where_one_thread_is_slower_still_the_others_are_waited_for() -> None:
    machine = Machine(alone=0.5)
    took = machine.runs(5000, waits=0.06)
    assert not machine.pace.alone
    # trials, whose price doubles with each in vain: one in twice as long
    assert took < 2 * 5000 * 0.062


def bound_of(session: fqfuse.InferenceSession) -> _Bound:
    assert isinstance(session._executor, OneDnnExecutor)
    (bound,) = session._executor._state.programs
    return bound


@OF_OPENMP
def test_both_programs_give_the_same_bytes() -> None:
    rng = np.random.default_rng(0)
    feeds = {"image": rng.random((64, 1, 8, 8), np.float32)}
    session = fqfuse.InferenceSession("models/data/digits_qdq.onnx", "onednn", 2)
    before = session.run(None, feeds)
    bound = bound_of(session)
    bound.pace = Pace(PRICE, 1)
    bound.pace.alone = True
    for _ in range(2):
        after = session.run(None, feeds)
        assert [found.tobytes() for found in after] == [found.tobytes() for found in before]
    assert bound.alone is not None
    assert bound.alone.threads == 1


@OF_OPENMP
def test_one_thread_has_no_choice() -> None:
    session = fqfuse.InferenceSession("models/data/digits_qdq.onnx", "onednn", 1)
    session.run(None, {"image": np.zeros((64, 1, 8, 8), np.float32)})
    assert bound_of(session).pace is None


@OF_OPENMP
@pytest.mark.parametrize("seed", range(6))
def test_what_is_said_to_be_alike_is_alike(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The law: bytes do not depend on the number of threads where the pace may choose it."""
    anchors = drawn(seed)
    alike = [anchor for anchor in anchors if _holds(anchor, monkeypatch)]
    assert len(alike) > len(anchors) / 4  # or it holds for want of cases


def _holds(anchor: Anchor, monkeypatch: pytest.MonkeyPatch) -> bool:
    return held(*model_of([anchor]), monkeypatch)


def held(model: Any, feeds: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether it is said to be alike, which it then is."""
    plan = fqfuse.compile(model)
    results = []
    for threads in (1, 2, 3, 8):
        monkeypatch.setattr(OneDnnExecutor, "_threads_for", lambda *_, threads=threads: threads)
        session = fqfuse.InferenceSession(plan, "onednn", threads)
        results.append([found.tobytes() for found in session.run(None, feeds)])
        assert isinstance(session._executor, OneDnnExecutor)
        if not alike_with_any_threads(session._executor._lowered, bound_of(session).program):
            return False
    assert all(found == results[0] for found in results), model.graph.node
    return True


@OF_OPENMP
@pytest.mark.parametrize(("rows", "depth", "columns"), [(768, 2048, 64), (64, 64, 64)])
def test_a_product_of_columns_is_not_said_to_be_alike(
    rows: int, depth: int, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """brgemm cuts the sums of a turned source in parts, by the number of threads."""
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0]),
        helper.make_node("MatMul", ["t", "w"], ["y"]),
    ]
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)
        for name, dims in (("x", [depth, rows]), ("w", [depth, columns]))
    ]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, columns])
    graph = helper.make_graph(nodes, "product", inputs, [output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    rng = np.random.default_rng(0)
    feeds = {
        "x": rng.standard_normal((depth, rows), np.float32),
        "w": rng.standard_normal((depth, columns), np.float32),
    }
    assert not held(model, feeds, monkeypatch)


@OF_OPENMP
@pytest.mark.parametrize("seed", range(6))
def test_queries_times_keys_are_alike(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """gemm's threads share columns, and no sum."""
    assert held(*keys_of(seed, least=96), monkeypatch)


def packed_product(
    rows: int, size: int, columns: int, bits: int, block: int
) -> tuple[Any, dict[str, Any]]:
    """Rows in f32 times weights in blocks, and what to feed."""
    rng, blocks = np.random.default_rng(0), -(-size // block)
    constants = {
        "w": rng.integers(0, 256, (columns, blocks, block * bits // 8)).astype(np.uint8),
        "s": rng.random(columns * blocks).astype(np.float32),
    }
    product = helper.make_node(
        "MatMulNBits",
        ["x", "w", "s"],
        ["y"],
        "product",
        domain="com.microsoft",
        K=size,
        N=columns,
        bits=bits,
        block_size=block,
    )
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, size])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, columns])]
    tensors = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph([product], "packed", inputs, outputs, tensors)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    feeds = {"x": rng.standard_normal((rows, size), np.float32)}
    return helper.make_model(graph, opset_imports=opsets), feeds


@OF_OPENMP
@pytest.mark.parametrize(
    ("rows", "size", "columns", "bits", "block"),
    [
        (16, 2048, 1030, 2, 32),
        (16, 96, 513, 2, 32),
        (1, 2048, 1030, 2, 32),
        (16, 1000, 1030, 4, 16),
        (1, 520, 700, 4, 32),
        (64, 520, 513, 4, 64),
        (300, 200, 300, 8, 128),
    ],
)
def test_packed_products_that_are_said_to_be_alike_are(
    rows: int, size: int, columns: int, bits: int, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where weights are decoded for a kernel of the library, by parts, their width is the threads'."""
    held(*packed_product(rows, size, columns, bits, block), monkeypatch)


@OF_OPENMP
def test_two_programs_that_sum_by_other_kernels_are_not_exchanged() -> None:
    """Weights of 4 bits in parts, which are as wide as the threads are many: one thread's go to gemm."""
    model, feeds = packed_product(rows=5, size=512, columns=512, bits=4, block=16)
    session = fqfuse.InferenceSession(model, "onednn", 2)
    before = session.run(None, feeds)[0].tobytes()
    bound = bound_of(session)
    if bound.pace is not None:
        bound.pace.alone = True
    assert [session.run(None, feeds)[0].tobytes() for _ in range(3)] == [before] * 3


@OF_OPENMP
def test_without_memory_for_a_second_program_it_keeps_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    feeds = {"image": np.zeros((64, 1, 8, 8), np.float32)}
    session = fqfuse.InferenceSession("models/data/digits_qdq.onnx", "onednn", 2)
    before = session.run(None, feeds)[0].tobytes()
    bound = bound_of(session)
    bound.pace = Pace(PRICE, 1)
    bound.pace.alone = True

    def refuse(*_: object) -> None:
        raise InvalidInput("too much")

    monkeypatch.setattr(RunBudget, "check_run", refuse)
    assert session.run(None, feeds)[0].tobytes() == before
    assert bound.pace is None
    assert bound.alone is None


class Dropping(_Bound):
    """A program whose pace another caller drops between two looks at it."""

    looks = 0

    @property
    def pace(self) -> Pace | None:
        self.looks += 1
        return Pace(PRICE, 1) if self.looks == 1 else None

    @pace.setter
    def pace(self, given: Pace | None) -> None:
        """Nothing is kept."""


@OF_OPENMP
def test_another_caller_may_drop_the_pace_at_any_time() -> None:
    feeds = {"image": np.zeros((64, 1, 8, 8), np.float32)}
    session = fqfuse.InferenceSession("models/data/digits_qdq.onnx", "onednn", 2)
    before = session.run(None, feeds)[0].tobytes()
    assert isinstance(session._executor, OneDnnExecutor)
    state, bound = session._executor._state, bound_of(session)
    state.recent = state.recent[0], Dropping(bound.program, bound.threads)
    assert session.run(None, feeds)[0].tobytes() == before
