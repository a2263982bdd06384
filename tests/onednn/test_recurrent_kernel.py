"""The kernel for the steps of an LSTM that quantizes as it runs: codes are those of
DynamicQuantizeLinear, states those of the definition, and nothing beyond is touched.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from support.guarded import Guarded
from support.onnx_cases import model, node, run_ort

import fqfuse
from fqfuse.ir.ops.quantization import dynamic_range
from fqfuse.onednn.kernels import Kernels
from fqfuse.onednn.library import Library
from fqfuse.onednn.recurrent_kernel import CONSTANTS, LANES, lstm_kernel
from fqfuse.runtime.lowering import recurrent_dynamic
from fqfuse.runtime.lowering.recurrent_steps import packed_codes
from fqfuse.runtime.lowering.recurrent_weights import by_blocks

GATES, FORGET = 4, 2


@pytest.fixture
def kernel(library: Library, level: str) -> Kernels:
    found = lstm_kernel(library)
    if found is None:
        pytest.skip(f"not called at the level {level}")
    return found


# -- codes -----------------------------------------------------------------------------------------


def quantized(kernel: Kernels, x: np.ndarray) -> tuple[np.ndarray, np.float32, np.int32]:
    given = Guarded(x)
    codes, scale, zero = (
        Guarded(np.full(shape, 7, dtype))
        for shape, dtype in ((x.shape, np.uint8), ((1,), np.float32), ((1,), np.int32))
    )
    constants = Guarded(CONSTANTS)
    parts = {"x": given, "constants": constants, "codes": codes, "scale": scale, "zero": zero}
    addresses = {name: part.array.ctypes.data for name, part in parts.items()}
    kernel.call("quantize", kernel.work("quantize", **addresses, count=x.size))()
    return codes.array, scale.array[0], zero.array[0]


@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 100, 4096])
@pytest.mark.parametrize("shift", [-5, 0, 0.3, 5])
def test_codes_are_those_of_dynamic_quantize_linear(kernel, count, shift) -> None:
    x = np.random.default_rng(count).normal(shift, size=count).astype(np.float32)
    codes, scale, zero = quantized(kernel, x)
    wanted_scale, wanted_zero = dynamic_range(x)
    assert (scale, zero) == (wanted_scale, wanted_zero)
    wanted = np.clip(np.rint(x / scale) + np.float32(zero), 0, 255)
    np.testing.assert_array_equal(codes, wanted)


def test_codes_of_zeros_and_of_halves(kernel) -> None:
    codes, scale, zero = quantized(kernel, np.zeros(20, np.float32))
    assert (codes == 0).all()
    assert (scale, zero) == (1, 0)
    halves = np.append(np.arange(0, 254, dtype=np.float32) + np.float32(0.5), np.float32(255))
    codes, scale, zero = quantized(kernel, halves)  # half to even
    assert (scale, zero) == (1, 0)
    np.testing.assert_array_equal(codes, np.rint(halves))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("at", [0, 15, 16, 18])
def test_a_range_that_is_not_finite_has_a_scale_of_nan(kernel, bad, at) -> None:
    x = np.ones(19, np.float32)
    x[at] = bad
    assert np.isnan(quantized(kernel, x)[1])


# -- steps -----------------------------------------------------------------------------------------


class Layer:
    """A drawn layer, in memory that ends where nothing may be read or written."""

    def __init__(self, kernel: Kernels, seed: int, shape: Sequence[int], zero_bias=False):
        self.kernel, self.shape = kernel, tuple(shape)
        steps, directions, batch, hidden = self.shape
        rng = np.random.default_rng(seed)
        rows = GATES * hidden
        self.codes = rng.integers(-128, 128, (directions, hidden, rows)).astype(np.int8)
        self.scales = rng.uniform(0.5, 2, (directions, rows)).astype(np.float32) / (
            80 * hidden**0.5
        )
        self.bias = rng.normal(0, 0 if zero_bias else 0.3, (directions, rows)).astype(np.float32)
        self.pre = rng.normal(0, 2, (steps, batch, directions, rows)).astype(np.float32)
        self.h = np.tanh(rng.normal(size=(directions, batch, hidden))).astype(np.float32)
        self.c = rng.normal(0, 3, self.h.shape).astype(np.float32)
        self.backwards = tuple(bool(d % 2) for d in range(directions))

    def run(self, threads: int = 1, steps: slice = slice(None)) -> tuple[np.ndarray, ...]:
        """y, h, c of some steps, by one call."""
        pre = self.pre[steps]
        _, directions, batch, hidden = self.shape
        blocks = -(-hidden // LANES)
        rows, width = (directions, batch), blocks * LANES
        states = [np.zeros((*rows, width), np.float32) for _ in range(2)]
        for state, given in zip(states, (self.h, self.c), strict=True):
            state[..., :hidden] = given
        arrays = {
            "weights": np.stack([packed_codes(codes) for codes in self.codes]),
            "sums": by_blocks(self.codes.sum(1, dtype=np.int32)),
            "scales": by_blocks(self.scales),
            "bias": by_blocks(self.bias),
            "constants": CONSTANTS,
            "pre": pre,
            "h": states[0],
            "c": states[1],
            "codes": np.full((*rows, width), 99, np.uint8),
            "products": np.full((*rows, GATES * width), 99, np.int32),
            "y": np.full((len(pre), *rows, hidden), np.nan, np.float32),
        }
        guarded = {name: Guarded(array) for name, array in arrays.items()}
        work = self.kernel.work(
            "lstm_steps",
            **{name: array.array.ctypes.data for name, array in guarded.items()},
            steps=len(pre),
            directions=directions,
            batch=batch,
            hidden=hidden,
            blocks=blocks,
            backwards=sum(1 << d for d, back in enumerate(self.backwards) if back),
        )
        self.kernel.call("lstm_steps", work, threads, guarded)()
        h, c = (guarded[name].array for name in "hc")
        assert not h[..., hidden:].any()
        assert not c[..., hidden:].any()
        return guarded["y"].array, h[..., :hidden], c[..., :hidden]

    def step_of(self, d: int, at: int) -> tuple[np.ndarray, np.ndarray]:
        """h and c behind one step from `self.h` and `self.c`, gates and states in f64."""
        h = self.h[d]
        scale, zero = dynamic_range(h)
        codes = np.clip(np.rint(h / scale) + np.float32(zero), 0, 255).astype(np.int64)
        product = (codes - int(zero)) @ self.codes[d].astype(np.int64)
        factor = np.float32(scale) * self.scales[d]
        gates = (self.pre[at, :, d] + product.astype(np.float32) * factor) + self.bias[d]
        i, o, f, g = np.split(gates.astype(np.float64), GATES, axis=1)
        i, o, f = (1 / (1 + np.exp(-gate)) for gate in (i, o, f))
        c = f * self.c[d] + i * np.tanh(g)
        return o * np.tanh(c), c


SHAPES = [
    (1, 1, 1, 1),
    (1, 2, 5, 15),
    (1, 1, 3, 16),
    (1, 2, 4, 17),
    (1, 1, 8, 33),
    (1, 2, 1, 100),
    (1, 1, 2, 256),
]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_step_is_that_of_the_definition(kernel, shape) -> None:
    layer = Layer(kernel, sum(shape), shape)
    y, h, c = layer.run()
    for d in range(shape[1]):
        wanted_h, wanted_c = layer.step_of(d, 0)
        # f32: some ulp of a gate, of the products of two, and of their sum
        np.testing.assert_allclose(c[d], wanted_c, rtol=3e-7, atol=5e-7)
        np.testing.assert_allclose(h[d], wanted_h, rtol=5e-7, atol=2e-7)
    np.testing.assert_array_equal(y[0], h)


@pytest.mark.parametrize("shape", [(6, 1, 1, 3), (5, 2, 5, 20), (7, 2, 3, 16), (3, 1, 9, 40)])
def test_all_steps_at_once_are_the_steps_one_by_one(kernel, shape) -> None:
    layer = Layer(kernel, sum(shape), shape)
    y, h, c = layer.run()
    first = layer.h, layer.c
    for d, backwards in enumerate(layer.backwards):
        layer.h, layer.c = first
        for t in reversed(range(shape[0])) if backwards else range(shape[0]):
            one, layer.h, layer.c = layer.run(steps=slice(t, t + 1))
            np.testing.assert_array_equal(one[0, d], y[t, d])
        np.testing.assert_array_equal(layer.h[d], h[d])
        np.testing.assert_array_equal(layer.c[d], c[d])


def test_threads_share_the_directions(kernel) -> None:
    layer = Layer(kernel, 3, (9, 2, 3, 37))
    for one, other in zip(layer.run(1), layer.run(2), strict=True):
        np.testing.assert_array_equal(one, other)


def test_gates_are_accurate_everywhere(kernel) -> None:
    """Sigmoid and tanh over all magnitudes, where nothing cancels."""
    values = [*np.geomspace(1e-30, 200, 500), 0, 0.6249, 0.625, 0.6251, 1e6, np.inf]
    values = np.array([values, np.negative(values)], np.float32).reshape(-1)
    for gate in range(GATES):
        layer = Layer(kernel, 1, (1, 1, 1, values.size), zero_bias=True)
        layer.h[...], layer.codes[...] = 0, 0
        layer.c[...] = gate == FORGET
        layer.pre[...] = 3
        layer.pre[0, 0, 0].reshape(GATES, -1)[gate] = values
        _, h, c = layer.run()
        with np.errstate(over="ignore"):
            wanted_h, wanted_c = layer.step_of(0, 0)
        # a sigmoid below 2^-128 is 0
        np.testing.assert_allclose(c[0], wanted_c, rtol=5e-7, atol=1e-37)
        np.testing.assert_allclose(h[0], wanted_h, rtol=5e-7, atol=1e-37)


@pytest.mark.parametrize("role", ["h", "c", "pre"])
def test_a_nan_goes_on(kernel, role) -> None:
    """From the hidden state to all sequences, as the range is theirs together; else to its own."""
    layer = Layer(kernel, 1, (1, 1, 2, 20))
    array = getattr(layer, role)
    array.reshape(-1)[0] = np.nan
    with np.errstate(invalid="ignore"):
        _, h, _ = layer.run()
    assert np.isnan(h[0, 0, 0])
    assert np.isnan(h).all() == (role == "h")


# -- layers ----------------------------------------------------------------------------------------


def layer_model(seed: int) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A layer of any size, with the states that are given or not."""
    rng = np.random.default_rng(seed)
    steps, batch, inputs, hidden = (int(rng.integers(1, top)) for top in (7, 6, 40, 70))
    directions = int(rng.integers(1, 3))
    constants, state = {}, (directions, batch, hidden)
    for name, size in (("w", inputs), ("r", hidden)):
        data = rng.normal(0, 0.7 / size**0.5, (directions, size, GATES * hidden))
        axes = (1,) if seed % 2 else (1, 2)
        scale = np.abs(data).max(axes).astype(np.float32) / 127
        codes = np.rint(data / scale.reshape(directions, 1, -1))
        constants |= {
            name: codes.astype(np.int8),
            f"{name}_scale": scale,
            f"{name}_zero": np.zeros(scale.shape, np.int8),
        }
    feeds = {"x": rng.normal(0, 2, (steps, batch, inputs)).astype(np.float32)}
    b = h = c = ""
    if rng.random() < 0.7:
        b, constants["b"] = "b", rng.normal(0, 0.3, (directions, 8 * hidden)).astype(np.float32)
    if rng.random() < 0.5:
        h, feeds["h"] = "h", np.tanh(rng.normal(size=state)).astype(np.float32)
    if rng.random() < 0.5:
        c, feeds["c"] = "c", rng.normal(size=state).astype(np.float32)
    direction = "bidirectional" if directions == 2 else str(rng.choice(["forward", "reverse"]))
    parameters = ["w_scale", "w_zero", "r_scale", "r_zero"]
    proto = model(
        [
            node(
                "DynamicQuantizeLSTM",
                ["x", "w", "r", b, "", h, c, "", *parameters],
                ["y", "y_h", "y_c"],
                domain="com.microsoft",
                hidden_size=hidden,
                direction=direction,
            )
        ],
        inputs={name: list(array.shape) for name, array in feeds.items()},
        outputs=["y", "y_h", "y_c"],
        constants=constants,
        domains={"com.microsoft": 1},
    )
    return proto, feeds


@pytest.mark.parametrize("seed", range(40))
def test_layers_are_those_of_onnxruntime_and_of_the_other_way(kernel, seed, monkeypatch) -> None:
    proto, feeds = layer_model(seed)
    session = fqfuse.InferenceSession(proto, "auto", 1 + seed % 2)
    found = session.run(None, feeds)
    (placed,) = session.placement()
    assert f"DynamicQuantizeLSTM by {kernel.level}" in placed.implementation
    monkeypatch.setattr(recurrent_dynamic, "lstm_kernel", lambda _: None)
    other = fqfuse.InferenceSession(proto, "auto", 1 + seed % 2)
    for wanted in (run_ort(proto, feeds), other.run(None, feeds)):
        for mine, theirs in zip(found, wanted, strict=True):
            # a code of the hidden state on the other side of a tie: 1/255 of a weight of at most
            # 0.7, a few steps long
            np.testing.assert_allclose(mine, theirs, rtol=0, atol=4e-3)
            assert np.median(np.abs(mine - theirs)) < 1e-5
    assert "DynamicQuantizeLSTM" not in other.placement()[0].implementation


@pytest.mark.usefixtures("kernel")
def test_an_input_in_other_strides() -> None:
    proto, feeds = layer_model(2)
    session = fqfuse.InferenceSession(proto, "auto")
    wanted = session.run(None, feeds)
    strided = {**feeds, "x": np.asfortranarray(feeds["x"])}
    for one, other in zip(session.run(None, strided), wanted, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.usefixtures("kernel")
def test_a_run_leaves_nothing_to_the_next() -> None:
    proto, feeds = layer_model(2)
    session = fqfuse.InferenceSession(proto, "auto")
    wanted = session.run(None, feeds)
    assert np.isnan(session.run(None, {**feeds, "x": feeds["x"] * np.nan})[0]).all()
    for one, other in zip(session.run(None, feeds), wanted, strict=True):
        np.testing.assert_array_equal(one, other)
