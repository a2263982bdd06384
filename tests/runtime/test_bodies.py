"""Sessions over plans with bodies: states that grow, no trip at all, threads, forks, pickles."""

from __future__ import annotations

import multiprocessing
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import onnx
import pytest
from laws.runtimes import EACH_RUNTIME, RUNTIMES
from onnx import helper
from support.body_cases import BOOL, F32, S64, WIDTH, Writer, fed, info, looped
from support.onnx_cases import model, node, run_ort

import fqfuse


def growing() -> onnx.ModelProto:
    """The state gets a row more in each trip, made of a quantized product of all rows; the number of a
    trip as some exporters declare it, a list of one.
    """
    writer = Writer(["matmul"], "inside", 1)
    nodes, result = writer.trip("state", "t")
    nodes += [
        node("ReduceMax", [result, "rows"], ["most"], keepdims=1),
        node("Concat", ["state", "most"], ["longer"], axis=0),
        node("Identity", ["going"], ["on"]),
        node("ReduceSum", ["most"], ["total"], keepdims=0),
    ]
    writer.inside["rows"] = np.array([0])
    body = helper.make_graph(
        nodes,
        "body",
        [info("trip", S64, [1]), info("going", BOOL, [1]), info("state", F32, None)],
        [info("on", BOOL, [1]), info("longer", F32, None), info("total", F32, None)],
        [helper.make_tensor(name, *_told(value)) for name, value in writer.inside.items()],
    )
    loop = node("Loop", ["n", "", "x"], ["y", "sums"], name="loop", body=body)
    return model(
        [loop], inputs={"x": ["N", WIDTH], "n": []}, types={"n": S64}, outputs=["y", "sums"]
    )


def _told(value: Any) -> tuple[int, Any, Any]:
    array = np.asarray(value)
    kind = helper.np_dtype_to_tensor_dtype(array.dtype)
    return kind, array.shape, array.reshape(-1).tolist()


@EACH_RUNTIME
@pytest.mark.parametrize("trips", [0, 1, 7])
def test_a_state_may_grow(runtime: str, trips: int) -> None:
    proto = growing()
    session = fqfuse.InferenceSession(proto, backend=runtime)
    for rows in (2, 5):
        given = {"x": fed([rows, WIDTH], rows), "n": np.array(trips)}
        for found, wanted in zip(session.run(None, given), run_ort(proto, given), strict=True):
            np.testing.assert_array_equal(found, wanted, strict=True)


@EACH_RUNTIME
def test_rows_of_different_shapes_are_refused(runtime: str) -> None:
    proto = growing()
    body = proto.graph.node[0].attribute[0].g
    body.output[2].CopyFrom(info("row", F32, None))
    body.node.append(node("Identity", ["longer"], ["row"]))
    session = fqfuse.InferenceSession(proto, backend=runtime)
    x = fed([2, WIDTH], 1)
    assert session.run(None, {"x": x, "n": np.array(1)})[1].shape == (1, 3, WIDTH)
    with pytest.raises(fqfuse.InvalidInput, match="the rows of row have different shapes"):
        session.run(None, {"x": x, "n": np.array(2)})


_ON_OPENMP = pytest.mark.of_3_2("a library on SYCL does not compute in a forked process")
EACH_THAT_FORKS = pytest.mark.parametrize(
    "runtime",
    [pytest.param(name, marks=_ON_OPENMP if name == "onednn" else ()) for name in RUNTIMES],
)


def of_loop(runtime: str) -> tuple[fqfuse.InferenceSession, dict[str, Any], list[Any]]:
    """A session over a loop with an If in it, what is fed, and what it gives."""
    proto = looped(Writer(["matmul", "nested"], "inside", 1), 4, how="constant")
    session = fqfuse.InferenceSession(proto, backend=runtime, threads=2)
    given = {"x": fed([2, WIDTH], 1), "around": fed([2, WIDTH], 2)}
    return session, given, session.run(None, given)


def same(found: list[Any], expected: list[Any]) -> None:
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other, strict=True)


@EACH_RUNTIME
def test_threads_share_a_session(runtime: str) -> None:
    session, given, expected = of_loop(runtime)
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda _: session.run(None, given), range(24)):
            same(found, expected)


@EACH_RUNTIME
def test_a_session_with_bodies_can_be_pickled(runtime: str) -> None:
    session, given, expected = of_loop(runtime)
    same(pickle.loads(pickle.dumps(session)).run(None, given), expected)  # noqa: S301  (its own)


@EACH_THAT_FORKS
def test_a_forked_process_runs_bodies(runtime: str) -> None:
    session, given, expected = of_loop(runtime)
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    child = context.Process(target=lambda: theirs.send(session.run(None, given)))
    child.start()
    assert ours.poll(60), "the child waits for ever"
    same(ours.recv(), expected)
    child.join()


@EACH_THAT_FORKS
def test_a_fork_while_a_body_is_made_ready_waits_for_nobody(runtime: str, monkeypatch) -> None:
    session, given, expected = of_loop(runtime)
    begun, done = threading.Event(), threading.Event()
    (runner,) = session._executor._bodies.values()
    make = runner._make
    runner._executors.clear()

    def slow(plan: fqfuse.Plan) -> object:
        begun.set()
        assert done.wait(60)
        return make(plan)

    monkeypatch.setattr(runner, "_make", slow)
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()

    def run() -> None:
        monkeypatch.setattr(runner, "_make", make)
        theirs.send(session.run(None, given))

    with ThreadPoolExecutor(1) as pool:
        here = pool.submit(session.run, None, given)
        assert begun.wait(60)
        child = context.Process(target=run)
        child.start()
        try:
            assert ours.poll(60), "the child waits for ever"
        finally:
            done.set()
            child.kill()
        same(ours.recv(), expected)
        same(here.result(60), expected)
    child.join()


def test_older_instruction_sets_are_emulated_in_bodies() -> None:
    """Pairs of products saturate: u8 codes of 255 by weights of 127 are more than s16 holds."""
    body = helper.make_graph(
        [
            node("QuantizeLinear", ["state", "one", "zero"], ["q"]),
            node("DequantizeLinear", ["q", "one", "zero"], ["d"]),
            node("DequantizeLinear", ["w", "one", "none"], ["v"]),
            node("MatMul", ["d", "v"], ["next"]),
            node("Identity", ["going"], ["on"]),
        ],
        "body",
        [info("trip", S64, []), info("going", BOOL, []), info("state", F32, None)],
        [info("on", BOOL, []), info("next", F32, None)],
    )
    constants = {
        "one": np.float32(1),
        "zero": np.uint8(0),
        "none": np.int8(0),
        "w": np.full((16, 16), 127, np.int8),
        "n": np.int64(1),
    }
    proto = model(
        [node("Loop", ["n", "", "x"], ["y"], name="loop", body=body)],
        inputs={"x": [2, 16]},
        constants=constants,
    )
    x = np.full((2, 16), 255, np.float32)
    exact, older = (
        fqfuse.InferenceSession(proto, backend="numpy", isa=isa) for isa in (None, "avx2")
    )
    assert exact.run(None, {"x": x})[0].min() == 16 * 255 * 127
    assert older.run(None, {"x": x})[0].max() == 8 * 32767
    assert [sums.exact for sums in older.sums("avx2")] == [False]


@EACH_RUNTIME
def test_constants_of_bodies_count_in_the_memory_of_a_session(runtime: str) -> None:
    session, _, _ = of_loop(runtime)
    within = [data.nbytes for _, body in session.plan.within for data in body.constants.values()]
    (row,) = [row for row in session.memory().steps if row.step.bodies is not None]
    assert row.weights >= sum(within) > 0
    assert session.memory().weights >= sum(within)


@EACH_RUNTIME
@pytest.mark.parametrize("hidden", ["scale", "turned"])
def test_names_of_a_body_hide_those_around_it(runtime: str, hidden: str) -> None:
    """Weights decoded outside, by a name that the body gives a value of its own."""
    body = helper.make_graph(
        [
            node("Add", ["state", hidden], ["more"]),
            node("MatMul", ["more", "weights"], ["next"]),
            node("Identity", ["going"], ["on"]),
        ],
        "body",
        [info("trip", S64, []), info("going", BOOL, []), info("state", F32, [2, 4])],
        [info("on", BOOL, []), info("next", F32, [2, 4])],
        [helper.make_tensor(hidden, F32, [], [3.0])],
    )
    nodes = [
        node("Transpose", ["codes"], ["turned"]),
        node("DequantizeLinear", ["turned", "scale"], ["weights"]),
        node("Loop", ["n", "", "x"], ["y"], name="loop", body=body),
    ]
    constants = {"codes": np.arange(-6, 10, dtype=np.int8).reshape(4, 4), "scale": np.float32(0.5)}
    proto = model(
        nodes, inputs={"x": [2, 4], "n": []}, types={"n": S64}, constants=constants, opset=20
    )
    feeds = {"x": np.ones((2, 4), np.float32), "n": np.array(2)}
    found = fqfuse.InferenceSession(proto, runtime, threads=1).run(None, feeds)
    np.testing.assert_array_equal(found[0], run_ort(proto, feeds)[0])
