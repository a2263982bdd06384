"""The digits of scikit-learn, scaled and split for the builder. Needs scikit-learn."""

from typing import Final

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

SPLIT_SEED: Final = 0
TEST_DIGITS: Final = 360
LARGEST_PIXEL: Final = 16.0


def load_scaled_digits() -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """All 1797 digits of scikit-learn: images f32 `[1797, 1, 8, 8]` scaled from 0..16 to 0..1,
    labels int64 `[1797]`.
    """
    bunch = load_digits()
    images = np.asarray(bunch.images, dtype=np.float32)[:, np.newaxis] / np.float32(LARGEST_PIXEL)
    return images, np.asarray(bunch.target, dtype=np.int64)


def split(
    labels: NDArray[np.int64], held_out: int, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Row numbers to train on and `held_out` row numbers to keep out, both sorted, with equal
    shares of each class.
    """
    rows = np.arange(len(labels), dtype=np.int64)
    kept, out = train_test_split(rows, test_size=held_out, stratify=labels, random_state=seed)
    return np.sort(kept), np.sort(out)
