"""The other two schemes of attributes, which the library gets in those of its own: `onednn-v2`, and what
`unified` says as `onednn-v3` does. A primitive takes of them what a step of a plan may have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from ..ir.ops.spec import Array, Attr
from ..masks import mask_text
from ..onednn.capi import Status, failure
from ..plan.attributes import Binary, Eltwise, PrimitiveAttr, Scale, Sum
from ..plan.conversion.convert import convert_steps
from ..plan.findings import called
from ..plan.targets import PARAMETERS_OF_2_6, TARGETS
from ..plan.types import Plan
from ..plan.verify_attributes import post_ops_fit, scales_fit, zero_points_fit
from ..plan.verify_shapes import NO_FIT, shapes_fit, types_fit
from .depthwise import parts
from .description import HALVES, Description, at_execution, count, stray_masks, with_values
from .implementation import RULES, missing
from .kinds import CELLS
from .on_numpy import one_step
from .operation import OPERATIONS
from .recurrent import of_library, refusal_of_unified

SCHEME = "onednn-v3"
"""The scheme of the library."""

_UNTOLD = ("deconvolution", "inner_product")
"""Whose sums have no type of their own in oneDNN 2.6."""
_PRODUCTS = frozenset({"convolution", "deconvolution", "inner_product", "matmul"})


def refusal_of_scheme(description: Description) -> tuple[Status, str] | None:
    """Why a primitive of another scheme is refused, with the status that the library has for such a
    reason; None where it is not.
    """
    types = {
        type_.dtype for type_ in (*description.tensors.values(), *description.operands.values())
    }
    if not HALVES.isdisjoint(types):
        return Status.unimplemented, f"{description.target} has no floats of 16 bits"
    for reason in (*OPERATIONS[description.kind](parts(description)[0]), *stray_masks(description)):
        return Status.invalid_arguments, reason
    if description.target == "onednn-v2" and "hardsigmoid" in _eltwise_algorithms(description):
        return Status.invalid_arguments, "oneDNN 2.6 has no algorithm hardsigmoid"
    points = description.attr.zero_points.keys() - _stored_points(description)
    if description.kind == "inner_product" and points:
        return Status.unimplemented, f"inner products have no zero points of {min(points)}"
    if description.kind == "sum" and any(scale.mask for scale in description.attr.scales.values()):
        return Status.unimplemented, "sources of a sum have one scale each"
    for role in (*description.attr.scales, *description.attr.zero_points):
        if role not in description.tensors:
            return Status.unimplemented, f"there is no argument {role} with a scale or a zero point"
    for reason in (
        *_of_2_6(description),
        *_of_output_scales(description),
        *_of_sums(description),
    ):
        return Status.unimplemented, reason
    args = placeholders(description)
    try:
        plan, _step = one_step(description, with_values(description, args), args)
        named = _by_its_name(description, plan)
        for status, row, judged in (
            (Status.invalid_arguments, shapes_fit, plan),
            (Status.unimplemented, types_fit, plan),
            (Status.unimplemented, scales_fit, named),
            (Status.unimplemented, zero_points_fit, named),
            (Status.unimplemented, post_ops_fit, named),
        ):
            for found in row(judged):
                return status, found.message.replace(called(judged.steps[0]), "it", 1)
    except NO_FIT as error:
        return Status.invalid_arguments, f"its arguments do not fit each other: {error}"
    return None


def _stored_points(description: Description) -> set[str]:
    """What may have a zero point where the library has none: a destination, on `unified`."""
    return {"dst"} if TARGETS[description.target].masks else set()


def _eltwise_algorithms(description: Description) -> set[Attr]:
    found = {op.algorithm for op in description.attr.post_ops if isinstance(op, Eltwise)}
    own = description.params["algorithm"] if description.kind == "eltwise" else ""
    return {*found, own}


def with_known_parameters(description: Description) -> Description:
    """Of `onednn-v2`, parameters that oneDNN 2.6 neglects as those of 3.2 that compute what it computes."""
    if description.target != "onednn-v2":
        return description
    post_ops = tuple(
        replace(
            op, alpha=PARAMETERS_OF_2_6[op.algorithm][0], beta=PARAMETERS_OF_2_6[op.algorithm][1]
        )
        if isinstance(op, Eltwise) and op.algorithm in PARAMETERS_OF_2_6
        else op
        for op in description.attr.post_ops
    )
    found = replace(description, attr=replace(description.attr, post_ops=post_ops))
    own = PARAMETERS_OF_2_6.get(str(description.params.get("algorithm")))
    if description.kind != "eltwise" or own is None:
        return found
    params = {**description.params, "alpha": own[0], "beta": own[1]}
    return replace(found, params=MappingProxyType(params))


def _by_its_name(description: Description, plan: Plan) -> Plan:
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
    """Whether the factor of a product on `unified` has zero points along its channels, as a source of the
    library may, or along the columns of a matrix.
    """
    factors = ("src", "weights") if description.kind == "matmul" else ("src",)
    if description.target != "unified" or role not in factors:
        return False
    zero, rules = description.attr.zero_points[role], RULES[description.kind]
    whole = len(zero.values) in (0, count(zero.mask, description.dims(role)))
    return (
        whole and zero.mask != 0 and zero.mask in (rules.zero_points(description).get("src") or ())
    )


def in_words_of_3_2(description: Description) -> Description:
    """A primitive of `onednn-v2` without output scales, which oneDNN 3.2 has not: a reorder's are those of
    its source.
    """
    output, scales = description.attr.output_scales, description.attr.scales
    if output is not None and description.kind == "reorder":
        scales = {**scales, "src": output}
    attr = replace(description.attr, scales=scales, output_scales=None)
    return replace(description, attr=attr, target=SCHEME)


def _of_2_6(description: Description) -> Iterator[str]:
    """What no implementation of oneDNN 3.2 takes: none of 2.6 takes it either, but for a zero point that
    it neglects (element types, zero points, post-ops).
    """
    if description.target == "onednn-v2":
        yield from missing(parts(in_words_of_3_2(description))[0])


def _of_output_scales(description: Description) -> Iterator[str]:
    """A product has them for its channels, and all but one of matrices on integers alone: so does oneDNN
    2.6. (A plan's steps take more, which `plan/conversion/` converts.)
    """
    output, kind = description.attr.output_scales, description.kind
    if output is None or kind not in _PRODUCTS:
        return
    if kind != "matmul" and not description.dtype("src").is_integer:
        yield f"output scales of a {kind} in {description.dtype('src').value}"
    channels = 1 << (len(description.dims("dst")) - 1 if kind == "matmul" else 1)
    if output.mask not in (0, channels):
        yield f"output scales of mask {mask_text(output.mask)}, not {mask_text(channels)}"


def _of_sums(description: Description) -> Iterator[str]:
    """They read the destination as a type of its size; of a v2 deconvolution and inner product as its own,
    untold.
    """
    size = description.dtype("dst").numpy.itemsize
    untold = description.target == "onednn-v2" and description.kind in _UNTOLD
    for op in description.attr.post_ops:
        if (
            isinstance(op, Sum)
            and op.dtype is not None
            and (untold or op.dtype.numpy.itemsize != size)
        ):
            yield f"a sum reads the destination as {op.dtype.value}"


def in_own_terms(description: Description) -> Description:
    """Of `onednn-v2` a recurrent layer and a sum are those of `onednn-v3`, of `unified` a layer is one with
    other parameters, 1 where they come at execution; all else stays what it is.

    Raises:
        OneDnnError: `unified` has no such layer, or it has an output scale, which none of them has.
    """
    attr, kind = description.attr, description.kind
    if kind not in CELLS and (kind, description.target) != ("sum", "onednn-v2"):
        return description
    if attr.output_scales is not None:
        raise failure(Status.unimplemented, f"{description}, where it has output scales,")
    if description.target == "unified":
        for reason in refusal_of_unified(description, attr):
            raise failure(Status.unimplemented, f"{description}, where it has {reason},")
        attr = with_values(description, placeholders(description))
    return of_library(description, attr)


def placeholders(description: Description) -> dict[str, Array]:
    """An array of ones for all that comes at execution."""
    types = {**description.tensors, **description.operands}
    found: dict[str, Array] = {
        name: np.ones(type_.static_shape, type_.dtype.numpy) for name, type_ in types.items()
    }
    return found | {name: np.ones(count, dtype) for name, count, dtype in at_execution(description)}


def in_v3(description: Description) -> Description:
    """A primitive of `unified` in the attributes of `onednn-v3`, which compute the same where they have
    the words.

    Raises:
        OneDnnError: they have none for it.
    """
    attr, kind = description.attr, description.kind
    if kind in CELLS:
        return of_library(description, attr)
    for op in attr.post_ops:
        if isinstance(op, Binary) and (op.scale, op.zero_point) != (None, None):
            what = f"{description}, whose operand {op.operand} of a post-op has a scale or a zero point,"
            raise failure(Status.unimplemented, what)
    found = replace(description, target=SCHEME)
    if kind == "sum":
        sources = description.sources()
        factors = tuple(attr.scales.get(role, Scale((1.0,))).values[0] for role in sources)
        others = {role: scale for role, scale in attr.scales.items() if role not in sources}
        params = MappingProxyType({**description.params, "scales": factors})
        found = replace(found, attr=replace(attr, scales=others), params=params)
    return found


def converted(
    description: Description, attr: PrimitiveAttr, args: Mapping[str, Array]
) -> tuple[Description, PrimitiveAttr, dict[str, Array]]:
    """The same primitive in the attributes of `onednn-v3`, every float operation as it was.

    Args:
        description: for `onednn-v2` or `unified`.
        attr: its attributes, with all values.
        args: an array for each argument and operand.

    Raises:
        OneDnnError: those attributes cannot say it.
    """
    if description.target == "unified":
        same = in_v3(replace(description, attr=attr))
        return same, same.attr, dict(args)
    if in_own_terms(description).target == SCHEME:
        same = of_library(description, attr)
        return same, same.attr, dict(args)
    plan, _ = one_step(description, attr, args)
    found, kept = convert_steps(_by_its_name(description, plan))
    for refused in kept.values():
        raise failure(Status.unimplemented, f"{description}, {refused.reason},")
    step = found.steps[0]
    scales = dict(step.attr.scales)
    if "weights" in scales:
        scales["weights"] = _of_library(description, scales["weights"])
    new = replace(step.attr, scales=scales)
    constants = {name: data for name, data in found.constants.items() if name in new.operands}
    extra = {name: data for name, data in constants.items() if name not in args}
    types = {name: found.type(name) for name in extra}
    what = replace(
        description,
        operands=MappingProxyType({**description.operands, **types}),
        attr=new,
        target=SCHEME,
    )
    return what, new, {**args, **extra}


def _of_library(description: Description, scale: Scale) -> Scale:
    """Scales of the weights with the library's mask: a step has those of a product of matrices, and
    one dimension for the groups.
    """
    if not scale.mask or description.kind == "matmul":
        return scale
    weights, src = (len(description.dims(role)) for role in ("weights", "src"))
    grouped = description.kind != "inner_product" and weights > src
    return Scale(scale.values, 3 if grouped else 1)
