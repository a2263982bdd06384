"""The kernel for the steps of an f32 LSTM: states are those of the definition, nothing beyond is
touched, and layers that run by it are those of ONNX Runtime and of the library.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from laws.poison import BYTES, poisoned
from support.guarded import Guarded
from support.onnx_cases import model, node, random, run_ort

import fqfuse
from fqfuse.onednn.kernels import Kernels
from fqfuse.onednn.library import Library
from fqfuse.onednn.lstm_kernel import f32_lstm_kernel
from fqfuse.onednn.recurrent_kernel import CONSTANTS
from fqfuse.runtime.lowering import recurrent_f32
from fqfuse.runtime.lowering.recurrent_f32 import packed_inputs, packed_weights
from fqfuse.runtime.lowering.recurrent_steps import by_blocks

GATES, FORGET = 4, 2
OURS = "LSTM by "


@pytest.fixture
def kernel(library: Library, level: str) -> Kernels:
    found = f32_lstm_kernel(library)
    if found is None:
        pytest.skip(f"not called at the level {level}")
    return found


# -- steps -----------------------------------------------------------------------------------------


class Layer:
    """A drawn layer, in memory that ends where nothing may be read or written."""

    def __init__(self, kernel: Kernels, seed: int, shape: Sequence[int]) -> None:
        self.kernel, self.shape = kernel, tuple(shape)
        steps, directions, batch, hidden = self.shape
        rng = np.random.default_rng(seed)
        rows = GATES * hidden
        self.r = rng.normal(0, 0.7 / hidden**0.5, (directions, rows, hidden)).astype(np.float32)
        self.pre = rng.normal(0, 2, (steps, batch, directions, rows)).astype(np.float32)
        self.h = np.tanh(rng.normal(size=(directions, batch, hidden))).astype(np.float32)
        self.c = rng.normal(0, 3, self.h.shape).astype(np.float32)
        self.backwards = tuple(bool(d % 2) for d in range(directions))

    def run(
        self, threads: int = 1, *, by_sequence: bool = False, in_place: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        """y [T, D, N, H] and c."""
        steps, batch = self.pre.shape[:2]
        pre = np.ascontiguousarray(self.pre.swapaxes(0, 1)) if by_sequence else self.pre
        row = self.h.shape[0] * GATES * self.h.shape[2]
        apart = {
            "pre_step": row if by_sequence else batch * row,
            "pre_row": steps * row if by_sequence else row,
        }
        return self._call("lstm_steps", steps, {"pre": pre}, apart, threads, in_place=in_place)

    def multiply(self, x: np.ndarray, w: np.ndarray, b: np.ndarray) -> None:
        """Products of an input [T, N, I] with weights [D, 4H, I], and biases [D, 4H]."""
        products = np.einsum("tni,dgi->tndg", x.astype(np.float64), w.astype(np.float64)) + b
        self.pre = products.astype(np.float32)

    def run_sequence(
        self, x: np.ndarray, w: np.ndarray, b: np.ndarray, threads: int = 1
    ) -> tuple[np.ndarray, np.ndarray]:
        """The same of an input [T, 1, I], which the kernel multiplies."""
        blocks = -(-self.h.shape[2] // 16)
        arrays = {
            "x": x,
            "of_x": packed_inputs(w),
            "bias": by_blocks(b),
            "room": np.full((len(w), 2, blocks, 512), np.nan, np.float32),
        }
        sizes = {"inputs": x.shape[2]}
        return self._call("lstm_sequence", len(x), arrays, sizes, threads)

    def _call(
        self,
        function: str,
        steps: int,
        more: dict[str, np.ndarray],
        sizes: dict[str, int],
        threads: int,
        *,
        in_place: bool = False,
    ) -> tuple[np.ndarray, np.ndarray]:
        directions, batch, hidden = self.h.shape
        packed = packed_weights(self.r)
        arrays = {
            "weights": packed,
            "constants": CONSTANTS,
            "first_h": self.h,
            "first_c": self.c,
            "c": np.full(self.c.shape, np.nan, np.float32),
            "y": np.full((steps, batch, directions, hidden), np.nan, np.float32),
            **more,
        }
        guarded = {name: Guarded(np.ascontiguousarray(array)) for name, array in arrays.items()}
        if in_place:
            guarded["c"] = guarded["first_c"]
        work = self.kernel.work(
            function,
            **{name: array.array.ctypes.data for name, array in guarded.items()},
            steps=steps,
            directions=directions,
            batch=batch,
            hidden=hidden,
            blocks=packed.shape[1],
            backwards=sum(1 << d for d, back in enumerate(self.backwards) if back),
            y_step=batch * directions * hidden,
            y_row=directions * hidden,
            **sizes,
        )
        self.kernel.call(function, work, threads, guarded)()
        return guarded["y"].array.swapaxes(1, 2), guarded["c"].array

    def step_of(self, d: int, at: int) -> tuple[np.ndarray, np.ndarray]:
        """h and c behind one step from `self.h` and `self.c`, in f64."""
        h, c = (state[d].astype(np.float64) for state in (self.h, self.c))
        gates = self.pre[at, :, d] + h @ self.r[d].T.astype(np.float64)
        i, o, f, g = np.split(gates, GATES, axis=1)
        i, o, f = (1 / (1 + np.exp(-gate)) for gate in (i, o, f))
        c = f * c + i * np.tanh(g)
        return o * np.tanh(c), c


SHAPES = [
    (1, 1, 1, 1),
    (1, 2, 5, 15),
    (1, 1, 3, 16),
    (1, 2, 4, 17),
    (1, 1, 9, 33),
    (1, 2, 1, 100),
    (1, 1, 7, 250),
    (1, 1, 2, 256),
]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("by_sequence", [False, True])
def test_a_step_is_that_of_the_definition(kernel, shape, by_sequence) -> None:
    layer = Layer(kernel, sum(shape), shape)
    y, c = layer.run(by_sequence=by_sequence)
    for d in range(shape[1]):
        wanted_h, wanted_c = layer.step_of(d, 0)
        # f32: a sum of `hidden` products of about 0.7/sqrt(hidden), each rounded; then some ulp
        np.testing.assert_allclose(c[d], wanted_c, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(y[0, d], wanted_h, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("shape", [(6, 1, 1, 3), (5, 2, 5, 20), (7, 2, 3, 16), (4, 1, 9, 40)])
def test_all_steps_at_once_are_the_steps_one_by_one(kernel, shape) -> None:
    layer = Layer(kernel, sum(shape), shape)
    y, c = layer.run()
    first, pre = (layer.h, layer.c), layer.pre
    for d, backwards in enumerate(layer.backwards):
        layer.h, layer.c = first
        for t in reversed(range(shape[0])) if backwards else range(shape[0]):
            layer.pre = pre[t : t + 1]
            (layer.h,), layer.c = layer.run()
            np.testing.assert_array_equal(layer.h[d], y[t, d])
        np.testing.assert_array_equal(layer.c[d], c[d])


def test_a_sequence_is_the_same_in_each_batch(kernel) -> None:
    """The order of its sums does not depend on how many sequences there are."""
    whole = Layer(kernel, 1, (4, 2, 9, 37))
    y, c = whole.run()
    for start, stop in ((0, 1), (3, 5), (4, 7), (2, 6), (1, 9)):
        part = Layer(kernel, 1, (4, 2, 9, 37))
        part.pre = whole.pre[:, start:stop]
        part.h, part.c = (np.ascontiguousarray(s[:, start:stop]) for s in (whole.h, whole.c))
        some, cells = part.run()
        np.testing.assert_array_equal(some, y[:, :, start:stop])
        np.testing.assert_array_equal(cells, c[:, start:stop])


def test_threads_share_the_directions(kernel) -> None:
    layer = Layer(kernel, 3, (9, 2, 3, 37))
    for one, other in zip(layer.run(1), layer.run(2), strict=True):
        np.testing.assert_array_equal(one, other)


def test_cells_in_place(kernel) -> None:
    layer = Layer(kernel, 3, (3, 2, 3, 37))
    for one, other in zip(layer.run(), layer.run(in_place=True), strict=True):
        np.testing.assert_array_equal(one, other)


def test_gates_are_accurate_everywhere(kernel) -> None:
    """Sigmoid and tanh over all magnitudes, where nothing cancels."""
    values = [*np.geomspace(1e-30, 200, 500), 0, 0.6249, 0.625, 0.6251, 1e6, np.inf]
    values = np.array([values, np.negative(values)], np.float32).reshape(-1)
    for gate in range(GATES):
        layer = Layer(kernel, 1, (1, 1, 1, values.size))
        layer.h[...], layer.r[...] = 0, 0
        layer.c[...] = gate == FORGET
        layer.pre[...] = 3
        layer.pre[0, 0, 0].reshape(GATES, -1)[gate] = values
        y, c = layer.run()
        with np.errstate(over="ignore"):
            wanted_h, wanted_c = layer.step_of(0, 0)
        # a sigmoid below 2^-128 is 0
        np.testing.assert_allclose(c[0], wanted_c, rtol=5e-7, atol=1e-37)
        np.testing.assert_allclose(y[0, 0], wanted_h, rtol=5e-7, atol=1e-37)


@pytest.mark.parametrize("role", ["h", "c", "pre"])
def test_a_nan_stays_in_its_sequence(kernel, role) -> None:
    layer = Layer(kernel, 1, (3, 1, 6, 20))
    array = getattr(layer, role)
    (array[:, 4, 0] if role == "pre" else array[0, 4])[..., 0] = np.nan
    y, _ = layer.run()
    assert np.isnan(y[-1, 0, 4]).any()
    assert not np.isnan(np.delete(y, 4, axis=2)).any()


# -- one sequence, which multiplies its input ------------------------------------------------------

SEQUENCES = [
    (8, 2, 5, 1),
    (9, 1, 16, 2),
    (15, 2, 17, 3),
    (16, 1, 33, 40),
    (17, 2, 3, 19),
    (23, 2, 100, 37),
    (24, 1, 16, 70),
    (50, 2, 64, 256),
]


def drawn_input(seed: int, shape: Sequence[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """An input, its weights, and biases of a sequence (steps, directions, hidden, inputs)."""
    steps, directions, hidden, inputs = shape
    rng = np.random.default_rng(seed)
    rows = GATES * hidden
    w = rng.normal(0, 0.7 / inputs**0.5, (directions, rows, inputs))
    draws = rng.normal(0, 2, (steps, 1, inputs)), w, rng.normal(0, 0.3, (directions, rows))
    x, w, b = (array.astype(np.float32) for array in draws)
    return x, w, b


@pytest.mark.parametrize("shape", SEQUENCES)
def test_a_sequence_that_multiplies_its_input(kernel, shape) -> None:
    steps, directions, hidden, _ = shape
    layer = Layer(kernel, sum(shape), (steps, directions, 1, hidden))
    given = drawn_input(1, shape)
    found = layer.run_sequence(*given)
    layer.multiply(*given)
    for mine, wanted in zip(found, layer.run(), strict=True):
        # sums of f32 against those of f64; states as above
        np.testing.assert_allclose(mine, wanted, rtol=0, atol=5e-6)
    for one, other in zip(found, layer.run_sequence(*given, threads=2), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("steps", [8, 11, 16, 21])
def test_each_step_has_its_own_input(kernel, steps) -> None:
    """A NaN shows from its step on, in the direction's order, and changes nothing in front."""
    shape = (steps, 2, 18, 7)
    layer = Layer(kernel, 1, (steps, 2, 1, 18))
    x, w, b = drawn_input(2, shape)
    clean, _ = layer.run_sequence(x, w, b)
    for at in range(steps):
        bad = x.copy()
        bad[at, 0, at % 7] = np.nan
        y, _ = layer.run_sequence(bad, w, b)
        np.testing.assert_array_equal(y[:at, 0], clean[:at, 0])
        np.testing.assert_array_equal(y[at + 1 :, 1], clean[at + 1 :, 1])
        assert np.isnan(y[at:, 0]).all()
        assert np.isnan(y[: at + 1, 1]).all()


# -- layers ----------------------------------------------------------------------------------------


def layer_model(seed: int) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A layer of any size, with the states that are given or not; the model's input and output may
    have the batch in front.
    """
    rng = np.random.default_rng(seed)
    steps, batch, inputs, hidden = (int(rng.integers(1, top)) for top in (51, 10, 40, 70))
    if seed % 3 == 0:
        batch = 1
    if seed % 8 == 0:
        steps, batch, hidden = steps % 12 + 1, 1 + batch % 2, int(rng.integers(200, 300))
    directions = int(rng.integers(1, 3))
    rows, state = GATES * hidden, (directions, batch, hidden)
    constants: dict[str, Any] = {
        name: rng.normal(0, 0.7 / size**0.5, (directions, rows, size)).astype(np.float32)
        for name, size in (("w", inputs), ("r", hidden))
    }
    given: dict[str, np.ndarray] = {}
    by_batch = bool(rng.random() < 0.3)
    feeds = {"x": rng.normal(0, 1, (steps, batch, inputs)).astype(np.float32)}
    if rng.random() < 0.7:
        constants["b"] = given["b"] = rng.normal(0, 0.3, (directions, 2 * rows)).astype(np.float32)
    for name in ("h", "c"):
        if rng.random() < 0.5:
            given[name] = rng.normal(size=state).astype(np.float32)
            (feeds if rng.random() < 0.6 else constants)[name] = given[name]
    direction = "bidirectional" if directions == 2 else str(rng.choice(["forward", "reverse"]))
    names = [name if rng.random() < 0.6 else "" for name in ("y_h", "y_c")]
    b, h, c = (name if name in given else "" for name in ("b", "h", "c"))
    nodes, source = [], "x"
    if by_batch:
        feeds["x"] = np.ascontiguousarray(feeds["x"].swapaxes(0, 1))
        nodes, source = [node("Transpose", ["x"], ["turned"], perm=[1, 0, 2])], "turned"
    nodes += [
        node(
            "LSTM",
            [source, "w", "r", b, "", h, c],
            ["y", *names],
            hidden_size=hidden,
            direction=direction,
        ),
        node("Transpose", ["y"], ["joined"], perm=[2, 0, 1, 3] if by_batch else [0, 2, 1, 3]),
    ]
    outputs = ["joined", *filter(None, names)]
    shapes = {name: list(array.shape) for name, array in feeds.items()}
    return model(nodes, inputs=shapes, outputs=outputs, constants=constants), feeds


def _ours(proto: onnx.ModelProto, feeds: dict[str, np.ndarray], threads: int) -> bool:
    """Whether a layer of `layer_model` is the kernel's: few sequences, and little in a step where
    a direction has several threads.
    """
    (r,) = (constant for constant in proto.graph.initializer if constant.name == "r")
    directions, _, hidden = r.dims
    batch = feeds["x"].shape[0 if proto.graph.node[0].op_type == "Transpose" else 1]
    return batch <= 8 and (directions >= threads or 4 * batch * hidden**2 <= 1 << 18)


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("seed", range(48))
def test_layers_are_those_of_onnxruntime_and_of_the_library(seed, monkeypatch) -> None:
    proto, feeds = layer_model(seed)
    threads = 1 + seed % 2
    with poisoned(BYTES[seed % len(BYTES)], apart=bool(seed % 3)):
        session = fqfuse.InferenceSession(proto, "onednn", threads)
        found = session.run(None, feeds)
        again = session.run(None, feeds)
    taken = any(OURS in placed.implementation for placed in session.placement())
    assert taken == _ours(proto, feeds, threads)
    monkeypatch.setattr(recurrent_f32, "f32_lstm_kernel", lambda _: None)
    other = fqfuse.InferenceSession(proto, "onednn", threads)
    theirs, wanted = other.run(None, feeds), run_ort(proto, feeds)
    for mine, repeated, right, library in zip(found, again, wanted, theirs, strict=True):
        np.testing.assert_array_equal(mine, repeated)
        # docs/contributing/numerics.md: sums in another order, other approximations of exp and tanh
        np.testing.assert_allclose(mine, right, rtol=0, atol=1e-5)
        np.testing.assert_allclose(mine, library, rtol=0, atol=1e-5)
    assert not any(OURS in placed.implementation for placed in other.placement())


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize(
    ("dims", "threads", "ours"),
    [
        ((3, 1, 24), 1, True),
        ((3, 8, 24), 1, True),
        ((3, 9, 24), 1, False),  # many sequences
        ((3, 1, 300), 1, True),
        ((3, 1, 300), 2, False),  # a step of one direction for two threads
        ((3, 1, 256), 2, True),
    ],
)
def test_which_layers_the_kernel_takes(
    dims: tuple[int, int, int], threads: int, ours: bool
) -> None:
    steps, batch, hidden = dims
    rng = np.random.default_rng(0)
    constants = {
        "w": rng.normal(0, 0.1, (1, GATES * hidden, 8)).astype(np.float32),
        "r": rng.normal(0, 0.1 / hidden**0.5, (1, GATES * hidden, hidden)).astype(np.float32),
    }
    layer = node("LSTM", ["x", "w", "r"], ["y"], hidden_size=hidden)
    proto = model([layer], inputs={"x": [steps, batch, 8]}, constants=constants)
    session = fqfuse.InferenceSession(proto, "onednn", threads)
    session.run(None, {"x": rng.normal(size=(steps, batch, 8)).astype(np.float32)})
    (placed,) = session.placement()
    assert (OURS in placed.implementation) == ours


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize(
    ("dims", "by"),
    [
        ((8, 1, 16), ["LSTM"]),
        ((7, 1, 16), ["product", "LSTM"]),  # too short
        ((8, 2, 16), ["product", "LSTM"]),  # two sequences
        ((8, 1, 65), ["product", "LSTM"]),  # a wide input
    ],
)
def test_what_multiplies_the_input(dims: tuple[int, int, int], by: list[str]) -> None:
    constants = {"w": random([1, 64, dims[2]], 1, 0.1), "r": random([1, 64, 16], 2, 0.1)}
    layer = node("LSTM", ["x", "w", "r"], ["y"], hidden_size=16)
    proto = model([layer], inputs={"x": list(dims)}, constants=constants)
    session = fqfuse.InferenceSession(proto, "onednn")
    feeds = {"x": random(list(dims))}
    # as above
    np.testing.assert_allclose(
        session.run(None, feeds)[0], run_ort(proto, feeds)[0], rtol=0, atol=1e-5
    )
    (placed,) = session.placement()
    assert len(placed.implementation.split(" + ")) == len(by)


@pytest.mark.usefixtures("kernel")
def test_weights_of_the_input_that_are_those_of_the_state_too() -> None:
    """They are kept in two orders."""
    constants = {"w": random([1, 64, 16], 1, 0.1)}
    layer = node("LSTM", ["x", "w", "w"], ["y"], hidden_size=16)
    proto = model([layer], inputs={"x": [8, 1, 16]}, constants=constants)
    session = fqfuse.InferenceSession(proto, "onednn")
    feeds = {"x": random([8, 1, 16])}
    # as above
    np.testing.assert_allclose(
        session.run(None, feeds)[0], run_ort(proto, feeds)[0], rtol=0, atol=1e-5
    )
    (placed,) = session.placement()
    assert placed.implementation.startswith(OURS)


@pytest.mark.usefixtures("kernel")
def test_states_that_are_fed_anew_in_each_run() -> None:
    seed = next(s for s in range(99) if {"h", "c"} <= set(layer_model(s)[1]))
    proto, feeds = layer_model(seed)
    session = fqfuse.InferenceSession(proto, "onednn")
    for factor in (1, -2, 0.5):
        fed = {name: (array * factor).astype(np.float32) for name, array in feeds.items()}
        kept = {name: array.copy() for name, array in fed.items()}
        for mine, right in zip(session.run(None, fed), run_ort(proto, fed), strict=True):
            # as above; states that are twice as large
            np.testing.assert_allclose(mine, right, rtol=0, atol=2e-5)
        for name, array in fed.items():
            np.testing.assert_array_equal(array, kept[name])


@pytest.mark.usefixtures("kernel")
def test_a_run_leaves_nothing_to_the_next() -> None:
    proto, feeds = layer_model(2)
    session = fqfuse.InferenceSession(proto, "onednn")
    wanted = session.run(None, feeds)
    assert np.isnan(session.run(None, {**feeds, "x": feeds["x"] * np.nan})[0]).all()
    for one, other in zip(session.run(None, feeds), wanted, strict=True):
        np.testing.assert_array_equal(one, other)
