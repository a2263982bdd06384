"""How much work a step is, and whether more than one thread is worth it.

Behind each primitive OpenMP's threads meet, and what one of them wrote the other reads from its cache: 4
to 6 us, measured on a Xeon with AMX, so that a second thread gains by what takes 10 us with one. Where
another program takes a processor, they wait there a hundred times as long as they compute.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from ...plan.attributes import Eltwise
from ...plan.shapes import StaticShape
from ...plan.types import Step

SMALL = 1 << 20
"""The work up to which one thread is as fast as two, on an idle machine: 10 to 15 us. Of each
step of a detector, a MobileNetV2 and two Llama layers of one token, by NNCF and ONNX Runtime, the second
percentile of its times: products of 2^19 to 2^20 take 0.84 of the time with one thread, of twice as much
1.13 (22 us), of four times 1.28; others up to 2^20 0.36 to 0.82, and as long from 2^22 on.
"""
_MOVED, _COMPUTED = 16, 64
"""Multiplications in the time that an element takes: moved, or added to another one; and computed."""
_PRODUCTS = ("convolution", "deconvolution", "matmul")
_MOVES = ("binary", "reorder", "concat", "shuffle", *_PRODUCTS)


def work_of_moving(shape: StaticShape) -> int:
    """The work of bringing a tensor into another layout."""
    return math.prod(shape) * _MOVED


def work_of(step: Step, shapes: Mapping[str, StaticShape]) -> float:
    """The work of a step, in multiplications of f32; infinite of a layer over steps, of what has bodies,
    and where a size is unknown.
    """
    outputs = [name for name in step.outputs if name]
    touched = {*step.inputs, *outputs}
    if step.primitive == "rnn" or step.bodies is not None or not touched <= shapes.keys():
        return math.inf
    largest = max((math.prod(shapes[name]) for name in touched), default=0)
    moves = step.primitive in _MOVES or step.primitive.startswith("onnx.")
    curves = any(isinstance(op, Eltwise) for op in step.attr.post_ops)
    found = largest * (_MOVED if moves else _COMPUTED)
    if curves:
        found += math.prod(shapes[step.output]) * _COMPUTED
    source, weights = step.arg("src"), step.arg("weights")
    if step.primitive in _PRODUCTS and source is not None and weights is not None:
        of_matrix = step.primitive == "matmul"
        depth = shapes[source][-1] if of_matrix else math.prod(shapes[weights][1:])
        found += math.prod(shapes[step.output]) * depth
    return found
