"""Masks of scales and zero points by name.

Bit i of a mask says that there is one number for each index of dimension i. The same channels have
another bit in each order of dimensions, so that a name says it better::

    common               0       one number for the tensor
    per_dim_0, ...       2^i     dimension i; several with a plus: per_dim_0+per_dim_1
    per_channel_nchw     2       of data
    per_channel_tnc      4       of a recurrent layer's data
    per_channel_oihw     1       output channels of weights
    per_channel_goihw    3       output channels of weights in groups

Source of the names: the proposal to unify the scales of oneDNN.
"""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral

from .errors import InvalidInput

__all__ = ["CHANNELS", "has_order", "mask_of", "mask_text"]

CHANNELS: Mapping[str, int] = {"nchw": 1 << 1, "tnc": 1 << 2, "oihw": 1 << 0, "goihw": 0b11}
"""Order of dimensions -> the mask of the channels; of weights those of the output."""

_DIMENSIONS = 12  # of a tensor of oneDNN
_NAMES: Mapping[str, int] = {
    "common": 0,
    **{f"per_dim_{index}": 1 << index for index in range(_DIMENSIONS)},
    **{f"per_channel_{order}": mask for order, mask in CHANNELS.items()},
}
_RANKS = {"nchw": (3, 4, 5), "tnc": (3,), "oihw": (3, 4, 5), "goihw": (4, 5, 6)}


class _OfOrder(int):
    """A mask that was given by the name of an order of dimensions."""

    order = ""


def has_order(mask: int, rank: int) -> bool:
    """Whether a tensor of that many dimensions, one to three spatial ones among them, may have the order
    by whose name its mask was given; True of any other mask.
    """
    return not isinstance(mask, _OfOrder) or rank in _RANKS[mask.order]


def mask_of(given: object) -> int:
    """The mask of that name; a number is one already.

    Raises:
        InvalidInput: there is no such name, or it is neither.
    """
    if isinstance(given, _OfOrder):
        return given
    if isinstance(given, Integral):
        return int(given)
    if not isinstance(given, str):
        raise InvalidInput(
            f"a mask is a number or a name, not {given!r}", hint='give 0 or "common" for one number'
        )
    masks = [_NAMES.get(part) for part in given.split("+")]
    found = 0
    for mask in masks:
        if mask is None or (mask == 0 and len(masks) > 1):
            raise InvalidInput(
                f"there is no mask {given!r}",
                hint="choose of common, per_dim_0 (1, 2 ...; several with a plus between), "
                + ", ".join(f"per_channel_{order}" for order in CHANNELS),
            )
        found |= mask
    order = given.rpartition("per_channel_")[2]
    if order not in CHANNELS:
        return found
    named = _OfOrder(found)
    named.order = order
    return named


def mask_text(mask: int, order: str = "") -> str:
    """The name of a mask; a number where no tensor has such dimensions.

    `order`: of the tensor's dimensions, by which its channels are known; '' where there is none.
    """
    if mask == CHANNELS.get(order):
        return f"per_channel_{order}"
    if mask <= 0 or mask >> _DIMENSIONS:
        return str(mask) if mask else "common"
    return "+".join(f"per_dim_{index}" for index in range(_DIMENSIONS) if mask >> index & 1)
