"""Sessions on the NumPy runtime: feeds, names, threads, processes, buffers."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import pickle

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto
from support.onnx_cases import model, node
from support.runtime_networks import residual_network, shape_arithmetic

from fqfuse import compile as compile_model
from fqfuse.errors import BackendUnavailable, InvalidInput
from fqfuse.plan.types import Plan
from fqfuse.runtime.session import InferenceSession

SIZE = (3, 10, 12)


@pytest.fixture(scope="module")
def plan() -> Plan:
    return residual_network()


@pytest.fixture
def session(plan: Plan) -> InferenceSession:
    return InferenceSession(plan, backend="numpy", threads=2)


def images(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, *SIZE)).astype(np.float32)


def test_arguments_are_described_as_onnx_runtime_does(session: InferenceSession) -> None:
    (given,) = session.get_inputs()
    assert (given.name, given.shape, given.type) == ("image", ["N", 3, 10, 12], "tensor(float)")
    assert [(out.name, out.shape, out.type) for out in session.get_outputs()] == [
        ("scores", ["N", 5], "tensor(float)"),
        ("features", ["N", 8, 5, 6], "tensor(uint8)"),
    ]
    assert session.backend == "numpy"
    assert session.threads == 2


def test_outputs_by_name_and_order(session: InferenceSession) -> None:
    x = images(2)
    scores, features = session.run(None, {"image": x})
    assert scores.shape == (2, 5)
    assert features.shape == (2, 8, 5, 6)
    again = session.run(["features", "scores"], {"image": x})
    np.testing.assert_array_equal(again[0], features)
    np.testing.assert_array_equal(again[1], scores)
    (only,) = session.run(["scores"], {"image": x})
    np.testing.assert_array_equal(only, scores)


@pytest.mark.parametrize(
    ("feeds", "says"),
    [
        ({}, "missing inputs: image"),
        (
            {"image": np.zeros((1, *SIZE), np.float32), "imagee": np.zeros(1)},
            "unknown inputs: imagee",
        ),
        ({"image": np.zeros((1, *SIZE))}, "float64, expected float32"),
        ({"image": np.zeros(SIZE, np.float32)}, "3 dimensions"),
        ({"image": np.zeros((1, 3, 10, 13), np.float32)}, "size 13 in dimension 3, expected 12"),
        ({"image": [1, 2, 3]}, "one dimension [3], expected 4"),
        ({"image": np.asarray([1, 2, 3])}, "int64, expected float32"),
    ],
)
def test_wrong_feeds_are_named(
    session: InferenceSession, feeds: dict[str, object], says: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        session.run(None, feeds)  # type: ignore[arg-type]
    assert says in str(caught.value)
    assert "image" in str(caught.value)
    assert caught.value.hint


def test_unknown_output(session: InferenceSession) -> None:
    with pytest.raises(InvalidInput, match=r"unknown outputs: nope"):
        session.run(["nope"], {"image": images(1)})


@pytest.mark.parametrize("threads", [0, -1, 1.5, "two"])
def test_wrong_thread_counts(plan: Plan, threads: object) -> None:
    with pytest.raises(InvalidInput, match="threads"):
        InferenceSession(plan, backend="numpy", threads=threads)  # type: ignore[arg-type]


def test_wrong_backend(plan: Plan) -> None:
    with pytest.raises(InvalidInput, match="no backend 'cuda'"):
        InferenceSession(plan, backend="cuda")


def test_symbols_must_agree() -> None:
    session = InferenceSession(shape_arithmetic(), backend="numpy")
    with pytest.raises(InvalidInput, match="dimension N is 2 in one input and 3 in another"):
        session.run(None, {"x": np.zeros((2, 6), np.float32), "y": np.zeros((3, 6), np.float32)})


def test_shapes_computed_from_shapes_are_bound_beforehand() -> None:
    session = InferenceSession(shape_arithmetic(), backend="numpy")
    x, y = np.arange(12, dtype=np.float32).reshape(2, 6), np.ones((2, 6), np.float32)
    (z,) = session.run(None, {"x": x, "y": y})
    np.testing.assert_array_equal(z, (x + y).reshape(2, 3, 2).transpose(0, 2, 1).reshape(2, 6))
    bound = next(iter(session._executor._bound))
    assert None not in bound.kernels


def test_every_batch_size_gives_the_same_images(session: InferenceSession) -> None:
    x = images(13)
    scores, features = session.run(None, {"image": x})
    for count in (1, 2, 5):
        part = session.run(None, {"image": x[:count]})
        np.testing.assert_array_equal(part[1], features[:count])
        # BLAS may add f32 products of another number of rows in another order; these are integers
        # below 2**24.
        np.testing.assert_array_equal(part[0], scores[:count])


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_the_number_of_threads_changes_nothing(plan: Plan, threads: int) -> None:
    x = images(7)
    expected = InferenceSession(plan, backend="numpy", threads=1).run(None, {"image": x})
    session = InferenceSession(plan, backend="numpy", threads=threads)
    for _ in range(3):
        for got, want in zip(session.run(None, {"image": x}), expected, strict=True):
            np.testing.assert_array_equal(got, want)


def test_outputs_belong_to_the_caller(session: InferenceSession) -> None:
    x = images(2)
    first = session.run(None, {"image": x})
    kept = [array.copy() for array in first]
    session.run(None, {"image": images(2, seed=1)})
    for array, copy in zip(first, kept, strict=True):
        np.testing.assert_array_equal(array, copy)
        array[...] = 0  # writable, and nobody else's
    for array, copy in zip(session.run(None, {"image": x}), kept, strict=True):
        np.testing.assert_array_equal(array, copy)


def test_feeds_of_any_strides_and_byte_order_of_axes(session: InferenceSession) -> None:
    x = images(4)
    expected = session.run(None, {"image": x})
    turned = np.ascontiguousarray(np.moveaxis(x, 1, -1))
    for same in (
        np.moveaxis(turned, -1, 1),
        np.asfortranarray(x),
        np.concatenate([x, x])[:4],
        x[::-1][::-1],
    ):
        for got, want in zip(session.run(None, {"image": same}), expected, strict=True):
            np.testing.assert_array_equal(got, want)


def test_steps_can_be_looked_at(session: InferenceSession, plan: Plan) -> None:
    x = images(2)
    values = session.run_steps({"image": x})
    assert list(values) == [name for step in plan.steps for name in step.outputs]
    scores, features = session.run(None, {"image": x})
    np.testing.assert_array_equal(values["scores"], scores)
    np.testing.assert_array_equal(values["features"], features)
    for name, array in values.items():
        assert array.dtype == plan.type(name).dtype.numpy
        assert array.flags.c_contiguous


def test_many_threads_on_one_session(session: InferenceSession) -> None:
    inputs = [images(1 + seed % 3, seed) for seed in range(12)]
    expected = [session.run(None, {"image": x}) for x in inputs]

    def work(index: int) -> bool:
        got = session.run(None, {"image": inputs[index % 12]})
        return all(np.array_equal(a, b) for a, b in zip(got, expected[index % 12], strict=True))

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(200)))


def test_a_failing_run_leaves_the_session_usable(session: InferenceSession) -> None:
    x = images(2)
    expected = session.run(None, {"image": x})
    with pytest.raises(InvalidInput):
        session.run(None, {"image": x[:, :2]})
    for got, want in zip(session.run(None, {"image": x}), expected, strict=True):
        np.testing.assert_array_equal(got, want)


def test_pickled_and_spawned(session: InferenceSession) -> None:
    x = images(2)
    expected = session.run(None, {"image": x})
    copy = pickle.loads(pickle.dumps(session))  # noqa: S301 - our own bytes
    assert (copy.backend, copy.threads) == ("numpy", 2)
    for got, want in zip(copy.run(None, {"image": x}), expected, strict=True):
        np.testing.assert_array_equal(got, want)
    with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        for got, want in zip(
            pool.submit(session.run, None, {"image": x}).result(), expected, strict=True
        ):
            np.testing.assert_array_equal(got, want)


# Python 3.12 warns of forks in threaded processes: that is the test
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_forked_after_a_run(session: InferenceSession) -> None:
    x = images(2)
    # starts the workers, which a forked child does not have
    expected = session.run(None, {"image": x})
    with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
        for got, want in zip(
            pool.submit(session.run, None, {"image": x}).result(timeout=60), expected, strict=True
        ):
            np.testing.assert_array_equal(got, want)


def test_auto_says_what_it_took(plan: Plan) -> None:
    assert InferenceSession(plan, backend="auto", threads=1).backend in ("numpy", "onednn")


def test_onednn_says_how_to_install_it(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object, **__: object) -> object:
        raise BackendUnavailable("oneDNN is not installed", hint="pip install 'fqfuse[onednn]'")

    monkeypatch.setattr("fqfuse.runtime.lowering.executor.OneDnnExecutor", missing)
    with pytest.raises(BackendUnavailable, match=r"fqfuse\[onednn\]"):
        InferenceSession(plan, backend="onednn")
    session = InferenceSession(plan, backend="auto")
    assert session.backend == "numpy"
    assert "oneDNN is not installed" in session.backend_reason


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        (TensorProto.BFLOAT16, ml_dtypes.bfloat16),
        (TensorProto.FLOAT8E4M3FN, ml_dtypes.float8_e4m3fn),
        (TensorProto.FLOAT8E5M2, ml_dtypes.float8_e5m2),
        (TensorProto.FLOAT4E2M1, ml_dtypes.float4_e2m1fn),
        (TensorProto.INT4, ml_dtypes.int4),
        (TensorProto.UINT4, ml_dtypes.uint4),
    ],
)
def test_arrays_of_ml_dtypes_are_taken(kind, dtype):
    proto = model(
        [node("Cast", ["x"], ["y"], to=TensorProto.FLOAT)], inputs={"x": [3]}, types={"x": kind}
    )
    x = np.asarray([0, 1, 3]).astype(dtype)
    (found,) = InferenceSession(compile_model(proto), "numpy").run(None, {"x": x})
    np.testing.assert_array_equal(found, [0, 1, 3])
    other = next(t for t in (ml_dtypes.bfloat16, ml_dtypes.int4) if t is not dtype)
    with pytest.raises(InvalidInput, match="has elements of type"):
        InferenceSession(compile_model(proto), "numpy").run(None, {"x": x.astype(other)})
