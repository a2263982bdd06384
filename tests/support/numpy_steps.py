"""A step of ordinary size for each operator that NumPy computes between primitives.

`python -m support.numpy_steps` times them on this machine, with one thread.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from time import process_time

import numpy as np

from fqfuse.ir.ops import OPS
from fqfuse.ir.ops.spec import REQUIRED, Array, Attr, Trait
from fqfuse.ir.types import DType, Quantization, TensorType
from fqfuse.onednn.enums import CpuIsa
from fqfuse.plan.arguments import with_roles
from fqfuse.plan.types import Plan, Step
from fqfuse.runtime.lowering.host import HostStep

_RANDOM = np.random.default_rng(0)
_FEATURES = (1, 64, 56, 56)
_ROWS = (1, 8, 128, 128)
_COLUMNS = (1, 64, 64, 48)
_WIDE = Quantization((0.01,), (100,))


@dataclass(frozen=True)
class Ordinary:
    """What an operator is given.

    Attributes:
        inputs: arrays in order; None for an absent one.
        attrs: its attributes.
        fixed: positions of the inputs that are constants.
        primitive: of the step, where it is one that NumPy computes all the same; empty: `onnx.<Op>`.
    """

    inputs: Sequence[Array | None]
    attrs: Mapping[str, Attr] = field(default_factory=dict)
    fixed: Sequence[int] = ()
    primitive: str = ""


def _floats(shape: Sequence[int] = _FEATURES) -> Array:
    return _RANDOM.standard_normal(shape).astype(np.float32)


def _positive(shape: Sequence[int] = _FEATURES) -> Array:
    return np.abs(_floats(shape)) + np.float32(0.5)


def _whole(shape: Sequence[int] = _FEATURES, most: int = 50) -> Array:
    return _RANDOM.integers(1, most, shape)


def _truths() -> Array:
    return _RANDOM.random(_FEATURES) > 0.5


def _codes(shape: Sequence[int] = _FEATURES) -> Array:
    return _RANDOM.integers(0, 256, shape).astype(np.uint8)


def _numbers(*values: int) -> Array:
    return np.array(values, np.int64)


def _one(**attrs: Attr) -> Ordinary:
    return Ordinary([_floats()], attrs)


def _two() -> Ordinary:
    return Ordinary([_positive(), _positive()])


def _reduced(*axes: int) -> Ordinary:
    return Ordinary([_floats(_COLUMNS), _numbers(*axes)], fixed=[1])


def _scalar(value: float) -> Array:
    return np.array(value, np.float32)


def _channels(count: int = 64) -> Array:
    return _positive([count])


_BY_TRAIT = {
    name: Ordinary([_floats() for _ in spec.inputs])
    for name, spec in OPS.items()
    if Trait.ELEMENTWISE in spec.traits and REQUIRED not in spec.attrs.values()
}

ORDINARY: Mapping[str, Ordinary] = {
    **_BY_TRAIT,
    **{name: _reduced(2) for name in OPS if name.startswith("Reduce")},
    **{name: _two() for name in ("Div", "Pow", "Max", "Min", "Sum", "Mean")},
    **{name: Ordinary([_positive()]) for name in ("Sqrt", "Log", "Reciprocal")},
    **{name: Ordinary([_truths(), _truths()]) for name in ("And", "Or", "Xor")},
    "Flatten": _one(),
    "GlobalAveragePool": _one(),
    "GlobalMaxPool": _one(),
    "MaxPool": _one(kernel_shape=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1)),
    "AveragePool": _one(kernel_shape=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1)),
    "LpPool": _one(kernel_shape=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1)),
    "GlobalLpPool": _one(),
    "BatchNormalization": Ordinary(
        [_floats(), *(_channels() for _ in range(4))], fixed=range(1, 5)
    ),
    "LayerNormalization": Ordinary(
        [_floats((1, 384, 512)), _channels(512), _channels(512)], fixed=[1, 2]
    ),
    "InstanceNormalization": Ordinary([_floats(), _channels(), _channels()], fixed=[1, 2]),
    "GroupNormalization": Ordinary(
        [_floats(), _channels(), _channels()], {"num_groups": 8}, [1, 2]
    ),
    "LRN": _one(size=5),
    "Softmax": Ordinary([_floats(_ROWS)], {"axis": -1}),
    "LogSoftmax": Ordinary([_floats(_ROWS)], {"axis": -1}),
    "PRelu": Ordinary([_floats(), _positive((64, 1, 1))], fixed=[1]),
    "Mod": Ordinary([_whole(), _whole()]),
    "Not": Ordinary([_truths()]),
    "Where": Ordinary([_truths(), _floats(), _floats()]),
    "Clip": Ordinary([_floats(), _scalar(0), _scalar(6)], fixed=[1, 2]),
    "Cast": Ordinary([_whole()], {"to": DType.F32}),
    "ArgMax": Ordinary([_floats((1, 21, 96, 96))], {"axis": 1}),
    "ArgMin": Ordinary([_floats((1, 21, 96, 96))], {"axis": 1}),
    "CumSum": Ordinary([_floats(_ROWS), np.array(3)], fixed=[1]),
    "TopK": Ordinary([_floats((1, 80, 2100)), _numbers(100)], fixed=[1]),
    "Reshape": Ordinary([_floats(), _numbers(1, 64, -1)], fixed=[1]),
    "Squeeze": Ordinary([_floats(), _numbers(0)], fixed=[1]),
    "Unsqueeze": Ordinary([_floats(), _numbers(0)], fixed=[1]),
    "Transpose": _one(perm=(0, 2, 3, 1)),
    "Concat": Ordinary([_floats(), _floats()], {"axis": 1}),
    "Split": Ordinary([_floats(), _numbers(32, 32)], {"axis": 1}, [1]),
    "Expand": Ordinary([_floats((1, 64, 1, 56)), _numbers(1, 64, 56, 56)], fixed=[1]),
    "Tile": Ordinary([_floats((1, 64, 28, 28)), _numbers(1, 1, 2, 2)], fixed=[1]),
    "DepthToSpace": _one(blocksize=2),
    "SpaceToDepth": _one(blocksize=2),
    "Shuffle": _one(axis=1, group_size=32),
    "Slice": Ordinary(
        [_floats(), _numbers(0), _numbers(50), _numbers(3), _numbers(1)], fixed=range(1, 5)
    ),
    "SliceLike": Ordinary([_floats(), _floats((1, 50))], {"axis": 3, "size_axis": 1}),
    "Pad": Ordinary([_floats(), _numbers(0, 0, 1, 1, 0, 0, 1, 1)], fixed=[1]),
    "Gather": Ordinary([_floats((30000, 256)), _whole((1, 384), 30000)], fixed=[0]),
    "GatherElements": Ordinary([_floats(_ROWS), _whole(_ROWS, 128)], {"axis": 3}),
    "GatherND": Ordinary([_floats((512, 256)), _whole((384, 1), 512)]),
    "Trilu": Ordinary([_floats(_ROWS)]),
    "Resize": Ordinary(
        [_floats((1, 64, 28, 28)), None, np.array([1, 1, 2, 2], np.float32)],
        {"mode": "linear"},
        [2],
    ),
    "Shape": _one(),
    "Size": _one(),
    "ConstantOfShape": Ordinary([_numbers(1, 64, 56, 56)], fixed=[0]),
    "Range": Ordinary([np.array(0), np.array(100_000), np.array(1)], fixed=[0, 1, 2]),
    "FakeQuantize": Ordinary(
        [_floats(), *map(_scalar, (-1, 1, -1, 1))], {"levels": 256}, range(1, 5)
    ),
    "Lookup": Ordinary([_codes(), _codes((256,))], fixed=[1]),
    "RunTimeDequantize": Ordinary([_codes(), _scalar(0.1), np.array(128, np.uint8)]),
    "DequantizeBlocks": Ordinary(
        [_codes((512, 256)), _positive((512, 16))], {"bits": 4, "block": 32, "size": 512}
    ),
    "DynamicBlocks": Ordinary([_floats((1, 384, 512))], {"block": 32}),
    "DynamicRange": Ordinary([_floats()], primitive="dynamic_range"),
    "FakeQuantizeGrid": Ordinary(
        [_scalar(-1), _scalar(1), _scalar(-1), _scalar(1)], {"levels": 256, "rank": 4}
    ),
    "Quantize": _one(quant=_WIDE, dtype=DType.U16, lo=0, hi=65535, order="round_first"),
    "Dequantize": Ordinary([_whole(most=65535).astype(np.uint16)], {"quant": _WIDE}),
    "QuantizeLinear": Ordinary([_floats(), _scalar(0.1)]),
    "DequantizeLinear": Ordinary([_codes(), _scalar(0.1)]),
}
"""Row of the op table -> a step of it."""


def plan_of(name: str) -> Plan:
    """A plan of the ordinary step of an operator, and of nothing else."""
    spec, given = OPS[name], ORDINARY[name]
    attrs = spec.complete(given.attrs)
    types = [None if x is None else _type(x) for x in given.inputs]
    data = [x if n in given.fixed else None for n, x in enumerate(given.inputs)]
    values = ["" if x is None else f"in{n}" for n, x in enumerate(given.inputs)]
    made = spec.infer(types, attrs, data)
    outputs = tuple(f"out{n}" for n in range(len(made)))
    args = with_roles(spec, values)
    step = Step(name, given.primitive or f"onnx.{name}", name, args, outputs, attrs, origin=(name,))
    known = zip(values, given.inputs, types, strict=True)
    live = {v: t for n, (v, x, t) in enumerate(known) if x is not None and n not in given.fixed}
    constants = {values[n]: given.inputs[n] for n in given.fixed}
    typed = {**live, **dict(zip(outputs, made, strict=True))}
    return Plan(name, "onednn-v3", tuple(live), outputs, typed, constants, (step,))


def _type(array: Array) -> TensorType:
    return TensorType(DType.from_numpy(array.dtype), array.shape)


def measured_ms(name: str, turns: int = 9) -> float:
    """Processor time of the step between two primitives, whose tensors lie in a shared cache: the median."""
    plan, given = plan_of(name), ORDINARY[name].inputs
    feeds = {f"in{n}": x for n, x in enumerate(given) if x is not None and f"in{n}" in plan.inputs}
    step = HostStep(plan, plan.steps[0], 1, max(CpuIsa))
    others, times = np.ones(4_000_000, np.float32), []
    for _ in range(turns + 1):
        others.sum()  # takes the place of the tensors in the core's own caches
        before = process_time()
        step.run(feeds)
        times.append(process_time() - before)
    return statistics.median(times[1:]) * 1e3


MEASURED: Mapping[str, float] = {
    "Relu": 0.098,
    "LeakyRelu": 0.815,
    "Elu": 0.986,
    "Selu": 0.966,
    "Celu": 0.324,
    "Sigmoid": 0.197,
    "Tanh": 0.098,
    "Erf": 12.6,
    "Softplus": 4.18,
    "Softsign": 0.108,
    "HardSigmoid": 0.116,
    "HardSwish": 0.131,
    "Swish": 0.286,
    "Mish": 4.29,
    "Gelu": 12.7,
    "PRelu": 0.878,
    "Add": 0.075,
    "Sub": 0.07,
    "Mul": 0.074,
    "Div": 0.073,
    "Max": 0.086,
    "Min": 0.096,
    "Sum": 0.092,
    "Mean": 0.145,
    "Pow": 0.195,
    "Mod": 0.412,
    "Neg": 0.054,
    "Abs": 0.053,
    "Sqrt": 0.09,
    "Exp": 0.117,
    "Log": 0.098,
    "Reciprocal": 0.103,
    "Round": 0.109,
    "Floor": 0.067,
    "Ceil": 0.062,
    "Sign": 0.103,
    "Sin": 0.129,
    "Cos": 0.13,
    "Equal": 0.081,
    "Greater": 0.102,
    "GreaterOrEqual": 0.083,
    "Less": 0.094,
    "LessOrEqual": 0.118,
    "And": 0.054,
    "Or": 0.064,
    "Xor": 0.049,
    "Not": 0.048,
    "IsNaN": 0.053,
    "IsInf": 0.413,
    "Where": 0.889,
    "Clip": 0.189,
    "Identity": 0.085,
    "RunTimeDequantize": 0.077,
    "ReduceMean": 0.116,
    "ReduceSum": 0.121,
    "ReduceMax": 0.21,
    "ReduceMin": 0.218,
    "ReduceProd": 0.166,
    "ReduceL1": 0.207,
    "ReduceL2": 0.161,
    "ReduceSumSquare": 0.194,
    "ReduceLogSumExp": 0.497,
    "Flatten": 0.09,
    "GlobalAveragePool": 0.08,
    "GlobalMaxPool": 0.065,
    "MaxPool": 0.447,
    "AveragePool": 0.517,
    "LpPool": 0.95,
    "GlobalLpPool": 0.29,
    "BatchNormalization": 0.286,
    "LayerNormalization": 0.442,
    "InstanceNormalization": 0.535,
    "GroupNormalization": 0.454,
    "LRN": 0.56,
    "Softmax": 0.315,
    "LogSoftmax": 0.257,
    "Cast": 0.107,
    "ArgMax": 0.644,
    "ArgMin": 0.626,
    "CumSum": 0.465,
    "TopK": 10.4,
    "Reshape": 0.073,
    "Squeeze": 0.054,
    "Unsqueeze": 0.092,
    "Transpose": 0.169,
    "Concat": 0.1,
    "Split": 0.1,
    "Expand": 0.1,
    "Tile": 0.125,
    "DepthToSpace": 0.542,
    "SpaceToDepth": 0.144,
    "Shuffle": 0.084,
    "Slice": 0.083,
    "SliceLike": 0.083,
    "Pad": 0.155,
    "Gather": 0.074,
    "GatherElements": 0.978,
    "GatherND": 0.102,
    "Trilu": 0.2,
    "Resize": 0.728,
    "Shape": 0.018,
    "Size": 0.015,
    "ConstantOfShape": 0.042,
    "Range": 0.109,
    "FakeQuantize": 1.1,
    "Lookup": 0.136,
    "DequantizeBlocks": 1.27,
    "DynamicBlocks": 0.554,
    "DynamicRange": 0.125,
    "FakeQuantizeGrid": 0.149,
    "Quantize": 0.239,
    "Dequantize": 0.062,
    "QuantizeLinear": 0.26,
    "DequantizeLinear": 0.094,
}
"""Milliseconds of each step as `python -m support.numpy_steps` measured them: NumPy 2.4, one core of an EPYC
(Zen 4) at 3.8 GHz, while others worked on the machine.
"""


def main() -> None:
    """Prints what this machine takes, in the form of the table."""
    for name in ORDINARY:
        print(f'    "{name}": {measured_ms(name):.3g},')


if __name__ == "__main__":
    main()
