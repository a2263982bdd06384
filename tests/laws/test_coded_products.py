"""The law of products of codes made at run time with packed weights: over random shapes and blocks
both runtimes give the same bits, again and again, whatever memory held before: those of exact
integers in each block, scaled and added in f32 in the order of the blocks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import fqfuse
from fqfuse.ir.ops.blocks import packed


@dataclass(frozen=True)
class Draw:
    """One product."""

    lead: tuple[int, ...]
    size: int
    columns: int
    bits: int
    block: int
    zeros: bool
    bias: bool
    rows: str
    seed: int


@st.composite
def draws(draw: st.DrawFn) -> Draw:
    rows = st.one_of(st.integers(1, 9), st.sampled_from([16, 33, 70]))
    return Draw(
        draw(st.one_of(st.tuples(rows), st.tuples(st.sampled_from([1, 2, 3]), rows))),
        draw(st.one_of(st.integers(1, 150), st.sampled_from([256, 384, 1030, 2304]))),
        draw(st.one_of(st.integers(1, 140), st.sampled_from([256, 257]))),
        draw(st.sampled_from([4, 4, 4, 8, 8, 2])),
        draw(st.sampled_from([16, 32, 32, 64, 128, 256])),
        draw(st.booleans()),
        draw(st.booleans()),
        draw(st.sampled_from(["normal", "zeros", "large", "tiny", "steps", "infinite", "nan"])),
        draw(st.integers(0, 99)),
    )


class Written:
    """The model, and what it computes."""

    def __init__(self, d: Draw) -> None:
        self.d, self.rng = d, np.random.default_rng(d.seed)
        blocks = -(-d.size // d.block)
        codes = self.rng.integers(0, 1 << d.bits, (d.columns, blocks * d.block)).astype(np.uint8)
        self.scales = self.rng.uniform(0.5, 2, (d.columns, blocks)).astype(np.float32)
        zeros = np.full((d.columns, blocks), 1 << (d.bits - 1), np.uint8)
        self.inputs = ["x", "q", "s"]
        self.constants: dict[str, np.ndarray] = {
            "q": packed(codes, d.bits).reshape(d.columns, blocks, -1),
            "s": self.scales,
        }
        if d.zeros:
            zeros = self.rng.integers(0, 1 << d.bits, zeros.shape).astype(np.uint8)
            several = 8 // d.bits
            filled = np.zeros((d.columns, -(-blocks // several) * several), np.uint8)
            filled[:, :blocks] = zeros
            self.constants["z"] = packed(filled, d.bits)
            self.inputs.append("z")
        self.weights = codes.reshape(d.columns, blocks, -1).astype(np.int64) - zeros[..., None]
        if d.bias:
            self.constants["b"] = self.rng.standard_normal(d.columns).astype(np.float32)

    def feeds(self) -> np.ndarray:
        d = self.d
        x = self.rng.standard_normal((*d.lead, d.size)).astype(np.float32)
        if d.rows == "zeros":
            x[..., : d.block] = 0
            x[..., -1, :] = -0.0
        elif d.rows == "steps":  # many ties, and codes at their ends
            x = self.rng.integers(-2, 3, x.shape).astype(np.float32) * np.float32(63.5)
        elif d.rows in ("large", "tiny"):
            x *= np.float32(3e36 if d.rows == "large" else 1e-38)
        elif d.rows != "normal":
            x[..., 0, -1] = np.inf if d.rows == "infinite" else np.nan
        return x

    def judged(self, x: np.ndarray) -> np.ndarray:
        """Integers are exact; what is rounded is rounded to f32, one operation at a time."""
        d, f32 = self.d, np.float32
        rows = x.reshape(-1, d.size)
        y = np.zeros((len(rows), d.columns), f32)
        for block in range(self.scales.shape[1]):
            part = rows[:, block * d.block : (block + 1) * d.block]
            scale = np.abs(part).max(1, keepdims=True) / f32(127)
            inverse = np.where(scale < f32(2.0**-126), f32(0), f32(1) / scale)
            infinite = ~np.isfinite(part).all(1)
            codes = np.rint(np.where(infinite[:, None], f32(0), part * inverse)).astype(np.int64)
            assert abs(codes).max() <= 127
            sums = codes @ self.weights[:, block, : part.shape[1]].T
            y += sums.astype(f32) * (scale * self.scales[:, block])
            y[infinite] = np.nan
        if d.bias:
            y += self.constants["b"]
        return y.reshape(*d.lead, d.columns)

    def model(self, level: int = 0) -> onnx.ModelProto:
        d = self.d
        inputs = [*self.inputs, *[""] * (5 - len(self.inputs)), "b"] if d.bias else self.inputs
        node = helper.make_node(
            "MatMulNBits", inputs, ["y"], name="product", domain="com.microsoft",
            K=d.size, N=d.columns, bits=d.bits, block_size=d.block, accuracy_level=level,
        )  # fmt: skip
        graph = helper.make_graph(
            [node],
            "coded",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, (*d.lead, d.size))],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, (*d.lead, d.columns))],
            [numpy_helper.from_array(data, name) for name, data in self.constants.items()],
        )
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)


@given(draws())
def test_both_runtimes_give_the_judges_bits(d: Draw) -> None:
    written = Written(d)
    plan = fqfuse.compile(written.model(), dynamic="matmul")
    assert [step.params.get("source_bits") for step in plan.steps] == [8]
    x = written.feeds()
    with np.errstate(all="ignore"):
        wanted, other = written.judged(x), x * np.float32(-3)
    for backend in ("numpy", "onednn"):
        for threads in (1, 2):
            session = fqfuse.InferenceSession(plan, backend, threads)
            for _ in range(2):
                (found,) = session.run(None, {"x": x})
                np.testing.assert_array_equal(found, wanted, err_msg=f"{backend} {threads}")
            session.run(None, {"x": other})  # what is left in memory must not matter
            np.testing.assert_array_equal(session.run(None, {"x": x})[0], wanted)
