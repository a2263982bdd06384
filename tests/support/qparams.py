"""The way back of `with_scales`."""

from __future__ import annotations

from dataclasses import replace

from fqfuse.plan.attributes import PrimitiveAttr
from fqfuse.plan.recurrent_parameters import qparams_of


def with_qparams(attr: PrimitiveAttr) -> PrimitiveAttr:
    """The attributes with qparams instead of scales and a zero point."""
    found = qparams_of(attr)
    if found is None:
        return attr
    data, weights = found
    return replace(
        attr, scales={}, zero_points={}, rnn_data_qparams=data, rnn_weights_qparams=weights
    )
