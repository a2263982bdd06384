"""Convolutions and products that another of oneDNN's implementations computes faster than its first one:
which are given to it, and that the numbers of codes stay what they were, those of f32 as near.
"""

from __future__ import annotations

import re

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from support.judge import ort_session
from support.one_query import keys_of
from support.versions import is_3_2

import fqfuse
from fqfuse.onednn.enums import CpuIsa
from fqfuse.onednn.library import Library
from fqfuse.runtime.lowering import faster

TEXT = """
<ir_version: 8, opset_import: ["" : 17]>
network (uint8[1, CHANNELS, SIDE, SIDE] x) => (uint8[1, OUT, SIDE, SIDE] y) <
    float a = {0.0078125}, uint8 z = {ZERO}, float b = {SCALE}, int8 none = {0}, float c = {0.03125}, uint8 m = {128}
> {
    values = DequantizeLinear (x, a, z)
    factors = DequantizeLinear (w, b, none)
    sums = Conv <pads = [PAD, PAD, PAD, PAD], group = MANY> (values, factors)
    ACT
    y = QuantizeLinear (found, c, m)
}
"""
ACTS = {
    "none": "found = Identity (sums)",
    "pieces": "found = HardSwish (sums)",
    "curve": "gate = Sigmoid (sums) found = Mul (sums, gate)",
}


def network(
    rng: np.random.Generator, channels: int, kernel: int, act: str, zero: int, groups: int = 1
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """The model, and what to feed it."""
    out, side = 32, 28
    terms = kernel * kernel * channels // groups
    values = {
        "SCALE": 2.0 ** -round(np.log2(84 * terms**0.5)),  # sums near 1
        "CHANNELS": channels,
        "SIDE": side,
        "OUT": out,
        "ZERO": zero,
        "PAD": kernel // 2,
        "MANY": groups,
        "ACT": ACTS[act],
    }
    text = TEXT
    for name, value in values.items():
        text = text.replace(name, str(value))
    made = onnx.parser.parse_model(text)
    shape = (out, channels // groups, kernel, kernel)
    weights = rng.integers(-127, 128, shape).astype(np.int8)
    made.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    x = rng.integers(0, 256, (1, channels, side, side)).astype(np.uint8)
    return made, {"x": x}


def run(plan: fqfuse.Plan, given: dict[str, np.ndarray]) -> tuple[np.ndarray, str]:
    """The result, and the name of what multiplied."""
    session = fqfuse.InferenceSession(plan, backend="onednn", threads=1)
    result = session.run(None, given)[0]
    anchors = ("convolution", "matmul")
    (name,) = (p.implementation for p in session.placement() if p.step.primitive in anchors)
    return result, name


@pytest.mark.parametrize("zero", [0, 3])
@pytest.mark.parametrize("kernel", [1, 3])
@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("channels", [3, 16, 48, 64, 256, "depthwise"])
def test_the_numbers_are_those_of_the_library_s_choice(
    monkeypatch: pytest.MonkeyPatch, channels: int | str, act: str, kernel: int, zero: int
) -> None:
    deep, groups = (channels, 1) if isinstance(channels, int) else (32, 32)
    made, given = network(np.random.default_rng(deep), deep, kernel, act, zero, groups)
    plan = fqfuse.compile(made)
    ours, _ = run(plan, given)
    monkeypatch.setattr(faster, "_for_convolution", lambda *_: None)
    theirs, _ = run(plan, given)
    np.testing.assert_array_equal(ours, theirs)
    exact = fqfuse.InferenceSession(plan, backend="numpy").run(None, given)[0]
    # a sigmoid by polynomials may miss a code by one
    assert abs(ours.astype(int) - exact).max() <= (act == "curve")
    assert np.ptp(ours) > 30, "codes at rest would prove nothing"


PRODUCT = """
<ir_version: 8, opset_import: ["" : 17]>
network (uint8[ROWS, 192] x) => (TYPE[ROWS, 320] y) <
    float a = {0.0078125}, uint8 z = {3}, float b = {0.0009765625}, int8 none = {0}, float c = {0.03125}, uint8 m = {128}
> {
    values = DequantizeLinear (x, a, z)
    factors = DequantizeLinear (w, b, none)
    sums = MatMul (values, factors)
    END
}
"""
ENDS = {
    "float": "y = Tanh (sums)",
    "uint8": "y = QuantizeLinear (sums, c, m)",
}


def rows_of(rows: int, kind: str) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    text = PRODUCT.replace("ROWS", str(rows)).replace("TYPE", kind).replace("END", ENDS[kind])
    made = onnx.parser.parse_model(text)
    rng = np.random.default_rng(rows)
    weights = rng.integers(-127, 128, (192, 320)).astype(np.int8)
    made.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    return made, {"x": rng.integers(0, 256, (rows, 192)).astype(np.uint8)}


@pytest.mark.parametrize("kind", ENDS)
@pytest.mark.parametrize("rows", [1, 2, 7, 8, 9, 40])
def test_few_rows_give_the_same(monkeypatch: pytest.MonkeyPatch, rows: int, kind: str) -> None:
    made, given = rows_of(rows, kind)
    plan = fqfuse.compile(made)
    ours, name = run(plan, given)
    # which kernel is faster was measured with 3.2's
    assert not (rows <= 8 and "amx" in name and is_3_2())
    monkeypatch.setattr(faster, "_for_product", lambda *_: None)
    np.testing.assert_array_equal(ours, run(plan, given)[0])
    if kind == "uint8":
        exact = fqfuse.InferenceSession(plan, backend="numpy").run(None, given)[0]
        np.testing.assert_array_equal(ours, exact)


def test_where_no_other_kernel_will_do_it_stays_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    made, given = network(np.random.default_rng(0), 128, 3, "none", 3)
    plan = fqfuse.compile(made)
    monkeypatch.setattr(faster, "_for_convolution", lambda *_: None)
    wanted = run(plan, given)
    monkeypatch.setattr(faster, "_for_convolution", lambda *_: re.compile("no such kernel"))
    found = run(plan, given)
    assert found[1] == wanted[1]
    np.testing.assert_array_equal(found[0], wanted[0])


@pytest.mark.of_3_2("it names the kernels of 3.2")
@pytest.mark.parametrize(
    ("channels", "kernel", "act", "name"),
    [
        (16, 1, "none", "brgconv_1x1:avx512_core_vnni"),
        (64, 1, "none", "jit_1x1:avx512_core_amx"),
        (64, 1, "pieces", "brgconv_1x1:avx512_core_vnni"),
        (128, 1, "pieces", "jit_1x1:avx512_core_amx"),
        (256, 1, "curve", "brgconv_1x1:avx512_core_vnni"),
        (16, 3, "curve", "brgconv:avx512_core_vnni"),
        (64, 3, "curve", "jit:avx512_core_amx"),
    ],
)
def test_short_sums_are_not_taken_by_tiles(
    library: Library, channels: int, kernel: int, act: str, name: str
) -> None:
    if library.effective_isa() & CpuIsa.avx512_core_amx != CpuIsa.avx512_core_amx:
        pytest.skip(f"no AMX here: {library.effective_isa().name}")
    made, given = network(np.random.default_rng(0), channels, kernel, act, 3)
    assert run(fqfuse.compile(made), given)[1].endswith(name)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("seed", range(16))
def test_a_query_times_many_keys_is_as_near_as_before(seed: int, threads: int) -> None:
    made, given = keys_of(seed)
    q, k, mask = (given[name].astype(np.float64) for name in ("q", "k", "mask"))
    exact = np.einsum("bhmw,bhkw->bhmk", q, k) / 8 + mask
    # each of the terms and sums, the scale and the mask round once: half an ulp of what is added up
    most = np.einsum("bhmw,bhkw->bhmk", abs(q), abs(k)) / 8 + abs(mask)
    bound = (q.shape[-1] + 3) * 2.0**-24 * most
    plan = fqfuse.compile(made)
    session = fqfuse.InferenceSession(plan, backend="onednn", threads=threads)
    for _ in range(2):
        assert (abs(session.run(None, given)[0] - exact) <= bound).all()
    for peer in (
        fqfuse.InferenceSession(plan, backend="numpy"),
        ort_session(made, optimized=True),
    ):
        assert (abs(peer.run(None, given)[0] - exact) <= bound).all()


@pytest.mark.of_3_2("it names the kernels of 3.2")
@pytest.mark.parametrize("seed", range(8))
def test_many_keys_are_not_copied(library: Library, seed: int) -> None:
    if library.effective_isa() & CpuIsa.avx512_core != CpuIsa.avx512_core:
        pytest.skip(f"no AVX-512 here: {library.effective_isa().name}")
    made, given = keys_of(seed, least=96)
    assert run(fqfuse.compile(made), given)[1] == "gemm:jit:f32"
