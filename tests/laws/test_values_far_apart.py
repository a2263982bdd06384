"""Scales, zero points and constants that lie far apart, each where an answer was once lost: models
of one quantizer, with the exact answer.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from laws.runtimes import RUNTIMES
from laws.zeros import Draw
from support.onnx_cases import model

import fqfuse

TARGETS = ("onednn-v3", "onednn-v2", "unified")
F32 = np.float32


class Small(Draw):
    """A model in the making, with one input."""

    def __init__(self) -> None:
        super().__init__(np.random.default_rng(0))
        self.second: npt.NDArray[np.float32] | None = None

    def input_of(self, number: float, channels: int = 2) -> str:
        """A second input, which has one number everywhere."""
        self.second = np.full([1, channels, 1, 2], number, F32)
        return "t"

    def decoded(self, x: str, scale: float, zero: int, dtype: type = np.uint8) -> str:
        names = self.constant(F32(scale)), self.constant(dtype(zero))
        return self.op("DequantizeLinear", self.op("QuantizeLinear", x, *names), *names)

    def weights(self, scales: list[float]) -> str:
        codes = np.full((len(scales), 1, 1, 1), 100, np.int8)
        names = self.constant(codes), self.constant(np.array(scales, F32))
        return self.op("DequantizeLinear", *names, axis=0)

    def normalized(self, x: str, gamma: list[float], beta: list[float]) -> str:
        of = len(gamma)
        numbers = (gamma, beta, [0.0] * of, [1.0] * of)
        named = [self.constant(np.array(each, F32)) for each in numbers]
        return self.op("BatchNormalization", x, *named, epsilon=1e-12)


def constant_behind_signed_codes(draw: Small) -> str:
    """s8 codes may become u8 codes with a zero point of 128: (q - (128 - c/s))*s loses c."""
    return draw.normalized(draw.decoded("x", 1.0, 0, np.int8), [1e6, 7e5], [0.3, -0.7])


def constant_of_each_channel(draw: Small) -> str:
    added = draw.constant(np.array([[[0.3]], [[0.7]]], F32))
    return draw.op("Add", draw.decoded("x", 1e6, 0, np.int8), added)


def pruned_channel(draw: Small) -> str:
    """c/s is beyond f32."""
    return draw.normalized(draw.decoded("x", 0.02, 0, np.int8), [1.0, 1e-36], [5.0, 1e7])


def dead_channel_of_a_convolution(draw: Small) -> str:
    """The bias divided by an output scale is beyond f32."""
    bias = draw.constant(np.array([0.5, 2.0], F32))
    return draw.op("Conv", draw.decoded("x", 0.01, 3), draw.weights([0.01, 1e-37]), bias)


def small_slopes(draw: Small) -> str:
    """a*(q - z) + z loses the first term."""
    slopes = draw.constant(np.array([[[1e-7]], [[2e-7]]], F32))
    return draw.op("PRelu", draw.decoded("x", 3921568.75, 255), slopes)


def far_constant(draw: Small) -> str:
    """c/s is no zero point: of s32, or of what f32 tells from its neighbours."""
    y = draw.op("Add", draw.decoded("x", 1e-10, 3), draw.constant(F32(4.8)))
    return draw.op("MatMul", y, draw.constant(np.full((2, 2), 1.5, F32)))


def channels_far_apart(draw: Small) -> str:
    """What a channel with a small scale has is lost beside the other operand's zero point."""
    scales, zeros = np.array([1e-4, 3.0], F32), np.zeros(2, np.uint8)
    names = draw.constant(scales), draw.constant(zeros)
    first = draw.op("QuantizeLinear", "x", *names, axis=1)
    first = draw.op("DequantizeLinear", first, *names, axis=1)
    zero = draw.op("Mul", "x", draw.constant(F32(0.0)))  # a constant would be folded
    return draw.op("Add", first, draw.decoded(zero, 16.0, 128))


def product_of_large_numbers(draw: Small) -> str:
    """What is next to 0 is multiplied by thousands in front of a rounding."""
    near = draw.decoded("x", 950.3009, 127, np.int8)
    far = draw.decoded(draw.input_of(14000), 0.21665308, -32768, np.int16)
    names = draw.constant(F32(2.13422)), draw.constant(np.uint8(255))
    return draw.op("QuantizeLinear", draw.op("Mul", near, far), *names)


def bias_beyond_f32(draw: Small) -> str:
    """The factor behind the bounds multiplies the bias."""
    weights = draw.constant(np.array([[[[3.0]], [[0.0]]], [[[0.0]], [[3.0]]]], F32))
    y = draw.op("Add", draw.op("Conv", "x", weights), draw.constant(F32(5e11)))
    y = draw.op("Clip", y, draw.constant(F32(-1e-30)), draw.constant(F32(1e-30)))
    return draw.op("Mul", y, draw.constant(F32(1e35)))


def difference_of_far_codes(draw: Small) -> str:
    """q*s - z*s rounds z*s, which is far from 0 in front of an operand of no known steps."""
    x = draw.decoded("x", 22491.5625, 127)
    y = draw.op("Sub", x, draw.op("Add", draw.input_of(0.9), x))
    return draw.decoded(y, 0.06631, -7, np.int8)


def broadcast_operand(draw: Small) -> str:
    """No scale for each channel on an operand of one channel, as `unified` has them."""
    less = draw.decoded(draw.input_of(-2.0, channels=1), 1.0, 255)
    y = draw.op("Sub", draw.decoded("x", 166.65774, -28, np.int8), less)
    low, high = np.array([[[4e5]], [[160.0]]], F32), np.array([[[1e6]], [[530.0]]], F32)
    ends = [draw.constant(end[None]) for end in (low, high)]
    return draw.op("FakeQuantize", y, *ends, *ends, levels=2, domain="org.openvinotoolkit")


def number_of_many_bits(draw: Small) -> str:
    """c*a is far from 0, and c has 17 bits behind the point."""
    y = draw.op("Sub", "x", draw.constant(F32(121.003334)))
    y = draw.op("Mul", y, draw.constant(F32(2.75)))
    return draw.op("Add", y, draw.constant(F32([[[0.125]], [[-0.5]]])))


NEXT = float(np.spacing(F32(1e30)))
MANY = float(F32(121.003334))
FAR, SPREAD = [1e30, 1e30 + NEXT] * 2, [0, NEXT * 1e10, 0, NEXT]


def far_from_zero(draw: Small) -> str:
    """x - 1e30: what is left is small, and the bias times a factor of 1e10 is beyond f32."""
    weights = draw.constant(np.array([[[[1.0]], [[0.0]]], [[[0.0]], [[1.0]]]], F32))
    return draw.op("Conv", "x", weights, draw.constant(np.array([-1e30, -1e30], F32)))


def normalized_bias(draw: Small) -> str:
    return draw.normalized(far_from_zero(draw), [1e10, 1.0], [0.0, 0.0])


def multiplied_bias(draw: Small) -> str:
    y = draw.op("Relu", far_from_zero(draw))
    return draw.op("Mul", y, draw.constant(np.array([[[1e10]], [[1.0]]], F32)))


def normalized_far_from_zero(draw: Small) -> str:
    """bias - mean * factor is beyond f32."""
    numbers = ([1e10, 1.0], [0.0, 0.0], [1e30, 1e30], [1.0, 1.0])
    named = [draw.constant(np.array(each, F32)) for each in numbers]
    return draw.op("BatchNormalization", "x", *named, epsilon=1e-12)


CASES: dict[str, tuple[Callable[[Small], str], list[float], list[float]]] = {
    "constant behind signed codes": (
        constant_behind_signed_codes,
        [0, 1, 0, 1],
        [0.3, 1e6 + 0.3, -0.7, 7e5 - 0.7],
    ),
    "constant of each channel": (constant_of_each_channel, [0] * 4, [0.3, 0.3, 0.7, 0.7]),
    "pruned channel": (pruned_channel, [0, 0.02, 0, 1], [5, 5.02, 1e7, 1e7]),
    "small slopes": (
        small_slopes,
        [0, -3921568.75, -3921568.75, -7843137.5],
        [0, -0.392156875, -0.78431375, -1.5686275],
    ),
    "far constant": (far_constant, [0, 3e-10, 0, 0], [14.4] * 4),
    "channels far apart": (channels_far_apart, [1e-4, 2e-4, 3, 6], [1e-4, 2e-4, 3, 6]),
    "product of large numbers": (product_of_large_numbers, [0, 0.2, 1, 7], [255] * 4),
    "bias beyond f32": (bias_beyond_f32, [-1e4, 0, 1e4, 1], [1e5] * 4),
    "difference of far codes": (difference_of_far_codes, [-22491.5] * 4, [-14 * 0.06631] * 4),
    "broadcast operand": (broadcast_operand, [1000, -1000, 1000, -1000], [4e5, 4e5, 530, 160]),
    "number of many bits": (
        number_of_many_bits,
        [121.003334, 121.125, 121.003334, 0],
        [0.125, 0.125 + 2.75 * (121.125 - MANY), -0.5, -0.5 - 2.75 * MANY],
    ),
    "normalized bias": (normalized_bias, FAR, SPREAD),
    "multiplied bias": (multiplied_bias, FAR, SPREAD),
    "normalized far from zero": (normalized_far_from_zero, FAR, SPREAD),
    "dead channel": (dead_channel_of_a_convolution, [1, 0], [1.5, 0.5, 2, 2]),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", CASES)
def test_values_far_apart(name: str, target: str) -> None:
    build, x, want = CASES[name]
    shape = [1, len(x) // 2, 1, 2]
    draw = Small()
    output = build(draw)
    feeds: dict[str, npt.NDArray[np.float32]] = {"x": np.array(x, F32).reshape(shape)}
    if draw.second is not None:
        feeds["t"] = draw.second
    inputs = {name: list(data.shape) for name, data in feeds.items()}
    proto = model(draw.nodes, inputs=inputs, outputs=(output,), constants=draw.constants)
    plan = fqfuse.compile(proto, target=target)
    runs = {"numpy": plan}
    if "onednn" in RUNTIMES and target != "unified":
        runs["auto"] = plan if target == "onednn-v3" else fqfuse.convert(plan)
    for backend, each in runs.items():
        (found,) = fqfuse.InferenceSession(each, backend, 1).run(None, feeds)
        # a few roundings of each number
        np.testing.assert_allclose(found.ravel(), want, rtol=4e-7, atol=1e-9, err_msg=backend)
