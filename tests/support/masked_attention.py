"""Masked attention, in f32 and as ONNX Runtime quantizes it: the scale of the mask is 1.3e36, or
39 where -10000 masks.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from support.judge import ort_session
from support.onnx_cases import model, node, random

WIDE, LONG, HEADS = 64, 32, 4


def attention(lowest: float = -3.4028235e38) -> onnx.ModelProto:
    """Masked attention as transformers export it: `lowest` is added where the mask is 0."""
    nodes: list[onnx.NodeProto] = []

    def op(kind: str, given: list[str], result: str, **attributes: Any) -> None:
        nodes.append(node(kind, given, [result], name=f"/attn/{result}", **attributes))

    for number, name in enumerate("qkv"):
        op("MatMul", ["x", f"w{number}"], name)
        op("Reshape", [name, "heads"], f"{name}r")
        op(
            "Transpose",
            [f"{name}r"],
            f"{name}t",
            perm=[0, 2, 3, 1] if name == "k" else [0, 2, 1, 3],
        )
    op("MatMul", ["qt", "kt"], "scores")
    op("Mul", ["scores", "quarter"], "scaled")
    op("Unsqueeze", ["mask", "axes"], "mask4")
    op("Sub", ["one", "mask4"], "masked_out")
    op("Mul", ["masked_out", "lowest"], "bias")
    op("Add", ["scaled", "bias"], "biased")
    op("Softmax", ["biased"], "probabilities", axis=-1)
    op("MatMul", ["probabilities", "vt"], "context")
    op("Transpose", ["context"], "together", perm=[0, 2, 1, 3])
    op("Reshape", ["together", "joined"], "flat")
    op("MatMul", ["flat", "w3"], "y")
    constants = {
        **{f"w{number}": random([WIDE, WIDE], number, 0.125) for number in range(4)},
        "heads": np.array([1, LONG, HEADS, WIDE // HEADS]),
        "joined": np.array([1, LONG, WIDE]),
        "quarter": np.float32(0.25),
        "one": np.float32(1),
        "axes": np.array([1, 2]),
        "lowest": np.float32(lowest),
    }
    shapes = {"x": [1, LONG, WIDE], "mask": [1, LONG]}
    proto = model(nodes, inputs=shapes, constants=constants, opset=17)
    return onnx.shape_inference.infer_shapes(proto)


def feed(seed: int) -> dict[str, Any]:
    mask = np.ones((1, LONG), np.float32)
    mask[:, 20:] = 0
    return {"x": random([1, LONG, WIDE], seed), "mask": mask}


def quantized(
    folder: Path,
    exclude: list[str],
    lowest: float = -3.4028235e38,
    operators: list[str] | None = None,
    form: str = "QDQ",
) -> Path:
    from onnxruntime import quantization

    class Reader(quantization.CalibrationDataReader):
        def __init__(self) -> None:
            self.feeds = iter([feed(seed) for seed in range(4)])

        def get_next(self) -> Any:
            return next(self.feeds, None)

    source, target = folder / "f32.onnx", folder / "int8.onnx"
    onnx.save(attention(lowest), source)
    quantization.quantize_static(
        str(source),
        str(target),
        Reader(),
        quant_format=quantization.QuantFormat[form],
        activation_type=quantization.QuantType.QUInt8,
        weight_type=quantization.QuantType.QInt8,
        per_channel=True,
        nodes_to_exclude=exclude,
        op_types_to_quantize=operators,
    )
    return target


def cosine(path: Path) -> float:
    """Between the outputs of the f32 model and of the other one, both on ONNX Runtime."""
    results = [
        ort_session(file, optimized=True).run(None, feed(9))[0].ravel().astype(np.float64)
        for file in (path.with_name("f32.onnx"), path)
    ]
    return float(results[0] @ results[1] / np.prod([np.linalg.norm(y) for y in results]))
