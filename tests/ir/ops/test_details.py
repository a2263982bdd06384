"""What the table of cases does not reach: slices by the thousand, odd element types, special
values, arrays without dimensions.
"""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from onnx import TensorProto, helper
from support.judge import ort_session

from fqfuse.ir.ops import OPS, dims
from fqfuse.ir.ops.spec import Trait
from fqfuse.ir.ops.special import erf
from fqfuse.ir.ops.windows import taps_within
from fqfuse.ir.types import DType, TensorType

from .harness import normal

SPECIAL = np.asarray([np.nan, np.inf, -np.inf, 0.0, -0.0, 3.4e38, -3.4e38, 1e-40], np.float32)


def run(op: str, *inputs: Any, **attrs: Any) -> np.ndarray:
    spec = OPS[op]
    return spec.evaluate(inputs, spec.complete(attrs))[0]


# -- Slice -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ort_slice() -> Any:
    names = ["x", "starts", "ends", "axes", "steps"]
    infos = [helper.make_tensor_value_info(n, TensorProto.INT64, [None]) for n in names]
    graph = helper.make_graph(
        [helper.make_node("Slice", names, ["y"])],
        "slice",
        infos,
        [helper.make_tensor_value_info("y", TensorProto.INT64, [None])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    return ort_session(model, optimized=True)


BOUND = st.one_of(st.integers(-12, 12), st.sampled_from([2**31 - 1, 2**63 - 1, -(2**31), -(2**63)]))


@given(st.integers(0, 7), BOUND, BOUND, st.integers(-4, 4).filter(bool))
@example(4, -100, -200, -1)
@example(0, 3, -3, -1)
def test_slice_of_any_bounds(ort_slice, size, start, end, step):
    # ONNX Runtime takes the largest integers as an end for "all of it" backwards too, where ONNX
    # says INT_MIN.
    assume(step > 0 or end < 2**31 - 1)
    x, starts, ends, axes, steps = (
        np.arange(size),
        *(np.asarray([v], np.int64) for v in (start, end, 0, step)),
    )
    expected = ort_slice.run(
        None, {"x": x, "starts": starts, "ends": ends, "axes": axes, "steps": steps}
    )[0]
    np.testing.assert_array_equal(run("Slice", x, starts, ends, axes, steps), expected)
    types = [TensorType(DType.S64, (size,)), *[TensorType(DType.S64, (1,))] * 4]
    assert (
        OPS["Slice"].infer(types, {}, [None, starts, ends, axes, steps])[0].shape == expected.shape
    )


@pytest.mark.parametrize(
    ("start", "end", "length"),
    [
        (1, 2**31 - 1, "pos(H-1)"),
        (1, 2**63 - 1, "pos(H-1)"),
        (0, 2**63 - 1, "H"),
        (0, -1, "pos(H-1)"),
        (0, 8, "H-pos(H-8)"),
        (2, -2, "pos(H-4)"),
    ],
)
def test_slice_of_a_symbol_reads_well(start, end, length):
    types = [TensorType(DType.F32, ("N", "H")), *[TensorType(DType.S64, (1,))] * 3]
    data = [None, *(np.asarray([v], np.int64) for v in (start, end, 1))]
    assert OPS["Slice"].infer(types, {}, data)[0].shape == ("N", length)


@given(st.integers(0, 9), BOUND, BOUND, st.integers(-4, 4).filter(bool))
def test_slice_of_a_symbol_gives_the_size(size, start, end, step):
    types = [TensorType(DType.F32, ("H",)), *[TensorType(DType.S64, (1,))] * 4]
    data = [None, *(np.asarray([v], np.int64) for v in (start, end, 0, step))]
    (length,) = OPS["Slice"].infer(types, {}, data)[0].shape
    assert (
        dims.evaluate(length, {"H": size})
        == run("Slice", np.zeros(size, np.float32), *data[1:]).size
    )


# -- special values --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "op",
    sorted(
        name
        for name, spec in OPS.items()
        if Trait.ELEMENTWISE in spec.traits and len(spec.inputs) == 1 and spec.onnx
    ),
)
def test_special_values_raise_no_warnings(op):
    """inf and NaN are results; a warning of NumPy would be an error in the tests."""
    attrs = {"to": DType.F64} if op == "Cast" else {}
    x = SPECIAL > 0 if op == "Not" else SPECIAL
    assert run(op, x, **attrs).shape == x.shape


@pytest.mark.parametrize(
    "op",
    [
        "Relu",
        "LeakyRelu",
        "Sigmoid",
        "Tanh",
        "Erf",
        "Gelu",
        "HardSwish",
        "HardSigmoid",
        "Elu",
        "Clip",
        "Softplus",
        "Mish",
    ],
)
def test_nan_stays_nan(op):
    assert np.isnan(run(op, SPECIAL)[0])


def test_limits_of_activations():
    big = np.asarray([-1e4, 1e4], np.float32)
    for op, low, high in (
        ("Sigmoid", 0, 1),
        ("Tanh", -1, 1),
        ("Erf", -1, 1),
        ("Gelu", 0, 1e4),
        ("Mish", 0, 1e4),
        ("Softplus", 0, 1e4),
        ("Elu", -1, 1e4),
    ):
        np.testing.assert_array_equal(run(op, big), np.asarray([low, high], np.float32))


@given(st.lists(st.floats(width=32, allow_infinity=True, allow_nan=False), min_size=1, max_size=20))
def test_erf_is_the_nearest_f32_or_a_neighbour(xs):
    expected = np.asarray([math.erf(x) for x in xs], np.float64)
    np.testing.assert_array_max_ulp(
        erf(np.asarray(xs, np.float32)), expected.astype(np.float32), maxulp=1
    )


def test_erf_in_float64():
    x = np.linspace(-7, 7, 20011)
    exact = np.asarray([math.erf(v) for v in x.tolist()])
    # The first term of the series that is left out: see special.py.
    np.testing.assert_allclose(erf(x), exact, rtol=5e-12, atol=0)


# -- element types ---------------------------------------------------------------------------------


def test_cast_to_bf16_rounds_to_nearest_even():
    x = np.concatenate(
        [
            normal(1000, scale=100),
            SPECIAL,
            np.asarray([1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20], np.float32),
        ]
    )
    with np.errstate(all="ignore"):
        expected = x.astype(ml_dtypes.bfloat16).astype(np.float32)
    np.testing.assert_array_equal(run("Cast", x, to=DType.BF16), expected)


def test_cast_to_4_bits_keeps_the_lowest():
    x = np.arange(-40, 40, dtype=np.int32)
    np.testing.assert_array_equal(run("Cast", x, to=DType.U4), x & 15)
    np.testing.assert_array_equal(run("Cast", x, to=DType.S4), ((x & 15) ^ 8) - 8)
    assert OPS["Cast"].infer(
        [TensorType(DType.S32, (80,))], OPS["Cast"].complete({"to": DType.S4}), [x]
    )[0] == TensorType(DType.S4, (80,))


@pytest.mark.parametrize(
    "op",
    sorted(name for name, spec in OPS.items() if Trait.ELEMENTWISE in spec.traits and spec.onnx),
)
def test_arrays_without_dimensions_stay_arrays(op):
    spec = OPS[op]
    others = {"And": bool, "Or": bool, "Xor": bool, "Not": bool, "Mod": np.int64}
    dtype = others.get(op, np.float32)
    inputs = [np.ones((), dtype) for p in spec.inputs]
    if op == "Where":
        inputs[0] = np.ones((), bool)
    attrs = spec.complete({"to": DType.S8} if op == "Cast" else {})
    found = spec.evaluate(inputs, attrs)[0]
    assert isinstance(found, np.ndarray)
    types = [TensorType(DType.from_numpy(a.dtype), ()) for a in inputs]
    assert spec.infer(types, attrs, inputs) == (TensorType(DType.from_numpy(found.dtype), ()),)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint16, np.int16, np.int32, np.int64])
def test_max_pool_pads_with_the_lowest_code(dtype):
    x = np.full((1, 1, 2, 2), np.iinfo(dtype).min, dtype)
    np.testing.assert_array_equal(run("MaxPool", x, kernel_shape=(3, 3), pads=(1, 1, 1, 1)), x)


def test_integer_sums_wrap_around():
    x = np.full((1, 200_000), 255, np.uint8)  # 200000 * 255 * 255 > 2^31
    expected = np.asarray([[200_000 * 255 * 255]], np.int64).astype(np.int32)
    np.testing.assert_array_equal(run("MatMulInteger", x, x.T), expected)
    y = run("ConvInteger", x.reshape(1, -1, 1), x.reshape(1, -1, 1))
    np.testing.assert_array_equal(y.reshape(1, 1), expected)


def test_convolution_in_blocks_is_convolution(monkeypatch):
    """The block size changes how much is multiplied at once, never what is multiplied."""
    from fqfuse.ir.ops import convolution

    x, weights = normal(3, 4, 9, 8), normal(6, 2, 3, 2)
    attrs = {"group": 2, "pads": (1, 0, 2, 1), "strides": (2, 1), "dilations": (1, 2)}
    whole = run("Conv", x, weights, **attrs)
    for block in (1, 100, 500, 3000):
        monkeypatch.setattr(convolution, "_BLOCK", block)
        # BLAS may sum in another order
        np.testing.assert_allclose(run("Conv", x, weights, **attrs), whole, rtol=0, atol=1e-5)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize(
    "values",
    [normal(256), normal(256, dtype=np.int8), normal(256, dtype=np.uint16)],
    ids=lambda v: v.dtype.name,
)
def test_lookup_takes_codes_as_bytes(dtype, values):
    codes = np.arange(256).astype(dtype).reshape(4, 8, 8)[:, ::2, ::-1]  # not contiguous
    expected = np.asarray([values[int(c) % 256] for c in codes.ravel()], values.dtype).reshape(
        codes.shape
    )
    np.testing.assert_array_equal(run("Lookup", codes, values), expected)
    assert run("Lookup", codes[1, 2, 3], values) == expected[1, 2, 3]


def test_conv_without_elements():
    none = normal(0, 4, 5, 5)
    assert run("Conv", none, normal(6, 4, 3, 3)).shape == (0, 6, 3, 3)
    assert run("Conv", none, normal(6, 4, 1, 1)).shape == (0, 6, 5, 5)
    assert run("Conv", normal(2, 4, 5, 5), normal(0, 4, 3, 3)).shape == (2, 0, 3, 3)
    assert run("ConvTranspose", none, normal(4, 6, 3, 3)).shape == (0, 6, 7, 7)
    codes = none.astype(np.uint8), np.ones((6, 4, 1, 1), np.uint8)
    assert run("ConvInteger", *codes).shape == (0, 6, 5, 5)
    assert run("MaxPool", normal(0, 4, 5, 5), kernel_shape=(2, 2)).shape == (0, 4, 4, 4)


@given(
    st.lists(st.integers(-20, 20), min_size=1),
    st.integers(1, 9),
    st.integers(1, 5),
    st.integers(-15, 5),
    st.integers(0, 20),
)
def test_taps_are_counted_as_one_by_one(starts, taps, dilation, low, length):
    high = low + length
    counted = [sum(low <= start + tap * dilation < high for tap in range(taps)) for start in starts]
    assert taps_within(np.asarray(starts), taps, dilation, low, high).tolist() == counted


# -- sizes that are far from those of the data -----------------------------------------------------


@pytest.mark.parametrize("size", [5, 6, 7, 1 << 40])
def test_a_window_over_channels_larger_than_they_are_takes_them_all(size: int) -> None:
    x = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)
    found = run("LRN", x, size=size, alpha=0.5, beta=0.75, bias=1.0)
    assert run("LRN", x[:, :0], size=size).shape == (2, 0, 4)
    before, after = (size - 1) // 2, size // 2
    wide = x.astype(np.float64)
    sums = np.stack(
        [(wide[:, max(c - before, 0) : c + after + 1] ** 2).sum(1) for c in range(3)], axis=1
    )
    # f32 rounding of a few operations
    np.testing.assert_allclose(found, wide / (1 + 0.5 / size * sums) ** 0.75, rtol=1e-6)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_nothing_resized_is_nothing(mode: str) -> None:
    y = run("Resize", np.zeros((8, 24, 0), np.float32), None, np.float32([1, 2, 1.5]), mode=mode)
    assert y.shape == (8, 48, 0)
    sizes = run(
        "Resize", np.zeros((8, 24, 0), np.float32), None, None, np.asarray([8, 12, 0]), mode=mode
    )
    assert sizes.shape == (8, 12, 0)


def test_the_largest_of_no_floats_is_below_all() -> None:
    assert run("GlobalMaxPool", np.zeros((1, 2, 0), np.float32)).tolist() == [
        [[-np.inf], [-np.inf]]
    ]
