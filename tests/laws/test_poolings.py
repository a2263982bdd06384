"""Poolings of every form against the definition, one window at a time in f64, on each runtime; and against
ONNX Runtime, which agrees where it takes them.

Where ONNX is open, this holds what is done here:

- A window that holds padding only, which an average without `count_include_pad` divides by 0: 0. Its maximum is
  -inf on NumPy and the lowest f32 on oneDNN and ONNX Runtime.
- With `ceil_mode` the last window reaches beyond the padding: what lies there is no padding, and no average
  counts it. A window that begins behind the input and the padding in front of it is left out.
- `count_include_pad` counts what `auto_pad` pads, too.

onnx.reference (1.23) judges none of them: it fails, or gives another shape or other numbers, for a fifth of these
(MaxPool with padding on one side or automatic padding, LpPool with `ceil_mode`, SAME with dilations, `ceil_mode`
with VALID), and has no GlobalLpPool. ONNX Runtime refuses padding as wide as a kernel without its dilations,
and does not pad dilated windows, or windows shorter than strides, as ONNX says.
"""

from __future__ import annotations

import itertools
import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import settings
from laws.runtimes import RUNTIMES
from onnx import TensorProto
from support.onnx_cases import model, node, run_ort

import fqfuse

FUZZ = not settings.default.derandomize
CASES = int(os.environ.get("FQFUSE_POOLINGS", "4000" if FUZZ else "60"))


@dataclass(frozen=True)
class Pooling:
    """One node, its input, and the axes of each window: places, and whether each is in the padding."""

    op: str
    attributes: dict[str, Any]
    x: np.ndarray

    def model(self) -> onnx.ModelProto:
        kind = TensorProto.FLOAT if self.x.dtype == np.float32 else TensorProto.INT8
        nodes = [node(self.op, ["x"], **self.attributes)]
        return model(nodes, inputs={"x": self.x.shape}, types={"x": kind}, opset=22)

    @property
    def is_judged(self) -> bool:
        """ONNX Runtime takes it, and says what ONNX does."""
        a, kernel = self.attributes, self.attributes.get("kernel_shape", ())
        narrow = all(pad < size for pad, size in zip(a.get("pads", ()), kernel * 2, strict=False))
        return narrow and "SAME" not in a.get("auto_pad", "") and not self.op.startswith("Global")

    def axis(self, place: int) -> Iterator[list[tuple[int, bool]]]:
        """For each window along a spatial axis: its taps, and whether a tap is counted as padding."""
        n, a = self.x.shape[2 + place], self.attributes
        if self.op.startswith("Global"):
            yield [(at, True) for at in range(n)]
            return
        count = self.x.ndim - 2
        size, stride, dilation = (
            a.get(name, (1,) * count)[place] for name in ("kernel_shape", "strides", "dilations")
        )
        span, auto = (size - 1) * dilation + 1, a.get("auto_pad", "NOTSET")
        pads = a.get("pads", (0,) * 2 * count)
        begin, end = (pads[place], pads[place + count]) if auto == "NOTSET" else (0, 0)
        if auto.startswith("SAME"):
            windows = -(-n // stride)
            total = max((windows - 1) * stride + span - n, 0)
            begin = total // 2 if auto == "SAME_UPPER" else total - total // 2
            end = total - begin
        else:
            room = n + begin + end - span
            windows = (-(-room // stride) if a.get("ceil_mode") else room // stride) + 1
            while a.get("ceil_mode") and (windows - 1) * stride >= n + begin:
                windows -= 1
        for window in range(windows):
            taps = [window * stride - begin + tap * dilation for tap in range(size)]
            yield [(tap, -begin <= tap < n + end) for tap in taps]

    def expected(self) -> np.ndarray:
        axes = [[*self.axis(place)] for place in range(self.x.ndim - 2)]
        found = np.empty((*self.x.shape[:2], *map(len, axes)))
        wide = self.x.astype(np.float64)
        for at in np.ndindex(*map(len, axes)):
            taps = [*itertools.product(*(axis[i] for axis, i in zip(axes, at, strict=True)))]
            inside = [
                tuple(p for p, _ in tap)
                for tap in taps
                if all(0 <= p < n for (p, _), n in zip(tap, self.x.shape[2:], strict=True))
            ]
            values = np.array([wide[(..., *place)] for place in inside])
            counted = sum(all(counts for _, counts in tap) for tap in taps)
            found[(..., *at)] = self._of(values, counted)
        return found

    def _of(self, values: np.ndarray, counted: int) -> np.ndarray | float:
        if "Max" in self.op:
            lowest = -np.inf if self.x.dtype == np.float32 else -128
            return values.max(0) if len(values) else lowest
        if "Lp" in self.op:
            return np.linalg.norm(values, self.attributes.get("p", 2), axis=0) if len(values) else 0
        divisor = counted if self.attributes.get("count_include_pad") else len(values)
        return values.sum(0) / max(divisor, 1) if len(values) else 0


def draw(seed: int) -> Pooling | None:
    """None where a window does not fit into the padded input."""
    rng = np.random.default_rng(seed)
    op = str(rng.choice(["MaxPool", "AveragePool", "LpPool"]))
    count = int(rng.choice([1, 2, 3], p=[0.4, 0.4, 0.2]))
    shape = (*rng.integers(1, 3, 2), *rng.integers(1, 8, count))
    x = rng.normal(size=shape).astype(np.float32)
    if op == "MaxPool" and rng.random() < 0.3:
        x = rng.integers(-128, 128, shape).astype(np.int8)
    if rng.random() < 0.1:
        op = f"Global{op}"
        return Pooling(op, {"p": int(rng.integers(1, 4))} if "Lp" in op else {}, x)
    attributes: dict[str, Any] = {"kernel_shape": tuple(rng.integers(1, 5, count).tolist())}
    if rng.random() < 0.7:
        attributes["strides"] = tuple(rng.integers(1, 5, count).tolist())
    if rng.random() < 0.4:
        attributes["dilations"] = tuple(rng.integers(1, 4, count).tolist())
    dilations = attributes.get("dilations", (1,) * count)
    spans = [(k - 1) * d + 1 for k, d in zip(attributes["kernel_shape"], dilations, strict=True)]
    if rng.random() < 0.3:
        attributes["auto_pad"] = str(rng.choice(["SAME_UPPER", "SAME_LOWER", "VALID"]))
    elif rng.random() < 0.7:
        attributes["pads"] = tuple(int(rng.integers(0, span)) for span in (*spans, *spans))
    if rng.random() < 0.5 and "SAME" not in attributes.get("auto_pad", ""):
        attributes["ceil_mode"] = 1
    if op == "AveragePool" and rng.random() < 0.5:
        attributes["count_include_pad"] = 1
    if op == "LpPool":
        attributes["p"] = int(rng.integers(1, 4))
    drawn = Pooling(op, attributes, x)
    pads = attributes.get("pads", (0,) * 2 * count)
    rooms = [n + pads[i] + pads[i + count] - spans[i] for i, n in enumerate(shape[2:])]
    return drawn if "SAME" in attributes.get("auto_pad", "") or min(rooms) >= 0 else None


def hold(drawn: Pooling, what: str) -> None:
    expected = drawn.expected()
    if drawn.is_judged:
        (judged,) = run_ort(drawn.model(), {"x": drawn.x})
        check(drawn, expected, judged, f"{what}, ONNX Runtime")
    for runtime in RUNTIMES:
        session = fqfuse.InferenceSession(drawn.model(), runtime, 1)
        (found,) = session.run(None, {"x": drawn.x})
        check(drawn, expected, found, f"{what}, {runtime}")


def check(drawn: Pooling, expected: np.ndarray, found: np.ndarray, what: str) -> None:
    told = f"{what}: {drawn.op} {drawn.attributes} of {drawn.x.shape}"
    assert found.shape == expected.shape, told
    got = found.astype(np.float64)
    got[got <= -3.4e38] = -np.inf  # what a maximum of padding is on oneDNN
    # f32 sums of up to 64 elements round 64 times, and one window's elements have any sign
    error = 64 * 2.0**-24 * np.abs(drawn.x.astype(np.float64)).max()
    error = 0.0 if "Max" in drawn.op else error
    np.testing.assert_allclose(got, expected, rtol=2.0**-20, atol=error, err_msg=told)


@pytest.mark.hypothesis
def test_poolings() -> None:
    start = secrets.randbits(48) if FUZZ else 0
    for seed in range(start, start + CASES):
        drawn = draw(seed)
        if drawn is not None:
            hold(drawn, f"seed {seed}")


def test_a_partial_last_window_is_no_full_one() -> None:
    x = np.arange(1, 8, dtype=np.float32).reshape(1, 1, 7)
    window = {"kernel_shape": (3,), "strides": (3,), "ceil_mode": 1}
    drawn = Pooling("LpPool", {**window, "p": 1}, x)
    np.testing.assert_array_equal(drawn.expected(), [[[6, 15, 7]]])
    hold(drawn, "LpPool")
