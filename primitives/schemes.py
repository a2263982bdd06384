"""The other two schemes of attributes, which the library gets in those of its own: `onednn-v2`, and what
`unified` says as `onednn-v3` does. A primitive takes of them what a step of a plan may have.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from ..ir.ops.spec import Array
from ..onednn.capi import Status, failure
from ..plan.attributes import Binary, Eltwise, PrimitiveAttr, Scale
from ..plan.conversion.convert import convert_steps
from ..plan.targets import PARAMETERS_OF_2_6
from .description import Description, placeholders, with_values
from .kinds import CELLS
from .on_numpy import by_its_name, one_step
from .recurrent import of_library, refusal_of_unified

SCHEME = "onednn-v3"
"""The scheme of the library."""


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


def in_words_of_3_2(description: Description) -> Description:
    """A primitive of `onednn-v2` without output scales, which oneDNN 3.2 has not: a reorder's are those of
    its source.
    """
    output, scales = description.attr.output_scales, description.attr.scales
    if output is not None and description.kind == "reorder":
        scales = {**scales, "src": output}
    attr = replace(description.attr, scales=scales, output_scales=None)
    return replace(description, attr=attr, target=SCHEME)


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
    found, kept = convert_steps(by_its_name(description, plan))
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
