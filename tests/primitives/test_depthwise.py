"""The depthwise post-op of a convolution."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fqfuse.errors import InvalidInput
from fqfuse.ir.types import DType
from fqfuse.primitives import DepthwiseConv, PrimitiveAttr, Scale, prim

WORDS = {"src": "u8[1,2,3,4]", "weights": "s8[4,2,1,1]", "dst": "f32[1,4,3,4]"}


@pytest.fixture(params=["numpy", "onednn"])
def runtime(request: pytest.FixtureRequest) -> str:
    if request.param == "onednn":
        request.getfixturevalue("library")
    return str(request.param)


def _depthwise(**words: Any) -> PrimitiveAttr:
    given = {"kernel": 3, "stride": 1, "padding": 1, "dst_dtype": DType.F32, **words}
    return PrimitiveAttr(post_ops=(DepthwiseConv("taps", "", **given),))


@pytest.mark.parametrize("value", [1.0, 4.0])
def test_its_scales_come_at_execution(runtime: str, value: float) -> None:
    """1 as well: that there is a scale was said when the primitive was made."""
    attr = _depthwise(dst_scale=Scale(()), weights_scale=Scale((), 1))
    made = prim("convolution", attr, engine=runtime, **WORDS, taps="s8[4,1,3,3]")
    taps = np.zeros((4, 1, 3, 3), np.int8)
    taps[:, 0, 1, 1] = 2
    found = made.execute(
        {
            "src": np.full((1, 2, 3, 4), 3, np.uint8),
            "weights": np.ones((4, 2, 1, 1), np.int8),
            "taps": taps,
            "scales_taps": np.full(4, value, np.float32),
            "scales_taps_dst": np.full(1, value, np.float32),
        }
    )
    assert (found == 12).all()


@pytest.mark.parametrize(
    ("kernel", "stride", "padding"), [(5, 1, 1), (2, 1, 0), (5, 2, 1), (3, 3, 0)]
)
def test_the_padding_behind_is_what_the_positions_take(
    runtime: str, kernel: int, stride: int, padding: int
) -> None:
    """`ceil(size / stride)` positions, whatever the padding in front."""
    size = [-(-n // stride) for n in (3, 4)]
    attr = _depthwise(kernel=kernel, stride=stride, padding=padding)
    words = {**WORDS, "dst": f"f32[1,4,{size[0]},{size[1]}]", "taps": f"s8[4,1,{kernel},{kernel}]"}
    rng = np.random.default_rng(0)
    args = {
        "src": rng.integers(0, 4, (1, 2, 3, 4)).astype(np.uint8),
        "weights": rng.integers(0, 4, (4, 2, 1, 1)).astype(np.int8),
        "taps": rng.integers(-4, 5, (4, 1, kernel, kernel)).astype(np.int8),
    }
    found = prim("convolution", attr, engine=runtime, **words).execute(args)
    between = np.einsum("oi,nihw->nohw", args["weights"][..., 0, 0].astype(float), args["src"])
    wide = np.zeros((1, 4, 20, 20))
    wide[:, :, padding : padding + 3, padding : padding + 4] = between
    for y, x in np.ndindex(*size):
        window = wide[:, :, y * stride : y * stride + kernel, x * stride : x * stride + kernel]
        assert np.array_equal(found[:, :, y, x], (window * args["taps"][:, 0]).sum((2, 3)))


def test_a_destination_that_it_does_not_write(runtime: str) -> None:
    for dst in ("f32[1,4,3,3]", "s8[1,4,3,4]"):
        with pytest.raises(InvalidInput, match=r"depthwise post-op writes f32\[1,4,3,4\]"):
            prim(
                "convolution",
                _depthwise(),
                engine=runtime,
                **{**WORDS, "dst": dst, "taps": "s8[4,1,3,3]"},
            )


def test_there_is_one() -> None:
    op = _depthwise().post_ops[0]
    with pytest.raises(InvalidInput, match="two depthwise post-ops"):
        prim("convolution", PrimitiveAttr(post_ops=(op, op)), **WORDS, taps="s8[4,1,3,3]")
