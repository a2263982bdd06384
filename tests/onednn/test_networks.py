"""The benchmark's networks on the real library: no step binds to a reference kernel, and each step
computes what NumPy computes.

Quantized here, by ONNX Runtime's quantizer on two inputs: which steps there are does not depend on
the calibration.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process
from support.steps_compared import compare_steps

import fqfuse
from fqfuse.benchmarks.networks import NETWORKS
from fqfuse.measure.arrays import split_feeds
from fqfuse.plan.types import Plan
from fqfuse.runtime.lowering.executor import OneDnnExecutor

COMPUTE = (
    "convolution",
    "matmul",
    "pooling",
    "binary",
    "eltwise",
    "concat",
    "reorder",
    "softmax",
    "layer_normalization",
)


class Reader(CalibrationDataReader):
    """One feed after the other, then None."""

    def __init__(self, stacked: Mapping[str, np.ndarray]) -> None:
        self.feeds = split_feeds(stacked)

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self.feeds, None)


def quantized(name: str, folder: Path) -> tuple[Plan, dict[str, np.ndarray]]:
    network = NETWORKS[name]
    onnx.save(network.build(0, 2), folder / "f32.onnx")
    stacked = network.feeds(np.random.default_rng(0), 2)
    # As `make bench` does it, but for the symbolic shapes, which need sympy: the networks' shapes
    # are static.
    quant_pre_process(
        str(folder / "f32.onnx"), str(folder / "prepared.onnx"), skip_symbolic_shape=True
    )
    quantize_static(
        str(folder / "prepared.onnx"),
        str(folder / "int8.onnx"),
        Reader(stacked),
        quant_format=QuantFormat.QDQ,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
        per_channel=True,
    )
    plan = fqfuse.compile(folder / "int8.onnx")
    return plan, dict(next(iter(split_feeds(stacked))))


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_no_reference_kernels_and_the_same_codes(tmp_path: Path, name: str) -> None:
    plan, feeds = quantized(name, tmp_path)
    executor = OneDnnExecutor(plan, 2)
    for difference in compare_steps(plan, executor, feeds, threads=2):
        assert difference.transcendental, str(difference)
        if plan.type(difference.value).dtype.is_integer:
            assert difference.largest <= 1, str(difference)
        # f32 functions by polynomials, and sums in the library's own order: values are of the order
        # of 1 to 10
        else:
            assert difference.largest <= 1e-4, str(difference)
    for placement in executor.placement():
        parts = placement.implementation.split(" + ")
        # a concatenation called so is a compiled reorder for each source: 42 us for ViT's 75,648
        # codes, which lie as a convolution left them
        called = {"ref:any"} if placement.step.primitive == "concat" else set()
        assert not any(part.startswith("ref") and part not in called for part in parts), placement
        if placement.step.primitive in COMPUTE:
            assert placement.runtime == "onednn", f"{placement.step.name}: {placement.reason}"
