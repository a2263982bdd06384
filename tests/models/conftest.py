"""Runs any form of the digits model in ONNX Runtime, FakeQuantize included: independent of fqfuse's
own arithmetic.
"""

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import parser
from support.judge import ort_session

# FakeQuantize-1 of the OpenVINO specification, as an ONNX function: ONNX's Round is half to even.
FAKE_QUANTIZE = """
<opset_import: ["" : 19], domain: "org.openvinotoolkit">
FakeQuantize <levels> (x, input_low, input_high, output_low, output_high) => (y) {
    one = Constant <value_float: float = 1.0> ()
    count = Constant <value_int: int = @levels> ()
    count_f = CastLike (count, one)
    steps = Sub (count_f, one)
    from_low = Sub (x, input_low)
    width = Sub (input_high, input_low)
    share = Div (from_low, width)
    step = Mul (share, steps)
    rounded = Round (step)
    back = Div (rounded, steps)
    output_width = Sub (output_high, output_low)
    scaled = Mul (back, output_width)
    inside = Add (scaled, output_low)
    lowest = Min (input_low, input_high)
    highest = Max (input_low, input_high)
    is_low = LessOrEqual (x, lowest)
    is_high = Greater (x, highest)
    above = Where (is_high, output_high, inside)
    y = Where (is_low, output_low, above)
}
"""


def _run(model: onnx.ModelProto, images: NDArray[np.float32]) -> NDArray[np.float32]:
    runnable = onnx.ModelProto()
    runnable.CopyFrom(model)
    if any(node.op_type == "FakeQuantize" for node in model.graph.node):
        runnable.functions.append(parser.parse_function(FAKE_QUANTIZE))
    session = ort_session(runnable)
    (logits,) = session.run(None, {"image": images})
    return np.asarray(logits, dtype=np.float32)


@pytest.fixture(scope="session")
def ort_logits() -> Callable[[onnx.ModelProto, NDArray[np.float32]], NDArray[np.float32]]:
    """`ort_logits(model, images)`: logits `[N, 10]` by ONNX Runtime with its optimizations off."""
    pytest.importorskip(
        "onnxruntime",
        reason="onnxruntime, the independent evaluator, is not installed (extra `dev`)",
    )
    return _run
