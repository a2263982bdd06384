"""A primitive on NumPy: a plan of one step, run by the kernels of the runtime.

What the library's terms say otherwise than a plan's steps is brought into the steps' here: weights
with groups in a dimension of their own, dilations counted from 0, any shape of a bias.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np

from ..errors import InvalidInput
from ..ir.ops import OPS
from ..ir.ops.elementwise import round_to_bf16
from ..ir.ops.spec import Array, Attr
from ..ir.types import DType, TensorType
from ..onednn.enums import FpmathMode
from ..plan.attributes import Binary, DepthwiseConv, PostOp, PrimitiveAttr, Scale, Sum
from ..plan.types import Plan, Step
from ..runtime.numerics import VNNI_3_2, NumericsProfile
from ..runtime.numpy_runtime import run_step
from . import channel_points
from .compiled import compiled_reduction, deconvolution_takes_post_ops
from .depthwise import parts
from .description import HALVES, Description, count, integers
from .narrowing import narrowed
from .summations import summation_of, summation_of_step

_PRODUCTS = frozenset({"convolution", "deconvolution", "matmul"})
_LOWEST_BF16 = -(2 - 2.0**-7) * 2.0**127


@dataclass
class Work:
    """A step that is being made.

    Attributes:
        primitive, op, params: of the step.
        args: role in the step -> array.
        attr: its attributes.
        extra: further operands of post-ops.
        dst: shape of the step's result, where it is not that of the primitive's destination.
    """

    primitive: str
    op: str
    args: dict[str, Array]
    attr: PrimitiveAttr
    params: dict[str, Attr] = field(default_factory=dict)
    extra: dict[str, Array] = field(default_factory=dict)


def run(
    description: Description,
    attr: PrimitiveAttr,
    args: Mapping[str, Array],
    profile: NumericsProfile = VNNI_3_2,
    fpmath: FpmathMode = FpmathMode.strict,
) -> Array:
    """The destination.

    Args:
        description: the primitive.
        attr: its attributes, with all values.
        args: an array for each argument and operand.
        profile: the float order.
        fpmath: what f32 factors are narrowed to.

    Raises:
        InvalidInput: of `onednn-v2`, a bias that runs along other dimensions than the columns.
    """
    same = description.kind == "reorder" and description.dtype("src") is description.dtype("dst")
    if same and attr == PrimitiveAttr():
        return args["src"].copy()  # not by way of f32
    if 0 in description.dims("dst"):
        return np.empty(description.dims("dst"), description.dtype("dst").numpy)
    whole, isa = replace(description, attr=attr), profile.isa
    own_code = whole.kind == "deconvolution" and deconvolution_takes_post_ops(whole, isa)
    summation = summation_of(whole, isa, own_code=own_code)
    profile = replace(profile, sums=summation)
    types = [*description.tensors.values(), *description.operands.values()]
    if HALVES.isdisjoint(type_.dtype for type_ in types):
        return _run(description, attr, args, profile, fpmath)
    wide = {n: a.astype(np.float32) if a.dtype == np.float16 else a for n, a in args.items()}
    found = _run(widened(description), _wide_sums(attr), wide, profile, fpmath)
    return rounded_to(description.dtype("dst"), found)


def _run(
    description: Description,
    attr: PrimitiveAttr,
    args: Mapping[str, Array],
    profile: NumericsProfile,
    fpmath: FpmathMode,
) -> Array:
    """The destination, in f32 where it is a float."""
    whole = replace(description, attr=attr)
    if description.target == "onednn-v3" and len(parts(whole)) > 1:
        return _with_depthwise(whole, args, profile, fpmath)
    if description.kind in _PRODUCTS and channel_points.needs_sums(whole):
        return _by_sums(whole, args, profile)
    args = narrowed(description.kind, args, fpmath)
    work = _MAKERS[description.kind](description, attr, args)
    plan, step, feeds = _plan(description, work, args)
    if profile.sums is None:
        profile = replace(profile, sums=summation_of_step(whole, plan, step, profile.isa))
    (found,) = run_step(plan, step, feeds, profile=profile)
    return found.reshape(description.dims("dst"))


def _by_sums(whole: Description, args: Mapping[str, Array], profile: NumericsProfile) -> Array:
    """A product in two steps: its sums as the CPU makes them with zero points that a step has, and what
    the others change, which is exact on any CPU; then all that follows.
    """
    near = channel_points.with_near_points(whole)
    of_near = {role: args[role] for role in near.tensors if role in args}  # the bias comes behind
    sums = _run(near, near.attr, of_near, profile, FpmathMode.strict).astype(np.int64)
    work = _MAKERS[whole.kind](near, near.attr, of_near)
    factors = work.args["src"], work.args["weights"]
    for each, sign in ((whole, 1), (near, -1)):
        exact = channel_points.exact_sums(each, work.op, work.params, *factors)
        sums += sign * exact
    of_sums, ones = channel_points.of_sums(whole, sums)
    return _run(of_sums, of_sums.attr, {**args, **ones}, profile, FpmathMode.strict)


def widened(description: Description) -> Description:
    """The same with a destination of f32 in place of a float of 16 bits; what it reads is carried in
    f32, too.
    """
    dst = description.tensors["dst"]
    wide = replace(dst, dtype=DType.F32) if dst.dtype in HALVES else dst
    return replace(
        description,
        tensors=MappingProxyType({**description.tensors, "dst": wide}),
        attr=_wide_sums(description.attr),
    )


def _wide_sums(attr: PrimitiveAttr) -> PrimitiveAttr:
    """The attributes, whose sums read f32 where they would read floats of 16 bits."""
    post_ops = tuple(
        replace(op, dtype=DType.F32) if isinstance(op, Sum) and op.dtype in HALVES else op
        for op in attr.post_ops
    )
    return replace(attr, post_ops=post_ops)


def rounded_to(dtype: DType, array: Array) -> Array:
    """Results in the array of an element type: f32 that holds numbers of bf16, or f16. Of bf16 what is
    below the smallest normal number becomes 0, as of the CPU's instruction (VCVTNEPS2BF16).
    """
    if dtype is DType.BF16:
        tiny = np.abs(array) < np.finfo(np.float32).tiny
        return round_to_bf16(np.where(tiny, np.copysign(np.float32(0), array), array))
    with np.errstate(over="ignore"):
        return array.astype(dtype.numpy)


def _with_depthwise(
    description: Description,
    args: Mapping[str, Array],
    profile: NumericsProfile,
    fpmath: FpmathMode,
) -> Array:
    """A convolution, and the depthwise one behind it."""
    first, second = parts(description)
    op = next(op for op in description.attr.post_ops if isinstance(op, DepthwiseConv))
    own = {"src": run(first, first.attr, args, profile, fpmath)}
    own["weights"] = args[op.weights].reshape(second.dims("weights"))
    if op.bias:
        own["bias"] = args[op.bias]
    others = {name: args[name] for name in second.operands}
    return run(second, second.attr, {**others, **own}, profile, fpmath)


def one_step(
    description: Description, attr: PrimitiveAttr, args: Mapping[str, Array]
) -> tuple[Plan, Step]:
    """The plan of the one step, and the step."""
    work = _MAKERS[description.kind](description, attr, args)
    plan, step, _ = _plan(description, work, args)
    return plan, step


def _plan(
    description: Description, work: Work, args: Mapping[str, Array]
) -> tuple[Plan, Step, dict[str, Array]]:
    operands = {name: args[name] for name in description.operands} | work.extra
    old = {op.operand for op in work.attr.post_ops if isinstance(op, Sum)}
    # what is no constant is read in each run; kernels pack all others while they are bound
    fed = {role for role in work.args if role.startswith("src") or role == "x"} | old
    arrays = {**operands, **{f"arg {role}": array for role, array in work.args.items()}}
    names = {f"arg {role}" if role in work.args else role for role in fed}
    feeds = {name: array for name, array in arrays.items() if name in names}
    step = Step(
        description.kind,
        work.primitive,
        work.op,
        tuple((role, f"arg {role}") for role in work.args),
        ("dst",),
        work.params,
        work.attr,
    )
    types = {name: _type(array) for name, array in feeds.items()}
    plan = Plan(
        description.kind,
        description.target,
        tuple(feeds),
        ("dst",),
        {**types, "dst": description.tensors["dst"]},
        {name: array for name, array in arrays.items() if name not in feeds},
        (step,),
    )
    return plan, step, feeds


def by_its_name(description: Description, plan: Plan) -> Plan:
    """The plan by which attributes are judged: what a reduction gives, a reorder stores, which takes others;
    and zero points of a factor's channels, which are taken off sums, no step has.
    """
    (step,) = plan.steps
    primitive = "reduction" if description.kind == "reduction" else step.primitive
    points = {
        role: zero
        for role, zero in step.attr.zero_points.items()
        if not _are_of_channels(description, role)
    }
    attr = replace(step.attr, zero_points=points)
    return replace(plan, steps=(replace(step, primitive=primitive, attr=attr),))


def _are_of_channels(description: Description, role: str) -> bool:
    """Whether codes of a product have zero points along their channels, as the library has them of source and
    destination, and `unified` of the columns of a matrix, too.
    """
    kind, zero = description.kind, description.attr.zero_points[role]
    roles = {"onednn-v3": ["src", "dst"], "unified": ["src"]}.get(description.target, [])
    if kind == "matmul":
        roles = [*roles, *(["weights"] if description.target == "unified" else [])]
    return (
        kind in _PRODUCTS
        and role in roles
        and description.dtype(role) in (DType.S8, DType.U8)
        and (kind != "matmul" or len(description.dims("dst")) == 2)
        and zero.mask == 2
        and len(zero.values) in (0, count(zero.mask, description.dims(role)))
    )


def _type(array: Array) -> TensorType:
    return TensorType(DType.from_numpy(array.dtype), array.shape)


# -- products --------------------------------------------------------------------------------------


def _groups(description: Description) -> int:
    """Weights with groups have one dimension more than the source."""
    weights = description.dims("weights")
    return weights[0] if len(weights) > len(description.dims("src")) else 1


def _window(description: Description) -> dict[str, Attr]:
    params = description.params
    begin, dilations = params["padding_l"], params["dilations"]
    assert isinstance(begin, tuple)
    assert isinstance(dilations, tuple)
    return {
        "strides": params["strides"],
        "dilations": tuple(d + 1 for d in dilations if isinstance(d, int)),
        "pads": (*begin, *_padding_behind(description)),
    }


def _padding_behind(description: Description) -> tuple[int, ...]:
    """The padding behind, where there is any: a negative one is less source, or more destination."""
    return tuple(max(size, 0) for size in integers(description, "padding_r"))


def _read(description: Description, src: Array) -> Array:
    """What windows reach of a source: a negative padding behind cuts its ends off."""
    ends = integers(description, "padding_r")
    cut = tuple(slice(size + min(p, 0)) for size, p in zip(src.shape[2:], ends, strict=True))
    return np.ascontiguousarray(src[(slice(None), slice(None), *cut)])


def _convolution(description: Description, attr: PrimitiveAttr, args: Mapping[str, Array]) -> Work:
    groups, weights = _groups(description), args["weights"]
    if groups > 1 or weights.ndim > args["src"].ndim:
        weights = weights.reshape(-1, *weights.shape[2:])
    params = {**_window(description), "group": groups}
    found = {"src": _read(description, args["src"]), "weights": weights}
    return _product(description, Work("convolution", "Conv", found, attr, params), args, 1)


def _deconvolution(
    description: Description, attr: PrimitiveAttr, args: Mapping[str, Array]
) -> Work:
    """Weights are (O, I, ...) here, and (I, O, ...) in the step."""
    groups, weights = _groups(description), args["weights"]
    grouped = weights.ndim > args["src"].ndim
    weights = np.swapaxes(weights, 1, 2) if grouped else np.swapaxes(weights, 0, 1)
    if grouped:
        weights = weights.reshape(-1, *weights.shape[2:])
    params = {**_window(description), "group": groups}
    params["output_padding"] = _beyond(description, params, weights.shape[2:])
    found = {"src": args["src"], "weights": np.ascontiguousarray(weights)}
    return _product(
        description, Work("deconvolution", "ConvTranspose", found, attr, params), args, 1
    )


def _beyond(
    description: Description, params: Mapping[str, Attr], kernel: tuple[int, ...]
) -> tuple[int, ...]:
    """Elements of the destination behind those that strides and padding lead to."""
    begin, end = description.params["padding_l"], _padding_behind(description)
    strides, dilations = params["strides"], params["dilations"]
    sizes = zip(
        description.dims("src")[2:],
        description.dims("dst")[2:],
        kernel,
        strides,  # type: ignore[arg-type]
        dilations,  # type: ignore[arg-type]
        begin,  # type: ignore[arg-type]
        end,
        strict=True,
    )
    return tuple(
        int(out - ((size - 1) * s + (k - 1) * d + 1 - b - e)) for size, out, k, s, d, b, e in sizes
    )


def _inner_product(
    description: Description, attr: PrimitiveAttr, args: Mapping[str, Array]
) -> Work:
    """A product of matrices: all but the first dimension are one."""
    src, weights = args["src"], args["weights"]
    matrix = np.ascontiguousarray(weights.reshape(weights.shape[0], -1).T)
    found = {"src": src.reshape(src.shape[0], -1), "weights": matrix}
    return _product(description, Work("matmul", "MatMul", found, attr), args, 1)


def _matmul(description: Description, attr: PrimitiveAttr, args: Mapping[str, Array]) -> Work:
    found = {"src": args["src"], "weights": args["weights"]}
    axis = len(description.dims("dst")) - 1
    return _product(description, Work("matmul", "MatMul", found, attr), args, axis)


def _product(description: Description, work: Work, args: Mapping[str, Array], axis: int) -> Work:
    """The bias, and the mask of the weights' scales."""
    bias = args.get("bias")
    if bias is not None:
        data = bias.astype(np.float32)
        rank = len(description.dims("dst"))
        along = tuple(size for at, size in enumerate(data.shape) if at == axis or size > 1)
        if data.ndim < rank or along == data.shape[axis : axis + 1]:
            work.args["bias"] = data.reshape(-1)
        elif description.target == "onednn-v2":
            raise InvalidInput(
                f"a bias {list(data.shape)}, in the accumulator's units",
                where=f"{description.kind} of onednn-v2",
                hint="let it run along the columns alone, or take the target onednn-v3",
            )
        else:  # the step's bias runs along the columns alone; where it is added is the same
            work.extra["bias, spread"] = data
            first: PostOp = Binary("add", "bias, spread")
            work.attr = replace(work.attr, post_ops=(first, *work.attr.post_ops))
    scale = work.attr.scales.get("weights")
    if scale is not None and scale.mask:
        rank = work.args["weights"].ndim
        grouped = 3 if work.params.get("group", 1) != 1 else 1
        mask = 1 << (rank - 1) if work.primitive == "matmul" else grouped
        work.attr = replace(
            work.attr, scales={**work.attr.scales, "weights": Scale(scale.values, mask)}
        )
    return work


# -- element by element ----------------------------------------------------------------------------


def _eltwise(description: Description, attr: PrimitiveAttr, args: Mapping[str, Array]) -> Work:
    return Work("eltwise", "Identity", {"src": args["src"]}, attr, dict(description.params))


def _binary(description: Description, attr: PrimitiveAttr, args: Mapping[str, Array]) -> Work:
    found = {role: args[role] for role in ("src_0", "src_1")}
    return Work("binary", "Add", found, attr, dict(description.params))


def _reorder(description: Description, attr: PrimitiveAttr, args: Mapping[str, Array]) -> Work:  # noqa: ARG001
    return Work("reorder", "Identity", {"src": args["src"]}, attr)


def _sum(description: Description, attr: PrimitiveAttr, args: Mapping[str, Array]) -> Work:
    """The first source times its scale, and the others times theirs, added one by one."""
    if description.target == "unified":
        return _sum_of_scaled(description, attr, args)
    scales = description.params["scales"]
    assert isinstance(scales, tuple)
    first, *others = (float(value) for value in scales if isinstance(value, float | int))
    added = tuple(
        Binary("add", f"src_{index}", Scale((scale,))) for index, scale in enumerate(others, 1)
    )
    return Work(
        "eltwise",
        "Identity",
        {"src": args["src_0"]},
        replace(attr, post_ops=added),
        {"algorithm": "linear", "alpha": first, "beta": 0.0},
        {op.operand: args[op.operand] for op in added},
    )


def _sum_of_scaled(
    description: Description, attr: PrimitiveAttr, args: Mapping[str, Array]
) -> Work:
    """The same of `unified`, where the scales are those of arguments: a copy, or a binary step with the
    third source and further ones behind it.
    """
    sources = description.sources()
    if len(sources) == 1:
        scales = {role.removesuffix("_0"): scale for role, scale in attr.scales.items()}
        return Work("reorder", "Identity", {"src": args["src_0"]}, replace(attr, scales=scales))
    first, second, *others = sources
    added = tuple(Binary("add", role, attr.scales.get(role)) for role in others)
    scales = {role: scale for role, scale in attr.scales.items() if role not in others}
    found = {role: args[role] for role in (first, second)}
    attr = replace(attr, scales=scales, post_ops=(*added, *attr.post_ops))
    extra = {role: args[role] for role in others}
    return Work("binary", "Add", found, attr, {"algorithm": "add"}, extra)


def _concat(description: Description, attr: PrimitiveAttr, args: Mapping[str, Array]) -> Work:
    found = {role: args[role] for role in description.sources()}
    return Work("concat", "Concat", found, attr, dict(description.params))


# -- windows, and what is along dimensions ---------------------------------------------------------


def _pooling(description: Description, attr: PrimitiveAttr, args: Mapping[str, Array]) -> Work:
    algorithm = description.params["algorithm"]
    params = {**_window(description), "kernel_shape": description.params["kernel"]}
    if algorithm != "max":
        params["count_include_pad"] = int(algorithm == "avg_include_padding")
        # as all implementations of row-major tensors do
        params["divides"] = 1
    op = "MaxPool" if algorithm == "max" else "AveragePool"
    extra: dict[str, Array] = {}
    if algorithm == "max" and args["src"].dtype.itemsize == 4:
        # in f32, s32 too, and beginning at the lowest number, where a plan's is minus infinity
        integer = args["src"].dtype == np.int32
        halves = description.dtype("src") is DType.BF16
        floats = _LOWEST_BF16 if halves else float(np.finfo(np.float32).min)
        lowest = -(2.0**31) if integer else floats
        extra["lowest"] = np.full((1,) * args["src"].ndim, lowest, np.float32)
        attr = replace(attr, post_ops=(Binary("max", "lowest"), *attr.post_ops))
    return Work("pooling", op, {"src": _read(description, args["src"])}, attr, params, extra)


_REDUCTIONS = {
    "max": "ReduceMax",
    "min": "ReduceMin",
    "sum": "ReduceSum",
    "mul": "ReduceProd",
    "mean": "ReduceSum",
}


def _reduction(description: Description, attr: PrimitiveAttr, args: Mapping[str, Array]) -> Work:
    """Compiled code reduces in f32, the reference integers in s32, which wraps around; what follows
    reads the result as a source.
    """
    src, shape, algorithm = args["src"], description.dims("dst"), description.params["algorithm"]
    axes = [axis for axis, size in enumerate(shape) if size != src.shape[axis]]
    row = OPS[_REDUCTIONS[str(algorithm)]]
    assert row.evaluate is not None
    if compiled_reduction(description):
        src = src.astype(np.float32)
    exact = src.astype(np.int64) if src.dtype.kind in "iu" else src
    with np.errstate(all="ignore"):
        (found,) = row.evaluate([exact, np.array(axes, np.int64)], row.complete({}))
        if exact is not src:
            found = found.astype(np.int32)
            if description.dtype("dst") is not DType.S32:
                found = found.astype(np.float32)  # as what stores it would
        if algorithm == "mean":
            found = found.astype(np.float32) / np.float32(src.size // max(found.size, 1))
    return Work("reorder", "Identity", {"src": found}, attr)


def _resampling(description: Description, attr: PrimitiveAttr, args: Mapping[str, Array]) -> Work:
    """Half-pixel coordinates; the nearest of two neighbours as near is the farther one."""
    params: dict[str, Attr] = {
        "mode": description.params["algorithm"],
        "nearest_mode": "round_prefer_ceil",
    }
    sizes = np.array(description.dims("dst"), np.int64)
    return Work("resampling", "Resize", {"src": args["src"], "sizes": sizes}, attr, params)


def _softmax(description: Description, attr: PrimitiveAttr, args: Mapping[str, Array]) -> Work:
    op = "LogSoftmax" if description.params["algorithm"] == "log" else "Softmax"
    return Work("softmax", op, {"src": args["src"]}, attr, {"axis": description.params["axis"]})


def _layer_normalization(
    description: Description, attr: PrimitiveAttr, args: Mapping[str, Array]
) -> Work:
    size = description.dims("src")[-1]
    found = {"src": args["src"], "scale": args.get("scale", np.ones(size, np.float32))}
    if "shift" in args:
        found["bias"] = args["shift"]
    params: dict[str, Attr] = {"axis": -1, "epsilon": description.params["epsilon"]}
    return Work("layer_normalization", "LayerNormalization", found, attr, params)


def _batch_normalization(
    description: Description, attr: PrimitiveAttr, args: Mapping[str, Array]
) -> Work:
    """By given statistics, or by those of the source."""
    src, size = args["src"], description.dims("src")[1]
    axes = tuple(axis for axis in range(src.ndim) if axis != 1)
    mean, variance = args.get("mean"), args.get("variance")
    if mean is None or variance is None:
        wide = src.astype(np.float64)
        mean, variance = wide.mean(axes).astype(np.float32), wide.var(axes).astype(np.float32)
    found = {
        "src": src,
        "scale": args.get("scale", np.ones(size, np.float32)),
        "bias": args.get("shift", np.zeros(size, np.float32)),
        "mean": mean,
        "var": variance,
    }
    params: dict[str, Attr] = {"epsilon": description.params["epsilon"]}
    return Work("batch_normalization", "BatchNormalization", found, attr, params)


def _lrn(description: Description, attr: PrimitiveAttr, args: Mapping[str, Array]) -> Work:
    """A window of an even size reaches as far as the one that is smaller by 1, and one of 0 channels as
    far as that of 1.
    """
    size, alpha, beta, k = (
        description.params[name] for name in ("local_size", "alpha", "beta", "k")
    )
    assert isinstance(size, int)
    assert isinstance(alpha, float | int)
    odd = max(size - 1 + size % 2, 1)
    with np.errstate(all="ignore"):  # the share of a window of none is infinite, or no number
        share = float(np.float64(alpha) / size)
    params: dict[str, Attr] = {"size": odd, "alpha": share * odd, "beta": beta, "bias": k}
    return Work("lrn", "LRN", {"src": args["src"]}, attr, params)


def _shuffle(description: Description, attr: PrimitiveAttr, args: Mapping[str, Array]) -> Work:
    """The row itself: a copy in any type."""
    return Work("onnx.Shuffle", "Shuffle", {"x": args["src"]}, attr, dict(description.params))


def _prelu(description: Description, attr: PrimitiveAttr, args: Mapping[str, Array]) -> Work:  # noqa: ARG001
    found = {"src": args["src"], "slope": args["weights"]}
    return Work("prelu", "PRelu", found, attr)


Maker = Callable[[Description, PrimitiveAttr, Mapping[str, Array]], Work]

_MAKERS: Mapping[str, Maker] = {
    "convolution": _convolution,
    "deconvolution": _deconvolution,
    "inner_product": _inner_product,
    "matmul": _matmul,
    "eltwise": _eltwise,
    "binary": _binary,
    "reorder": _reorder,
    "sum": _sum,
    "concat": _concat,
    "pooling": _pooling,
    "reduction": _reduction,
    "resampling": _resampling,
    "softmax": _softmax,
    "layer_normalization": _layer_normalization,
    "batch_normalization": _batch_normalization,
    "lrn": _lrn,
    "shuffle": _shuffle,
    "prelu": _prelu,
}
