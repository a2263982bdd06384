"""The law of packed weights: over random shapes, blocks and neighbours both runtimes give the exact
result, again and again, whatever memory held before.

Factors are small integers and scales powers of two, so that every order of a sum is exact, and the
judge is NumPy in float64.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import onnx
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import fqfuse
from fqfuse.ir.ops.blocks import packed, unpacked


@dataclass(frozen=True)
class Draw:
    """One product with what is around it."""

    lead: tuple[int, ...]
    size: int
    columns: int
    bits: int
    block: int
    zeros: str
    bias: bool
    behind: tuple[str, ...]
    threads: int
    seed: int


@st.composite
def draws(draw: st.DrawFn) -> Draw:
    rows = st.sampled_from([1, 2, 3, 4, 5, 16, 33])
    lead = draw(st.one_of(st.tuples(rows), st.tuples(st.sampled_from([1, 2, 3]), rows)))
    size = draw(st.one_of(st.integers(1, 150), st.sampled_from([256, 384, 1030])))
    columns = draw(st.one_of(st.integers(1, 140), st.sampled_from([256, 257, 520])))
    behind = st.lists(
        st.sampled_from(["relu", "residual", "by column", "by row", "store"]),
        max_size=3,
        unique=True,
    )
    return Draw(
        lead,
        size,
        columns,
        draw(st.sampled_from([4, 4, 4, 8, 2])),
        draw(st.sampled_from([16, 32, 32, 64, 128])),
        draw(st.sampled_from(["absent", "codes", "floats"])),
        draw(st.booleans()),
        tuple(draw(behind)),
        draw(st.sampled_from([1, 2])),
        draw(st.integers(0, 99)),
    )


class Written:
    """The model, and what it computes in float64."""

    def __init__(self, d: Draw) -> None:
        self.rng = np.random.default_rng(d.seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, np.ndarray] = {}
        self.shape = (*d.lead, d.columns)
        self.feeds = {"x": self.whole(-4, 5, (*d.lead, d.size))}
        blocks = -(-d.size // d.block)
        codes = self.rng.integers(0, 1 << d.bits, (d.columns, blocks * d.block)).astype(np.uint8)
        scales = np.float32(2.0) ** self.rng.integers(-3, 2, (d.columns, blocks))
        middle = 1 << (d.bits - 1)
        zeros = np.full((d.columns, blocks), middle)
        inputs = ["x", "q", "s"]
        self.constants |= {
            "q": packed(codes, d.bits).reshape(d.columns, blocks, -1),
            "s": scales.astype(np.float32),
        }
        if d.zeros != "absent":
            zeros = self.rng.integers(0, 1 << d.bits, zeros.shape)
            inputs.append("z")
            several = 8 // d.bits
            filled = np.zeros((d.columns, -(-blocks // several) * several), np.uint8)
            filled[:, :blocks] = zeros
            self.constants["z"] = (
                zeros.astype(np.float32) if d.zeros == "floats" else packed(filled, d.bits)
            )
        weights = (codes.reshape(d.columns, blocks, -1) - zeros[..., None]) * scales[..., None]
        weights = weights.reshape(d.columns, -1)[:, : d.size]
        self.y = self.feeds["x"].astype(np.float64) @ weights.T
        self.value = "y0"
        self.nodes.append(
            helper.make_node(
                "MatMulNBits", inputs, ["y0"], name="product", domain="com.microsoft",
                K=d.size, N=d.columns, bits=d.bits, block_size=d.block,
            )
        )  # fmt: skip
        if d.bias:
            self.binary("Add", self.whole(-9, 10, (d.columns,)))
        for kind in d.behind:
            self.follow(kind)

    def whole(self, low: int, high: int, shape: tuple[int, ...]) -> np.ndarray:
        return self.rng.integers(low, high, shape).astype(np.float32)

    def op(self, kind: str, *inputs: str) -> None:
        output = f"y{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, [self.value, *inputs], [output], name=output))
        self.value = output

    def binary(self, kind: str, data: np.ndarray) -> None:
        name = f"c{len(self.nodes)}"
        self.constants[name] = data
        self.op(kind, name)
        self.y = self.y + data if kind == "Add" else self.y * data

    def follow(self, kind: str) -> None:
        if kind == "relu":
            self.op("Relu")
            self.y = np.maximum(self.y, 0)
        elif kind == "residual":
            self.feeds["r"] = self.whole(-9, 10, self.shape)
            self.op("Add", "r")
            self.y = self.y + self.feeds["r"]
        elif kind == "by column":
            self.binary("Mul", np.float32(2.0) ** self.whole(-1, 2, self.shape[-1:]))
        elif kind == "by row":
            self.binary("Add", self.whole(-5, 6, (*self.shape[:-1], 1)))
        else:
            # an even zero point: ties are rounded alike in front of it and behind it
            self.constants |= {"scale": np.float32(4), "zero": np.uint8(8)}
            self.op("QuantizeLinear", "scale", "zero")
            codes = np.clip(np.rint(self.y / 4) + 8, 0, 255)
            self.op("DequantizeLinear", "scale", "zero")
            self.y = (codes - 8) * 4

    def model(self) -> onnx.ModelProto:
        graph = helper.make_graph(
            self.nodes,
            "packed",
            [
                helper.make_tensor_value_info(name, TensorProto.FLOAT, data.shape)
                for name, data in self.feeds.items()
            ],
            [helper.make_tensor_value_info(self.value, TensorProto.FLOAT, self.shape)],
            [numpy_helper.from_array(data, name) for name, data in self.constants.items()],
        )
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)


@given(draws())
def test_both_runtimes_give_the_exact_result(d: Draw) -> None:
    written = Written(d)
    plan = fqfuse.compile(written.model())
    assert [step.op for step in plan.steps].count("MatMulBlocks") == 1
    for target in ("onednn-v3", "onednn-v2"):
        plan = fqfuse.compile(written.model(), target=target)
        for backend in ("numpy", "onednn"):
            session = fqfuse.InferenceSession(plan, backend, d.threads)
            for _ in range(2):
                (found,) = session.run(None, written.feeds)
                np.testing.assert_array_equal(found, written.y, err_msg=f"{target} {backend}")
            # other rows in between: what is left in memory must not matter
            session.run(None, {name: data * -3 for name, data in written.feeds.items()})
            np.testing.assert_array_equal(session.run(None, written.feeds)[0], written.y)


@given(draws(), st.booleans())
def test_factors_as_large_as_f32_holds(d: Draw, computed: bool) -> None:
    """What a weight stands for times a factor is far from the largest f32: so are all sums, whatever a
    code times that factor would be. Rows that are fed, and such as are computed beforehand.
    """
    written = Written(replace(d, bias=False, behind=()))
    written.constants["s"] = written.constants["s"] * np.float32(2.0**-20)
    if computed:
        written.feeds["zero"] = np.zeros_like(written.feeds["x"])
        written.nodes[0].input[0] = "computed"
        written.nodes.insert(0, helper.make_node("Add", ["x", "zero"], ["computed"]))
    plan = fqfuse.compile(written.model())
    for backend in ("numpy", "onednn"):
        session = fqfuse.InferenceSession(plan, backend, d.threads)
        for power in (124, 0, 124):
            feeds = written.feeds | {"x": written.feeds["x"] * np.float32(2.0**power)}
            found = session.run(None, feeds)[0]
            np.testing.assert_array_equal(found, written.y * 2.0 ** (power - 20), err_msg=backend)


def test_packing_is_undone() -> None:
    codes = np.random.default_rng(0).integers(0, 256, (3, 24)).astype(np.uint8)
    for bits in (2, 4, 8):
        low = codes & np.uint8((1 << bits) - 1)
        np.testing.assert_array_equal(unpacked(packed(low, bits), bits), low)
