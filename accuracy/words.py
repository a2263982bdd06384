"""Why a layer of a comparison adds noise, and what to change: the same words on the screen and as data."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.table import Table
from rich.text import Text as RichText

from ..errors import printable
from ..report.layout import Text, plain_table
from ..report.notation import cut_names
from .layers import Cause, Layer

LONGEST_NAME = 36
"""Columns of a name in a table."""

_TEXTS = {"layer", "operator", "why", "output", "left out", "for the noise of", "7 bits"}

_WHY = {
    Cause.MISSING: "the int8 model has no {missing}, and none of its ranges does it",
    Cause.BROKEN: "it makes NaN or infinities where f32 has numbers",
    Cause.COMPUTED: "the rounding of its weights, or of an input",
    Cause.TOO_WIDE: "its quantizer's range is far wider than the values",
    Cause.SATURATED: "values lie beyond its quantizer's range",
    Cause.COARSE: "the step of its quantizer is coarse for these values",
}
_FEW = 3


def why(layer: Layer) -> str:
    """Why a layer adds noise, as a clause."""
    pair = layer.pair
    if layer.cause is Cause.COMPUTED and pair.moved:  # which has no weights of its own
        names = ", ".join(map(printable, pair.moved[-_FEW:]))
        return f"it only moves what comes of {names}: the rounding of their weights, or of an input"
    return _WHY[layer.cause].format(missing=printable(pair.missing))


def reason_of(layer: Layer) -> str:
    """Why a layer adds noise: its cause, and the figures of its quantizer where that is to blame."""
    clause = why(layer)
    if layer.step is None or layer.cause in (Cause.COMPUTED, Cause.BROKEN, Cause.MISSING):
        return clause
    code = f"{layer.step:.3g}"
    if layer.finest < layer.step:
        code = f"{layer.finest:.3g} to {code}, by channel"
    span = f"f32 spans {layer.low:.3g} to {layer.high:.3g}, a code is {code}"
    if layer.cause is Cause.SATURATED:
        return f"{clause}: {share_shown(layer.saturated)} of them; {span}"
    return f"{clause}: {span}"


def advice_on(layer: Layer) -> str:
    """What to change about a layer that no finding is about."""
    return {
        Cause.MISSING: f"leave {printable(layer.pair.missing)} in f32, and in the model: nodes_to_exclude, or ignored_scope",
        Cause.BROKEN: "leave it in f32",
        Cause.COMPUTED: "weights per channel if they are not yet, or leave it in f32",
        Cause.TOO_WIDE: "calibrate with data like this, without outliers, or leave it in f32",
        Cause.SATURATED: "calibrate with more data, and by minimum and maximum",
        Cause.COARSE: "leave it in f32 if it matters: 8 bits have no finer step for this range",
    }[layer.cause]


def share_shown(value: float) -> str:
    """A share in percent; empty for none."""
    if not value:
        return ""
    if value >= 0.995:
        return "100 %" if value == 1 else ">99 %"
    return "<0.01 %" if value < 1e-4 else f"{100 * value:.2g} %"


def table_of(*columns: str) -> Table:
    """A table whose numbers stand below each other."""
    table = plain_table(*columns)
    for column, name in zip(table.columns[1:], columns, strict=True):
        column.no_wrap = True
        if name not in _TEXTS:
            column.justify = "right"
    return table


def all_named(names: Sequence[str], room: int | None = LONGEST_NAME) -> list[RichText]:
    """The names of one column, cut so that they stay apart."""
    return list(map(Text, cut_names(list(map(printable, names)), room)))


def decibels(value: float) -> str:
    """An SQNR."""
    if math.isinf(value):
        return "exact" if value > 0 else "none"
    return f"{value:.1f} dB"
