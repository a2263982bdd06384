"""Layouts that ONNX Runtime chooses for a CPU: com.microsoft.nchwc, whose channels lie in blocks, and channels last.

They are read back to plain layouts: channels are filled up to whole blocks where ReorderInput does it, and cut where
ReorderOutput does; weights are brought into ONNX's order. A block has 16 channels on CPUs with AVX-512 and 8 on
others. The file does not say it, and ONNX Runtime takes it for that of the CPU it runs on: so does this, where
nothing in the file proves it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from pathlib import Path
from typing import Any, Final

import numpy as np
from onnx import NodeProto

from ...errors import UnsupportedOp
from ...ir.decision import Decision, Outcome
from ...ir.ops import OPS
from ...ir.ops.spec import Array, Trait
from ..importer import Handler
from ..nodes import normal_domain
from .derived import Derived
from .forms import Form, handlers
from .fused import CONVOLUTION, FUSED_CONVOLUTION, MICROSOFT, convolved, kept

_NCHWC: Final = "com.microsoft.nchwc"
_RULE: Final = "import_channel_blocks"
_KEY: Final = (_NCHWC, "block")
_CPUINFO: Final = Path("/proc/cpuinfo")
_LARGE: Final = 16
_SMALL: Final = 8
_HINT: Final = "save the model at ORT_ENABLE_EXTENDED, whose files are the same for every CPU"


def _convolution(at: Derived) -> None:
    """Conv(X, W, B?, Sum?){attributes of Conv, activation, activation_params}: activation(Conv(X, W, B) + Sum), W in blocks of channels."""
    data = at.data(at.input(1), "weights")
    if data.ndim != 4 or data.dtype != np.float32:
        raise at.node.invalid(f"the weights are {data.dtype}{list(data.shape)}")
    block = _block(at)
    rows, columns = data.shape[:2]
    whole = at.node.attrs["group"] == 1 and columns >= block
    if rows % block or (whole and columns % block):
        raise at.node.invalid(f"weights {list(data.shape)} are no blocks of {block} channels")
    apart = whole or (at.node.attrs["group"] > 1 and columns > 1)
    weights = at.constant("weights", _unblocked(data, block, apart))
    inputs = [name for name in (at.input(0), weights, at.input(2)) if name]
    convolved(at, inputs, at.input(3), at.node.output(0))


def _unblocked(data: Array, block: int, both: bool) -> Array:
    """Weights [O / b, I / b, kh, kw, b of I, b of O], or [O / b, I, kh, kw, b of O], as [O, I, kh, kw]."""
    rows, columns, *kernel = data.shape
    if both:
        parts = data.reshape(rows // block, columns // block, *kernel, block, block)
        return np.ascontiguousarray(parts.transpose(0, 5, 1, 4, 2, 3)).reshape(data.shape)
    parts = data.reshape(rows // block, columns, *kernel, block)
    return np.ascontiguousarray(parts.transpose(0, 4, 1, 2, 3)).reshape(data.shape)


def _pool(op: str) -> Callable[[Derived], None]:
    def run(at: Derived) -> None:
        """MaxPool, AveragePool, GlobalMaxPool, GlobalAveragePool: ONNX's."""
        _check_padding(at)
        at.real(op, [at.input(0)], kept(at, at.node.attrs), output=at.node.output(0))

    return run


def _upsample(at: Derived) -> None:
    """Upsample(X){scales, mode, coordinate_transformation_mode}: Resize."""
    scales = at.constant("scales", np.asarray(at.node.attrs["scales"], np.float32))
    mode = at.node.attrs["mode"]
    attrs = {
        "mode": mode,
        "coordinate_transformation_mode": at.node.attrs["coordinate_transformation_mode"],
    }
    if mode == "nearest":
        attrs["nearest_mode"] = "floor"
    at.real("Resize", [at.input(0), "", scales], attrs, output=at.node.output(0))


def _into_blocks(at: Derived) -> None:
    """ReorderInput(X){channels_last}: channels filled up to whole blocks with zeros."""
    value = at.input(0)
    if at.node.attrs["channels_last"]:
        rank = at.ctx.rank(at.node, value)
        value = at.turned(value, (0, rank - 1, *range(1, rank - 1)), "channels first")
    shape = at.ctx.type(value).shape
    channels = shape[1] if shape is not None and len(shape) > 1 else None
    if not isinstance(channels, int):
        raise at.node.invalid(f"the number of channels of {value!r} is not known")
    missing = 0 if channels % _LARGE == 0 else -channels % _block(at)
    if missing:
        pads = at.integers(
            "pads", [*[0] * (len(shape or ()) + 1), missing, *[0] * (len(shape or ()) - 2)]
        )
        at.real("Pad", [value, pads], output=at.node.output(0))
    else:
        at.real("Identity", [value], output=at.node.output(0))


def _out_of_blocks(at: Derived) -> None:
    """ReorderOutput(X){channels, channels_last}: the first channels alone."""
    value, wanted = at.input(0), at.node.attrs["channels"]
    last = bool(at.node.attrs["channels_last"])
    output = "" if last else at.node.output(0)
    ends = [at.integers(role, [n]) for role, n in (("first", 0), ("end", wanted), ("axis", 1))]
    value = at.real("Slice", [value, *ends], role="channels" if last else "", output=output)
    if last:
        rank = at.ctx.rank(at.node, value)
        order = (0, *range(2, rank), 1)
        at.real("Transpose", [value], {"perm": order}, output=at.node.output(0))


def _check_padding(at: Derived) -> None:
    """Refuses an automatic padding of dilated windows, which ONNX Runtime takes for windows without holes."""
    attrs = at.node.attrs
    if max(attrs.get("dilations") or (1,)) > 1 and "SAME" in attrs["auto_pad"]:
        raise UnsupportedOp(
            f"the attribute auto_pad of {at.node.op} is {attrs['auto_pad']}, with dilations",
            where=at.node.where,
            hint="give the padding as pads: ONNX Runtime does not pad dilated windows as ONNX says",
        )


def _pool_channels_last(at: Derived) -> None:
    """NhwcMaxPool(x){attributes of MaxPool}: a MaxPool of x [N, spatial, C]."""
    _check_padding(at)
    rank = at.ctx.rank(at.node, at.input(0))
    first, back = (0, rank - 1, *range(1, rank - 1)), (0, *range(2, rank), 1)
    value = at.turned(at.input(0), first, "channels first")
    value = at.real("MaxPool", [value], kept(at, at.node.attrs))
    at.real("Transpose", [value], {"perm": back}, role="channels last", output=at.node.output(0))


def _convolution_channels_last(at: Derived) -> None:
    """NhwcConv(X, W, B?){attributes of Conv}: a Conv of X [N, spatial, C] and W [O, spatial, I]."""
    rank = at.ctx.rank(at.node, at.input(0))
    first, back = (0, rank - 1, *range(1, rank - 1)), (0, *range(2, rank), 1)
    operands = [at.turned(at.input(i), first, f"channels first {i}") for i in (0, 1)]
    value = at.real("Conv", [*operands, *filter(None, [at.input(2)])], kept(at, CONVOLUTION))
    at.real("Transpose", [value], {"perm": back}, role="channels last", output=at.node.output(0))


def _fused_convolution_channels_last(at: Derived) -> None:
    """NhwcFusedConv(X, W, B?, Z?){attributes of Conv, activation, activation_params}: activation(Conv(X, W, B) + Z) of X and Z
    [N, spatial, C], W as ONNX has it.
    """
    rank = at.ctx.rank(at.node, at.input(0))
    first, back = (0, rank - 1, *range(1, rank - 1)), (0, *range(2, rank), 1)
    value, added = (
        at.turned(at.input(i), first, f"channels first {i}") if at.input(i) else "" for i in (0, 3)
    )
    made = at.ctx.fresh(f"{at.node.name}.made")
    convolved(at, [name for name in (value, at.input(1), at.input(2)) if name], added, made)
    at.real("Transpose", [made], {"perm": back}, role="channels last", output=at.node.output(0))


# -- who reads blocks ------------------------------------------------------------------------------


def _in_blocks(run: Callable[[Derived], None]) -> Callable[[Derived], None]:
    """The same for an op whose output lies in blocks."""

    @wraps(run)
    def checked(at: Derived) -> None:
        _check_readers(at)
        run(at)

    return checked


def _check_readers(at: Derived) -> None:
    """Refuses ops that would take blocks of channels for plain channels, which the numbers here are.

    Raises:
        InvalidModel: there is one, also behind ops that go by element.
    """
    waiting, seen = [(at.node.output(0), False)], set[str]()
    while waiting:
        value, apart = waiting.pop()
        for _, reader in at.ctx.readers(value):
            if normal_domain(reader.domain) == _NCHWC:
                continue
            turns = reader.op_type == "Reshape" and _turns(at, reader, apart)
            if not (turns or _takes_any_layout(reader)):
                raise at.node.invalid(
                    f"{reader.op_type} reads {value!r}, whose channels lie in blocks",
                    "the tools for transformers do not know ONNX Runtime's blocks: let them optimize with opt_level 0 or 1",
                )
            waiting += [(name, apart != turns) for name in reader.output if name not in seen]
            seen.update(reader.output)


def _turns(at: Derived, reader: NodeProto, apart: bool) -> bool:
    """True of what ONNX Runtime writes around a sum of sizes that it does not know: [N, blocks, spatial, b] and back."""
    shape = at.ctx.constant(reader.input[1]) if len(reader.input) > 1 else None
    if shape is None or shape.ndim != 1:
        return False
    return len(shape) == 4 if apart else len(shape) == 5 and shape[-1] in (_SMALL, _LARGE)


def _takes_any_layout(node: NodeProto) -> bool:
    if node.domain == MICROSOFT:
        return node.op_type in ("FastGelu", "Gelu", "QuickGelu")
    row = OPS.get(node.op_type)
    return node.op_type in ("Concat", "Sum") or (
        row is not None and Trait.ELEMENTWISE in row.traits
    )


# -- how many channels a block has -----------------------------------------------------------------


def _block(at: Derived) -> int:
    """Channels of a block: what the file proves, else what ONNX Runtime has on this CPU.

    Raises:
        UnsupportedOp: neither is known.
    """
    known = at.ctx.decoded
    if _KEY not in known:
        sizes = set(_proofs(at))
        if len(sizes) > 1:
            raise UnsupportedOp(
                "blocks of 8 and of 16 channels in one model", where=at.node.where, hint=_HINT
            )
        found = next(iter(sizes)) if sizes else _of_this_cpu(at)
        source = "as the file shows" if sizes else "as ONNX Runtime has it on this CPU"
        told = f"a block of channels has {found}, {source}"
        at.ctx.graph.decide(Decision(_RULE, at.node.origin, Outcome.FIRED, told))
        known[_KEY] = str(found)
    return int(known[_KEY])


def _proofs(at: Derived) -> Iterator[int]:
    """Sizes of blocks that follow from numbers of channels: they are filled up to a multiple."""
    ctx = at.ctx
    shapes = {tensor.name: tuple(tensor.dims) for tensor in ctx.source.initializer}
    made = {name: node for node in ctx.source.node for name in node.output}
    for node in ctx.source.node:
        if normal_domain(node.domain) != _NCHWC:
            continue
        if node.op_type == "Conv" and shapes.get(node.input[1], (0,))[0] % _LARGE:
            yield _SMALL
        if node.op_type == "ReorderOutput":
            wanted = next((a.i for a in node.attribute if a.name == "channels"), 0)
            maker = made.get(node.input[0])
            weights = (
                shapes.get(maker.input[1], ())
                if maker is not None and maker.op_type == "Conv"
                else ()
            )
            if weights and wanted and weights[0] != wanted + -wanted % _SMALL:
                yield _LARGE


def _of_this_cpu(at: Derived) -> int:
    text = _CPUINFO.read_text(encoding="utf-8") if _CPUINFO.exists() else ""
    told = re.search(r"^flags\s*: (.*)$", text, flags=re.MULTILINE)
    flags = told[1].split() if told else []
    if "avx" not in flags:
        raise UnsupportedOp(
            "the file does not say how many channels a block of nchwc has",
            where=at.node.where,
            hint=_HINT,
        )
    return _LARGE if "avx512f" in flags else _SMALL


_WINDOW: Final[Mapping[str, Any]] = {
    "auto_pad": "NOTSET",
    "ceil_mode": 0,
    "dilations": None,
    "kernel_shape": tuple,
    "pads": None,
    "strides": None,
}
_FIRST: Final = {"storage_order": 0}

_ROWS: Final[Mapping[str, Form]] = {
    "Conv": Form("X W B? Sum?", "Y", _in_blocks(_convolution), FUSED_CONVOLUTION),
    "MaxPool": Form("X", "Y", _in_blocks(_pool("MaxPool")), _WINDOW, _FIRST),
    "AveragePool": Form(
        "X", "Y", _in_blocks(_pool("AveragePool")), {**_WINDOW, "count_include_pad": 0}
    ),
    "GlobalMaxPool": Form("X", "Y", _in_blocks(_pool("GlobalMaxPool"))),
    "GlobalAveragePool": Form("X", "Y", _in_blocks(_pool("GlobalAveragePool"))),
    "ReorderInput": Form("X", "Y", _in_blocks(_into_blocks), {"channels_last": 0}),
    "ReorderOutput": Form("X", "Y", _out_of_blocks, {"channels": int, "channels_last": 0}),
    "Upsample": Form(
        "X",
        "Y",
        _in_blocks(_upsample),
        {"scales": tuple, "mode": "nearest", "coordinate_transformation_mode": "asymmetric"},
    ),
}

HANDLERS: Final[Mapping[tuple[str, str], Handler]] = {
    **handlers(_NCHWC, _ROWS),
    **handlers(
        MICROSOFT,
        {
            "NhwcMaxPool": Form("x", "y", _pool_channels_last, _WINDOW),
            "NhwcConv": Form("X W B?", "Y", _convolution_channels_last, CONVOLUTION),
            "NhwcFusedConv": Form(
                "X W B? Z?", "Y", _fused_convolution_channels_last, FUSED_CONVOLUTION
            ),
        },
    ),
}
