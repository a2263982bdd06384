"""What docs/contributing/numerics.md says of functions at NaN, infinities and subnormals, on both runtimes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from support.onnx_cases import model, node

import fqfuse
from fqfuse.onednn.enums import CpuIsa
from fqfuse.onednn.library import Library

NAN, INF = math.nan, math.inf


def run(op: str, x: list[float], backend: str, *, opset: int = 20) -> Any:
    proto = model([node(op, ["x"])], inputs={"x": [len(x)]}, opset=opset)
    session = fqfuse.InferenceSession(proto, backend)
    (found,) = session.run(None, {"x": np.array(x, np.float32)})
    assert {place.runtime for place in session.placement()} == {backend}
    return found


@pytest.mark.parametrize(
    ("op", "x", "numpy", "onednn"),
    [
        ("Exp", NAN, NAN, INF),
        ("HardSigmoid", NAN, 0.0, 1.0),
        ("Gelu", INF, INF, {True: NAN, False: INF}),
        ("Gelu", 2e38, 2e38, {True: INF, False: 2e38}),
        ("Sigmoid", NAN, NAN, NAN),
        ("Tanh", NAN, NAN, NAN),
        ("Relu", NAN, 0.0, 0.0),
    ],
)
def test_functions_of_what_is_not_finite(
    op: str, x: float, numpy: float, onednn: float | dict[bool, float], library: Library
) -> None:
    """The last number is that of oneDNN, or what it gives with AVX-512 and without."""
    wide = library.effective_isa() & CpuIsa.avx512_core == CpuIsa.avx512_core
    theirs = onednn[wide] if isinstance(onednn, dict) else onednn
    for backend, want in (("numpy", numpy), ("onednn", theirs)):
        found = run(op, [x, 1.0], backend)
        np.testing.assert_array_equal(found[0], np.float32(want))
        assert np.isfinite(found[1])


def test_log_of_onednn_has_few_digits_near_1() -> None:
    x = np.random.default_rng(0).uniform(0.3, 3, 4096).astype(np.float32)
    exact = np.log(x.astype(np.float64))
    # as measured: 3.5e-6 with AVX-512 and AVX2, 6.4e-6 with SSE4.1; an ulp of NumPy's
    for backend, least, most in (("numpy", 0, 2**-23), ("onednn", 1e-6, 7e-6)):
        error = np.abs(run("Log", x.tolist(), backend) - exact).max()
        assert least <= error <= most
    assert run("Log", [1e-45, 1.0], "onednn")[0] == pytest.approx(-88.03, abs=0.01)
