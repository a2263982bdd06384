"""What oneDNN 3.2 takes when it makes a primitive, and neglects, or cannot be given, when it runs.

Such a primitive would compute something else than it says, so that none is made here.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..ir.types import DType
from ..plan.attributes import DepthwiseConv, Prelu, Sum
from .depthwise import parts
from .description import Description, count
from .kinds import CELLS
from .operation import hangs_out, misfits
from .recurrent import neglected as neglected_of_layer

_WITHOUT_SUMS = frozenset({"eltwise", "pooling"})
_WITHOUT_SLOPES = frozenset({"eltwise", "binary", "pooling", "reduction", "resampling", "softmax"})


def neglected(description: Description) -> str | None:
    """What the library would neglect; None where there is nothing. It is one that it would make."""
    if description.kind in CELLS:
        return next(neglected_of_layer(description), None)
    chain = parts(description)
    for part in chain:
        for reason in (*_windows(part), *_nothing_to_read(part)):
            return reason
    for part in chain[1:]:
        for reason in misfits(part):
            return f"{reason}, and is read beyond its end"
    for find in (_post_ops, _parameters, _of_reorder):
        for reason in find(description):
            return reason
    return None


def _post_ops(description: Description) -> Iterator[str]:
    kind, post_ops = description.kind, description.attr.post_ops
    depthwise = [op for op in post_ops if isinstance(op, DepthwiseConv)]
    if depthwise and kind != "convolution":
        yield f"a depthwise post-op of {kind} is neglected"
    if depthwise and description.attr.zero_points:
        yield "zero points beside a depthwise post-op cannot be given"
    for op in post_ops:
        if isinstance(op, Sum) and kind in _WITHOUT_SUMS:
            yield f"a sum of {kind} adds nothing"
        if isinstance(op, Prelu) and (kind in _WITHOUT_SLOPES or depthwise):
            beside = " beside a depthwise one" if depthwise else ""
            yield f"the slopes of a prelu post-op of {kind}{beside} cannot be given"
    sums = [op for op in post_ops if isinstance(op, Sum)]
    if any(op.dtype is not sums[0].dtype for op in sums):
        yield "the type that a later sum reads is neglected"


def _parameters(description: Description) -> Iterator[str]:
    kind, attr = description.kind, description.attr
    for name, roles in (("scales", attr.scales), ("zero points", attr.zero_points)):
        for role in roles:
            if role not in description.tensors or (kind == "concat" and role == "dst"):
                yield f"{name} of {role} are neglected"
            elif kind == "batch_normalization":
                yield f"{name} beside a relu are neglected"


def _reorder_masks(description: Description) -> tuple[int, int]:
    """Masks of the scales of src and dst; 0 where there are none."""
    scales = description.attr.scales
    src, dst = (scales[role].mask if role in scales else 0 for role in ("src", "dst"))
    return src, dst


def _copies_f32(description: Description) -> bool:
    """Whether a reorder is the library's loop of its own for copies of f32."""
    types = {description.dtype("src"), description.dtype("dst")}
    return types == {DType.F32} and not any(_reorder_masks(description))


def _of_reorder(description: Description) -> Iterator[str]:
    if description.kind != "reorder":
        return
    src, dst = _reorder_masks(description)
    if src and dst and src != dst:
        yield "scales of src and of dst with two masks cannot be run"
    for role, zero in description.attr.zero_points.items():
        # of an empty tensor there may be none
        if count(zero.mask, description.dims(role)) != 1:
            yield "other than one zero point of a reorder cannot be run"
    sums = [op for op in description.attr.post_ops if isinstance(op, Sum)]
    if any(op.zero_point for op in sums):
        yield "the zero point of a sum is neglected"
    if sums and "dst" in description.attr.scales and _copies_f32(description):
        yield "the scale of dst does not count for a sum in f32"


def _windows(description: Description) -> Iterator[str]:
    reason = hangs_out(description)
    if reason is not None:
        yield reason


def _nothing_to_read(description: Description) -> Iterator[str]:
    """The library returns at once where a source is empty, also where something is to be written."""
    read, written = description.dims(description.sources()[0]), description.dims("dst")
    if description.kind == "resampling" and 0 in read and 0 not in written:
        yield f"of src {list(read)} there is nothing to resample, and dst stays what it was"
