"""The kinds of primitives: their arguments and parameters, by oneDNN's names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..ir.ops.spec import Attr
from ..onednn.enums import Arg

REQUIRED = "required"
"""The default of a parameter that has none."""

EVERY_AXIS_1, EVERY_AXIS_0 = "1 for each axis", "0 for each axis"
"""Defaults of parameters with one number for each spatial dimension."""


@dataclass(frozen=True)
class Kind:
    """What a primitive of one kind is described by.

    Attributes:
        roles: its arguments, by which tensors are given.
        params: its parameters -> their defaults.
        optional: arguments that may be missing.
        many: it has any number of sources `src_0`, `src_1` ... in front of the other arguments.
        chosen: arguments whose layout the library chooses.
        algorithms: what the library's names of its algorithms begin with; '' where it has none.
        flags: arguments of its own type f32 that the descriptor knows by a flag only.
    """

    roles: tuple[str, ...]
    params: Mapping[str, Attr] = field(default_factory=dict)
    optional: frozenset[str] = frozenset()
    many: bool = False
    chosen: frozenset[str] = frozenset()
    algorithms: str = ""
    flags: tuple[str, ...] = ()


_WEIGHTED = ("src", "weights", "bias", "dst")
_BIAS = frozenset({"bias"})
_CHOSEN = frozenset({"src", "weights", "dst"})
_WINDOW: Mapping[str, Attr] = {
    "strides": EVERY_AXIS_1,
    "dilations": EVERY_AXIS_0,
    "padding_l": EVERY_AXIS_0,
    "padding_r": EVERY_AXIS_0,
}
_ALGORITHM: Mapping[str, Attr] = {"algorithm": REQUIRED}

KINDS: Mapping[str, Kind] = {
    "convolution": Kind(_WEIGHTED, _WINDOW, _BIAS, chosen=_CHOSEN),
    "deconvolution": Kind(_WEIGHTED, _WINDOW, _BIAS, chosen=_CHOSEN),
    "inner_product": Kind(_WEIGHTED, {}, _BIAS, chosen=_CHOSEN),
    "matmul": Kind(_WEIGHTED, {}, _BIAS, chosen=_CHOSEN),
    "eltwise": Kind(
        ("src", "dst"), {**_ALGORITHM, "alpha": 0.0, "beta": 0.0}, algorithms="eltwise"
    ),
    "binary": Kind(("src_0", "src_1", "dst"), _ALGORITHM, algorithms="binary"),
    "reorder": Kind(("src", "dst")),
    "sum": Kind(("dst",), {"scales": REQUIRED}, many=True),
    "concat": Kind(("dst",), {"axis": REQUIRED}, many=True),
    "pooling": Kind(
        ("src", "dst"), {**_ALGORITHM, "kernel": REQUIRED, **_WINDOW}, algorithms="pooling"
    ),
    "reduction": Kind(
        ("src", "dst"), {**_ALGORITHM, "p": 0.0, "epsilon": 0.0}, algorithms="reduction"
    ),
    "resampling": Kind(("src", "dst"), _ALGORITHM, algorithms="resampling"),
    "softmax": Kind(
        ("src", "dst"), {"algorithm": "accurate", "axis": REQUIRED}, algorithms="softmax"
    ),
    "layer_normalization": Kind(
        ("src", "dst"),
        {"epsilon": 1e-5},
        flags=("scale", "shift"),
    ),
    "batch_normalization": Kind(
        ("src", "dst"),
        {"epsilon": 1e-5},
        flags=("scale", "shift", "mean", "variance"),
    ),
    "lrn": Kind(("src", "dst"), {"local_size": REQUIRED, "alpha": 1e-4, "beta": 0.75, "k": 1.0}),
    "shuffle": Kind(("src", "dst"), {"axis": REQUIRED, "group_size": REQUIRED}),
    "prelu": Kind(("src", "weights", "dst")),
}
"""Kind -> what it is described by."""

ARGS: Mapping[str, int] = {
    "src": Arg.SRC,
    "src_0": Arg.SRC_0,
    "src_1": Arg.SRC_1,
    "weights": Arg.WEIGHTS,
    "bias": Arg.BIAS,
    "dst": Arg.DST,
    "scale": Arg.SCALE,
    "shift": Arg.SHIFT,
    "mean": Arg.MEAN,
    "variance": Arg.VARIANCE,
}
"""Argument -> its number in the library; the sources of `sum` and `concat` have others."""
