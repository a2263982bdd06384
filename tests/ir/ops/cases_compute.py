"""Cases of matrix products, normalization, softmax, reductions and dynamic quantization."""

from __future__ import annotations

import numpy as np

from fqfuse.ir.types import DType

from .harness import Case, case, normal, positive

X = normal(2, 6, 4, 5)
C = normal(6), normal(6)
U8, S8 = np.uint8, np.int8

MATMUL: tuple[Case, ...] = (
    case("MatMul", normal(4, 7), normal(7, 5)),
    case("MatMul", normal(2, 3, 4, 7), normal(7, 5)),
    case("MatMul", normal(2, 3, 4, 7), normal(3, 7, 5)),
    case("MatMul", normal(2, 1, 4, 7), normal(1, 3, 7, 5)),
    case("MatMul", normal(7), normal(3, 7, 5)),
    case("MatMul", normal(3, 4, 7), normal(7)),
    case("MatMul", normal(7), normal(7), exact=False),
    case("MatMul", normal(4, 7, dtype=np.int32) % 1000, normal(7, 5, dtype=np.int32) % 1000),
    case("MatMul", normal(4, 7, dtype=np.float64), normal(7, 5, dtype=np.float64)),
    case(
        "MatMul",
        normal(4, 7).astype(np.float16),
        normal(7, 5).astype(np.float16),
        oracle="reference",
    ),
    case("Gemm", normal(4, 7), normal(7, 5)),
    case("Gemm", normal(4, 7), normal(7, 5), normal(5)),
    case("Gemm", normal(7, 4), normal(5, 7), normal(4, 1), transA=1, transB=1, alpha=0.5, beta=2.0),
    case("Gemm", normal(4, 7), normal(5, 7), normal(4, 5), transB=1, beta=-1.0),
    case("Gemm", normal(4, 7), normal(7, 5), np.asarray(2.5, np.float32)),
    case("MatMulInteger", normal(4, 7, dtype=U8), normal(7, 5, dtype=U8)),
    case(
        "MatMulInteger",
        normal(4, 7, dtype=U8),
        normal(7, 5, dtype=S8),
        np.asarray(131, U8),
        np.asarray(-2, S8),
    ),
    case(
        "MatMulInteger",
        normal(2, 4, 7, dtype=U8),
        normal(2, 7, 5, dtype=S8),
        np.asarray(131, U8),
        None,
    ),
    case(
        "MatMulInteger",
        normal(4, 7, dtype=U8),
        normal(7, 5, dtype=S8),
        np.asarray(131, U8),
        normal(5, dtype=S8),
    ),
    # A zero point for each row: ONNX Runtime takes a scalar only, and onnx.reference takes it for
    # one of each column.
    case(
        "MatMulInteger",
        normal(4, 7, dtype=U8),
        normal(7, 5, dtype=U8),
        np.asarray([0, 5, 9, 255], U8),
        np.asarray(3, U8),
        oracle="by hand",
    ),
)

NORMALIZATION: tuple[Case, ...] = (
    case("BatchNormalization", X, *C, normal(6), positive(6)),
    case("BatchNormalization", normal(3, 6), *C, normal(6), positive(6), epsilon=1e-2),
    case("LayerNormalization", X, normal(5)),
    case("LayerNormalization", X, normal(5), normal(5), epsilon=1e-2),
    case("LayerNormalization", X, normal(4, 5), normal(4, 5), axis=2),
    case("LayerNormalization", X, normal(6, 4, 5), axis=-3),
    case("LayerNormalization", X.astype(np.float64), normal(5, dtype=np.float64), oracle="by hand"),
    case("InstanceNormalization", X, *C),
    case("InstanceNormalization", normal(2, 6, 9), *C, epsilon=1e-2),
    # ONNX Runtime 1.31 runs GroupNormalization as ONNX's own function: the same oracle either way.
    case("GroupNormalization", X, *C, num_groups=3),
    case("GroupNormalization", X, *C, num_groups=6, epsilon=1e-2),
    case("LRN", X, size=3),
    # ONNX Runtime takes odd sizes only, and onnx.reference runs over the images where it should
    # over the channels.
    case("LRN", X, size=4, alpha=0.3, beta=0.6, bias=1.5, oracle="by hand"),
    case("LRN", X, size=5, alpha=0.3, beta=0.6, bias=1.5),
    *(case(op, X, axis=axis) for op in ("Softmax", "LogSoftmax") for axis in (-1, 1, 0)),
    case("Softmax", normal(3, 50, scale=100)),
    case("LogSoftmax", normal(3, 50, scale=100)),
)

_REDUCTIONS = (
    "ReduceMean",
    "ReduceSum",
    "ReduceMax",
    "ReduceMin",
    "ReduceProd",
    "ReduceL1",
    "ReduceL2",
    "ReduceSumSquare",
    "ReduceLogSumExp",
)

REDUCTION: tuple[Case, ...] = (
    *(case(op, X, [1, -1]) for op in _REDUCTIONS),
    *(case(op, X, [0, 2], keepdims=0) for op in _REDUCTIONS),
    *(case(op, X) for op in _REDUCTIONS),
    *(case(op, X, keepdims=0) for op in _REDUCTIONS),
    *(case(op, X, noop_with_empty_axes=1) for op in _REDUCTIONS),
    # 0/0 is NaN, whatever its sign
    *(case(op, normal(2, 0, 3), [1]) for op in _REDUCTIONS if op != "ReduceMean"),
    case("ReduceSum", normal(3, 4, dtype=np.int64) % 1000, [1]),
    case("ReduceMax", normal(3, 4, dtype=U8), [1]),
    case("ReduceMin", normal(3, 4, dtype=S8), [0], keepdims=0),
    case("ReduceProd", normal(3, 4, dtype=np.int32) % 7, [1]),
    *(
        case(op, X, **attrs)
        for op in ("ArgMax", "ArgMin")
        for attrs in ({}, {"axis": -1}, {"axis": 2, "keepdims": 0})
    ),
    *(
        case(op, normal(3, 40, dtype=U8) % 5, axis=1, select_last_index=last)
        for op in ("ArgMax", "ArgMin")
        for last in (0, 1)
    ),
    *(
        case("CumSum", X, np.asarray(axis), exclusive=e, reverse=r)
        for axis, e, r in ((1, 0, 0), (-1, 1, 0), (2, 0, 1), (0, 1, 1))
    ),
    case("CumSum", normal(3, 4, dtype=np.int32), np.asarray(1, np.int32)),
    case("TopK", X, [3]),
    case("TopK", X, [2], axis=1, largest=0),
    case("TopK", normal(3, 40, dtype=np.int64) % 6, [11]),
    case("TopK", normal(3, 40, dtype=np.int64) % 6, [11], largest=0),
    case("TopK", X, [0], axis=0),
)

# ONNX Runtime takes the types from the operands, so that a zero point says what `output_dtype` does
_STEPS = positive(6)
_ONE = np.asarray(0.05, np.float32), np.asarray(7, U8)
LINEAR: tuple[Case, ...] = (
    *(
        case(
            "QuantizeLinear",
            X,
            _STEPS / 20,
            normal(6, dtype=kind),
            output_dtype=DType.from_numpy(kind),
        )
        for kind in (U8, S8, np.uint16, np.int16)
    ),
    case("QuantizeLinear", X, *_ONE, output_dtype=DType.U8, saturate=0, axis=2),
    case("QuantizeLinear", X, positive(2, 3, 4, 5) / 20, axis=1, block_size=2),
    case(
        "QuantizeLinear",
        X,
        *_ONE,
        output_dtype=DType.U8,
        precision=DType.F16,
        oracle="reference",  # ONNX Runtime 1.32 does not know the attribute
    ),
    case("DequantizeLinear", normal(2, 6, 4, dtype=S8), _STEPS, normal(6, dtype=S8)),
    case("DequantizeLinear", normal(2, 6, 4, dtype=U8), positive(2, 6, 2), axis=-1, block_size=3),
    case("DequantizeLinear", normal(2, 6, dtype=np.int32), _ONE[0], axis=0),
    case("DequantizeLinear", normal(2, 6, dtype=np.uint16), positive(2), axis=0),
)

CASES = MATMUL + NORMALIZATION + REDUCTION + LINEAR
