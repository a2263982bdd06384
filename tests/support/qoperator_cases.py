"""Random nodes of the QOperator form: codes, scales and zero points of every operand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.random import Generator
from support.contrib_cases import MICROSOFT, Case, Draw, chosen, floats, given, maybe, number, sizes

_KINDS = (np.uint8, np.int8)
_LARGEST = 5


def _codes(rng: Generator, kind: Any, shape: Sequence[int]) -> Any:
    limits = np.iinfo(kind)
    return rng.integers(limits.min, limits.max + 1, shape).astype(kind)


def _scale(rng: Generator, low: float = 0.005, high: float = 0.05) -> Any:
    return np.asarray(number(rng, low, high), np.float32)


def _read(rng: Generator, name: str, kind: Any, shape: Sequence[int]) -> dict[str, Any]:
    """Codes with their scale and zero point."""
    return {name: _codes(rng, kind, shape), **_written(rng, name, kind)}


def _written(
    rng: Generator, name: str, kind: Any, low: float = 0.005, high: float = 0.05
) -> dict[str, Any]:
    return {f"{name}_s": _scale(rng, low, high), f"{name}_z": _codes(rng, kind, ())}


def _case(
    op: str,
    inputs: dict[str, Any],
    attrs: dict[str, Any] | None = None,
    also: str = "",
    **more: Any,
) -> Case:
    """Scales and zero points are constant, and the inputs of the names in `also`."""
    fixed = {name for name in inputs if name.endswith(("_s", "_z"))} | set(also.split())
    return Case(op, inputs, attrs or {}, frozenset(fixed), **more)


def _shape(rng: Generator) -> list[int]:
    """Of 0 to 4 dimensions, now and then of no elements."""
    found = sizes(rng, int(rng.integers(5)), _LARGEST)
    return [0 if rng.random() < 0.02 else size for size in found]


def _broadcast(rng: Generator, shape: Sequence[int]) -> list[int]:
    found = [1 if rng.random() < 0.25 else size for size in shape]
    return found[int(rng.integers(len(found) + 1)) :] if rng.random() < 0.3 else found


def _elementwise(op: str) -> Draw:
    def draw(rng: Generator) -> Case:
        kind, shape = chosen(rng, *_KINDS), _shape(rng)
        inputs = _read(rng, "a", kind, _broadcast(rng, shape))
        inputs |= _read(rng, "b", kind, _broadcast(rng, shape)) | _written(rng, "y", kind, high=0.2)
        return _case(op, inputs)

    return draw


def _pointwise(op: str, **attrs: float) -> Draw:
    def draw(rng: Generator) -> Case:
        kind = chosen(rng, *_KINDS)
        return _case(
            op, _read(rng, "x", kind, _shape(rng)) | _written(rng, "y", kind), given(rng, attrs)
        )

    return draw


def _softmax(rng: Generator) -> Case:
    kind, shape = chosen(rng, *_KINDS), [*_shape(rng), *sizes(rng, 1)]
    inputs = _read(rng, "x", kind, shape) | _written(rng, "y", kind, 0.003, 0.02)
    axis = given(rng, {"axis": int(rng.integers(-len(shape), len(shape)))})
    return _case("QLinearSoftmax", inputs, {"opset": int(rng.integers(1, 23)), **axis})


def _images(rng: Generator, attrs: Mapping[str, int]) -> tuple[Any, list[int]]:
    """Codes [N, C, spatial], or [N, spatial, C], and the spatial sizes."""
    n, c = sizes(rng, 2, 4)
    spatial = [int(size) for size in rng.integers(3, 8, chosen(rng, 1, 2, 2, 3))]
    return [n, *spatial, c] if attrs.get("channels_last") else [n, c, *spatial], spatial


def _global_pool(rng: Generator) -> Case:
    kind, attrs = chosen(rng, *_KINDS), given(rng, {"channels_last": int(rng.integers(2))})
    shape, _ = _images(rng, attrs)
    inputs = _read(rng, "x", kind, shape) | _written(rng, "y", kind)
    return _case("QLinearGlobalAveragePool", inputs, attrs)


def _pool(rng: Generator) -> Case:
    kind, attrs = chosen(rng, *_KINDS), given(rng, {"channels_last": int(rng.integers(2))})
    shape, spatial = _images(rng, attrs)
    kernel = [int(size) for size in rng.integers(1, 4, len(spatial))]
    attrs |= {"kernel_shape": kernel}
    attrs |= given(
        rng, {"ceil_mode": int(rng.integers(2)), "count_include_pad": int(rng.integers(2))}
    )
    strides = sizes(rng, len(spatial), 4)
    if (
        rng.random() < 0.3
    ):  # with larger strides than kernels ONNX Runtime crops as no one else does
        strides = [min(pair) for pair in zip(strides, kernel, strict=True)]
        attrs["auto_pad"] = chosen(rng, "SAME_UPPER", "SAME_LOWER", "VALID")
    elif rng.random() < 0.6:
        attrs["pads"] = [int(rng.integers(size)) for size in kernel * 2]
    attrs["strides"] = strides
    return _case(
        "QLinearAveragePool", _read(rng, "x", kind, shape) | _written(rng, "y", kind), attrs
    )


def _concat(rng: Generator) -> Case:
    kind, shape = chosen(rng, *_KINDS), [*_shape(rng), *sizes(rng, 1)]
    axis = int(rng.integers(-len(shape), len(shape)))
    inputs = _written(rng, "y", kind)
    for index in range(int(rng.integers(1, 4))):
        shape[axis] = sizes(rng, 1)[0]
        inputs |= _read(rng, f"x{index}", kind, shape)
    return _case("QLinearConcat", inputs, {"axis": axis})


def _where(rng: Generator) -> Case:
    kind, shape = chosen(rng, *_KINDS), _shape(rng)
    inputs = {"c": rng.random(_broadcast(rng, shape)) < 0.5}
    for name in "ab":
        inputs |= _read(rng, name, kind, _broadcast(rng, shape))
    return _case("QLinearWhere", inputs | _written(rng, "y", kind))


# -- products --------------------------------------------------------------------------------------


def _weights(rng: Generator, kind: Any, shape: Sequence[int], columns: int) -> dict[str, Any]:
    """Weights with one scale, or one for each of their columns."""
    several = columns > 1 and rng.random() < 0.5
    count = (columns,) if several else ()
    zero = np.zeros(count, kind) if several else _codes(rng, kind, ())
    scale = rng.uniform(0.005, 0.03, count).astype(np.float32)
    return {"w": _codes(rng, kind, shape), "w_s": scale, "w_z": zero}


def _kinds(rng: Generator) -> tuple[Any, Any]:
    """Of source and weights, as ONNX Runtime has kernels for them."""
    return chosen(rng, (np.uint8, np.uint8), (np.uint8, np.int8), (np.int8, np.int8))


def _convolution(rng: Generator, domain: str = MICROSOFT) -> Case:
    kind, weights = _kinds(rng)
    last = {"channels_last": int(rng.integers(2))} if domain else {}
    attrs = {**last, "group": chosen(rng, 1, 1, 2, 3)}
    shape, spatial = _images(rng, attrs)
    per, rows = sizes(rng, 1, 4)[0], attrs["group"] * sizes(rng, 1, 4)[0]
    shape[-1 if attrs.get("channels_last") else 1] = per * attrs["group"]
    kernel = [int(size) for size in rng.integers(1, 4, len(spatial))]
    more: dict[str, Any] = {"strides": sizes(rng, len(spatial), 3), "kernel_shape": kernel}
    attrs |= given(rng, more)
    if rng.random() < 0.3:
        attrs["auto_pad"] = chosen(rng, "SAME_UPPER", "SAME_LOWER", "VALID")
    elif rng.random() < 0.6:
        attrs["pads"] = [int(rng.integers(3)) for _ in kernel * 2]
    inputs = _read(rng, "x", kind, shape)
    inputs |= _weights(rng, weights, (rows, per, *kernel), rows)
    if weights is np.int8:  # those of int8 have no zero points there
        inputs["w_z"] = np.zeros_like(inputs["w_z"])
    inputs |= _written(rng, "y", kind, 0.05, 0.3)
    inputs["bias"] = maybe(rng, rng.integers(-3000, 3000, rows).astype(np.int32))
    return _case("QLinearConv", inputs, attrs, "w bias", domain=domain)


def _matrix_product(rng: Generator) -> Case:
    kind, weights = _kinds(rng)
    m, k, n = sizes(rng, 3)
    batch = sizes(rng, int(rng.integers(3)), 4)
    flat = rng.random() < 0.6
    second = _weights(rng, weights, (k, n) if flat else (*batch, k, n), n if flat else 1)
    inputs = _read(rng, "a", kind, (*batch, m, k)) | second | _written(rng, "y", kind, 0.05, 0.2)
    return _case("QLinearMatMul", inputs, also="w", domain="")


def _gemm(rng: Generator) -> Case:
    kind, weights = _kinds(rng)
    m, k, n = sizes(rng, 3)
    attrs: dict[str, Any] = {"transA": int(rng.integers(2)), "transB": int(rng.integers(2))}
    attrs |= given(rng, {"alpha": number(rng, 0.2, 2)})
    inputs = _read(rng, "a", kind, (k, m) if attrs["transA"] else (m, k))
    inputs |= _weights(rng, weights, (n, k) if attrs["transB"] else (k, n), n)
    shape = chosen(rng, None, (n,), (m, n), (m, 1), (1, n), (), (1,))
    inputs["c"] = None if shape is None else rng.integers(-3000, 3000, shape).astype(np.int32)
    if rng.random() < 0.7:
        inputs |= _written(rng, "y", kind, 0.05, 0.2)
    return _case("QGemm", inputs, attrs, "w c", scale=5.0)


def _to_float(rng: Generator) -> Case:
    m, k, n = sizes(rng, 3)
    kind = chosen(rng, *_KINDS)
    right = _weights(rng, kind, (k, n), n)
    left = _read(rng, "a", np.uint8, (*sizes(rng, int(rng.integers(3)), 4), m, k))
    order = ("a", "w", "a_s", "w_s", "a_z", "w_z")
    inputs = {name: (left | right)[name] for name in order}
    inputs["a_z"], inputs["w_z"] = (maybe(rng, inputs[name]) for name in ("a_z", "w_z"))
    inputs["bias"] = maybe(rng, floats(rng, n))
    return _case("MatMulIntegerToFloat", inputs, also="w bias", scale=5.0)


def _dynamic(rng: Generator) -> Case:
    m, k, n = sizes(rng, 3)
    right = _weights(rng, chosen(rng, *_KINDS), (k, n), n)
    inputs = {"a": floats(rng, *sizes(rng, int(rng.integers(3)), 4), m, k), **right}
    inputs["w_z"] = maybe(rng, inputs["w_z"])
    inputs["bias"] = maybe(rng, floats(rng, n))
    return _case("DynamicQuantizeMatMul", inputs, also="w bias", scale=5.0)


CODES: Mapping[str, Draw] = {
    "QLinearAdd": _elementwise("QLinearAdd"),
    "QLinearMul": _elementwise("QLinearMul"),
    "QLinearLeakyRelu": _pointwise("QLinearLeakyRelu", alpha=0.3),
    "QLinearSigmoid": _pointwise("QLinearSigmoid"),
    "QLinearSoftmax": _softmax,
    "QLinearAveragePool": _pool,
    "QLinearGlobalAveragePool": _global_pool,
    "QLinearConcat": _concat,
    "QLinearWhere": _where,
    "QLinearConv": _convolution,
    "ai.onnx.QLinearConv": lambda rng: _convolution(rng, ""),
    "ai.onnx.QLinearMatMul": _matrix_product,
    "QGemm": _gemm,
    "MatMulIntegerToFloat": _to_float,
    "DynamicQuantizeMatMul": _dynamic,
}
