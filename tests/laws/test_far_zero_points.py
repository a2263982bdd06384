"""What is small beside a zero point times its scale stays what it is: scores beside a mask from
-1e9 to 0, whose code for 0 is 127. So does what is left of an input next to a number that is taken
off it.

Exact values in f64 say what a model gives, with a bound on what f32 may miss: roundings of the
terms that are added, not of their zero points.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from hypothesis import settings
from laws.budget import some
from laws.runtimes import RUNTIMES
from laws.zeros import Draw
from support.onnx_cases import model

import fqfuse
from fqfuse.plan.text import print_plan

FUZZ = not settings.default.derandomize
CASES = 8_000 if FUZZ else 400
BLOCKS = 4
TARGETS = ("onednn-v3", "onednn-v3", "onednn-v2", "unified")
SHAPE = (3, 4)
F64 = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Known:
    """A value of the model.

    Attributes:
        name: its name.
        exact: what it is.
        off: by how much f32 may miss it.
        step: of the codes or sums that it consists of; 0: there are none.
    """

    name: str
    exact: F64
    off: F64
    step: float = 0.0


@dataclass
class Far(Draw):
    """A model in the making, with exact values."""

    feeds: dict[str, npt.NDArray[np.float32]] = field(default_factory=dict)

    def fed(self, values: F64) -> str:
        name = f"x{len(self.feeds)}"
        self.feeds[name] = values.astype(np.float32)
        return name

    def scale_and_zero(self, low: float, high: float) -> tuple[np.float32, np.generic]:
        dtype = self.pick(np.uint8, np.int8)
        info = np.iinfo(dtype)
        zero = self.pick(info.min, info.max, int(self.rng.integers(info.min, info.max + 1)))
        return np.float32(10 ** self.rng.uniform(low, high)), dtype(zero)

    def quantized(self, x: str, scale: np.float32, zero: np.generic) -> str:  # type: ignore[override]
        names = self.constant(scale), self.constant(zero)
        return self.op("DequantizeLinear", self.op("QuantizeLinear", x, *names), *names)

    def codes(self, low: float = -3, high: float = 7) -> Known:
        """Decoded codes, many of them equal to their zero point."""
        scale, zero = self.scale_and_zero(low, high)
        info = np.iinfo(zero.dtype)
        codes = self.rng.integers(info.min, info.max + 1, SHAPE)
        codes[self.rng.random(SHAPE) < 0.6] = zero
        exact = (codes - float(zero)) * float(scale)
        name = self.quantized(self.fed(exact), scale, zero)
        return Known(name, exact, np.abs(exact) * 2.0**-22, float(scale))

    def floats(self) -> Known:
        """An input of the model."""
        exact = self.rng.normal(size=SHAPE).astype(np.float32).astype(np.float64)
        return Known(self.fed(exact), exact, np.zeros(SHAPE))

    def normalized(self) -> Known:
        """An input next to a number that is taken off it, times a factor."""
        middle = np.float32(10 ** self.rng.uniform(0, 7))
        factor = np.float32(10 ** self.rng.uniform(-3, 1))
        at = self.fed(float(middle) + self.rng.uniform(-1, 1, SHAPE) * float(middle) * 2.0**-10)
        apart = self.feeds[at].astype(np.float64) - float(middle)  # exact in f32, too
        name = self.op("Mul", self.op("Sub", at, self.constant(middle)), self.constant(factor))
        exact = apart * float(factor)
        return Known(name, exact, np.abs(exact) * 2.0**-22 + 2.0**-17)

    def product(self) -> Known:
        """A product of codes."""
        x, step = self.codes(-2, -1), np.float32(10 ** self.rng.uniform(-3, -1))
        weights = self.rng.integers(-127, 128, (SHAPE[1], SHAPE[1]), dtype=np.int8)
        decoded = self.op(
            "DequantizeLinear",
            self.constant(weights),
            self.constant(step),
            self.constant(np.int8(0)),
        )
        exact = x.exact @ weights * float(step)
        terms = np.abs(x.exact) @ np.abs(weights.astype(np.float64)) * float(step)
        name = self.op("MatMul", x.name, decoded)
        return Known(name, exact, terms * 2.0**-22, 16 * x.step * float(step))

    def number(self) -> Known:
        """A constant: one number, or one for each column."""
        shape = self.pick((), SHAPE[1:])
        exact = self.rng.uniform(-1, 1, shape).astype(np.float32)
        return Known(self.constant(exact), exact.astype(np.float64), np.zeros(SHAPE))

    def source(self) -> Known:  # type: ignore[override]
        some = (self.codes, self.codes, self.codes, self.floats, self.product, self.normalized)
        return self.pick(*some)()

    def together(self, a: Known, b: Known) -> Known:
        op = self.pick("Add", "Add", "Sub", "Max", "Min")
        function = {"Add": np.add, "Sub": np.subtract, "Max": np.maximum, "Min": np.minimum}[op]
        # by ir/telling.py: 2^-8 of a step of codes, 2^-4 of one of sums, 2^-18 where there
        # is none; here twice that, for each of both may be off
        steps = [known.step for known in (a, b) if known.step]
        unseen = max(2.0**-17, 2.0**-7 * min(steps, default=0.0))
        terms = np.abs(a.exact) + np.abs(b.exact)
        off = a.off + b.off + terms * 2.0**-22 + unseen
        return Known(self.op(op, a.name, b.name), function(a.exact, b.exact), off)

    def again(self, x: Known) -> Known:
        """Codes of a value; at what may be a tie either of two."""
        scale, zero = self.scale_and_zero(-2, 2)
        info = np.iinfo(zero.dtype)
        at = x.exact / float(scale)
        # half a code of an odd zero point is rounded in front of it or behind it
        near = x.off / float(scale) + np.abs(at) * 2.0**-22 + 2.0**-8
        either = np.abs(at - np.floor(at) - 0.5) <= near
        codes = np.clip(np.rint(at) + float(zero), info.min, info.max)
        exact = (codes - float(zero)) * float(scale)
        off = np.where(either, np.ceil(near) * float(scale), 0.0) + np.abs(exact) * 2.0**-22
        return Known(self.quantized(x.name, scale, zero), exact, off, float(scale))

    def behind(self, x: Known) -> Known:
        kind = self.pick("", "", "Sigmoid", "Tanh", "Relu", "codes")
        if kind == "codes":
            return self.again(x)
        if not kind:
            return x
        function = {
            "Sigmoid": lambda v: 0.5 * (1 + np.tanh(v / 2)),
            "Tanh": np.tanh,
            "Relu": lambda v: np.maximum(v, 0),
        }[kind]
        # oneDNN's polynomials are good to a few millionths
        return Known(
            self.op(kind, x.name), function(x.exact), x.off + (0 if kind == "Relu" else 4e-6)
        )

    def last(self, x: Known) -> Known:
        kind = self.pick("", "Softmax", "MatMul")
        if kind == "Softmax":
            powers = np.exp(x.exact - x.exact.max(axis=-1, keepdims=True))
            exact = powers / powers.sum(axis=-1, keepdims=True)
            off = np.minimum(1.0, 2 * np.expm1(2 * np.minimum(x.off.max(-1, keepdims=True), 1)))
            return Known(self.op("Softmax", x.name), exact, off + 2e-6)
        if kind == "MatMul":
            weights = self.rng.normal(size=(SHAPE[1], 2)).astype(np.float32)
            large = np.abs(weights.astype(np.float64))
            off = x.off @ large + np.abs(x.exact) @ large * 2.0**-21
            return Known(
                self.op("MatMul", x.name, self.constant(weights)), x.exact @ weights, off + 1e-6
            )
        return x


def drawn(seed: int) -> tuple[Far, Known, onnx.ModelProto]:
    """A model of up to three values that are added or compared, with codes and functions behind."""
    draw = Far(np.random.default_rng(seed))
    value = draw.source()
    for _ in range(draw.pick(1, 1, 2)):
        pair = (value, draw.pick(draw.source, draw.source, draw.number)())
        value = draw.behind(draw.together(*(pair if draw.yes() else pair[::-1])))
    value = draw.last(value)
    shapes = {name: list(SHAPE) for name in draw.feeds}
    return (
        draw,
        value,
        model(draw.nodes, inputs=shapes, outputs=(value.name,), constants=draw.constants),
    )


def hold(seed: int) -> None:
    draw, value, proto = drawn(seed)
    target = TARGETS[seed % len(TARGETS)]
    plan = fqfuse.compile(proto, target=target)
    runs = {"numpy": plan}
    if "onednn" in RUNTIMES and target != "unified":
        runs["auto"] = plan if target == "onednn-v3" else fqfuse.convert(plan)
    for backend, each in runs.items():
        (found,) = fqfuse.InferenceSession(each, backend, 1).run(None, draw.feeds)
        wrong = ~(np.abs(found - value.exact) <= value.off)  # NaN is wrong, too
        assert not wrong.any(), (
            f"seed {seed}, {backend}: {found[wrong]} for {value.exact[wrong]}, off by {value.off[wrong]} at most\n"
            f"{onnx.printer.to_text(proto)}\n{print_plan(each)}"
        )


@pytest.mark.hypothesis
@pytest.mark.parametrize("block", range(BLOCKS))
def test_far_zero_points(block: int) -> None:
    start = secrets.randbits(48) if FUZZ else block * CASES
    for seed in some(range(start, start + CASES // BLOCKS)):
        hold(seed)
