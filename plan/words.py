"""Scales, zero points and post-ops in the words of the text form, there and back. What a post-op has
to say follows from the fields of its class.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from functools import partial
from typing import Any, TypeVar

from ..errors import InvalidInput
from ..ir.text_cursor import INT, NUMBER
from ..ir.text_read import Reader
from ..ir.text_write import Writer, name_text
from ..masks import mask_of, mask_text
from .attributes import OPERANDS, PostOp, Scale, ZeroPoint
from .types import Step

_KINDS: Mapping[str, type[PostOp]] = {kind.kind: kind for kind in OPERANDS}
_F = TypeVar("_F", Scale, ZeroPoint)


def _zero_point(reader: Reader) -> float:
    token = reader.token(NUMBER, "a zero point")
    return int(token) if INT.fullmatch(token) else reader.float_of(token)


_ITEMS: Mapping[type, Callable[[Reader], Any]] = {Scale: Reader.number, ZeroPoint: _zero_point}


# primitives whose data have channels in dimension 1, and those whose weights have a kernel
_WITH_CHANNELS = frozenset(
    {"convolution", "deconvolution", "pooling", "batch_normalization", "lrn", "resampling"}
)
_WITH_KERNELS = frozenset({"convolution", "deconvolution"})


def order_of(step: Step, role: str) -> str:
    """The order of the dimensions of an argument, by which its channels are known; '' where there is
    none, as of a matrix.
    """
    if role == "weights":
        order = "oihw" if step.params.get("group", 1) == 1 else "goihw"
        return order if step.primitive in _WITH_KERNELS else ""
    if step.primitive == "rnn":
        return "tnc" if role == "src" else ""
    return "nchw" if step.primitive in _WITH_CHANNELS else ""


def factors_text(writer: Writer, held: Scale | ZeroPoint, order: str = "") -> str:
    """`0.02`, or `[0.1,0.2]:per_dim_0` with the mask; `order`: of the tensor's dimensions."""
    single = held.mask == 0 and len(held.values) == 1
    if isinstance(held, Scale):
        text = writer.numbers(held.values) if single else writer.listing(held.values)
    else:
        texts = (str(v) if isinstance(v, int) else writer.numbers((v,)) for v in held.values)
        text = ",".join(texts)
        text = text if single else f"[{text}]"
    return text if single else f"{text}:{mask_text(held.mask, order)}"


def factors_from(reader: Reader, kind: type[_F]) -> _F:
    """What `factors_text` wrote.

    Raises:
        InvalidModel: something else stands here.
    """
    item = partial(_ITEMS[kind], reader)
    if not reader.peek("["):
        return kind((item(),))
    reader.refuse_elided()
    values = reader.listed("[", "]", item)
    reader.expect(":")
    return kind(tuple(values), mask_from(reader))


def mask_from(reader: Reader) -> int:
    """A mask, as a number or by its name.

    Raises:
        InvalidModel: something else stands here.
    """
    number = reader.match(INT)
    if number is not None:
        return int(number.group())
    start = reader.at
    parts = [reader.word("a mask")]
    while reader.take("+"):
        parts.append(reader.word("a dimension"))
    try:
        return mask_of("+".join(parts))
    except InvalidInput as error:
        reader.at = start
        reader.fail_with(f"{error.what}; {error.hint}")


_OPTIONS: Mapping[str, tuple[Callable[[Writer, Any], str], Callable[[Reader], object]]] = {
    "float": (lambda writer, value: writer.numbers((value,)), Reader.number),
    "int": (lambda _, value: str(value), Reader.integer),
    "Mask": (lambda _, value: mask_text(value), mask_from),
    "DType": (lambda _, value: value.value, Reader.dtype),
    "Scale": (factors_text, lambda reader: factors_from(reader, Scale)),
    "ZeroPoint": (factors_text, lambda reader: factors_from(reader, ZeroPoint)),
}
"""How an option is written and read, by the type of its field."""


def _option(annotation: object) -> tuple[Callable[[Writer, Any], str], Callable[[Reader], object]]:
    return _OPTIONS[str(annotation).removesuffix(" | None")]


def post_op_text(writer: Writer, op: PostOp, ref: Callable[[str], str]) -> str:
    """A post-op, with what differs from its defaults: `eltwise(relu)`, `sum(%r,scale=0.5)`,
    `binary(add,@c)`.

    Args:
        writer: of the text.
        op: the post-op.
        ref: writes the reference to an operand.
    """
    parts = []
    for item in fields(op):
        value = getattr(op, item.name)
        if item.name in OPERANDS[type(op)]:
            parts.append(ref(value))
        elif item.type == "Algorithm":
            parts.append(name_text(value))
        elif value is not None:
            write, _ = _option(item.type)
            text = write(writer, value)
            if item.default in (MISSING, None) or text != write(writer, item.default):
                parts.append(f"{item.name}={text}")
    return f"{op.kind}({','.join(parts)})"


def post_op_from(reader: Reader, use: Callable[[], str]) -> PostOp:
    """What `post_op_text` wrote: `eltwise(relu,alpha=0.1)`, `depthwise_conv(@w,@b,kernel=3,...)`.

    Args:
        reader: stands at the post-op.
        use: reads the reference to an operand.

    Raises:
        InvalidModel: something else stands there.
    """
    start = reader.at
    kind = _KINDS.get(reader.word("a post-op"))
    if kind is None:
        reader.at = start
        reader.fail("a post-op (" + ", ".join(_KINDS) + ")")
    reader.expect("(")
    found: dict[str, Any] = {}
    options = {}
    for item in fields(kind):
        operand = item.name in OPERANDS[kind]
        if not operand and item.type != "Algorithm":
            options[item.name] = item
            continue
        if found:
            reader.expect(",")
        found[item.name] = use() if operand else reader.name("an algorithm")
    while reader.take(","):
        key = reader.word("an option of the post-op")
        if key not in options or key in found:
            reader.fail_with(
                f"{key} is no option here, or stands twice; there are {', '.join(options)}"
            )
        reader.expect("=")
        found[key] = _option(options[key].type)[1](reader)
    missing = [key for key, item in options.items() if item.default is MISSING and key not in found]
    if missing:
        reader.fail_with(f"{kind.kind} needs {', '.join(missing)}")
    reader.expect(")")
    return kind(**found)
