"""Products of codes whose scales are fed or constant, from subnormal ones to 1e38, so that f32 holds their
product or does not: each sum is what exact arithmetic says, 0 among them, on each target and runtime.
"""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass, field

import numpy as np
import onnx
import pytest
from hypothesis import settings
from laws.budget import examples
from laws.runtimes import RUNTIMES
from support.onnx_cases import model, node

import fqfuse

TARGETS = ("onednn-v3", "onednn-v2", "unified")
LARGEST = float(np.finfo(np.float32).max)
CASES = int(os.environ.get("FQFUSE_FAR_FACTORS", examples(100, fuzz=20_000).max_examples))
_ROUNDINGS = 6 * 2.0**-24
"""Of the sum, of the scales' product or of the sum by one of them, of what that gives; of a factor or a
constant behind it, and of the quotient by the scale of a quantizer."""
_LEAST = 4 * 2.0**-149
"""The same for numbers next to 0."""

_LEAST_CONSTANT = 3e-39
"""What a constant below it decodes is decoded in f32, as ONNX has it, and the products are those of f32."""


@dataclass
class Drawn:
    """A product, its exact result and by how much that may be missed.

    Attributes:
        nodes, constants, feeds: the model.
        exact, near: what it gives.
        beyond: f32 may not hold that, or what it is made of.
    """

    rng: np.random.Generator
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    feeds: dict[str, np.ndarray] = field(default_factory=dict)
    exact: np.ndarray = field(default_factory=lambda: np.zeros(0))
    near: np.ndarray = field(default_factory=lambda: np.zeros(0))
    beyond: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))
    spatial: bool = False

    def scales(self, name: str, shape: tuple[int, ...], *, fed: bool) -> np.ndarray:
        tens = self.rng.uniform(-44.9, 38.5) + self.rng.uniform(-3, 3, shape) * (
            self.rng.random() < 0.3
        )
        least = 2.0**-149 if fed else _LEAST_CONSTANT
        found = np.clip(10.0**tens, least, LARGEST).astype(np.float32)
        (self.feeds if fed else self.constants)[name] = found
        return found.astype(np.float64)

    def product(self) -> None:
        """Sums of codes, of which some are 0, by both scales."""
        rng, size, outputs = self.rng, int(self.rng.integers(1, 65)), int(self.rng.integers(1, 9))
        rows, op = int(rng.integers(1, 4)), str(rng.choice(["MatMul", "Conv", "ConvTranspose"]))
        kinds = [np.uint8, np.int8]
        x = rng.integers(0, 128, (rows, size)).astype(kinds[int(rng.integers(2))])
        w = rng.integers(-127, 128, (size, outputs)).astype(np.int8)
        x[rng.random(rows) < 0.3] = 0
        w[:, rng.random(outputs) < 0.2] = 0
        fed = rng.random(2) < 0.6
        along = (outputs,) if rng.random() < 0.4 else ()
        s, t = self.scales("s", (), fed=fed[0]), self.scales("t", along, fed=fed[1])
        sums = x.astype(np.int64) @ w.astype(np.int64)
        shape = {"MatMul": (1, 0), "Conv": (0, 1), "ConvTranspose": (1, 0)}[op]
        axis = shape.index(0)
        weights = w.T if op == "Conv" else w
        if op != "MatMul":
            x, weights = x[..., None, None], weights[..., None, None]
        self.feeds["x"], self.constants["w"] = x, np.ascontiguousarray(weights)
        self.nodes += [
            node("DequantizeLinear", ["x", "s"], ["d"]),
            node("DequantizeLinear", ["w", "t"], ["e"], axis=axis),
            node(op, ["d", "e"], ["v0"]),
        ]
        with np.errstate(all="ignore"):
            self.exact = sums * s * t
        self.near = np.abs(self.exact) * _ROUNDINGS + _LEAST
        self.beyond = np.zeros(sums.shape, bool)
        self.look()
        self.spatial = op != "MatMul"

    def size(self) -> float:
        """How large results are; 1 where all are 0."""
        found = np.abs(self.exact)
        return float(found.max()) or 1.0

    def then(self, op: str, *inputs: np.ndarray, **attributes: int) -> None:
        names = [f"c{len(self.constants) + at}" for at in range(len(inputs))]
        self.constants |= dict(zip(names, inputs, strict=True))
        at = len(self.nodes)
        self.nodes.append(node(op, [f"v{at - 3}", *names], [f"v{at - 2}"], **attributes))

    def look(self) -> None:
        self.beyond = self.beyond | (np.abs(self.exact) > LARGEST * (1 - _ROUNDINGS))

    def followed(self) -> None:
        """A factor, a constant or a relu, or none, and a quantizer, or none."""
        rng = self.rng
        behind = rng.choice(["", "Mul", "Add", "Relu"])
        if behind == "Mul":
            factor = np.float32(np.clip(10.0 ** rng.uniform(-30, 30), 0, LARGEST))
            self.then("Mul", factor)
            self.exact, self.near = self.exact * float(factor), self.near * float(factor) + _LEAST
        elif behind == "Add":
            size = min(self.size(), LARGEST / 4)
            number = np.float32(size * rng.uniform(-1, 1))
            self.then("Add", number)
            self.exact = self.exact + float(number)
            self.near += _ROUNDINGS * (abs(float(number)) + np.abs(self.exact))
        elif behind == "Relu":
            self.then("Relu")
            self.exact = np.maximum(self.exact, 0)
        self.look()
        if rng.random() < 0.4:
            scale = np.float32(np.clip(self.size() / 100, 1e-37, 1e37))
            self.then("QuantizeLinear", scale, np.int8(0))
            self.exact, self.near = self.exact / float(scale), self.near / float(scale)

    def wrong(self, found: np.ndarray) -> np.ndarray:
        """Where it is not what exact arithmetic allows; what was beyond f32 on the way may be infinite."""
        low, high, real = self.exact - self.near, self.exact + self.near, found.astype(np.float64)
        end = np.copysign(np.inf, self.exact)
        if found.dtype == np.int8:
            low, high, end = (np.clip(np.rint(each), -128, 127) for each in (low, high, end))
        inside = (real >= low) & (real <= high) & np.isfinite(real)
        return ~(inside | (self.beyond & (real == end)))


def drawn(seed: int) -> Drawn:
    found = Drawn(np.random.default_rng(seed))
    found.product()
    found.followed()
    if found.spatial:
        found.exact, found.near, found.beyond = (
            each[..., None, None] for each in (found.exact, found.near, found.beyond)
        )
    return found


def hold(seed: int) -> None:
    d = drawn(seed)
    last = d.nodes[-1].output[0]
    kinds = {"x": onnx.helper.np_dtype_to_tensor_dtype(d.feeds["x"].dtype)}
    inputs = {name: list(array.shape) for name, array in d.feeds.items()}
    proto = model(d.nodes, inputs=inputs, outputs=(last,), constants=d.constants, types=kinds)
    for target in TARGETS:
        plan = fqfuse.compile(proto, target=target)
        runs = {"numpy": plan}
        if "onednn" in RUNTIMES and target != "unified":
            runs["onednn"] = plan if target == "onednn-v3" else fqfuse.convert(plan)
        for runtime, each in runs.items():
            (found,) = fqfuse.InferenceSession(each, runtime, 1).run(None, d.feeds)
            wrong = d.wrong(found)
            assert not wrong.any(), (
                f"seed {seed}, {target}, {runtime}: {found[wrong]}, and exactly {d.exact[wrong]}\n"
                f"{onnx.printer.to_text(proto)}"
            )


@pytest.mark.hypothesis
def test_far_factors() -> None:
    start = 0 if settings.default.derandomize else secrets.randbits(48)
    for seed in range(start, start + CASES):
        hold(seed)
