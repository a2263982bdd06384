"""What oneDNN is not told when it makes a primitive, and reads or writes by its own rules when it runs:
in other types and sizes it would take other bytes, and those behind the end.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..errors import InvalidInput
from ..ir.text_write import type_text
from ..ir.types import DType, TensorType
from ..plan.attributes import DepthwiseConv, Prelu
from .depthwise import parts
from .description import Description
from .kinds import KINDS


def check_untold(description: Description) -> None:
    """Refuses other types and sizes than the library's. It is a primitive that the library makes.

    Raises:
        InvalidInput: there is one.
    """
    dst, made = description.tensors["dst"], parts(description)[-1].tensors["dst"]
    if dst != made:
        raise InvalidInput(
            f"{description}, whose depthwise post-op writes {type_text(made)}",
            hint=f'give dst="{type_text(made)}"',
        )
    given = {**description.tensors, **description.operands}
    for name, type_ in (*_parameters(description), *_of_post_ops(description)):
        if given[name] != type_:
            raise InvalidInput(
                f"{description}, which reads {name} as {type_text(type_)}, not as {type_text(given[name])}",
                hint=f'give {name}="{type_text(type_)}"',
            )


def _parameters(description: Description) -> Iterator[tuple[str, TensorType]]:
    """Those of a normalization are one f32 for each channel, of layers for each index of the last
    dimension.
    """
    axis = -1 if description.kind == "layer_normalization" else 1
    for role in KINDS[description.kind].flags:
        if role in description.tensors:
            yield role, TensorType(DType.F32, (description.dims("src")[axis],))


def _of_post_ops(description: Description) -> Iterator[tuple[str, TensorType]]:
    """Slopes are f32, one for each index of the dimensions in their mask. Depthwise weights are
    (C, 1, kernel...), with a bias of f32.
    """
    for part in parts(description):
        dims = part.dims("dst")
        for op in part.attr.post_ops:
            if isinstance(op, Prelu):
                shape = tuple(n if op.mask >> axis & 1 else 1 for axis, n in enumerate(dims))
                yield op.operand, TensorType(DType.F32, shape)
    _, *behind = parts(description)
    for op in description.attr.post_ops:
        if isinstance(op, DepthwiseConv):
            for second in behind:
                channels, _, *taps = second.dims("weights")
                yield op.weights, TensorType(op.weights_dtype, (channels, *taps))
                if op.bias:
                    yield op.bias, TensorType(DType.F32, (channels,))
