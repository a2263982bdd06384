"""The kinds of primitives: their arguments and parameters, by oneDNN's names."""

from __future__ import annotations

import re
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
        destinations: arguments that it writes; the first one must be told, and the others are
            written where they are.
    """

    roles: tuple[str, ...]
    params: Mapping[str, Attr] = field(default_factory=dict)
    optional: frozenset[str] = frozenset()
    many: bool = False
    chosen: frozenset[str] = frozenset()
    algorithms: str = ""
    flags: tuple[str, ...] = ()
    destinations: tuple[str, ...] = ("dst",)


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


def _cell(
    *, states: int = 1, attention: bool = False, params: Mapping[str, Attr] | None = None
) -> Kind:
    """A recurrent layer: the cells of LSTM have two states, peepholes and a projection."""
    lstm = states > 1
    sources = ("src_iter", "src_iter_c")[:states]
    weights = ("weights_peephole", "weights_projection") if lstm else ()
    destinations = ("dst_layer", "dst_iter", "dst_iter_c")[: 1 + states]
    layer = ("weights_layer", "weights_iter")
    between = ("attention",) if attention else ()
    return Kind(
        ("src_layer", *sources, *between, *layer, *weights, "bias", *destinations),
        {"direction": "left2right", **(params or {})},
        frozenset({*sources, *weights, "bias", *destinations[1:]}),
        chosen=frozenset({*layer, "weights_projection"}),
        algorithms="eltwise" if params else "",
        destinations=destinations,
    )


CELLS: Mapping[str, Kind] = {
    "vanilla_rnn": _cell(params={**_ALGORITHM, "alpha": 0.0, "beta": 0.0}),
    "lstm": _cell(states=2),
    "gru": _cell(),
    "lbr_gru": _cell(),
    "augru": _cell(attention=True),
    "lbr_augru": _cell(attention=True),
}
"""The kinds that are recurrent layers, by their cell."""

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
    **CELLS,
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
    "src_layer": Arg.SRC_LAYER,
    "src_iter": Arg.SRC_ITER,
    "src_iter_c": Arg.SRC_ITER_C,
    "attention": Arg.ATTENTION,
    "weights_layer": Arg.WEIGHTS_LAYER,
    "weights_iter": Arg.WEIGHTS_ITER,
    "weights_peephole": Arg.WEIGHTS_PEEPHOLE,
    "weights_projection": Arg.WEIGHTS_PROJECTION,
    "dst_layer": Arg.DST_LAYER,
    "dst_iter": Arg.DST_ITER,
    "dst_iter_c": Arg.DST_ITER_C,
}
"""Argument -> its number in the library; the sources of `sum` and `concat` have others."""

SOURCE = re.compile(r"src_(?:0|[1-9]\d{0,3})")
"""A source of `sum` or `concat`."""


def is_numbered(kind: str, role: str) -> bool:
    """Whether the library has a number for an argument of that name."""
    return role in ARGS or (KINDS[kind].many and SOURCE.fullmatch(role) is not None)
