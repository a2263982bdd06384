"""The row of ops that have no row: `Onnx` keeps the user's node as it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from ..types import TensorType
from .spec import REQUIRED, Array, Attrs, Effort, OpSpec, Param, ShapeError, Trait


def _infer(
    types: Sequence[TensorType | None],  # noqa: ARG001  # the signature of the table
    attrs: Attrs,
    data: Sequence[Array | None],  # noqa: ARG001
) -> tuple[TensorType, ...]:
    raise ShapeError(
        f"the output types of the foreign op {attrs.get('op_type')!r} must be given: graph.add(..., types=...)"
    )


FOREIGN: tuple[OpSpec, ...] = (
    OpSpec(
        name="Onnx",
        doc="An ONNX op that the table does not know, kept as its serialized NodeProto; a caller of the interpreter runs it.",
        inputs=(Param("x", optional=True, variadic=True),),
        attrs={"op_type": REQUIRED, "domain": "", "opset": REQUIRED, "proto": REQUIRED},
        infer=_infer,
        evaluate=None,
        traits=frozenset({Trait.TELLS_ZERO, Trait.JUMPS}),  # nothing is known of it
        effort=Effort.LOOPS,
        onnx=False,
    ),
)

SLOW_WITHOUT_ROW: Mapping[str, Effort] = MappingProxyType(
    {
        **dict.fromkeys(
            (
                "Det",
                "DFT",
                "MaxUnpool",
                "Resize",
                "RoiAlign",
                "ScatterElements",
                "ScatterND",
                "STFT",
                "Unique",
            ),
            Effort.SERIES,
        ),
        **dict.fromkeys(("Col2Im", "DeformConv", "GridSample", "NonMaxSuppression"), Effort.PYTHON),
    }
)
"""What ONNX's reference evaluator takes more for than the row of foreign ops says: its own loops."""
