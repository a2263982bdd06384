"""QuantizeLinear and DequantizeLinear in every form, and what each gives in exact arithmetic."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from support.onnx_cases import node

INTEGERS = {
    "UINT8": (0, 255, 10),
    "INT8": (-128, 127, 10),
    "UINT16": (0, 65535, 21),
    "INT16": (-32768, 32767, 21),
    "UINT4": (0, 15, 21),
    "INT4": (-8, 7, 21),
    "UINT2": (0, 3, 25),
    "INT2": (-2, 1, 25),
}
"""Type of codes -> the lowest and the highest one, and the opset that it came with."""

FLOATS = {
    "FLOAT8E4M3FN": (ml_dtypes.float8_e4m3fn, 19),
    "FLOAT8E4M3FNUZ": (ml_dtypes.float8_e4m3fnuz, 19),
    "FLOAT8E5M2": (ml_dtypes.float8_e5m2, 19),
    "FLOAT8E5M2FNUZ": (ml_dtypes.float8_e5m2fnuz, 19),
    "FLOAT4E2M1": (ml_dtypes.float4_e2m1fn, 23),
}
NEWEST = 25
_REALS = {"FLOAT": np.float32, "FLOAT16": np.float16, "BFLOAT16": ml_dtypes.bfloat16}
_EXTREMES = np.float32([0.0, -0.0, 3e9, -3e9, 3e38, -3e38, np.inf, -np.inf, 1e-42, -1e-45, 65504])


@dataclass(frozen=True)
class Case:
    """One quantizer.

    Attributes:
        model: it.
        feeds: what the model reads.
        codes: of the QuantizeLinear: lowest and highest ones that are right; of a DequantizeLinear None.
        real: of the DequantizeLinear.
        what: it is, for people.
    """

    model: onnx.ModelProto
    feeds: dict[str, np.ndarray]
    codes: tuple[np.ndarray, np.ndarray] | None
    real: np.ndarray | None
    what: str


@cache
def numbers(kind: str) -> np.ndarray:
    """What the codes of a float type stand for, those of a sign bit last."""
    dtype = FLOATS[kind][0]
    count = 16 if kind == "FLOAT4E2M1" else 256
    return np.arange(count, dtype=np.uint8).view(dtype).astype(np.float64)


def nearest_float(x: np.ndarray, kind: str) -> np.ndarray:
    """The nearest number of a float type, ties to the even code; what is beyond is the largest one."""
    table = numbers(kind)
    finite = table[: len(table) // 2]
    finite = finite[np.isfinite(finite)]
    size = np.minimum(np.abs(x), finite[-1])
    above = np.clip(np.searchsorted(finite, size), 1, len(finite) - 1)
    low, high = size - finite[above - 1], finite[above] - size
    up = (high < low) | ((high == low) & (above % 2 == 0))
    found = np.copysign(finite[np.where(up, above, above - 1)], x)
    found = found + 0.0 if "UZ" in kind else found
    nothing = -0.0 if kind == "FLOAT4E2M1" else np.nan
    return np.where(np.isnan(x), nothing, found)


class _Drawing:
    """One quantizer in the making."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = np.random.default_rng(seed)
        self.kind = str(rng.choice([*INTEGERS] * 2 + [*FLOATS]))
        self.float = self.kind in FLOATS
        self.low, self.high, least = INTEGERS.get(self.kind, (-6, 6, 0))
        least = FLOATS[self.kind][1] if self.float else least
        self.form = str(rng.choice(["number", "one", "axis", "block"], p=[0.3, 0.1, 0.3, 0.3]))
        least = max(least, {"axis": 13, "block": 21}.get(self.form, 10))
        self.real = "FLOAT"
        if rng.random() < 0.25:
            self.real = str(rng.choice(["FLOAT16", "BFLOAT16"]))
            least = max(least, 19)
        self.opset = int(rng.choice([v for v in (10, 13, 19, 21, 23, 24, 25) if v >= least]))
        self.shape = tuple(int(n) for n in rng.integers(1, 7, rng.integers(1, 5)))
        self.axis = int(rng.integers(len(self.shape)))
        self.block = int(rng.integers(1, 9))
        self.attributes = self._attributes()
        self.fed_scale, self.fed_zero = rng.random(2) < 0.3
        self.scale = self._scales()
        self.zero = self._zeros()

    def _attributes(self) -> dict[str, int]:
        found = {}
        if self.form in ("axis", "block"):
            negative = self.rng.random() < 0.3 and self.opset >= 13
            found["axis"] = self.axis - len(self.shape) * negative
        if self.form == "block":
            found["block_size"] = self.block
        return found

    @property
    def parameters(self) -> tuple[int, ...]:
        """Their shape."""
        if self.form == "block":
            n, at = self.shape[self.axis], self.axis
            return (*self.shape[:at], -(-n // self.block), *self.shape[at + 1 :])
        return {"number": (), "one": (1,)}.get(self.form, (self.shape[self.axis],))

    def _scales(self) -> np.ndarray:
        """From subnormal to 1e38."""
        rng, shape = self.rng, self.parameters
        kind = rng.random()
        if kind < 0.5:
            power = rng.uniform(-3, 1, shape)
        elif kind < 0.8:
            power = rng.uniform(-44.5, 38, shape)
        else:  # one differs
            power = np.where(rng.random(shape) < 0.3, rng.uniform(-44.5, 38), -1.0)
        scales = 10.0**power
        if rng.random() < 0.3:
            scales = 2.0 ** np.rint(np.log2(scales))
        with np.errstate(all="ignore"):
            return self.held(np.maximum(scales, 1e-45))

    def held(self, values: np.ndarray) -> np.ndarray:
        """As the model's floats have them; scales stay above 0, and finite."""
        dtype = _REALS[self.real]
        info = ml_dtypes.finfo(dtype)
        least, most = float(info.smallest_subnormal), float(info.max)
        return np.asarray(np.clip(values, least, most), dtype)

    def _zeros(self) -> np.ndarray | None:
        if self.float or (self.kind == "UINT8" and self.rng.random() < 0.2):
            return None if self.kind == "UINT8" else np.zeros(self.parameters)
        ends = [self.low, self.high, 0, (self.low + self.high + 1) // 2]
        inside = self.rng.integers(self.low, self.high + 1, self.parameters)
        return np.where(self.rng.random() < 0.4, self.rng.choice(ends, self.parameters), inside)

    # -- exact arithmetic --------------------------------------------------------------------------

    def along(self, values: np.ndarray | None) -> np.ndarray:
        """Parameters, one for each element."""
        if values is None:
            return np.zeros(self.shape)
        values = values.astype(np.float64)
        if self.form == "block":
            return np.repeat(values, self.block, self.axis).take(
                range(self.shape[self.axis]), self.axis
            )
        if self.form == "axis":
            values = values.reshape([-1 if i == self.axis else 1 for i in range(len(self.shape))])
        return np.broadcast_to(values.reshape(() if values.size == 1 else values.shape), self.shape)

    def reals(self) -> np.ndarray:
        """Values near codes and ties, and far beyond."""
        rng, scale = self.rng, self.along(self.scale)
        span = (self.high - self.low + 4) if not self.float else 1000
        codes = rng.integers(self.low - 2, self.low - 2 + span, self.shape) - self.along(self.zero)
        offset = rng.choice([0, 0.5, 0.25, -0.499, 1e-6], self.shape) + rng.normal(
            size=self.shape
        ) * (rng.random() < 0.4)
        x = (codes + offset) * scale
        x = np.where(rng.random(self.shape) < 0.15, rng.choice(_EXTREMES, self.shape), x)
        if self.float:
            x = np.where(rng.random(self.shape) < 0.05, np.nan, x)
        with np.errstate(all="ignore"):
            return x.astype(_REALS[self.real])

    def encoded(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The lowest and the highest right codes of each element."""
        scale, zero = self.along(self.scale), self.along(self.zero)
        with np.errstate(all="ignore"):
            exact = x.astype(np.float64) / scale
            t = exact.astype(np.float32).astype(np.float64)
        strict = self.form == "block" or self.fed_scale
        if self.float:
            off = 0 if strict else 2.0**-22 * np.abs(np.where(np.isfinite(t), t, 0))
            ends = [nearest_float(t + d, self.kind) for d in (-off, off)]
            return ends[0], ends[1]
        # Constant scales: x*(1/s) is two roundings, and z is added in front of the rounding or behind
        # it; with 16 bits the sum is a third one. Where these matter, x/s is next to a tie.
        off = 0 if strict else 2.0**-22 * np.abs(t) + 2.0**-24 * np.abs(zero)
        off = np.where(np.isinf(t), 0, off)
        ends = [np.rint(t + d) + zero for d in (-off, off)]
        if not strict:
            ends += [np.rint(t + d + zero) for d in (-off, off)]
        low, high = np.min(ends, 0), np.max(ends, 0)
        return np.clip(low, self.low, self.high), np.clip(high, self.low, self.high)

    def codes(self) -> np.ndarray:
        if self.float:
            table = numbers(self.kind)
            return self.rng.choice(table, self.shape)
        found = self.rng.integers(self.low, self.high + 1, self.shape)
        return np.where(self.rng.random(self.shape) < 0.3, self.along(self.zero), found)

    def decoded(self, codes: np.ndarray) -> np.ndarray:
        """(q - z)*s, rounded once to f32, and then to the model's floats."""
        with np.errstate(all="ignore"):
            exact = (codes - self.along(self.zero)) * self.along(self.scale)
            return exact.astype(np.float32).astype(_REALS[self.real])

    # -- the model ---------------------------------------------------------------------------------

    def stored(self, values: np.ndarray) -> np.ndarray:
        """Codes as numpy_helper takes them."""
        if self.float:
            return values.astype(FLOATS[self.kind][0])
        named = {"UINT4": "uint4", "INT4": "int4", "UINT2": "uint2", "INT2": "int2"}.get(self.kind)
        return values.astype(getattr(ml_dtypes, named) if named else self.kind.lower())

    def case(self) -> Case:
        inputs, constants, feeds = [], [], {}
        code, real = getattr(TensorProto, self.kind), getattr(TensorProto, self.real)

        def take(name: str, values: np.ndarray, kind: int, fed: bool) -> str:
            if fed:
                open_sizes = self.rng.random() < 0.2
                sizes = [None] * values.ndim if open_sizes else values.shape
                inputs.append(helper.make_tensor_value_info(name, kind, sizes))
                feeds[name] = values
            else:
                constants.append(numpy_helper.from_array(values, name))
            return name

        parameters = [take("s", self.scale, real, bool(self.fed_scale))]
        attributes = dict(self.attributes)
        if self.zero is not None and (not self.float or self.rng.random() < 0.7):
            parameters.append(take("z", self.stored(self.zero), code, bool(self.fed_zero)))
        form = str(self.rng.choice(["Q", "DQ", "QDQ"]))
        names, nodes, codes, value = ["x"], [], None, None
        if form != "DQ":
            x = self.reals()
            take("x", x, real, fed=True)
            more = {} if len(parameters) > 1 or self.kind == "UINT8" else {"output_dtype": code}
            if more and self.opset < 21:
                parameters.append(take("z", self.stored(self.zero), code, bool(self.fed_zero)))
                more = {}
            nodes.append(node("QuantizeLinear", ["x", *parameters], ["q"], **attributes, **more))
            codes, names = self.encoded(x), ["q"]
        if form != "Q":
            if form == "DQ":
                given = self.codes()
                take("x", self.stored(given), code, fed=self.rng.random() < 0.7)
                value = self.decoded(given)
            nodes.append(node("DequantizeLinear", [*names, *parameters], ["y"], **attributes))
        outputs = [
            onnx.ValueInfoProto(name=name)
            for name in (
                ["q"]
                if form == "Q"
                else ["y"]
                if form == "DQ"
                else ["q", "y"][self.rng.integers(2) :]
            )
        ]
        graph = helper.make_graph(nodes, "case", inputs, outputs, constants)
        opsets = [helper.make_opsetid("", self.opset)]
        ir = 10 if self.opset <= 22 else 13
        proto = helper.make_model(graph, opset_imports=opsets, ir_version=ir)
        what = f"{form} {self.kind} {self.form} of {self.real}, opset {self.opset}"
        return Case(proto, feeds, codes, value, what)

    def told(self, real: np.ndarray) -> np.ndarray:
        """In f64, zeros of float codes without a sign."""
        wide = real.astype(np.float64)
        return wide + 0.0 if self.float else wide

    def right(
        self, case: Case, name: str, found: np.ndarray, codes: np.ndarray | None
    ) -> np.ndarray:
        """Which elements of an output are right. `codes`: of the other output, where that is known."""
        got = found.astype(np.float64)
        if self.float:  # which of its zeros a code is nothing tells
            got = got + 0.0
        if name == "q":
            assert case.codes is not None
            low, high = case.codes
            return ((got >= low) & (got <= high)) | (np.isnan(got) & np.isnan(low))
        if case.real is not None:
            return same(got, self.told(case.real))
        assert case.codes is not None
        ends = [self.told(self.decoded(end)) for end in case.codes]
        if codes is not None:
            return same(got, self.told(self.decoded(codes)))
        low, high = np.minimum(*ends), np.maximum(*ends)
        return (got >= low) & (got <= high) & ~((got == 0) & np.signbit(got)) | same(got, low)


def same(got: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Equal, zeros by their sign, too."""
    alike = (got == wanted) & (np.signbit(got) == np.signbit(wanted))
    return alike | (np.isnan(got) & np.isnan(wanted))


def draw(seed: int) -> tuple[_Drawing, Case]:
    drawing = _Drawing(seed)
    return drawing, drawing.case()
