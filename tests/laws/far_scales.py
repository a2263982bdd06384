"""Chains of quantizers with scales from 1e-44 to 1e38 and constants of any size, and between which bounds exact
arithmetic has what they give.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import onnx
from support.onnx_cases import model, node

Bounds = tuple[np.ndarray, np.ndarray]

CODES = (np.uint8, np.int8, np.uint8, np.int8, np.uint16, np.int16)
SHAPE = (2, 3)
LARGEST = float(np.finfo(np.float32).max)
_LEAST = 2.0**-126
"""Below it f32 has fewer bits, and a library may have none."""

_ROUNDING = 2.0**-22
"""Of an operation: its own, and that of a factor or constant that joined another one."""

_NEAR, _NEAR_IN_CODES = 2.0**6, 2.0**16
"""How far from 0 the code 0 may decode to where q*s - z*s stands for (q - z)*s (docs/contributing/numerics.md)."""


class Step(NamedTuple):
    """An operation of a chain.

    Attributes:
        kind: ONNX's operator, or `Quantizer` for both halves of one.
        number: a constant, or a scale.
        zero, dtype: of a quantizer.
    """

    kind: str
    number: float = 1.0
    zero: int = 0
    dtype: type = np.uint8


@dataclass
class Chain:
    """A model of one input.

    Attributes:
        steps: the operations, the first one behind a product with the unit matrix where `product`.
        values: what is fed.
    """

    steps: list[Step]
    values: np.ndarray
    product: bool
    constants: dict[str, np.ndarray] = field(default_factory=dict)

    # -- the model ---------------------------------------------------------------------------------

    def model(self) -> onnx.ModelProto:
        nodes: list[onnx.NodeProto] = []

        def add(kind: str, *inputs: str) -> str:
            nodes.append(node(kind, inputs, [f"v{len(nodes)}"]))
            return f"v{len(nodes) - 1}"

        def constant(value: object, dtype: type = np.float32) -> str:
            self.constants[f"c{len(self.constants)}"] = np.asarray(value, dtype)
            return [*self.constants][-1]

        value = "x"
        if self.product:
            value = add("MatMul", "x", constant(np.eye(SHAPE[-1])))
        for step in self.steps:
            if step.kind == "Quantizer":
                names = constant(step.number), constant(step.zero, step.dtype)
                value = add("QuantizeLinear", value, *names)
                value = add("DequantizeLinear", value, *names)
            elif step.kind in ("Add", "Sub", "Mul", "Div"):
                value = add(step.kind, value, constant(step.number))
            else:
                value = add(step.kind, value)
        return model(
            nodes, inputs={"x": SHAPE}, outputs=(value,), constants=self.constants, opset=21
        )

    # -- exact arithmetic --------------------------------------------------------------------------

    def bounds(self) -> Bounds:
        """The lowest and the highest right value of each element; NaN where any is right."""
        found: Bounds = (self.values.astype(np.float64),) * 2
        with np.errstate(all="ignore"):
            for place, step in enumerate(self.steps):
                found = _STEPS[step.kind](self, place, *found)
        return found

    def loose(self, place: int) -> float:
        """By how much a decoded value may be off, all codes alike."""
        step, gain = self.steps[place], 1.0
        far = abs(float(step.zero) * step.number)
        behind = self.steps[place + 1 :]
        if self.told(behind):
            return 0.0
        for each in behind:
            if far * gain <= _NEAR:
                return _ROUNDING * far
            if each.kind == "Quantizer":
                return _ROUNDING * far * (far * gain / each.number <= _NEAR_IN_CODES)
            gain *= {"Mul": abs(each.number), "Div": 1 / abs(each.number)}.get(each.kind, 1.0)
        return _ROUNDING * far * (far * gain <= _NEAR)

    @staticmethod
    def told(behind: list[Step]) -> bool:
        """An operation behind tells the exact value from those next to it, up to a quantizer."""
        kinds = [step.kind for step in behind]
        kinds = kinds[: kinds.index("Quantizer")] if "Quantizer" in kinds else kinds
        added = {"Add", "Sub"} & {*kinds}
        return "Floor" in kinds or ("Reciprocal" in kinds and not added)

    def quantized(self, place: int, low: np.ndarray, high: np.ndarray) -> Bounds:
        step = self.steps[place]
        info = np.iinfo(step.dtype)
        ends = []
        for value, sign in ((low, -1), (high, 1)):
            t = value / step.number
            t = t + sign * np.where(np.isinf(t), 0, _ROUNDING * (np.abs(t) + abs(step.zero)))
            both = np.rint(t) + step.zero, np.rint(t + step.zero)
            ends.append(np.clip((np.minimum, np.maximum)[sign > 0](*both), info.min, info.max))
        real = [(end - step.zero) * step.number for end in ends]
        exact = (ends[0] == step.zero) & (ends[1] == step.zero)
        found = rounded(*real, self.loose(place))
        zero = exact & (self.loose(place) == 0)
        unknown = np.isnan(low) | np.isnan(high)
        return tuple(np.where(unknown, np.nan, np.where(zero, 0.0, end)) for end in found)

    def added(self, place: int, low: np.ndarray, high: np.ndarray) -> Bounds:
        step = self.steps[place]
        c = step.number if step.kind == "Add" else -step.number
        # the constant may be added in codes, in front of the rounding: rounded there, too
        size = np.maximum(np.abs(low), np.abs(high)) + abs(c)
        lost = np.where((low == 0) & (high == 0), 0, _ROUNDING * np.where(np.isinf(size), 0, size))
        return rounded(low + c, high + c, lost)

    def multiplied(self, place: int, low: np.ndarray, high: np.ndarray) -> Bounds:
        step = self.steps[place]
        factor = step.number if step.kind == "Mul" else 1 / step.number
        return rounded(*sorted_ends(low * factor, high * factor))

    def reciprocal(self, place: int, low: np.ndarray, high: np.ndarray) -> Bounds:
        """1/+0 is +inf; near 0 anything, and so is the sign of a 0 behind a negative factor."""
        behind = [step.kind for step in self.steps[:place]][::-1].index("Quantizer")
        turned = any(
            step.kind == "Neg" or (step.kind in ("Mul", "Div") and step.number < 0)
            for step in self.steps[place - behind : place]
        )
        found = rounded(*sorted_ends(1 / low, 1 / high))
        zero = (low == 0) & (high == 0)
        near = (~zero | turned) & (low <= _LEAST) & (high >= -_LEAST)
        return tuple(np.where(near, np.nan, np.where(zero, np.inf, end)) for end in found)

    def negated(self, _place: int, low: np.ndarray, high: np.ndarray) -> Bounds:
        return -high, -low

    def bent(self, _place: int, low: np.ndarray, high: np.ndarray) -> Bounds:
        return np.maximum(low, 0), np.maximum(high, 0)

    def floor(self, _place: int, low: np.ndarray, high: np.ndarray) -> Bounds:
        return np.floor(low), np.floor(high)


def sorted_ends(a: np.ndarray, b: np.ndarray) -> Bounds:
    return np.minimum(a, b), np.maximum(a, b)


def rounded(low: np.ndarray, high: np.ndarray, more: np.ndarray | float = 0.0) -> Bounds:
    """The bounds behind a rounding, `more` apart; what f32 does not hold may be infinite, or still be held
    by another order of the same operations.
    """
    zero = (low == 0) & (high == 0) & (np.asarray(more) == 0)
    low = low - _ROUNDING * np.where(np.isinf(low), 0, np.abs(low)) - more - _LEAST
    high = high + _ROUNDING * np.where(np.isinf(high), 0, np.abs(high)) + more + _LEAST
    low, high = np.where(zero, 0, low), np.where(zero, 0, high)
    low = np.where(low < -LARGEST, -np.inf, np.minimum(low, LARGEST))
    high = np.where(high > LARGEST, np.inf, np.maximum(high, -LARGEST))
    return low, high


_STEPS: dict[str, Callable[..., Bounds]] = {
    "Quantizer": Chain.quantized,
    "Add": Chain.added,
    "Sub": Chain.added,
    "Mul": Chain.multiplied,
    "Div": Chain.multiplied,
    "Reciprocal": Chain.reciprocal,
    "Neg": Chain.negated,
    "Relu": Chain.bent,
    "Floor": Chain.floor,
}


def draw(seed: int) -> Chain:
    """One or two quantizers, and up to three operations behind them."""
    rng = np.random.default_rng(seed)

    def size() -> float:
        kind = rng.random()
        power = rng.uniform(-3, 2) if kind < 0.4 else rng.uniform(-37, 38)
        return float(np.float32(10.0 ** (power if kind < 0.8 else np.rint(power))))

    steps = []
    for _ in range(rng.integers(1, 3)):
        dtype = CODES[rng.integers(len(CODES))]
        info = np.iinfo(dtype)
        zero = int(rng.choice([0, info.min, info.max, rng.integers(info.min, info.max + 1)]))
        steps.append(Step("Quantizer", size(), zero, dtype))
        for _ in range(rng.integers(0, 3)):
            kind = str(rng.choice(["Add", "Add", "Sub", "Mul", "Div", "Relu", "Neg"]))
            steps.append(Step(kind, size() * float(rng.choice([1, -1]))))
    if rng.random() < 0.3:
        steps.append(Step(str(rng.choice(["Reciprocal", "Floor"]))))
    first = steps[0]
    codes = rng.integers(-3, 300, SHAPE) * (rng.random(SHAPE) < 0.5)
    with np.errstate(all="ignore"):
        x = (codes + rng.uniform(-0.4, 0.4, SHAPE)) * first.number * rng.choice([1, -1])
        x = np.clip(x, -1e38, 1e38).astype(np.float32)
    return Chain(steps, x, product=bool(rng.random() < 0.4))


def wrong(found: np.ndarray, bounds: Bounds) -> np.ndarray:
    """Which elements are out of their bounds."""
    low, high = bounds
    got = found.astype(np.float64)
    return ~((got >= low) & (got <= high) | np.isnan(low) | np.isnan(high))
