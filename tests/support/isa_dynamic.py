"""Random layers of DynamicQuantizeLSTM with weights at the ends of their range, on this process's library and
on NumPy as it emulates its instruction set: run as a script under ONEDNN_MAX_CPU_ISA.

    isa_dynamic.py ISA SEED COUNT     prints one JSON line: how many ran on the library, and agreed
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import onnx
from laws.recurrent import draw_dynamic
from onnx import numpy_helper

import fqfuse

ERROR = 1e-5
"""Sums are the same integers; gates and states are f32 with other approximations of exp and tanh, a few ulp of
1. A code of the hidden state that falls to the other side of a tie would show as 1/255.
"""
LOST = 0.01  # what saturation takes off is more than that, or nothing


def extreme(proto: onnx.ModelProto, seed: int) -> onnx.ModelProto:
    """The model with more than half of its weights at the ends of their range."""
    rng = np.random.default_rng(seed)
    for constant in proto.graph.initializer:
        if constant.name in ("w", "r"):
            codes = numpy_helper.to_array(constant)
            ends = np.iinfo(codes.dtype)
            where = rng.random(codes.shape) < 0.6
            codes = np.where(where, rng.choice([ends.min, ends.max], codes.shape), codes)
            found = numpy_helper.from_array(codes.astype(constant_type(constant)), constant.name)
            constant.CopyFrom(found)
    return proto


def constant_type(constant: onnx.TensorProto) -> Any:
    return onnx.helper.tensor_dtype_to_np_dtype(constant.data_type)


def far(some: list[np.ndarray], others: list[np.ndarray]) -> float:
    return max(float(np.abs(a - b).max(initial=0)) for a, b in zip(some, others, strict=True))


def main(isa: str, seed: int, count: int) -> None:
    """Prints what agreed."""
    agreed = tried = other = 0
    for number in range(seed, seed + count):
        case = draw_dynamic(number)
        plan = fqfuse.compile(extreme(case.model, number))
        with fqfuse.InferenceSession(plan, "onednn", 1, exact=False) as session:
            real = session.run(None, case.feeds)
            if all(place.runtime != "onednn" for place in session.placement()):
                continue
        mine, exact = (
            fqfuse.InferenceSession(plan, "numpy", isa=each).run(None, case.feeds)
            for each in (isa, "vnni")
        )
        tried += 1
        same = far(mine, real) <= ERROR
        agreed, other = agreed + same, other + (far(exact, real) > LOST)
        if not same:
            print(f"{number}: {far(mine, real)}", file=sys.stderr)
    print(json.dumps({"agreed": agreed, "tried": tried, "not exact": other}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
