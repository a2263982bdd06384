"""What the library is not told when it makes a primitive is refused where it is not what it takes it
to be: both engines, before anything is read.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fqfuse.errors import InvalidInput
from fqfuse.onednn.capi import OneDnnError
from fqfuse.primitives import (
    Binary,
    DepthwiseConv,
    Prelu,
    PrimitiveAttr,
    Scale,
    ZeroPoint,
    prim,
)

ENGINES = ("numpy", "onednn")
PLAIN = {"src": "u8[1,4,3,3]", "weights": "s8[4,4,1,1]", "dst": "u8[1,4,3,3]"}
LAYER = {"src": "f32[2,4,16]", "dst": "f32[2,4,16]"}
TAPS = PrimitiveAttr(post_ops=(DepthwiseConv("taps", "shift", 3, 1, 1),))
SLOPES = PrimitiveAttr(post_ops=(Prelu("slopes", 2),))


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("kind", "attr", "words", "told"),
    [
        ("layer_normalization", None, {**LAYER, "shift": "f16[16]"}, r"shift as f32\[16\]"),
        ("layer_normalization", None, {**LAYER, "scale": "f32[4]"}, r"scale as f32\[16\]"),
        ("batch_normalization", None, {**LAYER, "shift": "f32[3]"}, r"shift as f32\[4\]"),
        (
            "batch_normalization",
            None,
            {**LAYER, "mean": "bf16[4]", "variance": "f32[4]"},
            r"mean as f32\[4\]",
        ),
        (
            "convolution",
            TAPS,
            {**PLAIN, "taps": "s8[4,1,1,3,3]", "shift": "f32[4]"},
            r"taps as s8\[4,1,3,3\]",
        ),
        (
            "convolution",
            TAPS,
            {**PLAIN, "taps": "s8[4,1,3,3]", "shift": "s32[4]"},
            r"shift as f32\[4\]",
        ),
        ("convolution", SLOPES, {**PLAIN, "slopes": "f32[1,1,1,1]"}, r"slopes as f32\[1,4,1,1\]"),
        ("convolution", SLOPES, {**PLAIN, "slopes": "s8[1,4,1,1]"}, r"slopes as f32\[1,4,1,1\]"),
        (
            "sum",
            None,
            {"src_0": "f32[4]", "src_1": "f32[4]", "dst": "f32[4]", "scales": (1.0,)},
            r"2 sources with the scales \(1\.0,\)",
        ),
        (
            "sum",
            None,
            {"src_0": "f32[4]", "dst": "f32[4]", "scales": (1.0, 2.0)},
            "1 sources with the scales",
        ),
        (
            "deconvolution",
            None,
            {"src": "u8[1,0,3]", "weights": "s8[0,4,3,3]", "dst": "u8[1,0,5]"},
            "of 0 groups",
        ),
    ],
)
def test_what_is_not_told_is_refused(
    engine: str, kind: str, attr: PrimitiveAttr | None, words: dict[str, Any], told: str
) -> None:
    with pytest.raises(InvalidInput, match=told):
        prim(kind, attr or PrimitiveAttr(), engine=engine, **words)


@pytest.mark.usefixtures("library")
def test_what_fits_is_made() -> None:
    words = {**PLAIN, "taps": "s8[4,1,3,3]", "shift": "f32[4]"}
    args = {
        "src": np.full((1, 4, 3, 3), 2, np.uint8),
        "weights": np.eye(4, dtype=np.int8).reshape(4, 4, 1, 1),
        "taps": np.ones((4, 1, 3, 3), np.int8),
        "shift": np.ones(4, np.float32),
    }
    ours, theirs = (prim("convolution", TAPS, engine=e, **words).execute(args) for e in ENGINES)
    assert ours[0, 0, 1, 1] == 19
    assert np.array_equal(ours, theirs)


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("kind", "attr", "words", "status"),
    [
        ("softmax", None, {"src": "f32[4]", "dst": "f32[1000]", "axis": 0}, 2),
        ("softmax", None, {"src": "f32[2,3,4]", "dst": "f32[2,3]", "axis": 1}, 2),
        ("matmul", PrimitiveAttr({"more": Scale((), 0)}, {}, (Binary("add", "more"),)), {}, 2),
        ("matmul", PrimitiveAttr({"nothing": Scale(())}), {}, 2),
        ("matmul", PrimitiveAttr({}, {"nothing": ZeroPoint(())}), {}, 3),
        ("concat", PrimitiveAttr({"src_x": Scale(())}), {}, 2),
        ("convolution", None, {**PLAIN, "src": "u8[1,4,3]"}, 2),
        ("deconvolution", None, {**PLAIN, "src": "u8[1,4,3,3,1]"}, 2),
        (
            "pooling",
            None,
            {"src": "f32[1,3,4,4]", "dst": "f32[1,3,4]", "algorithm": "max", "kernel": (1,)},
            2,
        ),
    ],
)
def test_what_the_library_does_not_look_at_has_a_status(
    engine: str, kind: str, attr: PrimitiveAttr | None, words: dict[str, Any], status: int
) -> None:
    """It would read beyond the end of what is shorter, or has no number for the argument."""
    more = {
        "matmul": {"src": "u8[2,4]", "weights": "s8[4,3]", "dst": "f32[2,3]"},
        "concat": {"src_0": "u8[2,4]", "dst": "u8[2,4]", "axis": 1},
    }.get(kind, {})
    if attr is not None and attr.post_ops:
        more = {**more, "more": "f32[1,3]"}
    with pytest.raises(OneDnnError) as caught:
        prim(kind, attr or PrimitiveAttr(), engine=engine, **more, **words)
    assert caught.value.status == status
