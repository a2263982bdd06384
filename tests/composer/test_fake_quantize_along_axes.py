"""FakeQuantize whose ranges vary along several axes of the data: no scale and zero point have such
masks, and binary operations with tensors compute it.
"""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from laws.runtimes import EACH_RUNTIME
from support.fake_quantizes import ENDS, check_values
from support.onnx_cases import model, node, random

import fqfuse
from fqfuse.runtime.session import InferenceSession

OPENVINO = "org.openvinotoolkit"
RANGES = ("input_low", "input_high", "output_low", "output_high")
X = random((3, 4, 6, 5), 1, scale=2)


def drawn(shape: tuple[int, ...], low: float, high: float, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).uniform(low, high, shape).astype(np.float32)


FORMS = {
    "channels and columns": [drawn((4, 1, 5), a, b, 0) for a, b in ((-2, -0.5), (1, 3))] * 2,
    "everything": [drawn((1, 4, 6, 5), a, b, 1) for a, b in ((-2, 0.5), (1, 3))] * 2,
    "each range its own": [
        drawn((4, 1, 1), -2, -1, 2),
        drawn((1, 5), 1, 2, 3),
        drawn((6, 1), -1, 0, 4),
        np.float32(3),
    ],
    "one number as output": [
        drawn((4, 6, 1), -2, -1, 5),
        drawn((6, 1), 1, 2, 6),
        *[drawn((5,), 0, 1, 7)] * 2,
    ],
}


def fake_quantize(form: str, levels: int, *, behind: bool) -> onnx.ModelProto:
    """x -> (convolution of codes) -> FakeQuantize."""
    weights = np.random.default_rng(3).integers(-127, 128, (4, 4, 3, 3)).astype(np.int8)
    constants = dict(zip(RANGES, FORMS[form], strict=True))
    last = node("FakeQuantize", ["c", *RANGES], ["y"], name="fq", domain=OPENVINO, levels=levels)
    nodes = [node("Identity", ["x"], ["c"]), last]
    if behind:
        constants |= {"s": np.float32(2**-5), "z": np.uint8(128), "t": np.float32(2**-8)}
        constants |= {"w": weights, "o": np.int8(0)}
        nodes = [
            node("QuantizeLinear", ["x", "s", "z"], ["q"], name="q"),
            node("DequantizeLinear", ["q", "s", "z"], ["d"], name="d"),
            node("DequantizeLinear", ["w", "t", "o"], ["v"], name="v"),
            node("Conv", ["d", "v"], ["c"], name="conv", pads=[1, 1, 1, 1]),
            last,
        ]
    return model(nodes, inputs={"x": ["N", 4, 6, 5]}, constants=constants, domains={OPENVINO: 1})


def defined(x: np.ndarray, form: str, levels: int) -> tuple[np.ndarray, np.ndarray]:
    """OpenVINO's definition in f64, and the width of the output's step."""
    low, high, out_low, out_high = (end.astype(np.float64) for end in FORMS[form])
    grid = np.rint((np.clip(x, low, high) - low) / (high - low) * (levels - 1))
    width = (out_high - out_low) / (levels - 1)
    return grid * width + out_low, np.abs(width) + np.zeros(x.shape)


@EACH_RUNTIME
@pytest.mark.parametrize("target", ["onednn-v3", "onednn-v2", "unified"])
@pytest.mark.parametrize("behind", [False, True])
@pytest.mark.parametrize("levels", [256, 16])
@pytest.mark.parametrize("form", FORMS)
def test_numbers(form: str, levels: int, behind: bool, target: str, runtime: str) -> None:
    plan = fqfuse.compile(fake_quantize(form, levels, behind=behind), target=target)
    assert not [step for step in plan.steps if step.primitive == "onnx.FakeQuantize"]
    (found,) = InferenceSession(plan, runtime, 1).run(None, {"x": X})
    x = X
    if behind:  # what the convolution gives, in f64
        source = fake_quantize(form, levels, behind=True)
        del source.graph.node[-1]
        source.graph.output[0].name = "c"
        (x,) = InferenceSession(fqfuse.compile(source), "numpy", 1).run(None, {"x": X})
    wanted, width = defined(x.astype(np.float64), form, levels)
    off = np.abs(found - wanted)
    # next to a tie, where x/s - il/s was rounded, another code
    assert (off <= width * 1.0001 + 1e-5).all()
    assert (off > width / 2 + 1e-5).mean() <= 0.002


def test_its_fates_and_steps() -> None:
    plan = fqfuse.compile(fake_quantize("channels and columns", 256, behind=True))
    assert [step.primitive for step in plan.steps] == ["reorder", "convolution"]
    told = {
        (fate.half.value, fate.fate.value) for fate in plan.fate_records if fate.quantizer == "fq"
    }
    assert told == {("quantize", "post_op"), ("dequantize", "post_op")}


NO_GRIDS = {
    "inverted here and there": (
        drawn((4, 1, 5), -2, 2, 10), drawn((4, 1, 5), -2, 2, 11),
        drawn((4, 1, 5), -3, 1, 12), drawn((1, 6, 1), 1, 3, 13),
    ),
    "thresholds": (drawn((4, 6, 1), -1, 1, 14), drawn((4, 6, 1), -1, 1, 14), *FORMS["everything"][:2]),
}  # fmt: skip
"""Constant ranges along several axes, of which some are inverted, or bounds of a jump."""


@EACH_RUNTIME
@pytest.mark.parametrize("target", ["onednn-v3", "onednn-v2", "unified"])
@pytest.mark.parametrize("levels", [2, 16, 256])
@pytest.mark.parametrize("form", NO_GRIDS)
def test_what_is_no_grid(form: str, levels: int, target: str, runtime: str) -> None:
    proto = fake_quantize("everything", levels, behind=False)
    given = dict(zip(RANGES, NO_GRIDS[form], strict=True))
    for held in proto.graph.initializer:
        held.CopyFrom(onnx.numpy_helper.from_array(given[held.name], held.name))
    plan = fqfuse.compile(proto, target=target)
    assert not any(step.primitive.startswith("onnx.F") for step in plan.steps)
    x = X.copy()
    x[0] = given["input_low"]
    x[1] = given["input_high"]
    session = InferenceSession(plan, runtime, 1)
    (found,) = session.run(None, {"x": x})
    every = np.broadcast_arrays(*NO_GRIDS[form], x[0])[:4]
    check_values(found, x, dict(zip(ENDS, every, strict=True)), levels)
    if runtime == "onednn" and target == "onednn-v3":
        assert all(place.runtime != "numpy" for place in session.placement())


def test_two_levels_along_axes_stay_whole() -> None:
    plan = fqfuse.compile(fake_quantize("channels and columns", 2, behind=False))
    assert [step.primitive for step in plan.steps] == ["onnx.FakeQuantize"]
