"""Random inputs with the statistics that calibration and accuracy figures need: images with
structure at several scales.
"""

from __future__ import annotations

import numpy as np

from fqfuse.measure.arrays import Array

_OCTAVES = (2, 4, 7, 14, 28, 56, 112, 224)


def sample_images(rng: np.random.Generator, count: int, size: int = 224) -> Array:
    """Return ``count`` synthetic images, f32 ``[count, 3, size, size]``: unit variance in each
    channel around a random colour.

    White noise would make every image look alike after a few convolutions; natural images have
    about equal power in every octave. So each image sums random grids of growing resolution with
    amplitudes of its own, and has a mean colour of its own (std 0.5). ``size`` must be a multiple
    of 224, else ValueError.
    """
    if size % _OCTAVES[-1]:
        raise ValueError(f"size must be a multiple of {_OCTAVES[-1]}, got {size}")
    image = np.zeros((count, 3, size, size), np.float32)
    for octave in _OCTAVES:
        amplitude = rng.gamma(1.0, 1.0, (count, 3, 1, 1)).astype(np.float32)
        grid = rng.standard_normal((count, 3, octave, octave), np.float32) * amplitude
        image += grid.repeat(size // octave, axis=2).repeat(size // octave, axis=3)
    image -= image.mean(axis=(2, 3), keepdims=True)
    colour = 0.5 * rng.standard_normal((count, 3, 1, 1), np.float32)
    normalized: Array = (image / image.std(axis=(2, 3), keepdims=True) + colour).astype(np.float32)
    return normalized
