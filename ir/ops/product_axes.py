"""Where channels run in what a product reads and writes, by its operation: Conv, ConvTranspose or MatMul."""

from __future__ import annotations

_CONVOLUTIONS = ("Conv", "ConvTranspose")
_OUTPUTS = {"Conv": 0, "ConvTranspose": 1}


def channels_axis(op: str, rank: int) -> int:
    """The axis of the source, or of the result, that channels run along; `rank`: of that tensor."""
    return 1 if op in _CONVOLUTIONS else rank - 1


def outputs_axis(op: str, rank: int) -> int:
    """The axis of the weights that runs along the output channels: of a deconvolution in groups, along
    those of one group; `rank`: of the weights.
    """
    return _OUTPUTS.get(op, rank - 1)


def inputs_axis(op: str, rank: int) -> int:
    """The axis of the weights that is summed over with the source's channels; `rank`: of the weights."""
    return 1 - _OUTPUTS[op] if op in _OUTPUTS else rank - 2
