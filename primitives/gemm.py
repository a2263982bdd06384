"""The products of matrices that oneDNN has as functions: `sgemm`, `gemm_u8s8s32`, `gemm_s8s8s32`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidInput
from ..onednn import gemm as library_gemm
from ..onednn.loading import load
from ..runtime.numerics import check_isa
from .gemm_on_numpy import Terms, product

Array = NDArray[Any]
_OFFSETS = ("F", "C", "R")


def sgemm(
    a: Array,
    b: Array,
    c: Array | None = None,
    *,
    trans_a: bool = False,
    trans_b: bool = False,
    alpha: float = 1.0,
    beta: float = 0.0,
    engine: str = "numpy",
) -> Array:
    """alpha * op(A) * op(B) + beta * C, in f32, with op(X) = X or its transpose.

    Args:
        a: f32 [m, k], or with `trans_a` [k, m].
        b: f32 [k, n], or with `trans_b` [n, k].
        c: f32 [m, n]; None: zeros.
        trans_a, trans_b: whether they are transposed.
        alpha, beta: factors.
        engine: `numpy` or `onednn`. Sums of f32 depend on their order, which is each one's own.

    Returns:
        f32 [m, n], a new array.

    Raises:
        InvalidInput: types, shapes or options do not fit.
        BackendUnavailable: there is no library.
    """
    left, right, out = _matrices((a, b), (np.float32, np.float32), c, (trans_a, trans_b))
    _check_engine(engine)
    if engine == "onednn":
        flags = _flags(trans_a, trans_b)
        library_gemm.sgemm(load(), flags, left, right, out, (alpha, beta))
        return out
    product = _op(left, trans_a) @ _op(right, trans_b)
    scaled = np.float32(alpha) * product
    # as the library: what C holds does not count where beta is 0, be it NaN
    return scaled + np.float32(beta) * out if beta else scaled


def gemm_u8s8s32(a: Array, b: Array, c: Array | None = None, **options: Any) -> Array:
    """alpha * (op(A) - ao) * (op(B) - bo) + beta * C + co, of u8 and s8.

    Sums of products are exact (modulo 2^32), of as much of the inner size as oneDNN's code for
    AVX-512 with VNNI takes at once: all up to 384. Where alpha is not 1, or beta neither 0 nor 1, the
    factors are applied to each such sum in f64, and what that gives is rounded, halves away from 0,
    and saturated; beta counts for the first one. co is added last, modulo 2^32.
    (Source: `gemm_driver.cpp` of oneDNN 3.2.0.) Without VNNI sums of two products saturate to 16
    bits, and more differs: `isa` tells NumPy to compute as there (docs/contributing/isa.md).

    Args:
        a: u8 [m, k], or with `trans_a` [k, m].
        b: s8 [k, n], or with `trans_b` [n, k].
        c: s32 [m, n]; None: zeros.
        options: `trans_a`, `trans_b`: whether they are transposed; `alpha`, `beta`: factors;
            `ao`, `bo`: offsets of the types of `a` and `b`; `co`: offsets of the result, s32, which
            `offsetc` tells how to apply: `F`, one for all; `C`, m of them, one for each row; `R`,
            n, one for each column; `engine`: `numpy` or `onednn`; `isa`: what NumPy emulates,
            `vnni` (as without it), `avx512_core`, `avx2` or `sse41`.

    Returns:
        s32 [m, n], a new array. Without products (a size is 0) it is C.

    Raises:
        InvalidInput: types, shapes or options do not fit.
        BackendUnavailable: there is no library.
    """
    return _integers((a, b), np.uint8, c, **options)


def gemm_s8s8s32(a: Array, b: Array, c: Array | None = None, **options: Any) -> Array:
    """The same of s8 and s8: see `gemm_u8s8s32`."""
    return _integers((a, b), np.int8, c, **options)


def _integers(
    factors: tuple[Array, Array],
    dtype: type,
    c: Array | None,
    *,
    trans_a: bool = False,
    trans_b: bool = False,
    alpha: float = 1.0,
    beta: float = 0.0,
    ao: int = 0,
    bo: int = 0,
    co: Array | None = None,
    offsetc: str = "F",
    engine: str = "numpy",
    isa: str | None = None,
) -> Array:
    left, right, out = _matrices(factors, (dtype, np.int8), c, (trans_a, trans_b), np.int32)
    _check_engine(engine)
    for name, value, of in (("ao", ao, left.dtype), ("bo", bo, right.dtype)):
        if not np.iinfo(of).min <= value <= np.iinfo(of).max:
            raise InvalidInput(f"{name} is {value}", hint=f"give a number of {of}")
    added = _result_offsets(co, offsetc, out.shape)
    check_isa(isa, engine)
    if engine == "onednn":
        flags = _flags(trans_a, trans_b) + offsetc.encode()
        library_gemm.integer_gemm(
            load(), flags, left, right, out, (alpha, beta), (ao, bo, added.reshape(-1))
        )
        return out
    turned = trans_a, trans_b
    terms = Terms(alpha, beta, ao, bo, added, turned, single=offsetc == "F")
    return product(_op(left, trans_a), _op(right, trans_b), out, terms, isa or "vnni")


def _result_offsets(co: Array | None, offsetc: str, shape: tuple[int, ...]) -> Array:
    """[1, 1], [m, 1] or [1, n]."""
    if offsetc not in _OFFSETS:
        raise InvalidInput(f"there is no offsetc {offsetc!r}", hint="choose of F, C, R")
    wanted = {"F": (1, 1), "C": (shape[0], 1), "R": (1, shape[1])}[offsetc]
    if co is None:
        return np.zeros(wanted, np.int32)
    found = np.asarray(co)
    if found.dtype != np.int32 or found.size != max(wanted):
        raise InvalidInput(
            f"co is {found.dtype}{list(found.shape)}",
            hint=f"offsetc={offsetc!r} takes int32[{max(wanted)}]",
        )
    return np.ascontiguousarray(found).reshape(wanted)


def _matrices(
    factors: tuple[Array, Array],
    types: tuple[type, type],
    c: Array | None,
    transposed: tuple[bool, bool],
    into: type = np.float32,
) -> tuple[Array, Array, Array]:
    """The factors row-major, and a copy of C."""
    for name, array, of in zip("ab", factors, types, strict=True):
        if np.ndim(array) != 2 or array.dtype != of:
            raise InvalidInput(
                f"{name} is {array.dtype}{list(array.shape)}",
                hint=f"give a matrix of {np.dtype(of)}",
            )
    left, right = (np.ascontiguousarray(array) for array in factors)
    (m, k), (inner, n) = (
        _op(array, turned).shape for array, turned in zip((left, right), transposed, strict=True)
    )
    out = np.zeros((m, n), into) if c is None else np.array(c, order="C", copy=True)
    if k != inner or out.shape != (m, n) or out.dtype != into:
        raise InvalidInput(
            f"[{m}, {k}] times [{inner}, {n}] into {out.dtype}{list(out.shape)}",
            hint="the inner sizes are one, and C has the outer ones",
        )
    return left, right, out


def _op(array: Array, transposed: bool) -> Array:
    return array.T if transposed else array


def _flags(*transposed: bool) -> bytes:
    return b"".join(b"T" if turned else b"N" for turned in transposed)


def _check_engine(engine: str) -> None:
    if engine not in ("numpy", "onednn"):
        raise InvalidInput(f"there is no engine {engine!r}", hint="choose numpy or onednn")
