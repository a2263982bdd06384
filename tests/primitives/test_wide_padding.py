"""Deconvolutions with a zero point and padding up to and beyond the kernel, against exact integers: oneDNN's first
implementation computes some of them wrongly, and another one, or NumPy, takes them.
"""

from __future__ import annotations

import numpy as np
import pytest
from support.codes import s8_codes

from fqfuse.primitives import PrimitiveAttr, ZeroPoint, prim


@pytest.mark.parametrize("engine", ["numpy", "onednn"])
def test_deconvolutions_with_a_zero_point_and_wide_padding(
    engine: str, request: pytest.FixtureRequest
) -> None:
    if engine == "onednn":
        request.getfixturevalue("of_the_rules")
    tried = 0
    for seed in range(40):
        rng = np.random.default_rng([3, seed])
        inputs, outputs, taps, size = (
            int(rng.integers(*ends)) for ends in ((1, 20), (1, 20), (2, 12), (4, 20))
        )
        stride, apart, zero = (
            int(rng.choice([1, 1, 2])),
            int(rng.choice([1, 1, 2])),
            int(rng.integers(1, 200)),
        )
        reach = (taps - 1) * apart + 1
        before, behind = (int(rng.integers(0, reach + 4)) for _ in range(2))
        out = (size - 1) * stride + reach - before - behind
        if out < 1:
            continue
        src = rng.integers(0, 256, (1, inputs, size)).astype(np.uint8)
        weights = s8_codes(rng, (outputs, inputs, taps))
        whole = np.zeros((outputs, (size - 1) * stride + reach), np.int64)
        for at, tap in np.ndindex(size, taps):
            whole[:, at * stride + tap * apart] += weights[:, :, tap].astype(int) @ (
                src[0, :, at].astype(int) - zero
            )
        words = {"src": f"u8[1,{inputs},{size}]", "weights": f"s8[{outputs},{inputs},{taps}]"}
        made = prim(
            "deconvolution",
            PrimitiveAttr(zero_points={"src": ZeroPoint((zero,))}),
            engine=engine,
            **words,
            dst=f"f32[1,{outputs},{out}]",
            strides=(stride,),
            dilations=(apart - 1,),
            padding_l=(before,),
            padding_r=(behind,),
        )
        found = made.execute({"src": src, "weights": weights})[0]
        assert np.array_equal(found, whole[:, before : before + out]), (seed, made)  # below 2^24
        tried += 1
    assert tried >= 25
