"""Why a layer of a comparison adds noise, and what to change: the same words on the screen and as data."""

from __future__ import annotations

from .layers import Cause, Layer

WHY = {
    Cause.BROKEN: "it makes NaN or infinities where f32 has numbers",
    Cause.COMPUTED: "the rounding of its weights, or of an input",
    Cause.TOO_WIDE: "its quantizer's range is far wider than the values",
    Cause.SATURATED: "values lie beyond its quantizer's range",
    Cause.COARSE: "the step of its quantizer is coarse for these values",
}
"""Cause -> what it is, as a clause."""


def reason_of(layer: Layer) -> str:
    """Why a layer adds noise: its cause, and the figures of its quantizer where that is to blame."""
    why = WHY[layer.cause]
    if layer.step is None or layer.cause in (Cause.COMPUTED, Cause.BROKEN):
        return why
    span = f"f32 spans {layer.low:.3g} to {layer.high:.3g}, a code is {layer.step:.3g}"
    if layer.cause is Cause.SATURATED:
        return f"{why}: {share_shown(layer.saturated)} of them; {span}"
    return f"{why}: {span}"


def advice_on(layer: Layer) -> str:
    """What to change about a layer that no finding is about."""
    return {
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
