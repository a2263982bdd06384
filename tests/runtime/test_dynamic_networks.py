"""Networks by ONNX Runtime's quantize_dynamic: every product, quantizer and recurrence is a
primitive, and the results are ONNX Runtime's.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnxruntime.quantization import QuantType, quantize_dynamic
from support.onnx_cases import run_ort
from support.small_networks import NETWORKS, Writer, feeds_of, left_to_operators

import fqfuse


def dynamically(
    network: str, folder: Path, weights: QuantType, per_channel: bool
) -> onnx.ModelProto:
    onnx.save(NETWORKS[network](Writer(0)), folder / "f32.onnx")
    quantize_dynamic(
        folder / "f32.onnx",
        folder / "dynamic.onnx",
        weight_type=weights,
        per_channel=per_channel,
    )
    return onnx.load(folder / "dynamic.onnx")


@pytest.mark.slow  # 28 networks, each compiled and run on both runtimes
@pytest.mark.parametrize("per_channel", [False, True], ids=["per tensor", "per channel"])
@pytest.mark.parametrize("weights", [QuantType.QInt8, QuantType.QUInt8], ids=["s8", "u8"])
@pytest.mark.parametrize("network", NETWORKS)
def test_network(network: str, weights: QuantType, per_channel: bool, tmp_path: Path) -> None:
    quantized = dynamically(network, tmp_path, weights, per_channel)
    plan = fqfuse.compile(quantized)
    assert not left_to_operators(plan)
    for batch in (1, 3):
        feeds = feeds_of(quantized, batch)
        expected = run_ort(quantized, feeds)[0]
        for runtime in ("numpy", "onednn"):
            found = fqfuse.InferenceSession(plan, runtime).run(None, feeds)[0]
            # sums of floats in another order: a few last places of the largest number
            near = 1e-5 * np.abs(expected).max()
            np.testing.assert_allclose(found, expected, rtol=0, atol=near)
