"""The arithmetic of oneDNN's integer products of matrices, for each instruction set.

oneDNN 3.2 has three ways: code that multiplies blocks of the inner size (`depth_blocks`), code for
one row or one column (AVX-512 without VNNI, where its sums are others), and a reference, which it
takes for s8 and s8 with an offset where there is no AVX-512. Tests hold each to the library.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..plan.summation import EXACT, Summation, depth_blocks
from ..runtime.kernels.pairs import pairs_of

Array = NDArray[Any]
F64 = NDArray[np.float64]

_S32 = np.iinfo(np.int32)
_SHIFT = 128
_BLOCKS = {"vnni": (1536, 384), "avx512_core": (768, 384), "avx2": (384, 256), "sse41": (256, 256)}
"""How much of the inner size is multiplied at once, and up to where all of it is."""


@dataclass(frozen=True)
class Terms:
    """What is around a product.

    Attributes:
        alpha, beta: factors of the product and of C.
        ao, bo: what is taken off the factors.
        co: what is added: [1, 1], [m, 1] or [1, n].
        turned: whether A and B are handed over transposed.
        single: co is one number for all (`offsetc` is F).
    """

    alpha: float
    beta: float
    ao: int
    bo: int
    co: Array
    turned: tuple[bool, bool]
    single: bool

    @property
    def plain(self) -> bool:
        """Whether sums are stored, or added to C, as they are."""
        return self.alpha == 1 and self.beta in (0, 1)

    @property
    def shifted(self) -> bool:
        """Whether a factor has an offset."""
        return bool(self.ao or self.bo)


def product(left: Array, right: Array, old: Array, terms: Terms, isa: str) -> NDArray[np.int32]:
    """alpha * (A - ao) * (B - bo) + beta * C + co, as an instruction set computes it.

    Args:
        left: A, u8 or s8 [m, k].
        right: B, s8 [k, n].
        old: C, s32 [m, n].
        terms: the others.
        isa: one of `summation.ISAS`.
    """
    if 0 in (*old.shape, right.shape[0]):
        return old
    signed, wide = left.dtype == np.int8, isa in ("vnni", "avx512_core")
    if signed and not wide:
        if terms.shifted:
            return _reference(left, right, old, terms)
        return _shifted(left, right, old, terms, isa)
    if isa == "avx512_core":
        found = _of_vectors(left, right, old, terms, signed=signed)
        if found is not None:
            return found
    law = EXACT if isa == "vnni" else Summation("depth", shift=_SHIFT if signed else 0)
    return _wrapped(_blocks(left, right, old, terms, law, isa) + terms.co)


def _blocks(
    left: Array, right: Array, old: Array, terms: Terms, law: Summation, isa: str
) -> NDArray[np.int64]:
    """All but `co`. Where the factors count, each block's sum is scaled, rounded and saturated."""
    alpha, out = float(np.float32(terms.alpha)), old.astype(np.int64)
    for at, to in depth_blocks(right.shape[0], *_BLOCKS[isa]):
        rows, columns = left[:, at:to], right[at:to]
        sums = _wrapped(_sums(law, rows, columns) - _offsets(rows, columns, terms)).astype(np.int64)
        beta = 1.0 if at else float(np.float32(terms.beta))
        out = (
            _wrapped(sums + (out if beta else 0)).astype(np.int64)
            if terms.plain
            else _rounded(alpha * sums + beta * out)
        )
    return out


def _sums(law: Summation, left: Array, right: Array) -> F64:
    """Sums of products of codes; none is so deep that f64 rounds it."""
    found: F64 = left.astype(np.float64) @ right.astype(np.float64)
    pairs = pairs_of(law, right, right.shape[0], 0)
    if pairs is not None:
        pairs.on(left.astype(np.float32), slice(0, right.shape[1]))(found)
    return found


def _offsets(left: Array, right: Array, terms: Terms) -> NDArray[np.int64]:
    """What the offsets of the factors take off the sums, exactly."""
    of_right = terms.ao * right.sum(0, dtype=np.int64)
    of_left = terms.bo * left.sum(1, dtype=np.int64)[:, None]
    found: NDArray[np.int64] = of_right + of_left - terms.ao * terms.bo * right.shape[0]
    return found


def _shifted(left: Array, right: Array, old: Array, terms: Terms, isa: str) -> NDArray[np.int32]:
    """s8 and s8 without AVX-512: codes of A are made u8, and what that adds is scaled and taken off
    apart from the product.
    """
    codes = (left.astype(np.int16) + _SHIFT).astype(np.uint8)
    found = _blocks(codes, right, old, terms, Summation("depth"), isa)
    taken = -_SHIFT * right.sum(0, dtype=np.int64)
    if terms.alpha != 1:
        taken = _in_f32(float(np.float32(terms.alpha)) * taken)
    return _wrapped(found + taken + terms.co)


def _reference(left: Array, right: Array, old: Array, terms: Terms) -> NDArray[np.int32]:
    """In f64, and by way of f32 into s32: of large sums the last bits are lost."""
    exact = (left.astype(np.float64) - terms.ao) @ (right.astype(np.float64) - terms.bo)
    scaled = float(np.float32(terms.alpha)) * exact + terms.co
    if terms.beta:
        scaled = scaled + float(np.float32(terms.beta)) * old
    return _wrapped(_in_f32(scaled))


def _of_vectors(
    left: Array, right: Array, old: Array, terms: Terms, *, signed: bool
) -> NDArray[np.int32] | None:
    """One row or one column on AVX-512 without VNNI: all of the inner size at once, and of s8 by a
    column, it is B's codes that are made u8. None where there is no such code.
    """
    if terms.shifted or not terms.plain or not terms.single or terms.co.any():
        return None
    law = Summation("depth", shift=_SHIFT if signed else 0)
    if left.shape[0] == 1 and terms.turned[1]:
        sums = _sums(law, left, right)
    elif right.shape[1] == 1 and not terms.turned[0]:
        sums = _sums(law, right.T, left.T).T if signed else _sums(law, left, right)
    else:
        return None
    return _wrapped(sums.astype(np.int64) + int(terms.beta) * old.astype(np.int64))


def _rounded(exact: F64) -> NDArray[np.int64]:
    """Half away from 0, saturated."""
    rounded = np.trunc(exact + np.where(exact >= 0, 0.5, -0.5))
    found: NDArray[np.int64] = np.clip(rounded, _S32.min, _S32.max).astype(np.int64)
    return found


def _in_f32(exact: F64) -> NDArray[np.int64]:
    """Saturated, as f32, and rounded half to even; what f32 makes 2^31 of becomes -2^31, as of the
    CPU's instruction.
    """
    found = np.rint(np.clip(exact, _S32.min, _S32.max).astype(np.float32)).astype(np.int64)
    return np.where(found > _S32.max, _S32.min, found)


def _wrapped(sums: Array) -> NDArray[np.int32]:
    """Modulo 2^32."""
    return sums.astype(np.int64).astype(np.int32)
