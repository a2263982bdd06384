"""A plan as large as wanted, without a model: blocks of a residual network, with decisions and fates."""

from __future__ import annotations

import numpy as np

from fqfuse.ir.decision import (
    Decision,
    DequantizeFate,
    Fate,
    Half,
    Outcome,
    QuantizeFate,
    Quantizer,
)
from fqfuse.ir.types import DType, Quantization, TensorType
from fqfuse.plan.attributes import Eltwise, PrimitiveAttr, Scale, Sum
from fqfuse.plan.types import Plan, Step

SHAPE = (1, 16, 8, 8)
_CODES = TensorType(DType.U8, SHAPE, Quantization.of((0.02,)))
_FLOATS = TensorType(DType.F32, SHAPE)


def residual_plan(steps: int, *, name: str = "residual", prefix: str = "/layer") -> Plan:
    """A plan of convolutions, every fourth of which adds what the one four before it wrote; every tenth
    step is an eltwise in f32, and one value is read all over the network.
    """
    made, values = [], {"in": _CODES, "mask": _FLOATS}
    quantizers, fates, decisions = {}, [], []
    last, skipped = "in", "in"
    for index in range(steps):
        node = f"{prefix}{index // 4}/conv{index % 4}"
        floats = index % 10 == 9
        values[f"v{index}"] = _FLOATS if floats else _CODES
        ops = (Eltwise("relu"),) if index % 4 else (Eltwise("relu"), Sum(skipped, 0.5))
        if index % 40 == 39:
            args = (("src_0", last), ("src_1", "mask"))
            made.append(
                Step(
                    f"s{index}",
                    "binary",
                    "Add",
                    args,
                    (f"v{index}",),
                    {"algorithm": "add"},
                    origin=(node,),
                )
            )
        elif floats:
            made.append(
                Step(
                    f"s{index}", "eltwise", "Relu", (("src", last),), (f"v{index}",), origin=(node,)
                )
            )
        else:
            attr = PrimitiveAttr({"src": Scale((0.02,)), "weights": Scale((0.1,) * 16, 1)}, {}, ops)
            args = (("src", last), ("weights", "w"), ("bias", "b"))
            origin = (node, f"{node}/Relu", f"{node}/FakeQuantize")
            made.append(
                Step(
                    f"s{index}",
                    "convolution",
                    "Conv",
                    args,
                    (f"v{index}",),
                    {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1)},
                    attr,
                    origin,
                )
            )
            quantizers[f"{node}/FakeQuantize"] = Quantizer(
                f"{node}/FakeQuantize", "FakeQuantize", f"v{index}"
            )
            fates += [
                Fate(
                    f"{node}/FakeQuantize",
                    Half.QUANTIZE,
                    QuantizeFate.DST_SCALE,
                    "the step stores codes",
                    step=index,
                ),
                Fate(
                    f"{node}/FakeQuantize",
                    Half.DEQUANTIZE,
                    DequantizeFate.SOURCE_SCALE,
                    "the reader takes codes",
                    node,
                    min(index + 1, steps - 1),
                ),
            ]
        decisions += [
            Decision(
                "split_fake_quantize",
                f"{node}/FakeQuantize",
                Outcome.FIRED,
                f"levels 256 from 0 to {index}",
            ),
            Decision(
                "relu(x)*s = relu(x*s)",
                node,
                Outcome.REFUSED,
                "the factor is negative",
                "a factor above 0",
                f"-{index}",
                "give it another",
            ),
        ]
        last, skipped = f"v{index}", last if index % 4 == 0 else skipped
    constants = {"w": np.ones((16, 16, 3, 3), np.int8), "b": np.zeros(16, np.float32)}
    return Plan(
        name,
        "onednn-v3",
        ("in", "mask"),
        (last,),
        values,
        constants,
        tuple(made),
        quantizers,
        tuple(fates),
        tuple(decisions),
    )
