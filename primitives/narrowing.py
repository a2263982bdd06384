"""fpmath modes: to which type f32 may be narrowed inside of a primitive, and what that gives on NumPy.

A primitive that narrows rounds both of its factors, half to even, and adds up their products in f32.
oneDNN 3.2 narrows on CPUs with AMX alone, to bf16, of modes bf16 and any; elsewhere modes change
nothing, which a test holds.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from ..errors import InvalidInput
from ..ir.ops.elementwise import round_to_bf16
from ..ir.ops.rows import A
from ..ir.ops.spec import Array
from ..onednn.enums import FpmathMode

_VARIABLES = ("ONEDNN_DEFAULT_FPMATH_MODE", "DNNL_DEFAULT_FPMATH_MODE")
_KINDS = frozenset({"convolution", "deconvolution", "inner_product", "matmul"})


def mode_of(name: str) -> FpmathMode | None:
    """The mode of that name; None for `environment`, whose mode `in_environment` says.

    Raises:
        InvalidInput: there is none.
    """
    if name == "environment":
        return None
    if name not in FpmathMode.__members__:
        raise InvalidInput(
            f"there is no mode {name!r}",
            hint=f"choose of {', '.join(FpmathMode.__members__)}, environment",
        )
    return FpmathMode[name]


def in_environment() -> FpmathMode:
    """The default that the environment says, as oneDNN reads it: the first variable that is not
    empty, in any case; another word is no mode, and leaves `strict`.
    """
    words = [word for name in _VARIABLES if (word := os.environ.get(name, ""))]
    word = words[0].lower() if words else ""
    return FpmathMode[word] if word in FpmathMode.__members__ else FpmathMode.strict


def narrowed(kind: str, args: Mapping[str, Array], mode: FpmathMode) -> Mapping[str, Array]:
    """The arguments of a primitive with its factors rounded to what the mode permits at most, carried in
    f32: `any` to bf16, as oneDNN does. Of other kinds and other types they are what they are.
    """
    if kind not in _KINDS or mode is FpmathMode.strict or args["src"].dtype != np.float32:
        return args
    factors = {role: _ROUNDINGS[mode](args[role]) for role in ("src", "weights")}
    return MappingProxyType({**args, **factors})


def _to_f16(x: A) -> A:
    with np.errstate(over="ignore"):  # beyond the largest number: infinity
        return x.astype(np.float16).astype(np.float32)


def _to_tf32(x: A) -> A:
    """The nearest number with a mantissa of 10 bits (ties to even); NaN stays NaN."""
    bits = x.view(np.uint32)
    rounded = (bits + 0x0FFF + ((bits >> 13) & 1)) & np.uint32(0xFFFFE000)
    return np.where(np.isnan(x), x, rounded.view(np.float32))


_ROUNDINGS = {
    FpmathMode.bf16: round_to_bf16,
    FpmathMode.any: round_to_bf16,
    FpmathMode.f16: _to_f16,
    FpmathMode.tf32: _to_tf32,
}
