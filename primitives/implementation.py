"""What oneDNN 3.2's implementations take, a row for each kind: element types, masks, post-ops. The
library's status for anything else is `unimplemented`.

The last implementation to be asked is a reference, which takes all that any other one takes but for
a few cases; so the rows are about the references. Depthwise post-ops of convolutions are `depthwise.py`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from ..ir.types import DType
from ..masks import mask_text
from ..plan.attributes import Binary, DepthwiseConv, Eltwise, Prelu, PrimitiveAttr, Scale, Sum
from .compiled import compiled_deconvolution, compiled_depthwise, uncompiled_reduction
from .depthwise import scales_of
from .description import HALVES, Description, axes, grouped
from .kinds import KINDS

_TYPES = (DType.F32, DType.BF16, DType.F16, DType.S32, DType.S8, DType.U8)
_INT8 = frozenset({DType.S8, DType.U8})


def reorder_masks(description: Description) -> tuple[int, int]:
    """Masks of the scales of src and dst; 0 where there are none."""
    scales = description.attr.scales
    src, dst = (scales[role].mask if role in scales else 0 for role in ("src", "dst"))
    return src, dst


def copies_f32(description: Description) -> bool:
    """Whether a reorder is the library's loop of its own for copies of f32."""
    types = {description.dtype("src"), description.dtype("dst")}
    return types == {DType.F32} and not any(reorder_masks(description))


@dataclass(frozen=True)
class Rules:
    """What oneDNN 3.2 takes of one kind.

    Attributes:
        types: what no implementation has among its element types.
        scales, zero_points: argument -> masks, where it may have such; None: any.
        post_ops: kinds of post-ops.
        sum_types: what the first sum may be told to read its operand as; None: nothing.
        further: what else is refused.
    """

    types: Callable[[Description], bool]
    scales: Callable[[Description], Mapping[str, Collection[int] | None]] = lambda _: {}
    zero_points: Callable[[Description], Mapping[str, Collection[int] | None]] = lambda _: {}
    post_ops: frozenset[str] = frozenset()
    sum_types: Callable[[Description], Collection[DType | None]] = lambda _: (None,)
    further: Callable[[Description], Iterator[str]] = lambda _: iter(())


def missing(description: Description) -> Iterator[str]:
    """What no implementation takes."""
    rules = RULES[description.kind]
    if not rules.types(description) or not _known_halves(description):
        yield "no implementation has these element types"
    for name, held, allowed in (
        ("scales", _scales(description), rules.scales(description)),
        ("zero points", description.attr.zero_points, rules.zero_points(description)),
    ):
        for role, values in held.items():
            masks = allowed.get(role, ())
            if masks is not None and values.mask not in masks:
                yield f"{name} of {role} with mask {mask_text(values.mask)}"
    for op in description.attr.post_ops:
        if op.kind not in rules.post_ops:
            yield f"a post-op {op.kind} of {description.kind}"
    sums = _sums(description)
    if sums and sums[0].dtype not in rules.sum_types(description):
        yield "a sum that reads its operand as another type"
    yield from rules.further(description)


def _known_halves(description: Description) -> bool:
    """f16 is moved and added alone on CPUs without AVX512-FP16, and not between all types."""
    # of the parameters of normalizations the library is told no type
    untold = KINDS[description.kind].flags
    types = [type_.dtype for role, type_ in description.tensors.items() if role not in untold]
    if description.kind == "sum":
        return True
    if description.kind in ("reorder", "concat"):
        return (types[0], types[-1]) not in _UNMOVED
    if description.kind == "deconvolution":  # bias and destination are computed behind it
        return DType.F16 not in types[:2]
    return DType.F16 not in types


_UNMOVED = frozenset(
    {
        (DType.BF16, DType.F16),
        (DType.F16, DType.BF16),
        *((half, DType.S32) for half in HALVES),
        *((DType.S32, half) for half in HALVES),
        (DType.U8, DType.F16),
    }
)
"""Source and destination that no reorder has."""


def _scales(description: Description) -> dict[str, Scale]:
    """Of arguments, and of those of depthwise post-ops."""
    depthwise = [op for op in description.attr.post_ops if isinstance(op, DepthwiseConv)]
    found = {f"depthwise {role}": scale for op in depthwise for role, scale in scales_of(op)}
    return {**description.attr.scales, **found}


def _sums(description: Description) -> list[Sum]:
    return [op for op in description.attr.post_ops if isinstance(op, Sum)]


def _of_that_size(description: Description) -> Collection[DType | None]:
    size = description.dtype("dst").bits
    return (None, *(dtype for dtype in _TYPES if dtype.bits == size))


def _destinations(description: Description) -> Collection[DType | None]:
    return None, description.dtype("dst")


def _of_pooling(description: Description) -> Collection[DType | None]:
    """Code for plain tensors of f32 that has no dilations takes the type itself, the reference none."""
    _, dilations, *_ = axes(description)
    dst = description.dtype("dst")
    plain = dst in (DType.F32, DType.BF16) and not any(dilations)
    return (None, dst) if plain else (None,)


def _like_sums(description: Description) -> Iterator[str]:
    """Sums of products read one type, and have zero points where that is an integer's, or of a depthwise
    convolution of images.
    """
    sums, dst = _sums(description), description.dtype("dst")
    if any(op.dtype is not sums[0].dtype for op in sums):
        yield "sums that read their operand as several types"
    if compiled_depthwise(description):
        return
    for op in sums:
        if op.zero_point and (not _is_int8(description) or (op.dtype or dst).is_float):
            yield "a zero point of a sum whose operand is no integer"


def _deconvolution_further(description: Description) -> Iterator[str]:
    weights = description.dims("weights")
    # that of codes is the reference's, which looks at the kernel alone
    if 0 in (weights[-len(axes(description)[0]) :] if _is_int8(description) else weights):
        yield f"weights {list(weights)}"
    elif not compiled_deconvolution(description):
        yield from _like_sums(description)


def _is_int8(description: Description) -> bool:
    return description.dtype("src") in _INT8


_GEMM_POST_OPS = frozenset({Eltwise.kind, Binary.kind, Sum.kind, Prelu.kind})
_ANY_POST_OPS = _GEMM_POST_OPS | {DepthwiseConv.kind}
"""Many a reference does not look at the kinds; what it neglects then is in `neglected.py`."""


def _product_types(description: Description) -> bool:
    bias = description.dtype("bias") if "bias" in description.tensors else DType.F32
    dst = description.dtype("dst")
    if not _known_factors(description):
        return False
    if _is_int8(description):
        return bias is not DType.F16
    allowed = (DType.F32, description.dtype("src"))  # bf16 may be stored as itself
    return dst in allowed and bias in allowed


def _known_factors(description: Description) -> bool:
    """Codes times s8, or two of one float type."""
    src, weights = description.dtype("src"), description.dtype("weights")
    if _is_int8(description):
        return weights is DType.S8
    return src is weights and src in (DType.F32, DType.BF16)


def _per_tensor(*roles: str) -> dict[str, Collection[int]]:
    return dict.fromkeys(roles, (0,))


def _channel_masks(description: Description) -> Mapping[str, Collection[int] | None]:
    """Scales of (de)convolutions and inner products of codes."""
    if not _is_int8(description):
        return {}
    mask = 3 if description.kind != "inner_product" and grouped(description) else 1
    return {**_per_tensor("src", "dst"), "weights": (0, mask)}


def _channel_points(description: Description) -> Mapping[str, Collection[int] | None]:
    return dict.fromkeys(("src", "dst"), (0, 2)) if _is_int8(description) else {}


def _matmul_scales(description: Description) -> Mapping[str, Collection[int] | None]:
    last = 1 << (len(description.dims("dst")) - 1)
    return {**_per_tensor("src", "dst"), "weights": (0, last)}


def _matmul_points(description: Description) -> Mapping[str, Collection[int] | None]:
    if not _is_int8(description):
        return {}
    masks = (0, 2) if len(description.dims("dst")) == 2 else (0,)
    return {"src": masks, "weights": (0,), "dst": masks}


def _reorder_further(description: Description) -> Iterator[str]:
    """Compiled code takes scales of one argument, or of both with one mask, and sums of scale 1;
    the reference scales of neighbouring dimensions. It takes two masks, too, and then cannot be run.
    """
    src, dst = reorder_masks(description)
    attr = description.attr
    if len(attr.post_ops) > 1:
        yield "more than one post-op"
    if src and dst and src != dst:
        return
    ones = (src | dst) // ((src | dst) & -(src | dst) or 1)
    sums = [op for op in attr.post_ops if isinstance(op, Sum)]
    halves = DType.F16 in (description.dtype("src"), description.dtype("dst"))
    compiled = (
        not halves
        and (src == dst or len(attr.scales.keys() & {"src", "dst"}) == 1)
        and all(op.scale in (0, 1) for op in sums)
    )
    if not compiled and ones & (ones + 1):
        yield f"mask {mask_text(src | dst)}, whose dimensions are no neighbours"
    if not copies_f32(description) and any(op.zero_point for op in sums):
        yield "the zero point of a sum"


def _deconvolution_types(description: Description) -> bool:
    """Attributes and bias are computed behind a convolution in f32, whatever the types; but without
    attributes one that writes the destination's type itself is asked for first, and of f32 into s32
    that is no convolution.
    """
    src, dst = description.dtype("src"), description.dtype("dst")
    if not _known_factors(description):
        return False
    if dst in (DType.F32, src) or (_is_int8(description) and dst is not DType.F16):
        return True
    biased = "bias" in description.tensors and (src, dst) != (DType.F32, DType.S32)
    return biased or description.attr != PrimitiveAttr()


def _same_types(description: Description) -> bool:
    return description.dtype("src") is description.dtype("dst")


def _batch_normalization_further(description: Description) -> Iterator[str]:
    post_ops = description.attr.post_ops
    if len(post_ops) > 1 or any(
        isinstance(op, Eltwise) and op.algorithm != "relu" for op in post_ops
    ):
        yield "post-ops other than one relu"
    if description.dtype("src") is DType.S8 and "mean" not in description.tensors:
        yield "statistics of codes"


def _beside_relu(description: Description) -> Mapping[str, Collection[int] | None]:
    """Scales and zero points are not looked at where there is a post-op."""
    attr = description.attr
    return dict.fromkeys((*attr.scales, *attr.zero_points)) if attr.post_ops else {}


_REFERENCE_REDUCTIONS = frozenset(
    {(DType.F32, DType.F32), (DType.BF16, DType.BF16), (DType.BF16, DType.F32)}
    | {(src, dst) for src in _INT8 for dst in (src, DType.S32, DType.F32)}
)


def _reduction_further(description: Description) -> Iterator[str]:
    """For other types there is compiled code alone."""
    if (description.dtype("src"), description.dtype("dst")) not in _REFERENCE_REDUCTIONS:
        yield from uncompiled_reduction(description)


RULES: Mapping[str, Rules] = {
    "convolution": Rules(
        _product_types,
        _channel_masks,
        _channel_points,
        _GEMM_POST_OPS,
        _of_that_size,
        _like_sums,
    ),
    "deconvolution": Rules(
        _deconvolution_types,
        _channel_masks,
        _channel_points,
        _GEMM_POST_OPS,
        _of_that_size,
        _deconvolution_further,
    ),
    "inner_product": Rules(
        _product_types, _channel_masks, lambda _: {}, _ANY_POST_OPS, _of_that_size, _like_sums
    ),
    "matmul": Rules(
        _product_types, _matmul_scales, _matmul_points, _ANY_POST_OPS, _of_that_size, _like_sums
    ),
    "eltwise": Rules(_same_types, post_ops=_ANY_POST_OPS),
    "binary": Rules(
        lambda _: True, lambda _: _per_tensor("src", "src_0", "src_1"), post_ops=_ANY_POST_OPS
    ),
    "reorder": Rules(
        lambda _: True,
        lambda d: dict.fromkeys(d.attr.scales),
        lambda _: dict.fromkeys(("src", "dst")),
        frozenset({Sum.kind}),
        further=_reorder_further,
    ),
    "sum": Rules(lambda _: True),
    "concat": Rules(
        lambda _: True, lambda d: {**dict.fromkeys(d.attr.scales), **_per_tensor(*d.sources())}
    ),
    "pooling": Rules(_same_types, post_ops=_ANY_POST_OPS, sum_types=_of_pooling),
    "reduction": Rules(lambda _: True, post_ops=_ANY_POST_OPS, further=_reduction_further),
    "resampling": Rules(lambda _: True, post_ops=_ANY_POST_OPS, sum_types=_destinations),
    "softmax": Rules(
        lambda d: DType.S32 not in (d.dtype("src"), d.dtype("dst")),
        lambda d: _per_tensor(*d.attr.scales, "depthwise weights", "depthwise dst"),
        post_ops=_ANY_POST_OPS - {Sum.kind},
    ),
    "layer_normalization": Rules(
        lambda d: DType.S32 not in (d.dtype("src"), d.dtype("dst")),
        lambda d: _per_tensor(*d.attr.scales),
    ),
    "batch_normalization": Rules(
        lambda d: _same_types(d) and d.dtype("src") in (DType.F32, DType.BF16, DType.S8),
        _beside_relu,
        _beside_relu,
        post_ops=frozenset({Eltwise.kind}),
        further=_batch_normalization_further,
    ),
    "lrn": Rules(lambda d: _same_types(d) and d.dtype("src") in (DType.F32, DType.BF16)),
    "shuffle": Rules(_same_types),
    "prelu": Rules(_same_types),
}
