"""Each algorithm of the table is whole: arithmetic in NumPy, a number of oneDNN's, a bound that
holds, a row that says the truth.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from fqfuse.ir.algorithms import BINARY, ELTWISE
from fqfuse.onednn.enums import AlgKind
from fqfuse.runtime.kernels.base import Block, Recorder, Scratch
from fqfuse.runtime.kernels.eltwise_math import ALGORITHMS, EltwisePass
from fqfuse.runtime.kernels.passes import BinaryPass, Source
from fqfuse.runtime.numerics import VNNI_3_2

EDGES = np.array([0.0, 1e-30, -1e-30, 0.5, -0.5, 1.0, -1.0, 3.25, -3.25, 17.0, -17.0], np.float32)
PARAMETERS = [(0.0, 0.0), (1.0, 0.0), (0.5, 0.25), (-0.5, 2.0)]


def computed(algorithm: str, x: np.ndarray, alpha: float, beta: float) -> np.ndarray:
    y = x.copy()
    record = Recorder(Scratch(64 * y.nbytes + 4096))
    step = EltwisePass(
        algorithm,
        np.float32(alpha),
        np.float32(beta),
        np.float32(1),
        VNNI_3_2,
        finite=True,
        signed_zero=True,
    )
    step(y, Block((slice(0, y.size),), [], record))
    run(record)
    return y


def run(record: Recorder) -> None:
    with np.errstate(all="ignore"):
        for call in record.calls:
            call()


def test_each_has_arithmetic_and_a_number() -> None:
    assert ALGORITHMS.keys() == ELTWISE.keys()
    assert {
        name.removeprefix("eltwise_") for name in AlgKind.__members__ if name.startswith("eltwise_")
    } >= ELTWISE.keys()
    assert {
        name.removeprefix("binary_") for name in AlgKind.__members__ if name.startswith("binary_")
    } >= BINARY.keys()


@pytest.mark.parametrize("name", ELTWISE)
@pytest.mark.parametrize(("alpha", "beta"), PARAMETERS)
def test_what_comes_out_stays_within_the_reach(name: str, alpha: float, beta: float) -> None:
    if ELTWISE[name].clips and beta < alpha:
        return
    for bound in (0.0, 1.0, 17.0):
        reach = ELTWISE[name].reach(alpha, beta, bound)
        found = computed(name, EDGES[np.abs(EDGES) <= bound], alpha, beta).astype(np.float64)
        # 4 roundings of what is at most so large
        assert math.isinf(reach) or np.all(np.abs(found) <= reach * (1 + 2.0**-22)), (bound, found)


@pytest.mark.parametrize("name", ELTWISE)
def test_what_does_not_tell_zero_is_continuous_there(name: str) -> None:
    beside = computed(name, EDGES[:3], 0.5, 0.25)
    if not ELTWISE[name].tells_zero:
        assert np.isfinite(beside).all()
        assert np.ptp(beside) <= 1e-6  # what f32 rounds of 0.25 and of ln 2


@pytest.mark.parametrize("name", BINARY)
def test_a_binary_algorithm_tells_zero_or_is_continuous_there(name: str) -> None:
    found = EDGES[:3].copy()
    record = Recorder(Scratch(4096))
    other = np.zeros(3, np.float32) if name != "div" else np.ones(3, np.float32)
    step = BinaryPass(name, Source(other), nan_stays=True)
    step(found, Block((slice(0, 3),), [], record))
    run(record)
    assert BINARY[name].tells_zero == (np.ptp(found) == 1)
