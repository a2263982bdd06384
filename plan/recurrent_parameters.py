"""Parameters of a recurrent layer in int8, in the sense of oneDNN's `rnn_data_qparams` and
`rnn_weights_qparams`, in the common sense, and there and back::

    code = scale * x + shift    <->    x = s * (code - z),    s = 1 / scale,  z = shift
    code = scale * w            <->    w = s * code
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from .attributes import PrimitiveAttr, Scale, ZeroPoint

GATES_AND_OUTPUTS = 24
"""The mask of weights (layers, directions, inputs, gates, outputs)."""

_ROWS = 2  # bit 1: the gates and outputs of the plan's weights [D, G*H, inputs]


def qparams_of(attr: PrimitiveAttr) -> tuple[Scale, Scale] | None:
    """`rnn_data_qparams` and `rnn_weights_qparams`, said either way; None where the layer has
    none.
    """
    if attr.rnn_data_qparams is not None and attr.rnn_weights_qparams is not None:
        return attr.rnn_data_qparams, attr.rnn_weights_qparams
    if "src" not in attr.scales or "w" not in attr.scales:
        return None
    zero = attr.zero_points["src"].values[0] if "src" in attr.zero_points else 0
    (scale,), weights = inverse(attr.scales["src"]), attr.scales["w"]
    mask = GATES_AND_OUTPUTS if weights.mask else 0
    return Scale((scale, float(zero))), Scale(inverse(weights), mask)


def with_scales(attr: PrimitiveAttr) -> PrimitiveAttr:
    """The attributes with scales and a zero point instead of qparams."""
    found = qparams_of(attr)
    if found is None:
        return attr
    data, weights = found
    scale = Scale(inverse(weights), _ROWS if weights.mask else 0)
    return replace(
        attr,
        scales={"src": Scale(inverse(Scale(data.values[:1]))), "w": scale, "r": scale},
        zero_points={"src": ZeroPoint((int(data.values[1]),))} if data.values[1] else {},
        rnn_data_qparams=None,
        rnn_weights_qparams=None,
    )


def inverse(scale: Scale) -> tuple[float, ...]:
    """1 / scale, rounded to f32."""
    return tuple((np.float32(1) / scale.array).astype(np.float32).tolist())
