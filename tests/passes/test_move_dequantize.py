"""move_dequantize: golden cases, each held to the laws."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest
from laws.golden import check_pass

import fqfuse
from fqfuse.passes.move_dequantize import MOVE_DEQUANTIZE


@pytest.mark.golden("move_dequantize")
def test_golden(golden) -> None:
    check_pass(golden, MOVE_DEQUANTIZE)


@pytest.mark.parametrize("mode", ["edge", "reflect"])
def test_codes_are_padded_with_copies_beside_a_value_that_nothing_reads(mode: str) -> None:
    model = onnx.parser.parse_model(
        f"""<ir_version: 9, opset_import: ["": 18]> g (float[4] x) => (float[N] y)
        <float s = {{0.5}}, uint8 z = {{3}}, int64[2] pads = {{1, 2}}, float fill = {{0.3}}>
        {{
            q = QuantizeLinear(x, s, z)
            d = DequantizeLinear(q, s, z)
            y = Pad <mode = "{mode}"> (d, pads, fill)
        }}"""
    )
    x = np.array([1.0, 2.0, 3.0, 4.0], np.float32)
    (y,) = fqfuse.InferenceSession(model, backend="numpy").run(None, {"x": x})
    np.testing.assert_array_equal(y, np.pad(x, (1, 2), mode))
