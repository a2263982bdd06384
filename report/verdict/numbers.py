"""Findings about numbers rather than time: what scales and constant weights tell without any data."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from ...ir.reach import FEW_CODES
from ...ir.types import DType, Quantization
from ...plan.attributes import Binary, DepthwiseConv, Eltwise, Sum
from ...plan.types import Step
from ..notation import weights_by_step
from .view import View, converts
from .work import operator_of

_ABSURD = 1e30
_COARSE = 2.0  # a softmax makes a factor of 7 of it
_ROUNDED_OFF = 2.0  # N times a scale: 1/N is less than half of it
_SATURATED = 0.05  # of a layer's weights
_DEAD = 0.1  # of a layer's output channels
_HALF = 0.5  # of the power of the rounding: 3 dB
_FOLDING = "fold_batch_norm"
_UNSIGNED = "retype_signed_codes"
_QUANTIZERS = ("QuantizeLinear", "DequantizeLinear")
_MIDDLE = {DType.S8: 0.0, DType.U8: 128.0}
_ENOUGH = 64  # weights, below which shares say nothing

Finder = Callable[[View], Iterable[int]]


def about_numbers(view: View) -> dict[str, tuple[int, ...]]:
    """Code -> the steps that it concerns; kinds that nothing is of are left out."""
    found = {code: tuple(sorted(set(finder(view)))) for code, finder in _FINDERS.items()}
    return {code: steps for code, steps in found.items() if steps}


def absurd_scales(view: View) -> Iterator[int]:
    """Steps that write or decode codes by a scale that no data has, or that a softmax behind them
    cannot use: softmax(x) tells x from x + 1, and codes further apart do not.
    """
    for index, step in enumerate(view.steps):
        if (
            multiplies_by_infinity(view, index)
            or _rounds_absurdly(view, index)
            or any(map(_is_absurd, _scales_read(view, step)))
        ):
            yield index
        elif step.primitive == "softmax":
            made = view.in_front(step.arg("src") or "")
            yield from (each for each in made if _apart(view, view.steps[each]) >= _COARSE)


def rounds_too_coarsely(view: View, index: int) -> bool:
    """True of a step of `absurd_scales` that makes such codes, and does not only read them."""
    return _rounds_absurdly(view, index) or _apart(view, view.steps[index]) >= _COARSE


def _rounds_absurdly(view: View, index: int) -> bool:
    written = _scales_written(view, view.steps[index])
    return has_unusable_scale(view, index) or any(map(_is_absurd, written))


def _apart(view: View, step: Step) -> float:
    """How far apart the values are that neighbouring codes of a step's result stand for; 0 of others."""
    types = [view.type(value) for value in step.outputs if value]
    scales = [scale for type_ in types if type_ and type_.quant for scale in type_.quant.scale]
    rounded = [op.algorithm == "round" for op in step.attr.post_ops if isinstance(op, Eltwise)]
    if not scales and any(rounded):
        ops = [op for op in step.attr.post_ops if isinstance(op, Eltwise)]
        behind = ops[len(rounded) - rounded[::-1].index(True) :]
        scales = [math.prod(op.alpha for op in behind if op.algorithm == "linear")]
    return max(map(abs, scales), default=0.0)


def has_unusable_scale(view: View, index: int) -> bool:
    """True of a quantizer that stays the ONNX operator because its scale is 0, infinite, NaN or absurd:
    a calibration that subtracts -3.4e38 from a positive number overflows.
    """
    step = view.steps[index]
    if operator_of(step) not in _QUANTIZERS or len(step.args) < 2:
        return False
    scales = view.plan.constants.get(step.args[1][1])
    return scales is not None and any(
        scale == 0 or not math.isfinite(scale) or _is_absurd(scale)
        for scale in np.ravel(scales).astype(np.float64).tolist()
    )


def multiplies_by_infinity(view: View, index: int) -> bool:
    """True of a multiplication by a constant that is infinite: -3.4e38 was rounded to a code that stands for
    more than f32 holds, and 0 times that is no number.
    """
    step = view.steps[index]
    constants = [view.plan.constants.get(value) for _, value in step.args]
    return operator_of(step) == "Mul" and any(
        each is not None and each.dtype.kind == "f" and bool(np.isinf(each).any())
        for each in constants
    )


def _is_absurd(scale: float) -> bool:
    return abs(scale) >= _ABSURD or 0 < abs(scale) <= 1 / _ABSURD


def _scales_written(view: View, step: Step) -> Iterator[float]:
    """By which a step rounds what it computes."""
    yield from _scales_of(view, step.outputs)
    if "dst" in step.attr.scales:
        yield from step.attr.scales["dst"].values
    rounds = any(isinstance(op, Eltwise) and op.algorithm == "round" for op in step.attr.post_ops)
    for op in step.attr.post_ops:
        if isinstance(op, Eltwise) and op.algorithm == "linear" and rounds:
            yield op.alpha  # without a rounding it is the mask's own arithmetic
        elif isinstance(op, DepthwiseConv):
            yield from op.dst_scale.values


def _scales_read(view: View, step: Step) -> Iterator[float]:
    """By which a step decodes what it reads."""
    yield from _scales_of(view, step.inputs)
    for argument, scale in step.attr.scales.items():
        if argument != "dst":
            yield from scale.values
    for op in step.attr.post_ops:
        if isinstance(op, Sum):
            yield op.scale
        elif isinstance(op, DepthwiseConv):
            yield from op.weights_scale.values


def _scales_of(view: View, values: Iterable[str]) -> Iterator[float]:
    for value in values:
        type_ = view.type(value) if value else None
        if type_ is not None and type_.quant is not None:
            yield from type_.quant.scale


def few_codes(view: View) -> Iterator[int]:
    """Steps that compute what hardly a code stands for, join it with others, or read it; not those of a scale
    that is absurd, which says more.
    """
    absurd = set(absurd_scales(view))
    named = {d.subject for d in view.plan.decision_records if d.rule == FEW_CODES}
    for index, step in enumerate(view.steps if named else ()):
        if index not in absurd and not named.isdisjoint(step.origin):
            yield index


def coarse_softmaxes(view: View) -> Iterator[int]:
    """Softmaxes over N places of which 1/N rounds to 0, in a post-op, as codes or in a quantizer behind."""
    for index, step in enumerate(view.steps):
        type_ = view.type(step.outputs[0]) if operator_of(step) == "Softmax" else None
        if type_ is None or type_.shape is None:
            continue
        places = type_.shape[int(str(step.params.get("axis", -1)))]
        behind = [item.step for item in view.readings(index) if converts(view, item.step)]
        scales = [_first_rounding(view, step), *(_apart(view, view.steps[at]) for at in behind)]
        if isinstance(places, int) and max(scales) * places > _ROUNDED_OFF:
            yield index


def _first_rounding(view: View, step: Step) -> float:
    """How far apart the values are to which a step first rounds what it computes; 0 if another operation comes
    before that, or none rounds.
    """
    factor = 1.0
    for op in step.attr.post_ops:
        if isinstance(op, Eltwise) and op.algorithm == "round":
            return 1 / factor if factor else 0.0
        if not (isinstance(op, Eltwise) and op.algorithm == "linear"):
            return 0.0
        factor *= abs(op.alpha)
    types = [view.type(value) for value in step.outputs if value]
    scales = [scale for type_ in types if type_ and type_.quant for scale in type_.quant.scale]
    return max(map(abs, scales), default=0.0)


def saturated_weights(view: View) -> Iterator[int]:
    """Products many of whose weights are the largest code or the smallest one."""
    for index, codes in _weights(view):
        # each channel that sets its own scale has one such weight: those are meant to be there
        ends = np.abs(codes.astype(np.int16)) >= 127
        rows = _channels_first(view.steps[index], ends)
        beyond = int(ends.sum()) - int(rows.any(axis=1).sum())
        if codes.size >= _ENOUGH and beyond > _SATURATED * codes.size:
            yield index


def dead_channels(view: View) -> Iterator[int]:
    """Products with output channels all of whose weights are 0."""
    for index, codes in _weights(view):
        rows = _channels_first(view.steps[index], _centred(view.steps[index], codes))
        if codes.size >= _ENOUGH and (~rows.any(axis=1)).mean() > _DEAD:
            yield index


def unused_weight_range(view: View) -> Iterator[int]:
    """Products and LSTMs whose weights scales of their own for each channel would round with at most half the
    power: that of a rounding goes with the square of its step, and a channel's own step is smaller
    as its largest code is. Several scales may be one, times the factors of a BatchNormalization.
    """
    own = weights_by_step(view.plan)
    for index, codes in _weights(view):
        step = view.steps[index]
        reach = np.abs(_channels_first(step, _centred(step, codes))).max(axis=1)
        apart = _is_apart(view, step, own.get(index))
        if codes.size >= _ENOUGH and not apart and _is_uneven(reach):
            yield index
    for index, step in enumerate(view.steps):
        if operator_of(step) == "DynamicQuantizeLSTM" and any(map(_is_uneven, _gates(view, step))):
            yield index


def _is_apart(view: View, step: Step, own: Quantization | None) -> bool:
    """True of weights with scales of their own for the channels, as the model has them. Where it holds numbers and not
    codes, the step's tell, but for those that have a BatchNormalization's factors in them.
    """
    if own is None and view.subjects_of(_FOLDING).isdisjoint(step.origin):
        scale = step.attr.scales.get("weights")
        return scale is not None and len(set(scale.values)) > 1
    return own is not None and len(set(own.scale)) > 1


def _gates(view: View, step: Step) -> Iterator[npt.NDArray[np.int32]]:
    """For each direction and operand of an LSTM with constant s8 weights, [directions, inputs, gates],
    the largest code of each gate's columns.
    """
    for role in ("w", "r"):
        codes, scale = (
            view.plan.constants.get(step.arg(name) or "") for name in (role, f"{role}_scale")
        )
        one = scale is None or scale.ndim < 2  # for each direction
        if codes is not None and codes.dtype == np.int8 and one:
            yield from np.abs(codes.astype(np.int32)).max(axis=1)


def _is_uneven(reach: npt.NDArray[Any]) -> bool:
    """True of channels whose largest codes, in parts of the layer's (bits that no channel has do not
    count), have a mean square of a half or less.
    """
    used = reach[reach > 0]  # the others are dead, which is a finding of its own
    return len(used) > 1 and float(np.square(used / used.max()).mean()) <= _HALF


def norm_behind_quantizer(view: View) -> Iterator[int]:
    """Products that round to codes before they scale each channel, which a BatchNormalization asks for."""
    norms = view.subjects_of(_FOLDING)
    for index, step in enumerate(view.steps):
        ops = step.attr.post_ops
        rounded = [isinstance(op, Eltwise) and op.algorithm == "round" for op in ops]
        behind = ops[rounded.index(True) :] if any(rounded) else ()
        scales = any(
            isinstance(op, Binary) and op.algorithm == "mul" and view.is_constant(op.operand)
            for op in behind
        )
        if scales and view.is_product(index) and not norms.isdisjoint(step.origin):
            yield index


def unused_sign(view: View) -> Iterator[int]:
    """Steps that store what is never negative in codes whose zero point is the middle one, also where the plan
    stores these without an offset, in half of the unsigned codes.
    """
    unsigned = view.subjects_of(_UNSIGNED)
    for index, step in enumerate(view.steps):
        type_ = view.type(step.outputs[0]) if step.outputs else None
        quant = None if type_ is None else type_.quant
        middle = _MIDDLE.get(type_.dtype) if type_ is not None else None
        if quant is None or middle is None:
            continue
        ops = step.attr.post_ops
        if quant.zero_point == (0.0,) and ops and _is_half(ops[-1]):
            readers = (view.steps[item.step] for item in view.behind(step.outputs[0]))
            if any(not unsigned.isdisjoint(reader.origin) for reader in readers):
                yield index
        elif quant.zero_point == (middle,):
            changing = [op for op in ops if not _keeps_sign(op)]
            if changing and _is_never_negative(changing[-1]):
                yield index


def _is_half(op: object) -> bool:
    """True of the clip that leaves codes 0 to 127."""
    return isinstance(op, Eltwise) and op.algorithm == "clip" and (op.alpha, op.beta) == (0, 127)


def multiplied_in_f32(view: View) -> Iterator[int]:
    """Products of codes that would saturate on the CPU of the view, so that f32 kernels compute them."""
    return (index for index, work in enumerate(view.works) if work.in_f32)


def _is_never_negative(op: object) -> bool:
    return isinstance(op, Eltwise) and (
        (op.algorithm == "relu" and op.alpha == 0)
        or (op.algorithm.startswith("clip") and op.alpha >= 0)
    )


def _keeps_sign(op: object) -> bool:
    return isinstance(op, Eltwise) and (
        op.algorithm == "round"
        or (op.algorithm == "linear" and op.alpha > 0 and op.beta == 0)
        or (op.algorithm.startswith("clip") and op.alpha < 0)
    )


def _weights(view: View) -> Iterator[tuple[int, npt.NDArray[np.int8]]]:
    """Products and their constant s8 weights."""
    for index, step in enumerate(view.steps):
        codes = view.plan.constants.get(step.arg("weights") or "")
        if codes is None or codes.dtype != np.int8 or codes.ndim < 2 or not codes.size:
            continue
        if view.is_product(index):
            yield index, codes.astype(np.int8, copy=False)


def _centred(step: Step, codes: npt.NDArray[np.int8]) -> npt.NDArray[np.int32]:
    zero = step.attr.zero_points.get("weights")
    return codes.astype(np.int32) - np.int32(zero.values[0] if zero is not None else 0)


def _channels_first(step: Step, weights: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    """[output channels, the rest]; with groups, those of a deconvolution within a group."""
    axis = {"convolution": 0, "deconvolution": 1}.get(step.primitive, weights.ndim - 1)
    return np.moveaxis(weights, axis, 0).reshape(weights.shape[axis], -1)


_FINDERS: Mapping[str, Finder] = MappingProxyType(
    {
        "absurd-scale": absurd_scales,
        "few-codes": few_codes,
        "coarse-softmax": coarse_softmaxes,
        "saturated-weights": saturated_weights,
        "unused-weight-range": unused_weight_range,
        "norm-behind-quantizer": norm_behind_quantizer,
        "dead-channels": dead_channels,
        "unused-sign": unused_sign,
        "saturation-without-vnni": multiplied_in_f32,
    }
)
