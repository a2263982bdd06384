"""Results keep their numbers for as long as somebody sees them, and then their memory is used again."""

from __future__ import annotations

import gc
import threading
import weakref

import numpy as np
import onnx
import pytest
from support.executor_plans import F32, Builder
from support.onnx_cases import model, node
from support.packed_models import Net, Scheme

import fqfuse
from fqfuse.onednn import call_loop
from fqfuse.plan.types import Plan
from fqfuse.runtime.lowering.executor import OneDnnExecutor
from fqfuse.runtime.results import WORTHWHILE, ResultMemory


def address(array: np.ndarray) -> int:
    return array.ctypes.data


def test_what_nobody_holds_is_used_again() -> None:
    memory = ResultMemory((3, 5), np.float32)
    first = memory.take()[0]
    assert first.shape == (3, 5)
    assert first.dtype == np.float32
    assert first.flags.c_contiguous
    assert first.flags.writeable
    where = address(first)
    del first
    assert address(memory.take()[0]) == where


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
    array = memory.take()[0]
    where = address(array)
    held = seen(array)
    del array
    gc.collect()
    other = memory.take()[0]
    assert address(other) != where
    del held
    assert address(memory.take()[0]) == where


def test_few_are_kept() -> None:
    memory = ResultMemory((4,), np.int8)
    held = [memory.take()[0] for _ in range(5)]
    assert len({address(array) for array in held}) == 5
    held.clear()
    assert len(memory._free) == 2
    assert not memory._lent


def test_results_outlive_what_they_came_from() -> None:
    memory = ResultMemory((2,), np.int32)
    array = memory.take()[0]
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


# -- without a copy --------------------------------------------------------------------------------

HEADS, PAST, WIDE = 2, ROWS // 2 - 1, 16
CACHE = 4 * HEADS * (PAST + 1) * WIDE


def attention() -> Plan:
    """Scores of a query by keys of before and one new one, and all keys."""
    shapes = {"past": [1, HEADS, PAST, WIDE], "new": [1, HEADS, 1, WIDE]}
    nodes = [
        node("Concat", ["past", "new"], ["present"], axis=2),
        node("Transpose", ["present"], ["turned"], perm=[0, 1, 3, 2]),
        node("MatMul", ["new", "turned"], ["scores"]),
    ]
    return fqfuse.compile(model(nodes, inputs=shapes, outputs=("present", "scores")))


@pytest.mark.usefixtures("library")
def test_a_joined_cache_is_joined_where_it_is_handed_out() -> None:
    """It is read in the same run, fed to the next one, and then changed by its holder."""
    executor, rng = OneDnnExecutor(attention(), 1), np.random.default_rng(5)
    past = rng.standard_normal((1, HEADS, PAST, WIDE)).astype(np.float32)
    held: list[tuple[np.ndarray, np.ndarray]] = []
    for _ in range(5):
        new = rng.standard_normal((1, HEADS, 1, WIDE)).astype(np.float32)
        present, scores = executor.run({"past": past, "new": new})
        wanted = np.concatenate([past, new], axis=2)
        np.testing.assert_array_equal(present, wanted)
        # sums of 16 products in another order
        np.testing.assert_allclose(scores, new @ wanted.swapaxes(2, 3), rtol=1e-5, atol=1e-5)
        held.append((present, wanted))
        past = present[:, :, 1:]
    for present, wanted in held:
        np.testing.assert_array_equal(present, wanted)
        assert present.flags.writeable
        present[...] = np.nan
    program = executor._latest()
    assert program.result_bytes == CACHE
    assert executor.memory().arena == program.arena_bytes + CACHE
    assert program.arena_bytes < CACHE


@pytest.mark.usefixtures("library")
def test_all_values_are_read_from_results_too() -> None:
    executor = OneDnnExecutor(attention(), 1)
    past = np.ones((1, HEADS, PAST, WIDE), np.float32)
    found = executor.run_all({"past": past, "new": 2 * past[:, :, :1]})
    assert (found["present"][:, :, :-1] == 1).all()
    assert (found["present"][:, :, -1] == 2).all()
    assert found["turned"].shape == (1, HEADS, WIDE, PAST + 1)


@pytest.mark.usefixtures("library")
def test_two_outputs_never_share_memory() -> None:
    """One value under two shapes: the one is handed out, the other a copy of it."""
    b = Builder()
    x = b.input("x", (ROWS, 16), F32)
    w = b.constant("w", 2 * np.eye(16, dtype=np.float32))
    y = b.step("matmul", "MatMul", {"src": x, "weights": w}, "y", F32, (ROWS, 16))
    shape = b.constant("shape", np.array([-1]))
    b.step("onnx.Reshape", "Reshape", {"x": y, "shape": shape}, "flat", F32, (ROWS * 16,))
    for outputs in (("y", "flat"), ("flat", "y")):
        executor = OneDnnExecutor(b.plan(*outputs), 1)
        for number in range(3):
            found = executor.run({"x": np.full((ROWS, 16), number, np.float32)})
            assert not np.shares_memory(*found)
            for array in found:
                assert (array == 2 * number).all()
            found[0][...] = -1
            assert (found[1] == 2 * number).all()
        assert executor._latest().result_bytes == 4 * ROWS * 16


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("dynamic", [None, "matmul"])
def test_what_our_functions_write_is_copied(dynamic: str | None) -> None:
    """A product with packed weights writes at an address that it knows beforehand."""
    net = Net(Scheme("nbits"))
    proto = net.model(net.linear("x", 64, WORTHWHILE // 4), (1, 64))
    executor = OneDnnExecutor(fqfuse.compile(proto, dynamic=dynamic), 1)
    x = np.random.default_rng(7).standard_normal((1, 64)).astype(np.float32)
    (first,) = executor.run({"x": x})
    kept = first.copy()
    (second,) = executor.run({"x": -x})
    assert not np.shares_memory(first, second)
    np.testing.assert_array_equal(first, kept)
    np.testing.assert_array_equal(executor.run({"x": x})[0], kept)


@pytest.mark.usefixtures("library")
def test_a_failed_run_gives_its_results_back() -> None:
    executor = doubled()
    (found,) = executor.run({"x": np.ones((ROWS, 16), np.float32)})
    where = address(found)
    del found
    (bound,) = executor._state.programs
    (run,) = bound.idle
    run._stretches.append(run._stretches[0].__class__(lambda: 1, lambda: 0))
    with pytest.raises(Exception, match="matmul"):
        executor.run({"x": np.ones((ROWS, 16), np.float32)})
    assert not run._arrays
    run._stretches.pop()
    assert address(executor.run({"x": np.ones((ROWS, 16), np.float32)})[0]) == where


FED = """
<ir_version: 8, opset_import: ["" : 17]>
network (float[1, 4, 300, 16] past, float[1, 1, 192] x) => (float[1, 4, 301, 16] cache, float[1, 4, 1, 16] y) <
    int64[3] cuts = {64, 64, 64}, int64[4] heads = {1, 1, 4, 16}
> {
    a, b, c = Split <axis = 2> (x, cuts)
    ar = Reshape (a, heads)
    at = Transpose <perm = [0, 2, 1, 3]> (ar)
    br = Reshape (b, heads)
    bt = Transpose <perm = [0, 2, 1, 3]> (br)
    cache = Concat <axis = 2> (past, at)
    turned = Transpose <perm = [0, 1, 3, 2]> (cache)
    sums = MatMul (bt, turned)
    shares = Softmax (sums)
    y = MatMul (shares, cache)
}
"""


@pytest.mark.parametrize("compiled", [True, False])
def test_each_run_reads_what_it_is_fed(compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever that lies, and while the results of other runs are held."""
    if not compiled:
        monkeypatch.setattr(call_loop, "kernels", lambda *_: None)
    rng, shapes = np.random.default_rng(0), {"past": (1, 4, 300, 16), "x": (1, 1, 192)}
    plan = fqfuse.compile(onnx.parser.parse_model(FED))
    ours, theirs = (fqfuse.InferenceSession(plan, name) for name in ("onednn", "numpy"))
    runs = []
    for index in range(8):
        feeds = {name: rng.standard_normal(of, np.float32) for name, of in shapes.items()}
        if index % 3 == 1:
            feeds = {name: np.asfortranarray(array) for name, array in feeds.items()}
        elif index % 3 == 2:
            feeds = {name: np.repeat(array, 2, -1)[..., ::2] for name, array in feeds.items()}
            feeds["past"].setflags(write=False)
        found = ours.run(None, feeds)
        runs.append((found, theirs.run(None, feeds)))
        if index == 4:
            runs = runs[2:]
        if index == 5:
            ours.run_steps(feeds)
            ours.profile(feeds, runs=1)
    for found, wanted in runs:
        assert found[0].tobytes() == wanted[0].tobytes()  # a copy
        np.testing.assert_allclose(found[1], wanted[1], rtol=1e-5, atol=1e-6)  # sums of f32


def test_a_layer_of_our_own_reads_what_each_run_is_fed() -> None:
    """It asks the memory where its array is."""
    rng = np.random.default_rng(0)
    weights = {
        name: rng.standard_normal(shape, np.float32) / 4
        for name, shape in (("w", (1, 64, 16)), ("r", (1, 64, 16)), ("b", (1, 128)))
    }
    text = """
        <ir_version: 8, opset_import: ["" : 17]>
        network (float[20, 1, 16] x, float[1, 1, 16] h, float[1, 1, 16] c) => (float[20, 1, 1, 16] y) {
            y = LSTM <hidden_size = 16> (x, w, r, b, , h, c)
        }
    """
    made = onnx.parser.parse_model(text)
    made.graph.initializer.extend(
        onnx.numpy_helper.from_array(data, name) for name, data in weights.items()
    )
    ours, theirs = (fqfuse.InferenceSession(made, name) for name in ("onednn", "numpy"))
    for _ in range(4):
        feeds = {
            name: rng.standard_normal((steps, 1, 16), np.float32)
            for name, steps in (("x", 20), ("h", 1), ("c", 1))
        }
        # gates by polynomials: some ulp of 1
        np.testing.assert_allclose(ours.run(None, feeds), theirs.run(None, feeds), atol=1e-5)


def test_a_session_holds_nothing_of_what_it_was_fed() -> None:
    session = fqfuse.InferenceSession(fqfuse.compile(onnx.parser.parse_model(FED)), "onednn")
    for _ in range(3):
        past, x = np.zeros((1, 4, 300, 16), np.float32), np.ones((1, 1, 192), np.float32)
        watches = [weakref.ref(past), weakref.ref(x)]
        session.run(None, {"past": past, "x": x})
        del past, x
        assert [watch() for watch in watches] == [None, None]
