"""Names that are offered for an unknown one stand in the model's file."""

from __future__ import annotations

import numpy as np
import pytest
from support.onnx_cases import model, node

import fqfuse
from fqfuse.errors import InvalidInput


def test_only_names_of_the_file_are_offered() -> None:
    parts = ["x", "xs", "z", "weights_codes", "ws", "wz", "ys", "z"]
    scales = {name: np.float32(0.05) for name in ("xs", "ws", "ys")}
    codes = {"weights_codes": np.ones((4, 4), np.int8), "wz": np.int8(0), "z": np.uint8(0)}
    path = model(
        [
            node("QuantizeLinear", ["input", "xs", "z"], ["x"], name="q"),
            node("QLinearMatMul", parts, ["out"], name="product_quant"),
            node("DequantizeLinear", ["out", "ys", "z"], ["y"], name="d"),
        ],
        inputs={"input": [2, 4]},
        constants={**scales, **codes},
    )
    graph = path.graph
    there = {name for node in graph.node for name in (node.name, *node.input, *node.output)}
    plan = fqfuse.compile(path)
    assert {"q", "product_quant", "weights_codes"} == set(plan.quantizers)
    for name in plan.quantizers:
        with pytest.raises(InvalidInput) as error:
            fqfuse.why(plan, f"{name}x", model=path)
        offered = error.value.hint.partition("?")[0].split("'")[1::2]
        assert offered
        assert set(offered) <= there
