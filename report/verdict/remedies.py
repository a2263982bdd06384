"""Which quantizer wrote a model, told by the forms and names of what it left there."""

from __future__ import annotations

import enum
import re
from collections import Counter

from ...ir.decision import Quantizer
from ...plan.types import Plan


class Tool(enum.Enum):
    """A quantizer whose words a remedy can speak; the value is what people call it."""

    NNCF = "NNCF"
    ORT = "ONNX Runtime, quantize_static"
    ORT_DYNAMIC = "ONNX Runtime, quantize_dynamic"
    PYTORCH = "PyTorch"
    ANY = "any quantizer"


_AT_RUN_TIME = re.compile(r"DynamicQuantize\w+|(MatMul|Conv)Integer of codes")
# names that each tool gives to its nodes, or forms that only it writes
_NAMES: tuple[tuple[Tool, re.Pattern[str]], ...] = (
    (Tool.NNCF, re.compile(r"(De)?[Qq]uantizeLinear_.+_\d+$")),
    (Tool.ORT, re.compile(r".+_(QuantizeLinear|DequantizeLinear)(_Output)?(\.\d+)*$|.+_quant$")),
    (Tool.PYTORCH, re.compile(r".*/(De)?[Qq]uantizeLinear(_\d+)?$|.*(de)?quantize_per_.*")),
)
_QOPERATOR = re.compile(r"QLinear\w+|QGemm|QAttention|MatMulNBits")


def tool_of(plan: Plan) -> Tool:
    """The tool that most quantizers of the model come from; `ANY` where they do not tell."""
    votes = Counter(map(_of, plan.quantizers.values()))
    if any(_AT_RUN_TIME.fullmatch(quantizer.form) for quantizer in plan.quantizers.values()):
        return Tool.ORT_DYNAMIC
    known = [(count, tool) for tool, count in votes.items() if tool is not Tool.ANY]
    return max(known, key=lambda item: item[0])[1] if known else Tool.ANY


def is_qoperator(plan: Plan) -> bool:
    """True of a model whose layers are operators on codes (`QLinearConv`), each with its own quantizer."""
    return any(each.form.startswith(("QLinear", "QGemm")) for each in plan.quantizers.values())


def _of(quantizer: Quantizer) -> Tool:
    if quantizer.form == "FakeQuantize":
        return Tool.NNCF
    if _QOPERATOR.match(quantizer.form):
        return Tool.ORT
    return next((tool for tool, form in _NAMES if form.match(quantizer.name)), Tool.ANY)
