"""The digits network as data: layers, and which of their outputs are quantized. Read by the trainer
and by the ONNX writer.
"""

from dataclasses import dataclass
from typing import Final, Literal

LayerKind = Literal["conv", "relu", "add", "average_pool", "global_average_pool", "flatten", "gemm"]

INPUT: Final = "image"
OUTPUT: Final = "logits"
CLASSES: Final = 10


@dataclass(frozen=True)
class Layer:
    """One layer, named like its ONNX node; `inputs` are names of earlier layers or `INPUT`.

    Convolutions keep the spatial size (padding `kernel // 2`, stride 1). Those with `batch_norm`
    have no bias of their own.
    """

    name: str
    kind: LayerKind
    inputs: tuple[str, ...]
    in_channels: int = 0
    out_channels: int = 0
    kernel: int = 1
    groups: int = 1
    batch_norm: bool = False

    @property
    def weight_shape(self) -> tuple[int, ...]:
        """`[OC, IC / groups, KH, KW]` of a convolution, `[OC, IC]` of the gemm (transB)."""
        if self.kind == "gemm":
            return (self.out_channels, self.in_channels)
        return (self.out_channels, self.in_channels // self.groups, self.kernel, self.kernel)

    @property
    def has_weights(self) -> bool:
        """Whether the layer multiplies by weights, so that both are quantized."""
        return self.kind in ("conv", "gemm")


def _conv(
    name: str,
    source: str,
    in_channels: int,
    out_channels: int,
    kernel: int,
    groups: int = 1,
    batch_norm: bool = True,
) -> Layer:
    return Layer(name, "conv", (source,), in_channels, out_channels, kernel, groups, batch_norm)


LAYERS: Final[tuple[Layer, ...]] = (
    _conv("stem.conv", INPUT, 1, 32, 3),
    Layer("stem.relu", "relu", ("stem.conv",)),
    # Basic residual block: relu after the sum, so the skip operand is unsigned.
    _conv("block1.conv1", "stem.relu", 32, 32, 3),
    Layer("block1.relu1", "relu", ("block1.conv1",)),
    _conv("block1.conv2", "block1.relu1", 32, 32, 3),
    Layer("block1.add", "add", ("block1.conv2", "stem.relu")),
    Layer("block1.relu2", "relu", ("block1.add",)),
    Layer("pool", "average_pool", ("block1.relu2",)),
    _conv("widen.conv", "pool", 32, 48, 1),
    # Depthwise-separable residual block on a linear (signed) trunk: the padding of its depthwise
    # convolution meets a zero point.
    _conv("block2.dwconv", "widen.conv", 48, 48, 3, groups=48),
    Layer("block2.relu", "relu", ("block2.dwconv",)),
    _conv("block2.pwconv", "block2.relu", 48, 48, 1),
    Layer("block2.add", "add", ("widen.conv", "block2.pwconv")),
    _conv("head.conv", "block2.add", 48, 96, 1, batch_norm=False),
    Layer("head.relu", "relu", ("head.conv",)),
    Layer("head.gap", "global_average_pool", ("head.relu",)),
    Layer("head.flatten", "flatten", ("head.gap",)),
    Layer("classifier", "gemm", ("head.flatten",), 96, CLASSES),
)

# Quantized values, and whether they can be negative: the inputs of weighted operations, of pools
# and of residual adds, each quantized once, at its producer, for all its readers. NNCF 3.4 places
# them so, but it also quantizes between a convolution and the residual add behind it; that one is
# left out, as TensorRT's guide advises, because it parts what could be one primitive.
QUANTIZED: Final[dict[str, bool]] = {
    INPUT: False,
    "stem.relu": False,
    "block1.relu1": False,
    "block1.relu2": False,
    "pool": False,
    "widen.conv": True,
    "block2.relu": False,
    "block2.add": True,
    "head.relu": False,
    "head.gap": False,
}
