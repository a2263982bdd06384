"""Products of codes with scales for each row, and zero points of the weights for each column, that are fed: codes
are multiplied, and results are those of exact arithmetic.
"""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from laws.budget import examples
from laws.runtimes import RUNTIMES
from support.onnx_cases import model, node

import fqfuse
from fqfuse.ir.types import DType

TARGETS = ("onednn-v3", "onednn-v2", "unified")
F32 = np.float32
_ROUNDINGS = 8 * 2.0**-24
"""Of each of two sums: its own, that of the factors, which are three, and of each product by one; then of both."""

Constants = dict[str, np.ndarray]


def source(rng: np.random.Generator, x: np.ndarray, zero: int) -> tuple[list[onnx.NodeProto], int]:
    """What decodes x by s, as models have it, and the zero point that it takes off."""
    form = str(rng.choice(["cast", "less", "blocks", "tensor"]))
    if form == "blocks":
        size = x.shape[-1] + int(rng.integers(3))
        return [node("DequantizeLinear", ["x", "s"], ["d"], axis=x.ndim - 1, block_size=size)], 0
    both = ["c", "s"] if rng.integers(2) else ["s", "c"]
    if form == "tensor":
        return [node("DequantizeLinear", ["x", "one"], ["c"]), node("Mul", both, ["d"])], 0
    cast, less = node("Cast", ["x"], ["f"], to=1), node("Sub", ["f", "zero"], ["c"])
    if form == "less":
        return [cast, less, node("Mul", both, ["d"])], zero
    return [node("Cast", ["x"], ["c"], to=1), node("Mul", both, ["d"])], 0


def hold(seed: int) -> None:
    rng = np.random.default_rng(seed)
    conv = rng.random() < 0.3
    inner, outer = int(rng.integers(1, 60)), int(rng.integers(1, 30))
    kinds = [np.uint8, np.int8]
    w = rng.integers(0, 256, (inner, outer)).astype(kinds[int(rng.integers(2))])
    t = rng.uniform(0.01, 1, outer).astype(F32)
    zeros = rng.integers(0, 256, outer).astype(w.dtype)
    shape = (*rng.integers(1, 5, int(rng.integers(1, 3))), inner)
    shape = (int(rng.integers(1, 4)), inner, 2, 3) if conv else shape
    x = rng.integers(0, 256, shape).astype(kinds[int(rng.integers(2))])
    constants: Constants = {"w": w, "t": t, "z": zeros, "one": F32(1)}
    constants["zero"] = F32(zero := int(rng.integers(0, 100)))
    fed = {"x": x}
    for name in "tz":
        if rng.random() < 0.6:
            fed[name] = constants.pop(name)
    if conv:
        constants["w"] = np.ascontiguousarray(w.T)[..., None, None]
        fed["s"], taken = F32(rng.uniform(0.01, 1)), 0
        nodes = [node("DequantizeLinear", ["x", "s"], ["d"])]
    else:
        rows = [n if rng.random() < 0.7 else 1 for n in shape[:-1]]
        fed["s"] = rng.uniform(0.01, 1, [*rows, 1]).astype(F32)
        nodes, taken = source(rng, x, zero)
        if "block_size" in {a.name for each in nodes for a in each.attribute}:
            fed["s"] = np.broadcast_to(fed["s"], (*shape[:-1], 1)).copy()
    axis, op = (0, "Conv") if conv else (1, "MatMul")
    nodes += [node("DequantizeLinear", ["w", "t", "z"], ["e"], axis=axis), node(op, ["d", "e"])]
    proto = model(
        nodes,
        inputs={name: list(array.shape) for name, array in fed.items()},
        constants=constants,
        types={
            name: onnx.helper.np_dtype_to_tensor_dtype(array.dtype) for name, array in fed.items()
        },
    )
    codes, less = x.astype(np.int64) - taken, w.astype(np.int64)
    rows = np.moveaxis(codes, 1, -1) if conv else codes
    parts = (rows @ less).astype(np.float64), rows.sum(-1, keepdims=True) * zeros.astype(np.float64)
    by = fed["s"].astype(np.float64) * t.astype(np.float64)
    wanted, near = (parts[0] - parts[1]) * by, (np.abs(parts[0]) + np.abs(parts[1])) * by
    # 128 may be taken off the codes of the weights, and off their zero points
    near = near + 256 * np.abs(rows).sum(-1, keepdims=True) * by
    if conv:
        wanted, near = (np.moveaxis(each, -1, 1) for each in (wanted, near))
    for target in TARGETS:
        plan = fqfuse.compile(proto, target=target)
        read = [
            step.arg("src") for step in plan.steps if step.primitive in ("matmul", "convolution")
        ]
        # constant zero points of few products stay in f32, where the sums would cost more
        if "z" in fed or "t" in fed:
            assert all(plan.type(value or "").dtype in (DType.U8, DType.S8) for value in read), (
                target
            )
        runs = {"numpy": plan}
        if "onednn" in RUNTIMES and target != "unified":
            runs["onednn"] = plan if target == "onednn-v3" else fqfuse.convert(plan)
        for runtime, each in runs.items():
            (found,) = fqfuse.InferenceSession(each, runtime, 1).run(None, fed)
            far = np.abs(found - wanted)
            told = f"seed {seed}, {target}, {runtime}\n{onnx.printer.to_text(proto)}"
            assert (far <= _ROUNDINGS * near).all(), told


@pytest.mark.hypothesis
@examples(20, fuzz=5000)
@given(st.integers(0, 2**40))
def test_fed_rows_and_columns(seed: int) -> None:
    hold(seed)
