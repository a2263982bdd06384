"""Quantizers of every type, axis and block, with scales from subnormal ones to 1e38, give what exact arithmetic
says, alone (`quantizers.py`) and in chains (`far_scales.py`), on each runtime.
"""

from __future__ import annotations

import os
import secrets

import numpy as np
import onnx
import pytest
from hypothesis import settings
from laws import far_scales, quantizers
from laws.runtimes import EACH_RUNTIME, RUNTIMES
from support.onnx_cases import model, node

import fqfuse

FUZZ = not settings.default.derandomize
CASES = int(os.environ.get("FQFUSE_QUANTIZERS", "4000" if FUZZ else "30"))


KNOWN = (5792,)
"""Chains that were wrong once: a constant that is nearly a number of codes."""


def _start() -> int:
    return secrets.randbits(48) if FUZZ else 0


@pytest.mark.hypothesis
def test_quantizers() -> None:
    start = _start()
    for seed in range(start, start + CASES):
        drawing, case = quantizers.draw(seed)
        names = [info.name for info in case.model.graph.output]
        plan = fqfuse.compile(case.model)
        for runtime in RUNTIMES:
            session = fqfuse.InferenceSession(plan, runtime, 1)
            found = dict(zip(names, session.run(None, case.feeds), strict=True))
            codes = found["q"].astype(np.float64) if len(found) > 1 else None
            for name, array in found.items():
                right = drawing.right(case, name, array, codes)
                told = onnx.printer.to_text(case.model)
                assert right.all(), f"seed {seed}, {runtime}: {case.what}: {array[~right]}\n{told}"


@pytest.mark.hypothesis
def test_chains_of_far_scales() -> None:
    start = _start()
    for seed in (*KNOWN, *range(start, start + CASES)):
        chain = far_scales.draw(seed)
        plan, bounds = fqfuse.compile(chain.model()), chain.bounds()
        for runtime in RUNTIMES:
            (found,) = fqfuse.InferenceSession(plan, runtime, 1).run(None, {"x": chain.values})
            wrong = far_scales.wrong(found, bounds)
            within = f"{bounds[0][wrong]} to {bounds[1][wrong]}"
            assert not wrong.any(), (
                f"seed {seed}, {runtime}: {found[wrong]} in {within}\n{chain.steps}"
            )


# -- the small cases -------------------------------------------------------------------------------

F32 = np.float32


@EACH_RUNTIME
@pytest.mark.parametrize(
    ("kind", "scale", "attributes"),
    [
        (np.uint8, np.full(2, 0.1, F32), {"axis": 0, "block_size": 2}),
        (np.uint16, np.full((), 0.1, F32), {}),
        (np.int16, np.full((), 0.1, F32), {}),
        (np.uint8, np.array([0.1, 1e-39, 0.1, 0.1], F32), {"axis": 0}),
        (np.int16, np.array([0.1, 1e-39, 0.1, 0.1], F32), {"axis": 0}),
    ],
)
def test_what_is_too_large_for_codes_is_the_end_that_it_is_beyond(
    runtime: str, kind: type, scale: np.ndarray, attributes: dict[str, int]
) -> None:
    x = np.array([3e9, np.inf, -3e9, -np.inf], F32)
    info, zero = np.iinfo(kind), np.full(scale.shape, 3, kind)
    nodes = [node("QuantizeLinear", ["x", "s", "z"], **attributes)]
    for fed in (False, True):
        constants = {"z": zero} if fed else {"z": zero, "s": scale}
        inputs = {"x": [4], "s": scale.shape} if fed else {"x": [4]}
        session = fqfuse.InferenceSession(
            model(nodes, inputs=inputs, constants=constants), runtime, 1
        )
        (found,) = session.run(None, {"x": x, "s": scale} if fed else {"x": x})
        assert found.tolist() == [info.max, info.max, info.min, info.min]


@EACH_RUNTIME
@pytest.mark.parametrize("scale", [1e12, 1e14, 1e20, 1e34])
def test_what_is_added_to_a_zero_is_kept(runtime: str, scale: float) -> None:
    nodes = [
        node("MatMul", ["x", "w"], ["m"]),
        node("QuantizeLinear", ["m", "s", "z"], ["q"]),
        node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        node("Add", ["d", "one"]),
    ]
    constants = {"w": np.eye(2, dtype=F32), "s": F32(scale), "z": np.int8(-128), "one": F32(1)}
    session = fqfuse.InferenceSession(
        model(nodes, inputs={"x": [1, 2]}, constants=constants), runtime, 1
    )
    np.testing.assert_array_equal(session.run(None, {"x": np.zeros((1, 2), F32)})[0], [[1, 1]])


@EACH_RUNTIME
def test_scales_whose_product_is_too_large(runtime: str) -> None:
    """A sum of 0 is 0; others are infinite."""
    nodes = [
        node("DequantizeLinear", ["x", "s"], ["d"]),
        node("DequantizeLinear", ["w", "s"], ["e"]),
        node("MatMul", ["d", "e"]),
    ]
    constants = {"w": np.eye(2, dtype=np.int8), "s": F32(1e20)}
    types = {"x": onnx.TensorProto.INT8}
    proto = model(nodes, inputs={"x": [1, 2]}, constants=constants, types=types)
    (found,) = fqfuse.InferenceSession(proto, runtime, 1).run(None, {"x": np.int8([[0, 1]])})
    np.testing.assert_array_equal(found, [[0, np.inf]])


@EACH_RUNTIME
@pytest.mark.parametrize("scale", [1.0, 0.25, [1.0, 0.25]])
def test_codes_of_what_is_just_below_0_decode_to_0(
    runtime: str, scale: float | list[float]
) -> None:
    names = ["s", "z"]
    nodes = [
        node("QuantizeLinear", ["x", *names], ["q"], axis=1),
        node("DequantizeLinear", ["q", *names], ["d"], axis=1),
        node("Reciprocal", ["d"]),
    ]
    scales = np.asarray(scale, F32)
    for zero in (0, -128, 5):
        constants = {"s": scales, "z": np.full(scales.shape, zero, np.int8)}
        proto = model(nodes, inputs={"x": [3, 2]}, constants=constants)
        x = F32([[-0.1, -0.01], [-1e-9, -0.0], [0.0, 0.1]])
        (found,) = fqfuse.InferenceSession(proto, runtime, 1).run(None, {"x": x})
        assert (found == np.inf).all()


def test_a_zero_point_times_a_scale_that_f32_does_not_hold() -> None:
    """Two quantizers in a row, and a further tensor added behind them: a plan, and no internal error."""
    nodes = []
    for given, made, scale in (("x", "a", "s"), ("a", "b", "t"), ("t2", "c", "u")):
        nodes.append(node("QuantizeLinear", [given, scale, "z"], [f"{made}.q"]))
        nodes.append(node("DequantizeLinear", [f"{made}.q", scale, "z"], [made]))
    for far in (1e38, 1e-27):
        constants = {"s": F32(0.13), "t": F32(1e38), "u": F32(far), "z": np.uint8(255)}
        for op in ("Add", "Sub"):
            proto = model(
                [*nodes, node(op, ["b", "c"])],
                inputs={"x": [2, 3], "t2": [2, 3]},
                constants=constants,
            )
            for target in ("onednn-v3", "onednn-v2", "unified"):
                fqfuse.compile(proto, target=target)


def test_blocks_that_do_not_fit_are_refused_when_the_model_is_compiled() -> None:
    nodes = [node("DequantizeLinear", ["w", "s"], axis=0, block_size=128)]
    constants = {"w": np.ones((5, 128), np.int8), "s": np.ones((5, 1), F32)}
    with pytest.raises(fqfuse.InvalidModel, match=r"must have the shape \[1, 128\]"):
        fqfuse.compile(model(nodes, inputs={}, constants=constants))
