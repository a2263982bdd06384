"""Runs one op by its row, by ONNX Runtime and by onnx.reference."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from support.judge import ort_session

from fqfuse.ir.ops import OPS
from fqfuse.ir.types import DType, TensorType

ORT_OPSET = 26  # the newest one that the installed ONNX Runtime takes

ELEMENT_TYPES = {
    DType.F32: TensorProto.FLOAT,
    DType.F64: TensorProto.DOUBLE,
    DType.F16: TensorProto.FLOAT16,
    DType.BF16: TensorProto.BFLOAT16,
    DType.S8: TensorProto.INT8,
    DType.U8: TensorProto.UINT8,
    DType.S16: TensorProto.INT16,
    DType.U16: TensorProto.UINT16,
    DType.S32: TensorProto.INT32,
    DType.U32: TensorProto.UINT32,
    DType.S64: TensorProto.INT64,
    DType.U64: TensorProto.UINT64,
    DType.BOOL: TensorProto.BOOL,
}


@dataclass(frozen=True, repr=False)
class Case:
    """One use of an op.

    Attributes:
        op: the row.
        inputs: arrays, None for absent ones.
        attrs: attributes as the row has them.
        exact: the result is the same bits, not just close.
        oracle: `ort` (onnx.reference where ONNX Runtime has no kernel for the element types);
            `reference` or `by hand` where ONNX Runtime cannot or does not do what ONNX says (the
            case says why in a comment).
        unknown: how many dimensions of the outputs nothing can be said of when the first input's
            shape is symbolic.
    """

    op: str
    inputs: tuple[np.ndarray | None, ...]
    attrs: dict[str, Any] = field(default_factory=dict)
    exact: bool = False
    oracle: str = "ort"
    unknown: int = 0

    def __str__(self) -> str:
        shapes = ",".join(
            "-"
            if a is None
            else f"{DType.from_numpy(a.dtype).value}{list(a.shape)}".replace(" ", "")
            for a in self.inputs
        )
        attrs = ",".join(
            f"{k}={v.value if isinstance(v, DType) else v}".replace(" ", "")
            for k, v in self.attrs.items()
        )
        return f"{self.op}({shapes}){{{attrs}}}"

    __repr__ = __str__


def case(
    op: str, *inputs: Any, exact: bool = False, oracle: str = "ort", unknown: int = 0, **attrs: Any
) -> Case:
    """A case; lists among the inputs are s64 arrays."""
    arrays = tuple(np.asarray(a, np.int64) if isinstance(a, list) else a for a in inputs)
    return Case(op, arrays, attrs, exact, oracle, unknown)


def rng(*seed: object) -> np.random.Generator:
    """A generator that depends on the words alone, not on which tests ran before."""
    return np.random.default_rng(zlib.crc32(repr(seed).encode()))


def normal(*shape: int, dtype: Any = np.float32, scale: float = 1.0) -> np.ndarray:
    """Normal deviates, or integers over the type's whole range."""
    generator = rng("normal", shape, np.dtype(dtype).name)
    if np.dtype(dtype).kind in "iu":
        info = np.iinfo(dtype)
        return generator.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)
    return (generator.standard_normal(shape) * scale).astype(dtype)


def positive(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    """Numbers between 0.5 and 2."""
    return rng("positive", shape).uniform(0.5, 2, shape).astype(dtype)


def run_row(
    case: Case, inputs: Sequence[np.ndarray | None] | None = None
) -> tuple[np.ndarray, ...]:
    """What the row computes."""
    spec = OPS[case.op]
    assert spec.evaluate is not None
    return spec.evaluate(case.inputs if inputs is None else inputs, spec.complete(case.attrs))


def types_of(inputs: Sequence[np.ndarray | None]) -> list[TensorType | None]:
    """Static types of arrays."""
    return [
        None if a is None else TensorType(DType.from_numpy(a.dtype), tuple(a.shape)) for a in inputs
    ]


def infer(
    case: Case, types: Sequence[TensorType | None], *, constants: bool = True
) -> tuple[TensorType, ...]:
    """What the row says of the outputs' types, with the data of all inputs but the first known, or
    of none.
    """
    spec = OPS[case.op]
    data = [a if constants and i > 0 else None for i, a in enumerate(case.inputs)]
    if case.op in ("ConstantOfShape", "Range"):  # these are all about the data of their first input
        data = list(case.inputs) if constants else [None] * len(data)
    return spec.infer(types, spec.complete(case.attrs), data)


# -- the other two ---------------------------------------------------------------------------------


def onnx_model(case: Case, outputs: int) -> onnx.ModelProto:
    """The case as a model of one node, with every input a graph input."""
    version = min(onnx.defs.onnx_opset_version(), ORT_OPSET if case.oracle == "ort" else 99)
    names = ["" if a is None else f"x{i}" for i, a in enumerate(case.inputs)]
    node = helper.make_node(
        case.op, names, [f"y{i}" for i in range(outputs)], **onnx_attrs(case, version)
    )
    if case.op == "ConstantOfShape":
        dtype = case.attrs.get("dtype", DType.F32)
        value = numpy_helper.from_array(
            np.asarray([case.attrs.get("value", 0.0)], dtype.numpy), "value"
        )
        node.attribute.append(helper.make_attribute("value", value))
    inputs = [
        helper.make_tensor_value_info(f"x{i}", _element_type(a), a.shape)
        for i, a in enumerate(case.inputs)
        if a is not None
    ]
    results = [helper.make_empty_tensor_value_info(f"y{i}") for i in range(outputs)]
    graph = helper.make_graph([node], case.op, inputs, results)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=10)


def onnx_attrs(case: Case, version: int) -> dict[str, Any]:
    """The row's attributes as ONNX writes them; absent ones left out."""
    known = onnx.defs.get_schema(case.op, version, "").attributes
    result: dict[str, Any] = {}
    for name, value in case.attrs.items():
        if (
            name not in known
            or value == ()
            or value is None
            or (case.op, name) in {("Split", "num_outputs"), ("ConstantOfShape", "value")}
        ):
            if (case.op, name) == ("Split", "num_outputs") and value:
                result[name] = value
            continue
        result[name] = (
            ELEMENT_TYPES[value]
            if isinstance(value, DType)
            else list(value)
            if isinstance(value, tuple)
            else value
        )
    return result


def _element_type(array: np.ndarray) -> int:
    return ELEMENT_TYPES[DType.from_numpy(array.dtype)]


def oracle(case: Case, outputs: int) -> list[np.ndarray]:
    """The outputs by the case's oracle."""
    feeds = {f"x{i}": a for i, a in enumerate(case.inputs) if a is not None}
    model = onnx_model(case, outputs)
    if case.oracle == "reference":
        return [np.asarray(y) for y in ReferenceEvaluator(model).run(None, feeds)]
    session = _session(model.SerializeToString())
    if session is None:
        return [np.asarray(y) for y in ReferenceEvaluator(model).run(None, feeds)]
    return [np.asarray(y) for y in session.run(None, feeds)]


@lru_cache(maxsize=8)
def _session(model: bytes) -> Any:
    """A session, or None where ONNX Runtime has no kernel for these element types."""
    from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as NoKernel

    try:
        return ort_session(onnx.ModelProto.FromString(model))
    except NoKernel:
        return None


def assert_close(actual: np.ndarray, expected: np.ndarray, *, exact: bool) -> None:
    """Same type and shape, and the same values.

    Not exact: sums run in another order and transcendental functions differ by a few ulp. 1e-5 of
    the value, or of the largest value
    where terms cancel, is about 100 ulp of f32: a wrong formula misses by far more. f16: 2 ulp.
    """
    assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
    if exact or expected.dtype.kind != "f":
        np.testing.assert_array_equal(actual, expected)
        return
    tolerance = 2e-3 if expected.dtype == np.float16 else 1e-5
    finite = np.abs(expected[np.isfinite(expected)], dtype=np.float64)
    np.testing.assert_allclose(
        actual, expected, rtol=tolerance, atol=tolerance * float(finite.max(initial=0))
    )
