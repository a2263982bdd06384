"""Shapes of convolutions, deconvolutions and matrix products, in ONNX's terms."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Geometry:
    """A convolution (`Conv`) or deconvolution (`ConvTranspose`)."""

    src: tuple[int, ...]
    weights: tuple[int, ...]
    params: dict[str, object] = field(default_factory=dict)
    op: str = "Conv"

    @property
    def groups(self) -> int:
        return int(self.params.get("group", 1))  # type: ignore[call-overload]

    @property
    def channels(self) -> int:
        return self.weights[0] if self.op == "Conv" else self.weights[1] * self.groups


CONVOLUTIONS = {
    "3x3": Geometry((2, 32, 7, 6), (48, 32, 3, 3), {"pads": (1, 1, 1, 1)}),
    "1x1": Geometry((1, 64, 5, 6), (24, 64, 1, 1)),
    "1x1_stride": Geometry((1, 64, 9, 9), (24, 64, 1, 1), {"strides": (2, 2)}),
    "deep": Geometry((1, 256, 7, 7), (32, 256, 3, 3), {"pads": (1, 1, 1, 1)}),
    "first_layer": Geometry(
        (1, 3, 20, 18), (16, 3, 7, 7), {"strides": (2, 2), "pads": (3, 3, 3, 3)}
    ),
    "one_channel": Geometry((2, 1, 8, 8), (16, 1, 3, 3), {"pads": (1, 1, 1, 1)}),
    "dilated": Geometry(
        (1, 16, 11, 9), (32, 16, 3, 3), {"dilations": (2, 2), "pads": (2, 2, 2, 2)}
    ),
    "odd_channels": Geometry((1, 5, 8, 8), (7, 5, 3, 3), {"pads": (1, 1, 1, 1)}),
    "uneven_pads": Geometry(
        (1, 16, 8, 8), (16, 16, 3, 3), {"pads": (0, 2, 1, 0), "strides": (2, 1)}
    ),
    "groups": Geometry((1, 32, 6, 5), (32, 16, 3, 3), {"group": 2, "pads": (1, 1, 1, 1)}),
    "small_groups": Geometry((1, 24, 6, 5), (12, 4, 3, 3), {"group": 6, "pads": (1, 1, 1, 1)}),
    "depthwise": Geometry((2, 32, 7, 6), (32, 1, 3, 3), {"group": 32, "pads": (1, 1, 1, 1)}),
    "depthwise_stride": Geometry(
        (1, 32, 9, 7), (32, 1, 3, 3), {"group": 32, "pads": (0, 1, 1, 1), "strides": (2, 2)}
    ),
    "1d": Geometry((2, 16, 20), (24, 16, 5), {"pads": (2, 2), "strides": (2,)}),
    "3d": Geometry((1, 16, 5, 6, 7), (24, 16, 3, 3, 3), {"pads": (1, 1, 1, 1, 1, 1)}),
}

DECONVOLUTIONS = {
    "stride1": Geometry((2, 16, 5, 6), (16, 24, 3, 3), {"pads": (1, 1, 1, 1)}, "ConvTranspose"),
    "stride2": Geometry(
        (1, 16, 5, 6), (16, 24, 4, 4), {"strides": (2, 2), "pads": (1, 1, 1, 1)}, "ConvTranspose"
    ),
    "uneven": Geometry(
        (1, 16, 5, 6), (16, 24, 3, 3), {"strides": (2, 3), "pads": (1, 0, 1, 2)}, "ConvTranspose"
    ),
    "dilated": Geometry(
        (1, 16, 5, 6),
        (16, 24, 3, 3),
        {"strides": (3, 2), "dilations": (2, 2), "pads": (1, 1, 1, 1)},
        "ConvTranspose",
    ),
    "holes": Geometry((1, 16, 5, 6), (16, 24, 2, 2), {"strides": (3, 3)}, "ConvTranspose"),
    "groups": Geometry(
        (1, 16, 5, 6), (16, 12, 3, 3), {"strides": (2, 2), "group": 2}, "ConvTranspose"
    ),
    "1d": Geometry((1, 16, 9), (16, 24, 3), {"strides": (2,), "pads": (1, 1)}, "ConvTranspose"),
}

MATMULS = {
    "2d": ((37, 129), (129, 70)),
    "2d_even": ((32, 128), (128, 64)),
    "one_row": ((1, 300), (300, 257)),
    "deep": ((9, 4096), (4096, 33)),
    "3d": ((2, 12, 64), (1, 64, 96)),
    "batched": ((2, 3, 33, 48), (2, 3, 48, 17)),
    "broadcast": ((2, 3, 33, 48), (1, 1, 48, 17)),
}
"""Shapes of source and weights."""
