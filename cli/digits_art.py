"""Draws small grey images with characters: two rows of pixels in one row of text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

__all__ = ["drawn_row"]

_BLOCKS = np.array([[" ", "▄"], ["▀", "█"]])  # [upper pixel is dark, lower pixel is dark]
_DARK = 0.45  # of full ink; pixels are 0..1
_GAP = "   "


def drawn_row(images: npt.NDArray[np.float32], captions: Sequence[str]) -> str:
    """Images side by side with a caption below each.

    Args:
        images: f32 [N, H, W] in 0..1, H even.
        captions: N texts, cut to W characters.
    """
    dark = (images >= _DARK).astype(np.intp)
    blocks = _BLOCKS[dark[:, 0::2], dark[:, 1::2]]  # [N, H/2, W]
    width = images.shape[2]
    lines = [_GAP.join("".join(image[row]) for image in blocks) for row in range(blocks.shape[1])]
    lines.append(_GAP.join(caption[:width].center(width) for caption in captions))
    return "\n".join(line.rstrip() for line in lines)
