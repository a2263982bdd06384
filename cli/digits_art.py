"""Draws small grey images with characters of growing ink, two for a pixel, so that pixels are
nearly square.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

_INK = np.array(list(" ░▒▓█"))
GAP = "  "


def drawn_width(pixels: int) -> int:
    """How many columns an image of so many pixels takes, the gap behind it included."""
    return 2 * pixels + len(GAP)


def drawn_row(images: npt.NDArray[np.float32], captions: Sequence[str]) -> str:
    """Images side by side with a caption below each.

    Args:
        images: f32 [N, H, W] in 0..1.
        captions: N texts, cut to 2 * W characters.
    """
    grey = np.minimum((images * len(_INK)).astype(np.intp), len(_INK) - 1)
    pixels = np.repeat(_INK[grey], 2, axis=2)
    width = pixels.shape[2]
    lines = [GAP.join("".join(image[row]) for image in pixels) for row in range(pixels.shape[1])]
    lines.append(GAP.join(caption[:width].center(width) for caption in captions))
    return "\n".join(line.rstrip() for line in lines)
