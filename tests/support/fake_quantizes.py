"""What FakeQuantize is defined to give, in float64, for any range: the judge of its forms."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

ENDS = ("il", "ih", "ol", "oh")
Ranges = Mapping[str, np.ndarray]


def allowed(
    x: np.ndarray, ranges: Ranges, levels: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The grid index of each number by the definition, in float64, and two others that f32 may take
    it for: the neighbour at a tie, the other end at a bound where an inverted range jumps.
    """
    low, high = (ranges[end].astype(np.float64) for end in ("il", "ih"))
    v, last = x.astype(np.float64), levels - 1
    with np.errstate(all="ignore"):
        index = (v - low) / (high - low) * last
        inside = np.rint(index)
        # three roundings of numbers up to `last`, and one of it less the index
        tie = np.abs(np.abs(index - np.floor(index)) - 0.5) <= last * 2.0**-22
        other = np.where(tie, np.floor(index) + np.ceil(index) - inside, inside)
    below, above = v <= np.minimum(low, high), v > np.maximum(low, high)
    exact, other = (np.where(above, last, np.where(below, 0, found)) for found in (inside, other))
    far = 2.0**-22 * np.abs(high - low)
    jumps = (low > high) & ((np.abs(v - low) <= far) | (np.abs(v - high) <= far))
    return exact, other, np.where(jumps, last - exact, exact)


def check_values(found: np.ndarray, x: np.ndarray, ranges: Ranges, levels: int) -> None:
    low, high = (ranges[end].astype(np.float64) for end in ("ol", "oh"))
    # of scale, code times scale, and the sum, each of numbers up to twice the range's
    near = 8 * 2.0**-24 * np.maximum(np.abs(low), np.abs(high)) + 256 * 2.0**-149
    fits = [
        np.abs(found - (index / (levels - 1) * (high - low) + low)) <= near
        for index in allowed(x, ranges, levels)
    ]
    wrong = ~np.logical_or.reduce(fits)
    assert not wrong.any(), (x[wrong][:3], found[wrong][:3], ranges, levels)
