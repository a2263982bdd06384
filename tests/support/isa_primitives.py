"""Random primitives of `fqfuse.primitives` on this process's library, and on NumPy with `isa`: run as a
script under ONEDNN_MAX_CPU_ISA.

    isa_primitives.py ISA SEED COUNT KIND...     prints one JSON line: implementation -> how many agreed
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections import Counter
from typing import Any

import numpy as np
from support.isa_cases import U8, codes, product, window
from support.runtime_draws import Draw, attributes

from fqfuse.ir.ops.elementwise import round_to_bf16
from fqfuse.ir.types import DType
from fqfuse.onednn.capi import Unimplemented
from fqfuse.plan.attributes import (
    Binary,
    Eltwise,
    PostOp,
    Prelu,
    PrimitiveAttr,
    Sum,
    ZeroPoint,
)
from fqfuse.primitives import gemm_s8s8s32, gemm_u8s8s32, prim

CHAINS = ("none", "relu", "linear", "sum_scale_zero_point", "sum_scale_relu", "mul_add")
OF_POOLING = ("none", "relu", "linear", "mul_add")
WINDOWS = ("convolution", "deconvolution")

NOT_REPRODUCED = re.compile(r"ref:any| ref|conv:any")
"""References, which round twice and sum exactly on every CPU, and deconvolutions by a convolution: left out
where attributes are no whole numbers.
"""

WHOLE, HALVES, F16 = "whole ", "halves ", "f16 "
"""Begin the kinds whose operands and biases are whole numbers, without scales: f32 holds all of it, in any
order, so that references give the same, too. Some of those of the latter two are floats of 16 bits.
"""

LATE = "whole late sums"
"""Depthwise convolutions of volumes, with a sum behind another post-op."""

Words = tuple[PrimitiveAttr, dict[str, Any], dict[str, np.ndarray]]
"""Attributes, what the primitive is made of, and its arguments."""


def _text(dtype: DType, dims: tuple[int, ...]) -> str:
    return f"{dtype.value}[{','.join(map(str, dims))}]"


def _shapes(
    rng: np.random.Generator, kind: str
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], dict[str, Any]]:
    """Source, weights and destination, and parameters."""
    if kind == "matmul":
        src, weights = product(rng)
        return src, weights, (*src[:-1], weights[-1]), {}
    if kind == "inner_product":
        (rows, depth), (_, columns) = next(
            p for p in iter(lambda: product(rng), None) if len(p[0]) == 2
        )
        inside = (
            (depth,)
            if rng.random() < 0.6
            else (int(rng.integers(1, 40)), *rng.choice([1, 2, 3, 5], 2))
        )
        inside = tuple(map(int, inside))
        return (rows, *inside), (columns, *inside), (rows, columns), {}
    src, weights, params = window(rng, kind)
    rank, groups = len(src) - 2, params["group"]
    pads, strides, spans = params["pads"], params["strides"], []
    for size, dilation in zip(weights[2:], params["dilations"], strict=True):
        spans.append((size - 1) * dilation + 1)
    axes = list(zip(src[2:], strides, spans, pads[:rank], pads[rank:], strict=True))
    if kind == "convolution":
        out = tuple((n + a + b - r) // s + 1 for n, s, r, a, b in axes)
        channels, inner = weights[0], weights[1:]
        grouped = (channels // groups, *inner)
    else:
        out = tuple((n - 1) * s + r - a - b for n, s, r, a, b in axes)
        channels = weights[1] * groups
        grouped = (weights[1], weights[0] // groups, *weights[2:])
    given = {
        "strides": strides,
        "dilations": tuple(int(d) - 1 for d in params["dilations"]),
        "padding_l": pads[:rank],
        "padding_r": pads[rank:],
    }
    return src, (groups, *grouped) if groups > 1 else grouped, (src[0], channels, *out), given


def of_products(rng: np.random.Generator, kind: str) -> Words:
    """A convolution, deconvolution, inner product or matmul."""
    src_type, dst_type = (
        (U8 if rng.random() < 0.6 else DType.S8),
        DType(rng.choice(["u8", "s8", "f32"])),
    )
    src, weights, dst, given = _shapes(rng, kind)
    channel = len(dst) - 1 if kind == "matmul" else 1
    args = {"src": codes(rng, src_type, src), "weights": codes(rng, DType.S8, weights)}
    draw = Draw(rng, False)
    spread = math.sqrt(math.prod(weights) / dst[channel]) * 100 * 60
    post_ops = draw.chain(str(rng.choice(CHAINS)), dst, channel, dst_type)
    mask = 1 << (len(weights) - 1) if kind == "matmul" else (3 if len(weights) > len(src) else 1)
    attr = attributes(draw, src_type, dst_type, dst[channel], mask, spread * 0.03 * 0.005, post_ops)
    if rng.random() < 0.5:
        zeros = {role: zero for role, zero in attr.zero_points.items() if role != "src"}
        attr = PrimitiveAttr(attr.scales, zeros, attr.post_ops)
    if kind == "inner_product":  # oneDNN gives it no zero points
        attr = PrimitiveAttr(attr.scales, {}, attr.post_ops)
    if rng.random() < 0.5:
        args["bias"] = draw.bias(dst[channel], spread * 0.0001)
        if kind == "matmul":
            args["bias"] = args["bias"].reshape((1,) * channel + (-1,))
    args |= draw.operands
    for name, array in args.items():
        given[name] = _text(DType.from_numpy(array.dtype), array.shape)
    if (kind in WINDOWS or len(dst) == 2) and "src" in attr.zero_points and rng.random() < 0.4:
        low, high = src_type.range
        points = tuple(map(int, rng.integers(low, high + 1, src[1])))
        zeros = {**attr.zero_points, "src": ZeroPoint(points, 2)}
        attr = PrimitiveAttr(attr.scales, zeros, attr.post_ops)
    return attr, {**given, "dst": _text(dst_type, dst)}, args


def of_whole_numbers(rng: np.random.Generator, kind: str, floats: list[DType]) -> Words:
    """A product of codes whose post-ops read whole numbers that broadcast along any axes, or add to what was
    there, first or later, or compare; with these floats.
    """
    src_type = U8 if rng.random() < 0.5 else DType.S8
    src, weights, dst, given = _shapes(rng, kind)
    while kind == "deconvolution" and weights[-len(src)] * math.prod(weights[2 - len(src) :]) == 1:
        # a single output channel by one tap, which is told, is by the code for a vector
        src, weights, dst, given = _shapes(rng, kind)
    args = {"src": codes(rng, src_type, src), "weights": codes(rng, DType.S8, weights)}
    # codes of deconvolutions with other operands have laws of their own
    dst_type = floats[-1] if kind == "deconvolution" else rng.choice(floats)
    types = {"src": src_type, "weights": DType.S8, "dst": dst_type}
    if rng.random() < 0.4:
        across = np.where(rng.random(len(dst)) < 0.1, dst, 1).tolist()
        across[-1] = dst[-1] if rng.random() < 0.9 else 1
        dims = tuple(across) if kind == "matmul" else dst[1:2]
        args["bias"] = rng.integers(-9, 10, dims)
        types["bias"] = rng.choice(floats)
    dims = tuple(
        np.where(rng.random(len(dst)) < (0.5 if rng.random() < 0.7 else 1), dst, 1).tolist()
    )
    if kind == "convolution" and dims == dst and dst[:-1] == (1, 1):
        # a single channel of a row lies alike in both orders, and is taken for one or the other
        dims = (1,) * len(dst)
    mask = sum(1 << axis for axis, size in enumerate(dims) if size > 1)
    # slopes along the second axis and others lie in memory as the library likes
    sloped = len(dst) == 2 or mask == 2 or not mask & 2
    compare = Binary(str(rng.choice(["ge", "gt", "le", "lt", "eq", "ne"])), "operand")
    chains: list[tuple[PostOp, ...]] = [
        (Binary("add", "operand"),),
        (Binary("max", "operand"), Eltwise("relu")),
        (Prelu("operand", mask) if sloped else Binary("add", "operand"),),
        (Eltwise("relu"), Sum("old")),
        (Sum("old"), Eltwise("relu")),
        (compare,),
        (Eltwise("relu"), compare, Sum("old")),
    ]
    post_ops = chains[int(rng.integers(len(chains)))]
    read = {op.operand for op in post_ops if not isinstance(op, Eltwise)}
    if "operand" in read:
        # sums that are compared lie on either side of them
        least, most = (-99_999, 99_999) if compare in post_ops else (1, 10)
        args["operand"] = rng.integers(least, most, dims)
        held = [*floats, *floats, DType.S32, U8]
        # which code compares with bf16 behind a convolution of groups is told as not known
        if kind == "convolution" and compare in post_ops:
            held = [DType.F32, DType.S32, U8]
        slopes = any(isinstance(op, Prelu) for op in post_ops)
        types["operand"] = DType.F32 if slopes else rng.choice(held)
    if "old" in read:
        args["old"], types["old"] = rng.integers(-9, 10, dst), types["dst"]
    args = {name: _as(types[name], array) for name, array in args.items()}
    given |= {name: _text(types[name], array.shape) for name, array in args.items()}
    return PrimitiveAttr(post_ops=post_ops), {**given, "dst": _text(types["dst"], dst)}, args


def of_late_sums(rng: np.random.Generator) -> Words:
    """A depthwise convolution of volumes that adds to what was there behind another post-op."""
    groups, kernel = int(rng.choice([2, 3, 8, 16, 17, 32])), rng.choice([1, 2, 3, 4], 3)
    out, before, strides = rng.integers(1, 5, 3), rng.integers(0, kernel), rng.choice([1, 1, 2], 3)
    sizes = np.maximum((out - 1) * strides + kernel - before, 1)
    behind = (out - 1) * strides + kernel - sizes - before
    if (behind < 0).any():
        return of_late_sums(rng)
    src, dst = ((2, groups, *map(int, each)) for each in (sizes, out))
    weights = (groups, 1, 1, *map(int, kernel))
    src_type, dst_type = (
        DType(rng.choice(names)) for names in (["u8", "s8"], ["f32", "s32", "s8", "u8"])
    )
    ops: list[PostOp] = [Eltwise("relu"), Eltwise("linear", 2.0, 3.0), Binary("add", "operand")]
    first = ops[int(rng.integers(len(ops)))]
    args = {"src": codes(rng, src_type, src), "weights": codes(rng, DType.S8, weights)}
    if isinstance(first, Binary):
        args["operand"] = rng.integers(1, 9, (1, groups, 1, 1, 1)).astype(np.float32)
    args["old"] = rng.integers(-9, 10, dst).astype(dst_type.numpy)
    given: dict[str, Any] = {
        name: _text(DType.from_numpy(array.dtype), array.shape) for name, array in args.items()
    }
    given |= {"dst": _text(dst_type, dst), "strides": tuple(map(int, strides))}
    given |= {"padding_l": tuple(map(int, before)), "padding_r": tuple(map(int, behind))}
    return PrimitiveAttr(post_ops=(first, Sum("old"))), given, args


def _as(dtype: DType, array: np.ndarray) -> np.ndarray:
    """Whole numbers as a type, which may hold fewer bits of them."""
    if dtype is DType.BF16:
        return round_to_bf16(array.astype(np.float32))
    with np.errstate(over="ignore"):
        return array.astype(dtype.numpy)


def of_pooling(rng: np.random.Generator) -> Words:
    """A pooling of codes."""
    dtype, rank = (U8 if rng.random() < 0.6 else DType.S8), int(rng.choice([1, 2, 2, 2, 3]))
    kernel = tuple(map(int, rng.choice([1, 2, 3], rank)))
    strides = tuple(map(int, rng.choice([1, 1, 2, 3], rank)))
    before = tuple(int(rng.integers(0, k)) for k in kernel)
    out = tuple(map(int, rng.integers(1, 6, rank)))
    whole = [(o - 1) * s + k for o, s, k in zip(out, strides, kernel, strict=True)]
    behind = tuple(int(rng.integers(0, k)) for k in kernel)
    sizes = tuple(max(w - a - b, 1) for w, a, b in zip(whole, before, behind, strict=True))
    behind = tuple(w - n - a for w, n, a in zip(whole, sizes, before, strict=True))
    lead = int(rng.integers(1, 3)), int(rng.choice([1, 3, 8, 16, 17, 33, 64]))
    dst_type = dtype if rng.random() < 0.7 else DType.F32
    args = {"src": codes(rng, dtype, (*lead, *sizes))}
    draw = Draw(rng, False)
    post_ops = draw.chain(str(rng.choice(OF_POOLING)), (*lead, *out), 1, dst_type)
    args |= draw.operands
    given = {name: _text(DType.from_numpy(a.dtype), a.shape) for name, a in args.items()}
    given |= {
        "dst": _text(dst_type, (*lead, *out)),
        "algorithm": str(rng.choice(["max", "avg_include_padding", "avg_exclude_padding"])),
        "kernel": kernel,
        "strides": strides,
        "dilations": (0,) * rank,
        "padding_l": before,
        "padding_r": behind,
    }
    return PrimitiveAttr(post_ops=post_ops), given, args


def of_gemm(rng: np.random.Generator) -> tuple[Any, dict[str, Any], list[np.ndarray]]:
    """The function, its options and its matrices."""
    m, n = (int(rng.choice([1, 1, 2, 3, 7, 16, 33])) for _ in range(2))
    k = int(rng.choice([1, 2, 3, 16, 33, 129, 255, 257, 300, 383, 385, 513, 515, 770, 1025, 1537]))
    dtype = U8 if rng.random() < 0.5 else DType.S8
    low, high = dtype.range
    turned = {name: bool(rng.random() < 0.5) for name in ("trans_a", "trans_b")}
    offsetc = str(rng.choice(list("FCR")))
    count = {"F": 1, "C": m, "R": n}[offsetc]
    zeros = rng.random() < 0.4
    options = {
        **turned,
        "alpha": float(rng.choice([1, 1, 1, 0.5, -2, 0.3, 1000])),
        "beta": float(rng.choice([0, 0, 1, 1, 0.5, -3])),
        "ao": int(rng.integers(low, high + 1)) if rng.random() < 0.3 else 0,
        "bo": int(rng.integers(-128, 128)) if rng.random() < 0.3 else 0,
        "co": np.zeros(count, np.int32) if zeros else rng.integers(-99, 99, count).astype(np.int32),
        "offsetc": offsetc,
    }
    a, b = codes(rng, dtype, (m, k)), codes(rng, DType.S8, (k, n))
    factors = [x.T if turned[name] else x for x, name in ((a, "trans_a"), (b, "trans_b"))]
    c = rng.integers(-(10**6), 10**6, (m, n)).astype(np.int32)
    return (gemm_u8s8s32 if dtype is U8 else gemm_s8s8s32), options, [*factors, c]


_FLOATS = {
    WHOLE: [DType.F32],
    HALVES: [DType.F32, DType.BF16, DType.BF16],
    F16: [DType.F32, DType.F32, DType.F32, DType.F16],
}


def _drawn(kind: str, rng: np.random.Generator) -> tuple[str, *Words]:
    """The kind of a primitive, and the primitive."""
    if kind == "pooling":
        return kind, *of_pooling(rng)
    if kind == LATE:
        return "convolution", *of_late_sums(rng)
    for begin, floats in _FLOATS.items():
        if kind.startswith(begin):
            kind = kind.removeprefix(begin)
            return kind, *of_whole_numbers(rng, kind, floats)
    return kind, *of_products(rng, kind)


def answers(kind: str, isa: str, rng: np.random.Generator) -> tuple[str, str, list[np.ndarray]]:
    """What ran, what it was passed over for, and the results: NumPy's there, the library's, NumPy's exact one."""
    if kind == "gemm":
        function, options, matrices = of_gemm(rng)
        found = [
            function(*matrices, **options, isa=isa),
            function(*matrices, **options, engine="onednn"),
        ]
        return f"gemm {matrices[0].dtype}", "", [*found, function(*matrices, **options)]
    kind, attr, given, args = _drawn(kind, rng)
    theirs = prim(kind, attr, engine="onednn", **given)
    found = [prim(kind, attr, isa=isa, **given), theirs, prim(kind, attr, **given)]
    told = f"{kind} {args['src'].dtype} {theirs.impl_info}"
    return told, "; ".join(theirs.passed_over), [each.execute(args) for each in found]


def main(isa: str, seed: str, count: str, *kinds: str) -> None:
    """Prints what agreed."""
    agreed, tried, left_out, refused, other = Counter(), Counter(), Counter(), Counter(), 0
    for index in range(int(count)):
        kind = kinds[index % len(kinds)]
        try:
            found = answers(kind, isa, np.random.default_rng([int(seed), index]))
        except Unimplemented:
            refused[kind] += 1
            continue
        name, passed, (mine, real, exact) = found
        plain = kind.startswith((WHOLE, HALVES, F16))
        if (NOT_REPRODUCED.search(name) and not plain) or (
            plain and "computes that wrongly" in passed
        ):
            left_out[name] += 1
            continue
        # the reference's relu makes -0 of a number below 0
        same = np.array_equal(mine, real) if plain else mine.tobytes() == real.tobytes()
        tried[name] += 1
        agreed[name] += same
        other += exact.tobytes() != real.tobytes()
        if not same:
            off = float(np.mean(mine != real))
            print(index, name, mine.shape, passed, f"{off:.3f}", file=sys.stderr)
    told = {"agreed": agreed, "tried": tried, "not exact": other}
    print(json.dumps({**told, "left out": left_out, "refused": refused}))


if __name__ == "__main__":
    main(*sys.argv[1:])
