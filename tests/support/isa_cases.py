"""Random primitives on this process's library, and on NumPy as it emulates its instruction set: run
as a script under ONEDNN_MAX_CPU_ISA.

    isa_cases.py ISA SEED COUNT KIND...     prints one JSON line: implementation -> how many agreed
"""

from __future__ import annotations

import json
import math
import sys
from collections import Counter

import numpy as np
from support.binding_order import Runner
from support.runtime_draws import Draw, attributes
from support.runtime_oracle import Oracle
from support.runtime_plans import one_step

from fqfuse.ir.ops import OPS
from fqfuse.ir.ops.convolution import transposed_window
from fqfuse.ir.types import DType
from fqfuse.onednn.capi import Unimplemented
from fqfuse.onednn.defects import defect_of
from fqfuse.onednn.library import Engine, Stream
from fqfuse.onednn.loading import load
from fqfuse.onednn.saturation import may_saturate
from fqfuse.plan.attributes import Binary, Eltwise, Prelu, PrimitiveAttr, Sum
from fqfuse.plan.shapes import step_shapes
from fqfuse.plan.summation import deconvolves_by_gemm
from fqfuse.plan.types import Plan, Step
from fqfuse.runtime.numerics import PROFILES
from fqfuse.runtime.numpy_runtime import run_step

U8, S8 = DType.U8, DType.S8
CHAINS = ("none", "relu", "linear", "sum_scale_zero_point", "sum_scale_relu", "mul_add")
BY_GEMM = "deconvolution by gemm"
OPERANDS = "operands"
FLOAT_ORDER = ("without FMA", "rounds twice")
"""Endings of the names of defects that are the float order of SSE4.1, which is emulated, too."""

Case = tuple[Plan, Step, dict[str, np.ndarray]]


def codes(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...]) -> np.ndarray:
    """Full range; in most cases many at its ends, so that pairs saturate both ways."""
    low, high = dtype.range
    found = rng.integers(low, high + 1, shape)
    if rng.random() < 0.7:
        ends = np.where(rng.random(shape) < 0.7, high, low)
        found = np.where(rng.random(shape) < 0.6, ends, found)
    return found.astype(dtype.numpy)


MOST_BY_GEMM = 4_000_000
"""Products in a deconvolution by gemm: the library's sums for zero points take a second for each three millions,
which one draw in sixty had for five seconds, and all others together took one.
"""


def window(rng: np.random.Generator, kind: str) -> tuple[tuple[int, ...], tuple[int, ...], dict]:
    """Shapes of source and weights, and parameters, of a window that fits."""
    while True:
        rank = int(rng.choice([1, 2, 2, 2, 2, 3]))
        groups = int(rng.choice([1, 1, 1, 2, 3, 4]))
        inputs = int(rng.choice([1, 2, 3, 4, 5, 8, 11, 16, 17, 24, 32, 33, 48, 64]))
        outputs = int(rng.choice([1, 3, 4, 7, 8, 16, 17, 32, 40]))
        if kind == "depthwise":
            groups, inputs, outputs = int(rng.choice([3, 8, 16, 24, 33, 48])), 1, 1
        one = rng.random() < 0.3
        # rows of wide windows do not fit the registers of the library's own code
        sizes = [1, 2, 3, 5, 7] if kind == BY_GEMM else [1, 2, 3]
        kernel = [1 if one else int(rng.choice(sizes)) for _ in range(rank)]
        spatial = rng.integers(3, 9 if rank < 3 else 6, rank).tolist()
        strides = rng.choice([1, 1, 2, 3], rank).tolist()
        dilations = rng.choice([1, 1, 1, 2], rank).tolist()
        pads = [int(rng.integers(0, k + 1)) if k > 1 else 0 for k in (*kernel, *kernel)]
        reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
        both = [a + b for a, b in zip(pads[:rank], pads[rank:], strict=True)]
        params = {
            "strides": tuple(strides),
            "dilations": tuple(dilations),
            "pads": tuple(pads),
            "group": groups,
        }
        src = (int(rng.integers(1, 3)), inputs * groups, *spatial)
        axes = list(zip(spatial, strides, reach, both, strict=True))
        if kind in ("deconvolution", BY_GEMM):
            if all((n - 1) * s + r - b >= 1 for n, s, r, b in axes):
                return src, (inputs * groups, outputs, *kernel), params
        elif all(n + b >= r for n, _, r, b in axes):
            return src, (outputs * groups, inputs, *kernel), params


def by_gemm(src: tuple[int, ...], weights: tuple[int, ...], params: dict) -> bool:
    """A deconvolution that runs by gemm, and not by the code for a vector."""
    groups = params["group"]
    channels = weights[0] // groups, weights[1]
    win = transposed_window(OPS["ConvTranspose"].complete(params), src[2:], weights[2:])
    steps = win.strides, win.dilations, (*win.begin, *win.end), win.out[-1]
    return weights[1] > 1 and deconvolves_by_gemm(
        "avx512_core", groups, channels, weights[2:], *steps
    )


def product(rng: np.random.Generator) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shapes of the factors of a matrix product."""
    rows, columns = int(rng.choice([1, 2, 5, 16, 33, 64])), int(rng.choice([1, 3, 16, 17, 48, 70]))
    depth = int(rng.choice([1, 2, 3, 5, 16, 33, 64, 129, 257, 300, 385, 513, 514, 770, 1030]))
    return (
        ((rows, depth), (depth, columns))
        if rng.random() < 0.7
        else (
            (2, rows, depth),
            (2, depth, columns),
        )
    )


def pooling(rng: np.random.Generator) -> Case:
    """A maximum or an average of codes."""
    dtype, rank = (U8 if rng.random() < 0.6 else S8), int(rng.choice([1, 2, 2, 2, 3]))
    kernel = rng.choice([1, 2, 3], rank)
    strides = rng.choice([1, 1, 2, 3], rank)
    before, behind = (np.array([int(rng.integers(0, k)) for k in kernel]) for _ in range(2))
    out = rng.integers(1, 6, rank)
    sizes = np.maximum((out - 1) * strides + kernel - before - behind, 1)
    behind = (out - 1) * strides + kernel - sizes - before
    if (behind < 0).any():
        return pooling(rng)
    lead = int(rng.integers(1, 3)), int(rng.choice([1, 3, 8, 16, 17, 33, 64]))
    dst = dtype if rng.random() < 0.8 else DType.F32
    op = str(rng.choice(["MaxPool", "AveragePool"]))
    params = {
        "kernel_shape": tuple(kernel.tolist()),
        "strides": tuple(strides.tolist()),
        "pads": (*before.tolist(), *behind.tolist()),
        **({"count_include_pad": int(rng.integers(2))} if op == "AveragePool" else {}),
    }
    draw = Draw(rng, False)
    shape = (*lead, *out.tolist())
    post_ops = draw.chain(str(rng.choice(["none", "relu", "linear", "mul_add"])), shape, 1, dst)
    src = codes(rng, dtype, (*lead, *sizes.tolist()))
    return one_step(
        "pooling",
        op,
        [("src", src)],
        dst,
        params=params,
        attr=PrimitiveAttr(post_ops=post_ops),
        operands=draw.operands,
        constants=list(draw.operands),
    )


def shape_of(plan: Plan, step: Step, live: dict[str, np.ndarray]) -> tuple[int, ...]:
    """That of the result."""
    return step_shapes(plan, step, {**plan.constants, **live})[step.output]


def spread(src: np.ndarray, weights: np.ndarray, depth: float) -> float:
    """How large sums of so many products of random factors are, roughly: what a CPU cuts off them is less. Running
    the primitive for it took as long as what is compared.
    """
    means, squares = (
        math.prod(float(np.mean(array.astype(np.float64) ** power)) for array in (src, weights))
        for power in (1, 2)
    )
    return math.hypot(depth * means, math.sqrt(depth * squares))


def with_operands(rng: np.random.Generator) -> Case:
    """A convolution or matmul whose post-ops read whole numbers that broadcast along any axes, or add to
    what was there, first or later: f32 holds all of it, in any order, so that the reference gives the
    same, too.
    """
    src, dst = (U8 if rng.random() < 0.5 else S8), DType.F32
    if rng.random() < 0.5:
        rank, rows = int(rng.choice([2, 4, 5])), int(rng.choice([1, 5, 16]))
        lead = tuple(rng.choice([1, 2, 3], rank - 2).tolist())
        depth, columns = int(rng.choice([2, 16, 33, 300])), int(rng.choice([1, 3, 16, 17]))
        shape, weights = (*lead, rows, depth), (*(1 for _ in lead), depth, columns)
        primitive, op, params = "matmul", "MatMul", {}
    else:
        shape, weights, params = window(rng, "convolution")
        primitive, op = "convolution", "Conv"
    args = [("src", codes(rng, src, shape)), ("weights", codes(rng, S8, weights))]
    out = shape_of(*one_step(primitive, op, args, dst, params=params))
    axes = rng.random(len(out)) < (0.5 if rng.random() < 0.7 else 1)
    dims = tuple(np.where(axes, out, 1).tolist())
    if primitive == "convolution" and dims == out and out[:-1] == (1, 1):
        # a single channel of a row lies alike in both orders, and is taken for one or the other
        dims = (1,) * len(out)
    operands = {"operand": rng.integers(1, 10, dims).astype(np.float32)}
    old = {"old": rng.integers(-9, 10, out).astype(np.float32)}
    mask = sum(1 << axis for axis, size in enumerate(dims) if size > 1)
    chains = [
        (Binary("add", "operand"),),
        (Binary("max", "operand"), Eltwise("relu")),
        # slopes along the second axis and others lie in memory as the library likes
        (Prelu("operand", mask) if mask == 2 or not mask & 2 else Binary("add", "operand"),),
        (Eltwise("relu"), Sum("old")),
        (Sum("old"), Eltwise("relu")),
    ]
    post_ops = chains[int(rng.integers(len(chains)))]
    operands = old if any(isinstance(op, Sum) for op in post_ops) else operands
    live = operands is old or (isinstance(post_ops[0], Binary) and rng.random() < 0.3)
    return one_step(
        primitive,
        op,
        args,
        dst,
        params=params,
        attr=PrimitiveAttr(post_ops=post_ops),
        operands=operands,
        constants=["weights", *(() if live else operands)],
    )


def case(rng: np.random.Generator, kind: str) -> Case:
    """One primitive with scales, zero points, a bias and a chain."""
    if kind == "pooling":
        return pooling(rng)
    if kind == OPERANDS:
        return with_operands(rng)
    draw = Draw(rng, False)
    src, dst = (U8 if rng.random() < 0.6 else S8), DType(rng.choice(["u8", "s8", "f32"]))
    chain, params = str(rng.choice(CHAINS)), {}
    if kind == BY_GEMM:
        src, chain = S8, str(rng.choice(["none", "relu"]))  # its post-ops round twice
    if kind == "matmul":
        shape, weights = product(rng)
        primitive, op, channel, mask = "matmul", "MatMul", len(shape) - 1, 1 << (len(shape) - 1)
        channels, depth = weights[-1], float(weights[-2])
    else:
        shape, weights, params = window(rng, kind)
        while kind == BY_GEMM and not (
            math.prod(shape) * math.prod(weights[1:]) < MOST_BY_GEMM
            and by_gemm(shape, weights, params)
        ):
            shape, weights, params = window(rng, kind)
        deconv = kind in ("deconvolution", BY_GEMM)
        primitive = "deconvolution" if deconv else "convolution"
        op, channel = "ConvTranspose" if deconv else "Conv", 1
        groups = params["group"]
        mask, channels = (1 if groups == 1 else 3), weights[1] * groups if deconv else weights[0]
        depth = float(math.prod(weights[1:]))
        if deconv:  # which of the taps meet depends on the strides
            depth = math.prod(weights) / channels / math.prod(params["strides"])
    args = [("src", codes(rng, src, shape)), ("weights", codes(rng, S8, weights))]
    live = kind == "matmul" and rng.random() < 0.3
    out = shape_of(*one_step(primitive, op, args, DType.F32, params=params))
    span = spread(args[0][1], args[1][1], depth) * 0.03 * 0.005 + 1e-3
    post_ops = draw.chain(chain, out, channel, dst)
    attr = attributes(draw, src, dst, channels, 0 if live else mask, span, post_ops)
    if rng.random() < 0.5:
        attr = PrimitiveAttr(
            attr.scales, {k: v for k, v in attr.zero_points.items() if k != "src"}, attr.post_ops
        )
    bias = draw.bias(channels, span / 4)
    args.append(("bias", bias if kind != "matmul" else bias.reshape((1,) * channel + (-1,))))
    held = [name for name in draw.operands if name != "old"]
    held += ["bias"] if live else ["bias", "weights"]
    return one_step(
        primitive,
        op,
        args,
        dst,
        params=params,
        attr=attr,
        operands=draw.operands,
        constants=held,
    )


def main(isa: str, seed: str, count: str, *kinds: str) -> None:
    library = load()
    library.set_threads(1)
    engine = Engine(library)
    oracle = Oracle(Runner(engine, Stream(engine)))
    agreed, tried, left_out, other = Counter(), Counter(), Counter(), 0
    for index in range(int(count)):
        rng = np.random.default_rng([int(seed), index])
        kind = kinds[index % len(kinds)]
        plan, step, live = case(rng, kind)
        shape = shape_of(plan, step, live)
        try:
            desc = oracle.describe(plan, step, live, shape)
        except Unimplemented:
            left_out[f"{kind}, which the library has no code for"] += 1
            continue
        defect = defect_of(desc)
        if isa == "vnni" and may_saturate(desc):
            # code for older CPUs, which fqfuse passes over on one with VNNI
            left_out[f"{kind} {desc.impl_info}, which saturates"] += 1
            continue
        accepted = kind == OPERANDS or (kind == BY_GEMM and "x64:gemm" in desc.impl_info)
        if (desc.is_reference and not accepted) or (
            defect and not defect.name.endswith(FLOAT_ORDER)
        ):
            # fqfuse runs none of these on oneDNN
            left_out[f"{kind} {desc.impl_info} {defect.name if defect else ''}".strip()] += 1
            continue
        src = live["src"].dtype
        name = f"{kind} {src} {desc.impl_info}"
        if isa == "avx512_core" and "gemm:jit" in desc.impl_info and shape[-1] == 1:
            left_out[f"{name}, the code for a vector"] += 1  # told, and proven
            continue
        (mine,) = run_step(plan, step, live, profile=PROFILES[isa])
        real, _ = oracle(plan, step, live, mine.shape)
        same = bool(np.array_equal(mine.view(np.uint8), real.view(np.uint8)))
        tried[name] += 1
        agreed[name] += same
        (exact,) = run_step(plan, step, live)
        other += not np.array_equal(exact, mine)
        if not same:
            off = float(np.mean(mine != real))
            print(
                index,
                name,
                live["src"].shape,
                step.params,
                step.attr,
                f"{off:.3f}",
                file=sys.stderr,
            )
    print(json.dumps({"agreed": agreed, "tried": tried, "not exact": other, "left out": left_out}))


if __name__ == "__main__":
    main(*sys.argv[1:])
