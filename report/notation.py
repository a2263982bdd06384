"""Single things of a plan in short readable notation: a step's types, what is fused into it, where
it came from.

Numbers keep four significant digits: enough to recognize a scale; `inspect --text` and `--json`
have all of them.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import assert_never

from ..ir.decision import DequantizeFate
from ..ir.text_write import name_text
from ..ir.types import DType, Quantization, TensorType
from ..plan.arguments import PACKED, at_run_time
from ..plan.attributes import (
    Binary,
    DepthwiseConv,
    Eltwise,
    PostOp,
    Prelu,
    PrimitiveAttr,
    Scale,
    Sum,
    ZeroPoint,
)
from ..plan.recurrent_parameters import qparams_of
from ..plan.types import Plan, Step, codes_source
from .columns import columns, head, tail
from .summary import COMPUTE

_NO_ATTR = PrimitiveAttr()
_WEIGHTS = ("weights", "w", "r")
_ON_CODES = re.compile(r"QLinear\w+|QGemm|QAttention|\w+ of codes")  # forms of quantizers
_FEW = 3
_TITLE = 60
_WORD = 12  # characters of a word, on either side of where names differ
_PREFIX = 4  # a shared beginning of fewer characters is not worth an ellipsis


def number_text(value: float) -> str:
    """A number with four significant digits; infinities as ∞."""
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    return f"{value:.4g}"


def rounded(value: float) -> float:
    """A number with four significant digits, for programs: an estimate has no more."""
    return float(f"{value:.4g}")


def bytes_text(count: int) -> str:
    """A number of bytes with a binary unit: `29.2 KiB`."""
    size = float(count)
    for unit in ("bytes", "KiB", "MiB"):
        if size < 1024:
            return f"{count} bytes" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


def _packed_type(step: Step) -> str:
    bits, block = (step.params.get(name) for name in ("bits", "block"))
    return f"u{bits!r}/{block!r}"


def count_text(count: int, noun: str, plural: str = "") -> str:
    """`1 step`, `12 steps`, with separated thousands."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def middle_cut(text: str, room: int | None) -> str:
    """The text with its middle left out where it takes more than `room` columns (None: never);
    names differ most at their ends.
    """
    if room is None or columns(text) <= room:
        return text
    front = head(text, (room - 1) // 3)
    return f"{front}…{tail(text, room - 1 - columns(front))}"


def end_cut(text: str, room: int) -> str:
    """The text without its end where it takes more than `room` columns: of types and lists the
    beginning says most.
    """
    return text if columns(text) <= room else f"{head(text, room - 1)}…"


def cut_names(names: Sequence[str], room: int | None) -> list[str]:
    """The names of one list, those that take more than `room` columns (None: none does) cut in their
    middles: where that would make several look alike, they keep the words in which they differ instead
    of the beginning that they share, as far as there is room.
    """
    shown = {name: middle_cut(name, room) for name in names}
    kept: dict[str, list[tuple[int, int]]] = {name: [] for name in shown}
    waiting = [] if room is None else _look_alike(shown, shown)
    while room is not None and waiting:
        group = waiting.pop()
        at = len(os.path.commonprefix(group))  # noqa: RUF071  (of texts: no path is meant)
        for name in group:
            kept[name].append(_words_around(name, at))
        texts = {name: _with_kept(name, kept[name], room) for name in group}
        if any(columns(text) > room for text in texts.values()):
            continue
        shown |= texts
        waiting += [alike for alike in _look_alike(group, shown) if len(alike) < len(group)]
    return [shown[name] for name in names]


def _look_alike(names: Iterable[str], shown: Mapping[str, str]) -> list[list[str]]:
    """Groups of several names that are shown by one text."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(shown[name], []).append(name)
    return [group for group in groups.values() if len(group) > 1]


def _words_around(name: str, at: int) -> tuple[int, int]:
    """Where the word at a place begins, with the one in front of it, and where it ends."""
    start, end = at, at
    for of_word in (True, False, True):
        while start > max(0, at - _WORD) and name[start - 1].isalnum() == of_word:
            start -= 1
    while end < min(len(name), at + _WORD) and (end == at or name[end].isalnum()):
        end += 1
    return start, end


def _with_kept(name: str, kept: Sequence[tuple[int, int]], room: int) -> str:
    """The parts of a name from left to right, and as much of its end as there is room for."""
    first = kept[0][1]
    parts = [(0, first)] if columns(name[:first]) <= room // 2 else []
    text, end = "", 0
    for start, stop in [*parts, *kept]:
        if end < stop:
            text += ("…" if start > end else "") + name[max(start, end) : stop]
            end = stop
    rest = name[end:]
    if columns(text) + columns(rest) <= room:
        return text + rest
    return f"{text}…{tail(rest, room - columns(text) - 1)}"


def layer_names(plan: Plan, step: Step) -> list[str]:
    """The nodes of a step that are more than quantizers: operators on codes (QLinearConv, MatMulNBits)
    are layers, too.
    """
    forms = ((name, plan.quantizers.get(name)) for name in step.origin)
    return [name for name, found in forms if found is None or _ON_CODES.fullmatch(found.form)]


def title_text(name: str) -> str:
    """The name of a model or file at the beginning of a line: quoted where it might be taken for a
    message, and short.
    """
    return middle_cut(name_text(name), _TITLE) if name else ""


def short_names(names: Sequence[str]) -> list[str]:
    """Names, the later ones without the path that they share with the first: `block1.conv1,
    …relu1`.

    A path ends at `.` or `/`.
    """
    return [*names[:1], *(_without_shared_path(name, names[0]) for name in names[1:])]


def _without_shared_path(name: str, first: str) -> str:
    shared = next(
        (i for i, (a, b) in enumerate(zip(name, first, strict=False)) if a != b),
        min(len(name), len(first)),
    )
    cut = max(name.rfind("/", 0, shared), name.rfind(".", 0, shared)) + 1
    return f"…{name[cut:]}" if cut >= _PREFIX else name


class Notation:
    """Writes the parts of one plan's steps.

    Args:
        plan: the plan; values that its steps write are called by the step's index.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._producer = {
            value: (index, place)
            for index, step in enumerate(plan.steps)
            for place, value in enumerate(step.outputs)
            if value
        }

    def value(self, name: str) -> str:
        """A value: `#3` for the output of step 3 (`#3.1` for its second one), a constant by its
        shape or number, an input by its name.
        """
        if name in self._producer:
            index, place = self._producer[name]
            return f"#{index}" if place == 0 else f"#{index}.{place}"
        data = self.plan.constants.get(name)
        if data is None:
            return name
        if data.size == 1 and data.dtype.kind in "fiu":
            return number_text(float(data.reshape(-1)[0]))
        return "const" + _dims(data.shape)

    def primitive(self, step: Step) -> str:
        """The primitive with what tells it apart from others of its kind: `convolution 3x3/2 g48`,
        `pooling max 2x2/2`, `eltwise relu`.
        """
        words = [step.primitive]
        if step.primitive == "pooling":
            words.append(_pooling_name(step.op))
        elif step.primitive == "eltwise":
            words.append(
                _eltwise(
                    Eltwise(
                        str(step.params.get("algorithm", step.op)),
                        _float(step, "alpha"),
                        _float(step, "beta"),
                    )
                )
            )
        elif step.primitive == "binary":
            words.append(str(step.params.get("algorithm", step.op)))
        elif step.primitive == "reduction":
            words.append(step.op)
        words.append(_window(step))
        group = step.params.get("group", 1)
        return " ".join(
            [*filter(None, words), *([f"g{group}"] if isinstance(group, int) and group > 1 else [])]
        )

    def types(self, step: Step) -> str:
        """Element types in, type out: `u8×s8 → u8[N,32,8,8]`; `25 s8 → ...` for many; `f32×u4/32`
        for packed weights, a scale for each 32, and `s8/32×u4/32` where the source becomes codes,
        too. Biases and other constants are left out.
        """
        given = [
            self._operand_type(step, role, value)
            for role, value in step.args
            if role in _WEIGHTS or self._is_source(step, role, value)
        ]
        result = [self.type(value) for value in step.outputs if value]
        sources = "×".join(given) if len(given) <= _FEW else ", ".join(_counted(given))
        return (
            f"{sources or '-'} → {', '.join(result if len(result) <= _FEW else _counted(result))}"
        )

    def _operand_type(self, step: Step, role: str, value: str) -> str:
        if step.op == PACKED and role == "weights":
            return _packed_type(step)
        if codes_source(step) and role == "src":
            return f"s8/{step.params.get('block')!r}"
        return self._dtype(value)

    def type(self, value: str) -> str:
        """A type without its quantization: `u8[N,32,8,8]`."""
        type_ = self.plan.type(value)
        return f"{type_.dtype.value}{'[*]' if type_.shape is None else _dims(type_.shape)}"

    def fused(self, step: Step) -> list[str]:
        """What happens inside the step besides its own arithmetic, in order: parameters that are
        computed, the decoding of packed weights, bias, output scales, post-ops, the final
        quantization.
        """
        computed = at_run_time(step.op, step.args).values()
        parts = [f"decode({', '.join(map(self.value, computed))})"] if computed else []
        if step.op == PACKED:
            bits, block = (step.params.get(name) for name in ("bits", "block"))
            what = "quantize(source" if codes_source(step) else f"decode({bits!r} bits"
            parts.append(f"{what}, blocks of {block!r})")
        parts += ["bias"] if step.primitive in COMPUTE and step.arg("bias") is not None else []
        if step.attr.output_scales is not None:
            parts.append(f"output_scales({_factors(step.attr.output_scales)})")
        if step.primitive == "rnn" and (found := qparams_of(step.attr)) is not None:
            scale, shift = found[0].values
            parts.append(f"quantize(h, {scale:.6g} * h + {shift:g})")
        if step.primitive == "reorder":
            return [*parts, *self._post_ops(step.attr), _conversion(self.plan, step)]
        parts += self._post_ops(step.attr)
        if self._quantizes(step):
            parts.append(_quantize_text(self.plan.type(step.output)))
        return parts

    def origin(self, step: Step) -> list[str]:
        """Names of the model's nodes in the step; without quantizers, which have a table of their
        own, unless there is nothing else.
        """
        return layer_names(self.plan, step) or list(step.origin)

    def _quantizes(self, step: Step) -> bool:
        """True when the step rounds to codes, rather than moving or selecting those of its
        source.
        """
        if not step.output:  # of an operator's several results, the first is not wanted
            return False
        result, source = (
            self.plan.type(value)
            for value in (step.output, step.args[0][1] if step.args else step.output)
        )
        computes = step.attr != _NO_ATTR or source.quant is None
        return result.quant is not None and computes and not step.primitive.startswith("onnx.")

    def _dtype(self, value: str) -> str:
        return self.plan.type(value).dtype.value

    def _is_source(self, step: Step, role: str, value: str) -> bool:
        if role.startswith("src"):
            return True
        return step.primitive.startswith("onnx.") and (
            value not in self.plan.constants or (role, value) == step.args[0]
        )

    def _post_ops(self, attr: PrimitiveAttr) -> list[str]:
        return [self.post_op(op) for op in attr.post_ops]

    def post_op(self, op: PostOp) -> str:
        """A post-op: `relu`, `clip(0, 6)`, `×1.912`, `sum(#1, ×0.0169)`, `add(const[1,32,1,1])`."""
        match op:
            case Eltwise():
                return _eltwise(op)
            case Binary():
                scale = "" if op.scale is None else f", ×{_factors(op.scale)}"
                zero = "" if op.zero_point is None else f", z={_factors(op.zero_point)}"
                return f"{op.algorithm}({self.value(op.operand)}{scale}{zero})"
            case Sum():
                return f"sum({', '.join([self.value(op.operand), *_sum_details(op)])})"
            case Prelu():
                return f"prelu({self.value(op.operand)})"
            case DepthwiseConv():
                return f"depthwise_conv({op.kernel}x{op.kernel}{f'/{op.stride}' if op.stride > 1 else ''} → {op.dst_dtype.value})"
            case _:
                assert_never(op)


def _counted(texts: Sequence[str]) -> list[str]:
    """Equal neighbours together: `24 s8`, `u8`."""
    runs = [(text, len(list(run))) for text, run in groupby(texts)]
    return [text if count == 1 else f"{count} {text}" for text, count in runs]


def _dims(shape: Iterable[int | str]) -> str:
    return "[" + ",".join(map(str, shape)) + "]"


def _factors(held: Scale | ZeroPoint) -> str:
    if len(held.values) == 1:
        return number_text(held.values[0])
    least, most = map(number_text, (min(held.values), max(held.values)))
    return f"{len(held.values)} values {least}..{most}"


def _sum_details(op: Sum) -> list[str]:
    details = [] if op.scale == 1 else [f"×{number_text(op.scale)}"]
    return details if op.zero_point == 0 else [*details, f"z={op.zero_point}"]


def _eltwise(op: Eltwise) -> str:
    alpha, beta = number_text(op.alpha), number_text(op.beta)
    name = op.algorithm
    if name == "linear":
        shift = "" if op.beta == 0 else f"{'-' if op.beta < 0 else '+'} {number_text(abs(op.beta))}"
        text = shift if shift and op.alpha == 1 else f"×{alpha} {shift}".rstrip()
    elif name.startswith("clip"):
        text = f"clip({alpha}, {beta})"
    elif op.beta != 0:
        text = f"{name}({alpha}, {beta})"
    else:
        text = name if op.alpha == 0 else f"{name}({alpha})"
    return text if op.scale == 1 else f"{text} ×{number_text(op.scale)}"


def _float(step: Step, name: str) -> float:
    value = step.params.get(name, 0.0)
    return float(value) if isinstance(value, int | float) else 0.0


def _window(step: Step) -> str:
    kernel, strides = _numbers(step, "kernel_shape"), _numbers(step, "strides")
    if not kernel or set(strides) <= {"1"}:
        return "x".join(kernel)
    return f"{'x'.join(kernel)}/{strides[0] if len(set(strides)) == 1 else 'x'.join(strides)}"


def _numbers(step: Step, name: str) -> list[str]:
    value = step.params.get(name)
    return (
        [str(number) for number in value if isinstance(number, int)]
        if isinstance(value, tuple)
        else []
    )


def _pooling_name(op: str) -> str:
    return (
        op.removesuffix("Pool")
        .replace("Global", "global ")
        .replace("Average", "average")
        .replace("Max", "max")
    )


def _quantize_text(type_: TensorType, verb: str = "quantize") -> str:
    quant = type_.quant
    if quant is None:
        return f"{verb} to {type_.dtype.value}"
    if not quant.per_tensor:
        return f"{verb}({len(quant.scale)} scales)"
    zero = "" if quant.symmetric else f", z={number_text(quant.zero_point[0])}"
    return f"{verb}({number_text(quant.scale[0])}{zero})"


def _conversion(plan: Plan, step: Step) -> str:
    source, result = plan.type(step.args[0][1]), plan.type(step.output)
    if result.dtype.is_integer:
        return _quantize_text(result, "requantize" if source.dtype.is_integer else "quantize")
    return (
        _quantize_text(TensorType(DType.F32, source.shape, source.quant), "dequantize")
        if source.dtype.is_integer
        else "copy"
    )


def weights_by_step(plan: Plan) -> dict[int, Quantization]:
    """Step -> how its weights decode, as the model has them: the scale in the step's attributes is
    another number where a factor or the destination's scale has joined it. Only of codes that the
    model holds, and of steps that read one quantizer's alone.
    """
    found: dict[int, set[Quantization]] = {}
    for fate in plan.fate_records:
        if fate.fate is DequantizeFate.WEIGHTS_SCALE and fate.step is not None:
            quantizer = plan.quantizers.get(fate.quantizer)
            if quantizer is not None and quantizer.quant is not None:
                found.setdefault(fate.step, set()).add(quantizer.quant)
    return {step: quants.pop() for step, quants in found.items() if len(quants) == 1}
