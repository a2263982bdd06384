"""Constants that bodies of loops read are in memory once, however deep the loops nest."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import onnx
import pytest
from laws.runtimes import EACH_RUNTIME
from onnx import GraphProto, helper
from support.body_cases import BOOL, F32, S64, info
from support.onnx_cases import model, node, run_ort, tensor

import fqfuse

WIDTH = 1024  # weights of 4 MiB


def weights(width: int) -> np.ndarray:
    return (np.random.default_rng(0).standard_normal((width, width)) / width**0.5).astype(
        np.float32
    )


def nested(levels: int, width: int, *, inside: bool, twice: bool = False) -> onnx.ModelProto:
    """Loops in each other, the innermost of which multiplies by weights: `inside` of it, or of the model.
    `twice`: a second Loop behind them has weights of the same name.
    """

    def body(level: int, scale: float = 1) -> GraphProto:
        state, result = f"s{level}", f"o{level}"
        if level == levels:
            nodes = [node("MatMul", [state, "w"], ["m"]), node("Tanh", ["m"], [result])]
        else:
            nodes = [
                node("Loop", ["n", "", state], [result], name=f"l{level}", body=body(level + 1))
            ]
        own = [tensor("w", weights(width) * scale)] if inside and level == levels else []
        return helper.make_graph(
            [*nodes, node("Identity", [f"g{level}"], [f"on{level}"])],
            f"body{level}",
            [info(f"t{level}", S64, []), info(f"g{level}", BOOL, []), info(state, F32, None)],
            [info(f"on{level}", BOOL, []), info(result, F32, None)],
            own,
        )

    nodes = [node("Loop", ["n", "", "x"], ["y"], name="outer", body=body(1))]
    if twice:
        nodes.append(
            node("Loop", ["n", "", "y"], ["z"], name="second", body=body(levels, np.float32(0.5)))
        )
    constants = {"n": np.int64(2), **({} if inside else {"w": weights(width)})}
    return model(
        nodes, inputs={"x": [1, width]}, constants=constants, outputs=["z" if twice else "y"]
    )


@pytest.mark.parametrize("levels", [1, 3])
def test_compiling_takes_the_weights_once(levels: int, tmp_path: Path) -> None:
    """From a file, whose weights are read to where the plan has them."""
    path = tmp_path / "model.onnx"
    onnx.save(nested(levels, WIDTH, inside=False), path)
    fqfuse.compile(nested(levels, 4, inside=False))  # imports are none of this
    tracemalloc.start()
    try:
        plan = fqfuse.compile(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1.3 * WIDTH**2 * 4
    (data,) = [
        data for _, body in plan.within for data in body.constants.values() if data.ndim == 2
    ]
    assert data.shape == (WIDTH, WIDTH)


@pytest.mark.parametrize("levels", [1, 3])
def test_weights_of_a_body_are_copied_once(levels: int) -> None:
    """Out of the message that they came in, not at each level anew."""
    proto = nested(levels, WIDTH, inside=True)
    fqfuse.compile(nested(levels, 4, inside=True))
    tracemalloc.start()
    try:
        fqfuse.compile(proto)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1.3 * WIDTH**2 * 4


@EACH_RUNTIME
@pytest.mark.parametrize("levels", [1, 2, 3])
@pytest.mark.parametrize("inside", [True, False])
def test_weights_of_loops_in_loops(runtime: str, levels: int, inside: bool) -> None:
    """And two loops whose weights have one name each have their own."""
    proto = nested(levels, 32, inside=inside, twice=True)
    feeds = {"x": np.random.default_rng(1).standard_normal((1, 32)).astype(np.float32)}
    (found,) = fqfuse.InferenceSession(proto, runtime, threads=1).run(None, feeds)
    (wanted,) = run_ort(proto, feeds)
    # f32: another order of sums of 32 products, ten times one behind the other
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5)
