"""Models as ONNX Runtime's own quantizer writes them."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnxruntime import quantization
from support.onnx_cases import random


def quantized_by_ort(
    proto: onnx.ModelProto, feeds: Sequence[dict[str, Any]] = (), **options: Any
) -> onnx.ModelProto:
    """What `quantize_static` makes of a model in f32: 8 bits, per channel, unless options say otherwise.

    Args:
        feeds: the calibration's; () for random numbers at fixed shapes.
        options: more arguments of `quantize_static`.
    """

    class Reader(quantization.CalibrationDataReader):
        def __init__(self) -> None:
            self.feeds = iter(feeds or [_random_feed(proto, seed) for seed in range(2)])

        def get_next(self) -> Any:
            return next(self.feeds, None)

    defaults = {
        "activation_type": quantization.QuantType.QUInt8,
        "weight_type": quantization.QuantType.QInt8,
        "per_channel": True,
    }
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "f32.onnx", Path(folder) / "int8.onnx"
        onnx.save(onnx.shape_inference.infer_shapes(proto), source)
        quantization.quantize_static(str(source), str(target), Reader(), **{**defaults, **options})
        return onnx.load(target)


def _random_feed(proto: onnx.ModelProto, seed: int) -> dict[str, np.ndarray]:
    return {
        given.name: random([size.dim_value for size in given.type.tensor_type.shape.dim], seed)
        for given in proto.graph.input
    }
