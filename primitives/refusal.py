"""What oneDNN 3.2 refuses on a CPU, and with which status: rules for what has no library at hand.

A primitive is asked for in three steps, and the first that refuses gives the status: setting the
attributes, the operation by itself (`operation.py`), and the search for an implementation
(`implementation.py`).

Source: the checks of oneDNN 3.2.0, and the library's own answers, which a law compares with these.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..masks import mask_text
from ..onednn.capi import Status
from ..onednn.enums import Arg
from ..plan.attributes import DepthwiseConv, Eltwise, PostOp
from .depthwise import parts, unfused
from .description import Description
from .implementation import missing
from .kinds import ARGS, CELLS, KINDS, SOURCE
from .operation import OPERATIONS, empty_clip, ends_the_process, misfits, unlike
from .recurrent import refusal as refusal_of_layer

_MOST_POST_OPS = 32
_WITH_SCALES = frozenset({Arg.SRC, Arg.SRC_1, Arg.WEIGHTS, Arg.DST})
_WITH_ZERO_POINTS = _WITH_SCALES - {Arg.SRC_1}


def refusal(description: Description) -> tuple[Status, str] | None:
    """The status with which oneDNN 3.2 refuses to make this primitive, or documents that it does, or
    that is given for it where it would end the process, and why; None where it makes it.
    """
    if description.kind in CELLS:
        return _attributes(description) or refusal_of_layer(description)
    first, *behind = parts(description)
    for reason in misfits(first):
        return Status.invalid_arguments, reason
    found = _attributes(description)
    if found is not None:
        return found
    for reason in OPERATIONS[description.kind](first):
        return Status.invalid_arguments, reason
    for reason in missing(first):
        return Status.unimplemented, reason
    for second in behind:
        for reason in _depthwise(first, second):
            return Status.unimplemented, reason
    ending = ends_the_process(first)
    if ending is not None:
        return Status.unimplemented, ending
    different = unlike(first)
    return None if different is None else (Status.invalid_arguments, different)


def _depthwise(first: Description, second: Description) -> Iterator[str]:
    """Of a depthwise post-op the library does not implement what it would not take by itself."""
    reason = unfused(first, second)
    if reason is not None:
        yield reason
        return
    for reason in (*OPERATIONS[second.kind](second), *missing(second)):
        yield f"its depthwise post-op: {reason}"


def _attributes(description: Description) -> tuple[Status, str] | None:
    attr, many = description.attr, KINDS[description.kind].many
    for role, scale in attr.scales.items():
        one_of_many = many and SOURCE.fullmatch(role) is not None
        if (ARGS.get(role) not in _WITH_SCALES and not one_of_many) or scale.mask < 0:
            return (
                Status.invalid_arguments,
                f"no argument {role} with scales of mask {mask_text(scale.mask)}",
            )
    for role, zero in attr.zero_points.items():
        if zero.mask < 0:
            return (
                Status.invalid_arguments,
                f"the mask {mask_text(zero.mask)} of the zero points of {role}",
            )
        if ARGS.get(role) not in _WITH_ZERO_POINTS or (many and role.startswith("src_")):
            return Status.unimplemented, f"zero points of {role}"
    for index, op in enumerate(attr.post_ops):
        if index == _MOST_POST_OPS:
            return Status.out_of_memory, f"more than {_MOST_POST_OPS} post-ops"
        reason = _post_op(op)
        if reason is not None:
            return Status.invalid_arguments, reason
    return None


def _post_op(op: PostOp) -> str | None:
    match op:
        case Eltwise(algorithm, alpha, beta):
            return empty_clip(algorithm, alpha, beta)
        case DepthwiseConv():
            fits = op.kernel > 0 and op.stride > 0 and op.padding < op.kernel
            return None if fits else "a depthwise post-op whose kernel lies in the padding"
    return None
