"""What the proof calls exact, held to this process's library, sums beyond 2^24 among them: run as a script
under ONEDNN_MAX_CPU_ISA.

isa_proofs.py ISA SEED COUNT KIND...     prints one JSON line, and each channel that is called exact and is not
"""

from __future__ import annotations

import json
import sys
from collections import Counter

import numpy as np
from support.binding_order import Runner
from support.isa_cases import BY_GEMM, S8, U8, product, window
from support.runtime_oracle import Oracle
from support.runtime_plans import one_step

from fqfuse.ir.types import DType
from fqfuse.onednn.capi import Unimplemented
from fqfuse.onednn.defects import defect_of
from fqfuse.onednn.library import Engine, Stream
from fqfuse.onednn.loading import load
from fqfuse.plan.attributes import PrimitiveAttr, ZeroPoint
from fqfuse.plan.saturation import sums_of_plan
from fqfuse.plan.types import Plan, Step
from fqfuse.runtime.numpy_runtime import run_step

GROUPS_IN_SPACE = "convolution of groups, 3-D"


def weights_of(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Near what a proof lets through: 7 bits, of any sign and of one, even codes, and large codes that lie
    apart.
    """
    kind = int(rng.integers(5))
    if kind == 0:
        found = rng.integers(-64, 65, shape)
    elif kind == 1:
        found = rng.choice([-128, 126, -126, 124, 64], shape)
    elif kind == 2:
        found = np.where(rng.random(shape) < 0.3, rng.choice([127, -128, 100], shape), 0)
    elif kind == 3:
        found = rng.choice([-64, 64, 63, 62], shape)
    else:
        found = rng.integers(20, 65, shape)
    return np.asarray(found).astype(np.int8)


def deep(rng: np.random.Generator, kind: str) -> tuple[tuple[int, ...], tuple[int, ...], dict]:
    """Source, weights and parameters of a product whose sums pass 2^24, or nearly do."""
    inputs, outputs, taps = (int(rng.choice(s)) for s in ((300, 600, 1153), (3, 16), (1, 2, 3)))
    if kind == "matmul":
        return (2, inputs * taps), (inputs * taps, outputs), {}
    weights = (inputs, outputs) if kind == "deconvolution" else (outputs, inputs)
    pads = (0, 1) if taps > 1 and rng.random() < 0.5 else (0, 0)
    params = {"strides": (1,), "dilations": (1,), "pads": pads, "group": 1}
    return (1, inputs, 5), (*weights, taps), params


def case(rng: np.random.Generator, kind: str) -> tuple[Plan, Step, dict[str, np.ndarray]]:
    """A step whose codes are at the ends."""
    src = U8 if rng.random() < 0.5 else S8
    params: dict = {}
    if kind == "matmul":
        shape, weights = product(rng)
        primitive, op = "matmul", "MatMul"
    else:
        shape, weights, params = window(rng, kind)
        while kind == GROUPS_IN_SPACE and (len(shape) < 5 or params["group"] == 1):
            shape, weights, params = window(rng, "convolution")
        deconv = kind in ("deconvolution", BY_GEMM)
        primitive = "deconvolution" if deconv else "convolution"
        op = "ConvTranspose" if deconv else "Conv"
    if rng.random() < 0.3 and kind in ("matmul", "convolution", "deconvolution"):
        shape, weights, params = deep(rng, kind)
    zeros = {}
    for role in ("src", "weights") if kind == "matmul" else ("src",):
        if rng.random() < 0.3:
            zeros[role] = ZeroPoint((int(rng.integers(1, 128)),))
    low, high = src.range
    x = np.full(shape, high) if rng.random() < 0.5 else rng.choice([low, high], shape)
    args = [("src", x.astype(src.numpy)), ("weights", weights_of(rng, weights))]
    attr = PrimitiveAttr(zero_points=zeros)
    dst = DType.S32 if rng.random() < 0.6 else DType.F32
    return one_step(primitive, op, args, dst, params=params, attr=attr)


def main(isa: str, seed: str, count: str, *kinds: str) -> None:
    library = load()
    library.set_threads(1)
    engine = Engine(library)
    oracle = Oracle(Runner(engine, Stream(engine)))
    tried, unsafe, safe, lost, wide = Counter(), Counter(), 0, 0, 0
    for index in range(int(count)):
        rng = np.random.default_rng([int(seed), index])
        kind = kinds[index % len(kinds)]
        plan, step, live = case(rng, kind)
        (exact,) = run_step(plan, step, live)
        try:
            real, desc = oracle(plan, step, live, exact.shape)
        except Unimplemented:
            continue
        if defect_of(desc):  # wrong with VNNI as well
            continue
        (sums,) = sums_of_plan(plan, isa)
        axis = exact.ndim - 1 if kind == "matmul" else 1
        others = tuple(i for i in range(exact.ndim) if i != axis)
        differ = set(np.flatnonzero((real != exact).any(axis=others)).tolist())
        tried[f"{kind} {desc.impl_info}"] += 1
        safe, lost = safe + sums.exact, lost + bool(differ)
        wide += bool(differ - set(sums.channels))
        if differ - set(sums.channels) - set(sums.rounded):
            unsafe[f"{kind} {desc.impl_info}"] += 1
            print(
                index,
                kind,
                live["src"].shape,
                step.params,
                desc.impl_info,
                sums.laws,
                file=sys.stderr,
            )
    print(
        json.dumps(
            {"agreed": tried - unsafe, "tried": tried, "exact": safe, "lost": lost, "rounded": wide}
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
