"""Random primitives with random attributes, and what the two engines say of them.

`draw(seed)` gives the words of one; `complaint(seed)` asks for it on NumPy and on the library: both refuse
what contradicts itself with one status, and where they make it, they compute the same.

    python -m laws.primitives FIRST COUNT      prints what differs, and how many were drawn
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.random import Generator
from support.codes import emulated

from fqfuse.errors import InvalidInput
from fqfuse.ir.types import DType
from fqfuse.onednn.capi import OneDnnError, Status
from fqfuse.onednn.enums import CpuIsa
from fqfuse.onednn.library import Engine, Library
from fqfuse.onednn.loading import load
from fqfuse.primitives import (
    Binary,
    DepthwiseConv,
    Eltwise,
    Prelu,
    Primitive,
    PrimitiveAttr,
    Scale,
    Sum,
    ZeroPoint,
    on_library,
    prim,
)
from fqfuse.primitives.description import Description, at_execution, described, stray_masks
from fqfuse.primitives.neglected import neglected
from fqfuse.primitives.refusal import refusal
from fqfuse.primitives.untold import check_untold

Array = np.ndarray[Any, np.dtype[Any]]
TYPES = ("f32", "bf16", "f16", "s32", "s8", "u8")
DYADIC = (0.25, 0.5, 1.0, 2.0)
"""Scales by which products of small integers stay exact, in whatever order they are multiplied."""

EXACT = ("relu", "abs", "square", "linear", "clip", "clip_v2", "round")
INEXACT = ("tanh", "elu", "logistic", "exp", "gelu_tanh", "gelu_erf", "swish", "mish", "soft_relu")


@dataclass
class Drawn:
    """The words of a primitive: `prim(kind, attr, **given)`."""

    kind: str
    attr: PrimitiveAttr
    given: dict[str, Any]


def draw(seed: int, kind: str | None = None) -> Drawn:
    """One primitive; mostly a sound one."""
    rng = np.random.default_rng(seed)
    kind = kind or _one(rng, tuple(MAKERS))
    given = MAKERS[kind](rng)
    attr, operands = _attributes(rng, kind, given)
    return Drawn(kind, attr, {**given, **operands})


def _one(rng: Generator, values: Sequence[Any]) -> Any:
    return values[int(rng.integers(len(values)))]


def _chance(rng: Generator, probability: float) -> bool:
    return bool(rng.random() < probability)


def _text(dtype: str, dims: Sequence[int]) -> str:
    return f"{dtype}[{','.join(map(str, dims))}]"


def _dims(text: str) -> tuple[int, ...]:
    return tuple(map(int, text[text.index("[") + 1 : -1].split(",")))


def _spoiled(rng: Generator, dims: Sequence[int]) -> tuple[int, ...]:
    """The sizes, or now and then others."""
    found = list(dims)
    if _chance(rng, 0.03):
        found[int(rng.integers(len(found)))] += 1
    return tuple(found)


def _of_any_rank(rng: Generator, dims: Sequence[int]) -> tuple[int, ...]:
    """The sizes, or now and then one more or less."""
    return _one(rng, ((*dims, 1), tuple(dims[1:]))) if _chance(rng, 0.01) else tuple(dims)


# -- operations ------------------------------------------------------------------------------------


def _factors(rng: Generator) -> tuple[str, str, str]:
    """Types of source, weights and destination."""
    if _chance(rng, 0.1):
        return _one(rng, TYPES), _one(rng, TYPES), _one(rng, TYPES)
    if _chance(rng, 0.25):
        return "f32", "f32", "f32" if _chance(rng, 0.8) else _one(rng, TYPES)
    if _chance(rng, 0.25):
        return "bf16", "bf16", _one(rng, ("bf16", "f32"))
    return _one(rng, ("u8", "s8")), "s8", _one(rng, TYPES)


def _bias(rng: Generator, dims: Sequence[int]) -> dict[str, str]:
    if _chance(rng, 0.5):
        return {}
    dtype = "f32" if _chance(rng, 0.8) else _one(rng, TYPES)
    return {"bias": _text(dtype, _spoiled(rng, dims))}


def _window(rng: Generator, spatial: int) -> dict[str, tuple[int, ...]]:
    def each(*values: int) -> tuple[int, ...]:
        return tuple(_one(rng, values) for _ in range(spatial))

    return {
        "strides": each(1, 1, 2),
        "dilations": each(0, 0, 0, 1),
        "padding_l": each(0, 0, 1),
        "padding_r": each(0, 0, 1),
    }


_TAPS = {
    1: ((4,), (8,), (16,), (64,)),
    2: ((1, 8), (2, 4), (3, 3), (4, 4), (8, 8), (16, 1)),
    3: ((2, 2, 2), (3, 1, 3), (1, 2, 4), (4, 4, 4), (1, 16, 4)),
}
"""Kernels whose taps fill vectors, by the number of spatial dimensions."""


_WIDE = 9
"""Taps along the last dimension from which a kernel is a wide one."""


def _convolution(rng: Generator, *, transposed: bool = False) -> dict[str, Any]:
    if not transposed and _chance(rng, 0.15):
        return _plain_convolution(rng)
    spatial = _one(rng, (1, 2, 2, 2, 3))
    groups = _one(rng, (1, 1, 1, 2, 4))
    inside, outside = _one(rng, (1, 2, 4)), _one(rng, (1, 2, 4, 8))
    kernel = tuple(_one(rng, (1, 1, 2, 3)) for _ in range(spatial))
    if _chance(rng, 0.15):  # depthwise, mostly, with as many taps as vectors have elements
        many = _one(rng, (2, 3, 8, 16, 17, 18, 21, 33))
        groups, inside, outside = (many, 1, 1) if _chance(rng, 0.8) else (1, 2, many)
        kernel = _one(rng, _TAPS[spatial])
    window = _window(rng, spatial)
    short = tuple(_one(rng, (1, 2, 3)) for _ in range(spatial))
    if groups == 1 and _chance(rng, 0.1):  # padding far wider than a vector has elements
        inside, outside = _one(rng, (4, 16, 20)), _one(rng, (8, 16, 24, 32, 40, 48, 64))
        taps = _one(rng, range(_WIDE, 34))
        kernel, short = (*kernel[:-1], taps), (*short[:-1], _one(rng, range(1, 31)))
        window = {name: (*sides[:-1], 1) for name, sides in window.items()}
        window["dilations"] = (0,) * spatial
        reach = _one(rng, (0, taps // 2, taps - 1)) if not transposed else _one(rng, (0, 0, 3))
        window |= dict.fromkeys(("padding_l", "padding_r"), (*(0,) * (spatial - 1), reach))
    long = tuple(
        max((n - 1) * s + (k - 1) * (d + 1) + 1 - b - e, 1)
        for n, k, s, d, b, e in zip(short, kernel, *window.values(), strict=True)
    )
    read, written = (short, long) if transposed else (long, short)
    src, weights, dst = _factors(rng)
    batch = _one(rng, (1, 2)) if _chance(rng, 0.98) else 0
    shape = (outside, inside, *kernel)
    if groups > 1 or _chance(rng, 0.1):
        shape = (groups, *shape)
    return {
        "src": _text(src, _of_any_rank(rng, _spoiled(rng, (batch, groups * inside, *read)))),
        "weights": _text(weights, _of_any_rank(rng, _spoiled(rng, shape))),
        **_bias(rng, (groups * outside,)),
        "dst": _text(dst, _spoiled(rng, (batch, groups * outside, *written))),
        **window,
    }


def _plain_convolution(rng: Generator) -> dict[str, Any]:
    """A 1x1 convolution of images, mostly: what has depthwise post-ops."""
    rank = 2 if _chance(rng, 0.95) else 3
    inside, outside = _one(rng, (1, 2, 4, 16)), _one(rng, (1, 2, 8, 16, 32))
    size = tuple(_one(rng, (1, 2, 3, 4, 7)) for _ in range(rank))
    src, weights, dst = _factors(rng)
    kernel = (1,) * rank if _chance(rng, 0.95) else (2,) * rank
    return {
        "src": _text(src, _spoiled(rng, (2, inside, *size))),
        "weights": _text(weights, _spoiled(rng, (outside, inside, *kernel))),
        **_bias(rng, (outside,)),
        "dst": _text(dst, (2, outside, *size)),
    }


def _deconvolution(rng: Generator) -> dict[str, Any]:
    return _convolution(rng, transposed=True)


def _inner_product(rng: Generator) -> dict[str, Any]:
    inside = tuple(_one(rng, (1, 2, 3, 5)) for _ in range(_one(rng, (1, 1, 2, 3))))
    rows, columns = _one(rng, (1, 2, 4)), _one(rng, (1, 3, 8))
    src, weights, dst = _factors(rng)
    return {
        "src": _text(src, _spoiled(rng, (rows, *inside))),
        "weights": _text(weights, _spoiled(rng, (columns, *inside))),
        **_bias(rng, (columns,)),
        "dst": _text(dst, _spoiled(rng, (rows, columns))),
    }


def _matmul(rng: Generator) -> dict[str, Any]:
    m, k, n = (_one(rng, (1, 2, 3, 8)) for _ in range(3))
    batch = tuple(_one(rng, (1, 2, 3)) for _ in range(_one(rng, (0, 0, 1, 2, 4))))
    shared = tuple(1 if _chance(rng, 0.3) else size for size in batch)
    src, weights, dst = _factors(rng)
    bias = (*(1 for _ in batch), 1, n)
    if _chance(rng, 0.2):
        bias = tuple(_one(rng, (1, size)) for size in (*batch, m, n))
    return {
        "src": _text(src, _spoiled(rng, (*batch, m, k))),
        "weights": _text(weights, _spoiled(rng, (*shared, k, n))),
        **_bias(rng, bias),
        "dst": _text(dst, _spoiled(rng, (*batch, m, n))),
    }


def _shape(rng: Generator, least: int = 1, most: int = 6) -> tuple[int, ...]:
    """Sizes, of which now and then one is 0."""
    rank = int(rng.integers(least, most + 1))
    shape = [_one(rng, (1, 2, 3, 4, 5)) for _ in range(rank)]
    if _chance(rng, 0.04):
        shape[int(rng.integers(rank))] = 0
    return tuple(shape)


def _eltwise(rng: Generator) -> dict[str, Any]:
    shape, dtype = _shape(rng), _one(rng, ("f32", *TYPES))
    algorithm, alpha, beta = _eltwise_words(rng)
    return {
        "src": _text(dtype, shape),
        "dst": _text(dtype if _chance(rng, 0.9) else _one(rng, TYPES), _spoiled(rng, shape)),
        "algorithm": algorithm,
        "alpha": alpha,
        "beta": beta,
    }


def _eltwise_words(rng: Generator) -> tuple[str, float, float]:
    algorithm = _one(rng, EXACT) if _chance(rng, 0.8) else _one(rng, INEXACT)
    alpha, beta = _one(rng, (0.0, 0.5, 1.0, -2.0)), _one(rng, (0.0, 1.0, 4.0))
    return algorithm, alpha if algorithm != "soft_relu" else 1.0, beta


def _binary(rng: Generator) -> dict[str, Any]:
    shape = _shape(rng)
    first, second = (
        tuple(1 if _chance(rng, 0.2) else size for size in shape) if _chance(rng, 0.4) else shape
        for _ in range(2)
    )
    return {
        "src_0": _text(_one(rng, TYPES), first),
        "src_1": _text(_one(rng, TYPES), second),
        "dst": _text(_one(rng, TYPES), _spoiled(rng, tuple(map(max, first, second)))),
        "algorithm": _one(rng, ("add", "mul", "sub", "max", "min", "div", "ge", "lt", "eq", "ne")),
    }


def _reorder(rng: Generator) -> dict[str, Any]:
    shape = _shape(rng)
    return {
        "src": _text(_one(rng, TYPES), shape),
        "dst": _text(_one(rng, TYPES), _spoiled(rng, shape)),
    }


def _sum(rng: Generator) -> dict[str, Any]:
    shape, count = _shape(rng), _one(rng, (1, 2, 3, 5))
    dtype = _one(rng, TYPES)
    sources = {
        f"src_{i}": _text(dtype if _chance(rng, 0.9) else _one(rng, TYPES), _spoiled(rng, shape))
        for i in range(count)
    }
    scales = tuple(_one(rng, DYADIC) for _ in range(count))
    return {**sources, "dst": _text(_one(rng, (dtype, *TYPES)), shape), "scales": scales}


def _concat(rng: Generator) -> dict[str, Any]:
    shape, dtype = list(_shape(rng)), _one(rng, TYPES)
    axis = int(rng.integers(len(shape)))
    sizes = [_one(rng, (1, 2, 3)) for _ in range(_one(rng, (1, 2, 3)))]
    sizes = [0 if _chance(rng, 0.05) else size for size in sizes]
    sources = {}
    for index, size in enumerate(sizes):
        shape[axis] = size
        own = dtype if _chance(rng, 0.95) else _one(rng, TYPES)
        sources[f"src_{index}"] = _text(own, _spoiled(rng, shape))
    shape[axis] = sum(sizes)
    dst = _text(_one(rng, (dtype, *TYPES)), _spoiled(rng, shape))
    return {**sources, "dst": dst, "axis": axis}


def _pooling(rng: Generator) -> dict[str, Any]:
    spatial = _one(rng, (1, 2, 2, 3))
    window = _window(rng, spatial)
    kernel = tuple(_one(rng, (1, 2, 2, 3, 3, 5, 7)) for _ in range(spatial))
    out = tuple(_one(rng, (1, 2, 3)) for _ in range(spatial))
    whole = tuple(
        max((n - 1) * s + (k - 1) * (d + 1) + 1 - b - e, 1)
        for n, k, s, d, b, e in zip(out, kernel, *window.values(), strict=True)
    )
    dtype, outer = _one(rng, TYPES), (_one(rng, (1, 2)), _one(rng, (1, 3, 16)))
    return {
        "src": _text(dtype, _of_any_rank(rng, (*outer, *whole))),
        "dst": _text(dtype if _chance(rng, 0.9) else _one(rng, TYPES), (*outer, *out)),
        "algorithm": _one(rng, ("max", "avg_include_padding", "avg_exclude_padding")),
        "kernel": kernel,
        **window,
    }


def _reduction(rng: Generator) -> dict[str, Any]:
    shape = _shape(rng)
    if _chance(rng, 0.5):
        kept = int(rng.integers(len(shape)))
        out = (*shape[:kept], *(1 for _ in shape[kept:]))
    else:
        out = tuple(_one(rng, (1, size)) for size in shape)
    return {
        "src": _text(_one(rng, TYPES), shape),
        "dst": _text(_one(rng, TYPES), _spoiled(rng, out)),
        "algorithm": _one(rng, ("max", "min", "sum", "mul", "mean")),
    }


def _resampling(rng: Generator) -> dict[str, Any]:
    shape = _shape(rng, 3, 5)
    out = (*shape[:2], *(_one(rng, (size, 2 * size, size + 1)) for size in shape[2:]))
    return {
        "src": _text(_one(rng, TYPES), shape),
        "dst": _text(_one(rng, TYPES), _spoiled(rng, out)),
        "algorithm": _one(rng, ("nearest", "linear")),
    }


def _softmax(rng: Generator) -> dict[str, Any]:
    shape = _shape(rng)
    return {
        "src": _text(_one(rng, TYPES), shape),
        "dst": _text(_one(rng, TYPES), _spoiled(rng, shape)),
        "algorithm": _one(rng, ("accurate", "log")),
        "axis": int(rng.integers(len(shape) + (1 if _chance(rng, 0.05) else 0))),
    }


def _parameter(rng: Generator, size: int) -> str:
    """Of a normalization: f32, one number for each channel, or now and then what it may not be."""
    sound = _chance(rng, 0.97)
    return f"f32[{size}]" if sound else _text(_one(rng, TYPES), _spoiled(rng, (size,)))


def _layer_normalization(rng: Generator) -> dict[str, Any]:
    shape = _shape(rng, 1 if _chance(rng, 0.1) else 2)
    flags = {role: _parameter(rng, shape[-1]) for role in ("scale", "shift") if _chance(rng, 0.5)}
    types = _one(rng, TYPES), _one(rng, TYPES)
    return {"src": _text(types[0], shape), "dst": _text(types[1], shape), **flags}


def _batch_normalization(rng: Generator) -> dict[str, Any]:
    shape, dtype = _shape(rng, 2), _one(rng, ("f32", "f32", "s8", *TYPES))
    roles = [role for role in ("scale", "shift") if _chance(rng, 0.5)]
    roles += ["mean", "variance"] if _chance(rng, 0.7) else []
    flags = {role: _parameter(rng, shape[1]) for role in roles}
    dst = dtype if _chance(rng, 0.9) else _one(rng, TYPES)
    return {"src": _text(dtype, shape), "dst": _text(dst, _spoiled(rng, shape)), **flags}


def _lrn(rng: Generator) -> dict[str, Any]:
    shape, dtype = _shape(rng, 2), "f32" if _chance(rng, 0.8) else _one(rng, TYPES)
    return {
        "src": _text(dtype, shape),
        "dst": _text(dtype, _spoiled(rng, shape)),
        "local_size": _one(rng, (0, 1, 2, 3, 5)),
        "alpha": 0.5,
    }


def _shuffle(rng: Generator) -> dict[str, Any]:
    shape, dtype = list(_shape(rng)), _one(rng, TYPES)
    axis, size, groups = int(rng.integers(len(shape))), _one(rng, (1, 2, 3)), _one(rng, (1, 2, 4))
    shape[axis] = size * groups
    dst = dtype if _chance(rng, 0.9) else _one(rng, TYPES)
    return {
        "src": _text(dtype, shape),
        "dst": _text(dst, _spoiled(rng, shape)),
        "axis": axis,
        "group_size": size if _chance(rng, 0.95) else 5,
    }


def _prelu(rng: Generator) -> dict[str, Any]:
    shape, dtype = _shape(rng), _one(rng, TYPES)
    slopes = tuple(1 if _chance(rng, 0.4) else size for size in shape)
    return {
        "src": _text(dtype, shape),
        "weights": _text(_one(rng, (dtype, *TYPES)), _spoiled(rng, slopes)),
        "dst": _text(dtype if _chance(rng, 0.9) else _one(rng, TYPES), shape),
    }


MAKERS: dict[str, Callable[[Generator], dict[str, Any]]] = {
    "convolution": _convolution,
    "deconvolution": _deconvolution,
    "inner_product": _inner_product,
    "matmul": _matmul,
    "eltwise": _eltwise,
    "binary": _binary,
    "reorder": _reorder,
    "sum": _sum,
    "concat": _concat,
    "pooling": _pooling,
    "reduction": _reduction,
    "resampling": _resampling,
    "softmax": _softmax,
    "layer_normalization": _layer_normalization,
    "batch_normalization": _batch_normalization,
    "lrn": _lrn,
    "shuffle": _shuffle,
    "prelu": _prelu,
}

# -- attributes ------------------------------------------------------------------------------------


_STRAY = ("src", "weights", "dst", "src_1", "bias", "src_7", "src_x", "operand 0", "nothing")
"""Names that scales and zero points are of, which the primitive may lack."""


def _attributes(
    rng: Generator, kind: str, given: dict[str, Any]
) -> tuple[PrimitiveAttr, dict[str, str]]:
    roles = [role for role in given if role.startswith(("src", "weights", "bias", "dst"))]
    scales, zeros = {}, {}
    if _chance(rng, 0.03):
        stray = _one(rng, _STRAY)
        if _chance(rng, 0.7):
            scales[stray] = Scale((), int(_one(rng, (0, 0, 1, 2))))
        else:
            zeros[stray] = ZeroPoint((), int(_one(rng, (0, 0, 2))))
    for role in roles:
        if _chance(rng, 0.3 if role != "bias" else 0.02):
            scales[role] = Scale((), _mask(rng, _dims(given[role]), role))
        if _chance(rng, 0.12 if role not in ("weights", "bias") else 0.04):
            zeros[role] = ZeroPoint((), _mask(rng, _dims(given[role]), role))
    if _chance(rng, 0.5):  # many take none
        scales = {} if _chance(rng, 0.5) else scales
        zeros = {}
    if kind.endswith("convolution") and _dims(given["weights"])[-1] >= _WIDE and _chance(rng, 0.8):
        scales, zeros = {}, {"src": ZeroPoint(())}
    post_ops, operands = _post_ops(rng, kind, given)
    return PrimitiveAttr(scales, zeros, post_ops), operands


def _mask(rng: Generator, dims: Sequence[int], role: str) -> int:
    if _chance(rng, 0.6):
        return 0
    if role == "weights" and _chance(rng, 0.7):
        return int(_one(rng, (1, 3, 1 << (len(dims) - 1))))
    if _chance(rng, 0.02):
        return int(_one(rng, (-1, 1 << len(dims), 1 | 1 << (len(dims) + 1))))
    return int(_one(rng, (1, 2, 3, 4, 5, 6)) & ((1 << len(dims)) - 1))


def _post_ops(
    rng: Generator, kind: str, given: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, str]]:
    chain: list[Any] = []
    operands: dict[str, str] = {}
    dims = _dims(given["dst"])
    dtype = given["dst"][: given["dst"].index("[")]
    few = kind in (
        "batch_normalization",
        "sum",
        "concat",
        "shuffle",
        "lrn",
        "prelu",
        "layer_normalization",
        "reorder",
    )
    plain = kind == "convolution" and "strides" not in given
    for index in range(_one(rng, (0, 0, 0, 1)) if few else _one(rng, (0, 1, 1, 2, 3))):
        alone = not any(isinstance(op, DepthwiseConv) for op in chain)
        if alone and _chance(rng, 0.5 if plain else 0.05):
            op, words = _depthwise(rng, index, kind == "convolution", dims, dtype)
            chain.append(op)
            operands |= words
            dims = _dims(words["dst"]) if "dst" in words and _chance(rng, 0.97) else dims
            continue
        what = rng.random()
        if kind == "reorder" and what < 0.7:
            what = 0.6
        if kind == "batch_normalization" and what < 0.5:
            chain.append(Eltwise("relu"))
        elif what < 0.45:
            chain.append(Eltwise(*_eltwise_words(rng)))
        elif what < 0.65:
            chain.append(_sum_of(rng, dtype))
        elif what < 0.85:
            name = f"operand {index}"
            operands[name] = _text(_one(rng, ("f32", *TYPES)), _operand(rng, dims))
            chain.append(Binary(_one(rng, ("add", "mul", "max", "min", "sub", "lt")), name))
        else:
            name = f"operand {index}"
            shape = tuple(1 if _chance(rng, 0.5) else size for size in dims)
            operands[name] = _text("f32", shape)
            chain.append(Prelu(name, sum(1 << i for i, size in enumerate(shape) if size > 1)))
    rounded = kind in _ROUNDED or given.get("algorithm") in _DIVIDED | {*INEXACT}
    return tuple(_steady(chain, dtype, rounded=rounded)), operands


def _steady(chain: Sequence[Any], dtype: str, *, rounded: bool) -> list[Any]:
    """Without what is each implementation's own: an integer of NaN, which an exponential in front
    of other post-ops leads to, and a comparison of what was rounded.
    """
    found = list(chain)
    for at, op in enumerate(chain):
        if isinstance(op, Eltwise) and op.algorithm in INEXACT:
            rounded = True
            if op.algorithm == "exp" and dtype != "f32" and op is not chain[-1]:
                found[at] = replace(op, algorithm="logistic")
        if isinstance(op, Binary) and op.algorithm == "lt" and rounded:
            found[at] = replace(op, algorithm="max")
    return found


_SMALL_WINDOWS = (
    *((3, 1, 1), (3, 1, 1), (3, 2, 1), (3, 3, 0), (1, 1, 0)),
    *((2, 1, 0), (5, 1, 2), (5, 2, 1)),
)
"""Kernel, stride and padding of a depthwise post-op."""


def _depthwise(
    rng: Generator, index: int, fused: bool, dims: Sequence[int], dtype: str
) -> tuple[DepthwiseConv, dict[str, str]]:
    """The post-op, its operands, and what it makes the destination of a convolution."""
    kernel, stride, padding = _one(rng, _SMALL_WINDOWS)
    weights = _one(rng, ("s8", "s8", "f32"))
    between = DType(_one(rng, ("u8", "s8")) if weights == "s8" else "f32")
    if _chance(rng, 0.1):
        between = DType(_one(rng, TYPES))
    op = DepthwiseConv(
        f"weights {index}",
        f"bias {index}" if _chance(rng, 0.5) else "",
        kernel,
        stride,
        padding,
        DType(weights),
        DType(dtype),
        Scale((), int(_one(rng, (0, 1)))) if _chance(rng, 0.5) else Scale((1.0,)),
        Scale(()) if _chance(rng, 0.5) else Scale((1.0,)),
        between,
    )
    channels = dims[1] if len(dims) > 1 else 1
    shape = (channels, 1, kernel, kernel)
    words = {op.weights: _text(weights, shape if _chance(rng, 0.97) else (channels, 1, *shape[1:]))}
    if op.bias:
        words[op.bias] = _text("f32", (channels,))
    if fused and len(dims) == 4:
        behind = tuple(-(-size // stride) for size in dims[2:])
        words["dst"] = _text(dtype, (*dims[:2], *behind))
    return op, words


def _operand(rng: Generator, dims: Sequence[int]) -> tuple[int, ...]:
    if _chance(rng, 0.3):
        return tuple(dims)
    if _chance(rng, 0.5):
        return tuple(size if axis == 1 else 1 for axis, size in enumerate(dims))
    return _spoiled(rng, tuple(_one(rng, (1, size)) for size in dims))


def _sum_of(rng: Generator, dtype: str) -> Sum:
    scale = _one(rng, DYADIC)
    zero = 0 if _chance(rng, 0.8) else 3
    read = None if _chance(rng, 0.7) else DType(_one(rng, (dtype, *TYPES)))
    return Sum("old", scale, zero, read)


# -- both engines ----------------------------------------------------------------------------------


def made(drawn: Drawn, engine: str, target: str = "onednn-v3") -> Primitive | OneDnnError:
    """The primitive, or how it is refused."""
    try:
        isa = emulated() if engine == "numpy" else None
        return prim(drawn.kind, drawn.attr, engine=engine, isa=isa, target=target, **drawn.given)
    except OneDnnError as error:
        return error


def _misnamed(drawn: Drawn, engine: str) -> bool:
    """Whether it is told that this is not what the primitive reads or writes."""
    try:
        made(drawn, engine)
    except InvalidInput:
        return True
    return False


def _counted(drawn: Drawn) -> bool:
    """Whether a sum with one scale more, or one less, is refused."""
    scales = drawn.given["scales"]
    others = [
        replace(drawn, given={**drawn.given, "scales": more})
        for more in (scales[1:], (*scales, 1.0))
    ]
    return all(_misnamed(other, engine) for other in others for engine in ("numpy", "onednn"))


def _unfit(what: Description) -> bool:
    """Whether another type or size was given than that of which the library is told none."""
    try:
        check_untold(what)
    except InvalidInput:
        return True
    return False


def arguments(primitive: Primitive, seed: int) -> dict[str, Array]:
    """Small integers, and scales that are powers of two."""
    rng, found = np.random.default_rng((seed, 1)), dict[str, Array]()
    what = primitive.description
    for name, type_ in {**what.tensors, **what.operands}.items():
        low, high = (0, 8) if type_.dtype is DType.U8 else (-6, 7)
        if name == "variance" or (name == "src_1" and what.params.get("algorithm") == "div"):
            low = 1
        if name != "dst":
            found[name] = rng.integers(low, high, type_.static_shape).astype(type_.dtype.numpy)
    for name, count, dtype in at_execution(what):
        values = rng.choice(DYADIC, count) if dtype is np.float32 else rng.integers(-3, 4, count)
        found[name] = values.astype(dtype)
    return found


def has_halves(drawn: Drawn) -> bool:
    """Whether a tensor is of floats of 16 bits."""
    return "f16" in f"{drawn.given} {drawn.attr}"


def halves_are_known(library: Library) -> bool:
    """Whether the CPU is one whose rules about them are ours: with AVX512-BF16, without
    AVX512-FP16.
    """
    isa = int(library.effective_isa())
    return isa & CpuIsa.avx512_core_fp16 == CpuIsa.avx512_core_bf16 | (isa & 0x8)


def statuses(drawn: Drawn, engine: Engine) -> tuple[Description, int, int]:
    """The description, the status that our rules give, and the library's own; of what it cannot be asked
    for, that of `prim` with the library.
    """
    what = described(drawn.kind, drawn.given, drawn.attr, "onednn-v3")
    found = refusal(what)
    if not on_library.can_be_asked_for(what):
        refused = made(drawn, "onednn")
        return what, 0 if found is None else int(found[0]), int(getattr(refused, "status", 0))
    try:
        on_library.descriptor(engine, what)
        theirs = 0
    except OneDnnError as error:
        theirs = int(error.status)
    return what, 0 if found is None else int(found[0]), theirs


def contradict(ours: int, theirs: int) -> bool:
    """Whether one of them takes, or calls a matter of capability, what the other one calls malformed; the
    library may say first that it has no implementation.
    """
    malformed = int(Status.invalid_arguments)
    return theirs == malformed != ours or (ours == malformed and not theirs)


def complaint(
    seed: int, engine: Engine, kind: str | None = None, seen: Counter[str] | None = None
) -> str:
    """What the engines do not agree on; '' where they do."""
    drawn, seen = draw(seed, kind), Counter() if seen is None else seen
    if has_halves(drawn) and not halves_are_known(engine.library):
        return ""
    told = f"{seed}: {drawn}"
    if drawn.kind == "sum" and not _counted(drawn):
        return f"{told}\n  with another number of scales"
    what, ours, theirs = statuses(drawn, engine)
    seen[f"status {theirs}"] += 1
    if not theirs and next(stray_masks(what), None) is not None:
        refused = [getattr(made(drawn, engine), "status", None) for engine in ("numpy", "onednn")]
        return "" if refused == [Status.invalid_arguments] * 2 else f"{told}\n  {refused}"
    if contradict(ours, theirs):
        return f"{told}\n  statuses {ours} and {theirs}, {refusal(what)}"
    if not theirs and not _unfit(what) and neglected(what) is not None:
        seen["neglected"] += 1
        refused = [getattr(made(drawn, engine), "status", None) for engine in ("numpy", "onednn")]
        return "" if refused == [Status.unimplemented] * 2 else f"{told}\n  {refused}"
    if ours or theirs:
        seen["the library's alone"] += not theirs
        seen["NumPy's alone"] += not ours
        return ""
    if _unfit(what):
        seen["unfit"] += 1
        return "" if all(_misnamed(drawn, engine) for engine in ("numpy", "onednn")) else told
    found = [made(drawn, engine) for engine in ("numpy", "onednn")]
    if isinstance(found[1], OneDnnError) and not isinstance(found[0], OneDnnError):
        seen["no implementation that computes it right"] += 1
        return ""
    first, second = found
    if isinstance(first, OneDnnError) or isinstance(second, OneDnnError):
        return f"{told}\n  {found}"
    args = arguments(first, seed)
    return _differs(drawn, first.execute(args), second.execute(args), f"{told} {second.impl_info}")


def in_scheme(drawn: Drawn, target: str, seed: int) -> Drawn:
    """The same primitive with attributes of another scheme, whose values come at execution."""
    rng, attr = np.random.default_rng((seed, 2)), drawn.attr
    if target == "onednn-v2":
        masks = (0, 2, 1 << (len(_dims(drawn.given["dst"])) - 1))
        output = Scale((), int(_one(rng, masks))) if attr.scales or _chance(rng, 0.3) else None
        post_ops = tuple(
            replace(op, scale=float(_one(rng, DYADIC))) if isinstance(op, Eltwise) else op
            for op in attr.post_ops
        )
        return replace(drawn, attr=PrimitiveAttr({}, attr.zero_points, post_ops, output))
    if drawn.kind == "sum":
        given = {name: word for name, word in drawn.given.items() if name != "scales"}
        scales = {role: Scale(()) for role in given if role.startswith("src_")}
        return replace(drawn, attr=replace(attr, scales=scales), given=given)
    return drawn


def scheme_complaint(seed: int, target: str, seen: Counter[str]) -> str:
    """What of another scheme is not the same on the library, which gets it in the words of its own, or
    refuses; '' where it is.
    """
    drawn = in_scheme(draw(seed), target, seed)
    if has_halves(drawn):
        return ""
    told = f"{seed} on {target}: {drawn}"
    try:
        ours, theirs = (made(drawn, engine, target) for engine in ("numpy", "onednn"))
    except InvalidInput as error:
        # of the old scheme a bias runs along the columns
        return "" if "in the accumulator's units" in str(error) else f"{told}\n  {error}"
    if isinstance(ours, OneDnnError):
        seen["refused"] += 1
        same = isinstance(theirs, OneDnnError) and theirs.status == ours.status
        return "" if same else f"{told}\n  {ours} and {theirs}"
    if isinstance(theirs, OneDnnError):
        seen["NumPy's alone"] += 1
        return "" if theirs.status is Status.unimplemented else f"{told}\n  NumPy's, and {theirs}"
    seen["made"] += 1
    for run in range(2):  # with other values, too
        args = arguments(ours, seed + run)
        found = ours.execute(args), theirs.execute(args)
        differs = _differs(drawn, *found, f"{told} {theirs.impl_info}, run {run}")
        if differs:
            return differs
    return ""


def _differs(drawn: Drawn, ours: Array, theirs: Array, told: str) -> str:
    """Exact integers stay exact; one code apart, or a few units in the last place, what went through
    a division or a polynomial.
    """
    if (ours.shape, ours.dtype) != (theirs.shape, theirs.dtype):
        return f"{told}\n  {ours.dtype}{ours.shape} and {theirs.dtype}{theirs.shape}"
    with np.errstate(all="ignore"):
        wide, other = ours.astype(np.float64), theirs.astype(np.float64)
        # of floats of 16 bits one unit in the last place
        part = next(
            (part for half, part in _UNITS.items() if drawn.given["dst"].startswith(half)), 1e-4
        )
        near = np.abs(wide - other) <= (0 if _exact(drawn) else part * (1 + np.abs(other)))
        if not _exact(drawn) and ours.dtype.kind in "iu":
            near |= np.abs(wide - other) <= 1 + 1e-5 * np.abs(other)
        near |= (wide == other) | (np.isnan(wide) & np.isnan(other))
        if drawn.kind in _SUMS_OF_PRODUCTS and not drawn.attr.post_ops:
            near &= np.signbit(wide) == np.signbit(other)  # of zeros
    if near.all():
        return ""
    at = tuple(int(i) for i in np.argwhere(~near)[0])
    return f"{told}\n  {(~near).sum()} of {near.size} differ, at {at}: {ours[at]} and {theirs[at]}"


_SUMS_OF_PRODUCTS = ("convolution", "deconvolution", "inner_product", "matmul")
_UNITS = {"bf16": 2.0**-7, "f16": 2.0**-10}
_DIVIDED = {"div", "mean", "avg_include_padding", "avg_exclude_padding"}
_ROUNDED = ("softmax", "layer_normalization", "batch_normalization", "lrn", "resampling")


def _exact(drawn: Drawn) -> bool:
    words = {drawn.given.get("algorithm")} | {
        op.algorithm for op in drawn.attr.post_ops if isinstance(op, Eltwise | Binary)
    }
    inexact = _DIVIDED | {*INEXACT}
    if drawn.kind == "pooling" and not drawn.attr.post_ops:
        return True  # one division of an exact sum
    if drawn.kind == "reduction" and drawn.given["algorithm"] == "mul":
        return False  # factors in f32, in whatever order
    return drawn.kind not in _ROUNDED and not words & inexact


def main(first: int, count: int, kinds: Sequence[str]) -> None:
    """Prints what differs."""
    seen: Counter[str] = Counter()
    engine = Engine(load())
    for seed in range(first, first + count):
        kind = kinds[seed % len(kinds)] if kinds else None
        try:
            found = complaint(seed, engine, kind, seen)
        except Exception as error:  # noqa: BLE001  # for a person at a terminal
            found = f"{seed} {draw(seed, kind)}: {type(error).__name__} {error}"
        if found:
            print(found)
    print(f"{count} primitives, {dict(seen)}")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:] or tuple(MAKERS))
