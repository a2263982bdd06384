"""The library's products of matrices that are functions, without a primitive."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .capi import check
from .library import Library

_SIZE = ctypes.c_int64
_FLOAT, _FLAG, _POINTER = ctypes.c_float, ctypes.c_char, ctypes.c_void_p
_SGEMM = [_FLAG] * 2 + [_SIZE] * 3 + [_FLOAT, _POINTER, _SIZE, _POINTER, _SIZE, _FLOAT]
_INTEGERS = [_FLAG] * 3 + [_SIZE] * 3
_OFFSETS = {"u": ctypes.c_uint8, "i": ctypes.c_int8}


def sgemm(
    library: Library,
    flags: bytes,
    a: NDArray[Any],
    b: NDArray[Any],
    c: NDArray[Any],
    factors: tuple[float, float],
) -> None:
    """C = alpha * op(A) * op(B) + beta * C, in f32.

    Args:
        library: the library.
        flags: `N` or `T` for each of A and B.
        a, b, c: matrices, row-major; `c` [m, n] is written to.
        factors: alpha and beta.

    Raises:
        OneDnnError: the library refuses.
    """
    alpha, beta = factors
    function = _function(library, "dnnl_sgemm", [*_SGEMM, _POINTER, _SIZE])
    (m, n), k = c.shape, a.shape[flags[:1] == b"N"]
    status = function(
        *(flags[:1], flags[1:2], m, n, k, alpha, a.ctypes.data, _leading(a)),
        *(b.ctypes.data, _leading(b), beta, c.ctypes.data, _leading(c)),
    )
    check(status, f"sgemm of {list(a.shape)} and {list(b.shape)}")


def integer_gemm(
    library: Library,
    flags: bytes,
    a: NDArray[Any],
    b: NDArray[Any],
    c: NDArray[Any],
    factors: tuple[float, float],
    offsets: tuple[int, int, NDArray[np.int32]],
) -> None:
    """C = alpha * (op(A) - ao) * (op(B) - bo) + beta * C + co, of u8 or s8 and s8, into s32.

    Args:
        library: the library.
        flags: `N` or `T` for each of A and B, and how `co` lies: `F` one number, `C` one for each
            row, `R` one for each column.
        a, b, c: matrices, row-major; `c` [m, n] is written to.
        factors: alpha and beta.
        offsets: ao, bo and co.

    Raises:
        OneDnnError: the library refuses.
    """
    (alpha, beta), (ao, bo, co) = factors, offsets
    own = _OFFSETS[a.dtype.kind]
    name = f"gemm_{a.dtype.kind.replace('i', 's')}8s8s32"
    types = [*_INTEGERS, _FLOAT, _POINTER, _SIZE, own, _POINTER, _SIZE, ctypes.c_int8, _FLOAT]
    function = _function(library, f"dnnl_{name}", [*types, _POINTER, _SIZE, _POINTER])
    (m, n), k = c.shape, a.shape[flags[:1] == b"N"]
    status = function(
        *(flags[:1], flags[1:2], flags[2:], m, n, k, alpha, a.ctypes.data, _leading(a), ao),
        *(b.ctypes.data, _leading(b), bo, beta, c.ctypes.data, _leading(c), co.ctypes.data),
    )
    check(status, f"{name} of {list(a.shape)} and {list(b.shape)}")


def _leading(matrix: NDArray[Any]) -> int:
    """Elements from one row to the next; at least 1, which the library wants."""
    return max(int(matrix.shape[1]), 1)


def _function(library: Library, name: str, types: list[Any]) -> Any:
    # a copy of the function's prototype of its own: nothing else calls it
    function = getattr(library.c, name)
    function.argtypes, function.restype = types, ctypes.c_int
    return function
