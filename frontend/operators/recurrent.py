"""DynamicQuantizeLSTM of com.microsoft, which ONNX Runtime's quantize_dynamic makes of LSTM."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ...ir.ops import OPS
from ...ir.ops.recurrent import DYNAMIC
from ...ir.types import DType
from ..importer import Handler, Importer
from ..nodes import OnnxNode
from .standard import row_attrs

_INPUTS: Final = 12
_OPTIONAL: Final = slice(3, 8)  # b, sequence_lens, initial_h, initial_c, p
_PARAMETERS: Final = slice(8, 12)
_CODES: Final = (DType.U8, DType.S8)


def _import(ctx: Importer, node: OnnxNode) -> None:
    """DynamicQuantizeLSTM(X, W, R, B?, sequence_lens?, initial_h?, initial_c?, P?, ws, wz, rs, rz)
    {attributes of LSTM}: parameters of the weights stand behind what may be absent; the row has
    them in front. Its quantizers are those of X, of the hidden state, of W and of R, in this order.

    Raises:
        InvalidModel: an input is missing, or its weights are no codes.
    """
    given = [node.input(index) for index in range(_INPUTS)]
    needed = [*given[:3], *given[_PARAMETERS]]
    if not all(needed):
        raise node.invalid(
            f"{DYNAMIC} lacks its weights or their parameters",
            "give X, W, R, and scale and zero point of W and R",
        )
    for weights, zero in ((given[1], given[9]), (given[2], given[11])):
        types = {ctx.type(value).dtype for value in (weights, zero)}
        if len(types) > 1 or not types <= set(_CODES):
            raise node.invalid(
                f"weights of {DYNAMIC} and their zero points are {ctx.type(weights)} and {ctx.type(zero)}",
                "give both as uint8, or both as int8",
            )
    names = (
        ctx.add_quantizer(node, DYNAMIC, given[0]),
        ctx.add_quantizer(node, DYNAMIC, next(filter(None, node.outputs), given[0])),
        *(ctx.quantizers_of_codes(node, weights)[0] for weights in given[1:3]),
    )
    ctx.emit(
        node,
        DYNAMIC,
        (*needed, *given[_OPTIONAL]),
        row_attrs(node, OPS[DYNAMIC]),
        outputs=node.outputs,
        quantizer=names,
    )


HANDLERS: Final[Mapping[tuple[str, str], Handler]] = {("com.microsoft", DYNAMIC): _import}
