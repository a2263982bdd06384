"""Cases of elementwise ops, activations and casts."""

from __future__ import annotations

import numpy as np

from fqfuse.ir.types import DType

from .harness import Case, case, normal, positive

X = np.concatenate(
    [
        normal(3, 40),
        normal(3, 40, scale=20),
        np.asarray([[0.0] * 4 + [0.5, -0.5] * 2, [1.5, -1.5] * 4, [2.5, -2.5] * 4]),
    ],
    axis=1,
)
X = X.astype(np.float32)
WITHOUT_NUMBERS = np.asarray([[np.nan, np.inf, -np.inf, 0, 3e38, -1]], np.float32)
A, B = normal(2, 3, 4, 5), normal(3, 1, 5)
INTS, MORE_INTS = normal(2, 3, 4, dtype=np.int32), normal(3, 1, dtype=np.int32)
SMALL = np.asarray([[-7, -6, -1, 0, 1, 6, 7], [3, 2, -2, 5, -5, 1, -1]], np.int64)
DIVISOR = np.asarray([[2, -4, 3, 5, -6, 4, -4], [2, 2, 2, -2, -2, -1, -1]], np.int64)
BOOLS, OTHERS = normal(4, 3) > 0, normal(2, 1, 3) > 0

BINARY: tuple[Case, ...] = (
    *(
        case(op, a, b)
        for op in ("Add", "Sub", "Mul", "Div", "Max", "Min")
        for a, b in ((A, B), (B, A), (A, A[:1, :1, :1, :1]), (A, np.asarray(2.5, np.float32)))
    ),
    *(case(op, INTS, MORE_INTS) for op in ("Add", "Sub", "Mul", "Max", "Min")),
    case("Div", SMALL, DIVISOR),
    case("Div", SMALL.astype(np.uint8), np.abs(DIVISOR).astype(np.uint8)),
    *(
        case(op, a, b)
        for op in ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
        for a, b in ((A, B), (X, X[:, ::-1].copy()), (INTS, INTS), (SMALL, DIVISOR))
    ),
    case("Mod", SMALL, DIVISOR),
    case("Mod", SMALL, DIVISOR, fmod=1),
    case("Mod", SMALL.astype(np.uint8), np.abs(DIVISOR).astype(np.uint8)),
    case("Equal", BOOLS, OTHERS),
    *(case(op, BOOLS, OTHERS) for op in ("And", "Or", "Xor")),
    case("Max", A, B, A * 2, exact=True),
    case("Max", A, exact=True),
    case("Min", A, B, normal(5), exact=True),
    case("Sum", A, B, normal(5)),
    case("Sum", A),
    case("Mean", A, B, normal(5)),
    case("Mean", A),
    case("Pow", positive(3, 4), normal(4)),
    case("Pow", X, np.asarray(2, np.float32)),
    case("Pow", normal(3, 4), np.asarray(3, np.int64)),
    case("Pow", SMALL, np.asarray([[0, 1, 2, 3, 4, 2, 1]], np.int64)),
    case("Pow", SMALL.astype(np.int32), np.asarray(2.0, np.float32)),
    # ONNX Runtime goes through float here as well; 1/x**n towards zero.
    case("Pow", np.asarray([1, 2, -1, 4], np.int64), np.asarray([-1, -2, -3, 2], np.int64)),
    case("PRelu", A, B),
    case("PRelu", A, normal(3, 1, 1)),
    case("PRelu", A, np.asarray([0.25], np.float32)),
    case("PRelu", INTS, np.asarray([3], np.int32)),
    case("Where", OTHERS, normal(4, 3), normal(1)),
    case("Where", OTHERS, normal(4, 3, dtype=np.int64), normal(2, 4, 1, dtype=np.int64)),
    case("Clip", X, np.asarray(-1.5, np.float32), np.asarray(2.5, np.float32), exact=True),
    case("Clip", X, np.asarray([-1.5], np.float32), exact=True, oracle="by hand"),
    case("Clip", X, None, np.asarray(2.5, np.float32), exact=True),
    case("Clip", X, exact=True),
    case("Clip", X, np.asarray(2, np.float32), np.asarray(-2, np.float32), exact=True),
    case("Clip", normal(50, dtype=np.int8), np.asarray(-5, np.int8), np.asarray(60, np.int8)),
    case("Clip", normal(50, dtype=np.int64), np.asarray(-5, np.int64), np.asarray(60, np.int64)),
)

_PLAIN = (
    "Abs",
    "Neg",
    "Round",
    "Floor",
    "Ceil",
    "Sign",
    "Relu",
    "Sigmoid",
    "Tanh",
    "Erf",
    "Softplus",
    "Softsign",
    "HardSwish",
    "Mish",
    "Sin",
    "Cos",
    "Exp",
)

UNARY: tuple[Case, ...] = (
    *(
        case(op, X, exact=op in ("Abs", "Neg", "Round", "Floor", "Ceil", "Sign", "Relu"))
        for op in _PLAIN
        if op != "Exp"
    ),
    case("Exp", X / 4),
    *(
        case(op, normal(2, 3, 4, dtype=np.float64))
        for op in ("Abs", "Neg", "Sqrt", "Relu", "Exp", "Tanh", "Round", "Floor")
    ),
    *(case(op, positive(7, 5)) for op in ("Sqrt", "Log", "Reciprocal")),
    case("Sqrt", normal(20)),
    case("Log", normal(20)),
    case("Reciprocal", np.asarray([-2, -0.0, 0.0, 4, np.inf], np.float32)),
    *(case(op, normal(30, dtype=np.int32)) for op in ("Abs", "Neg", "Sign", "Relu")),
    *(case(op, normal(30, dtype=np.int8)) for op in ("Abs", "Neg", "Sign")),
    # f16: ONNX Runtime's CPU build has no kernels for these.
    *(
        case(op, normal(3, 4).astype(np.float16), oracle="reference")
        for op in ("Sigmoid", "Tanh", "Erf", "Relu", "Softplus")
    ),
    case("Not", BOOLS),
    case("IsNaN", WITHOUT_NUMBERS),
    case("IsInf", WITHOUT_NUMBERS),
    case("IsInf", WITHOUT_NUMBERS, detect_negative=0),
    case("IsInf", WITHOUT_NUMBERS, detect_positive=0),
    case("LeakyRelu", X),
    case("LeakyRelu", X, alpha=0.3),
    case("LeakyRelu", X, alpha=-0.5),
    case("Elu", X),
    case("Elu", X, alpha=-1.7),
    case("Selu", X),
    case("Selu", X, alpha=-1.2, gamma=0.7),
    case("Celu", X, alpha=0.6),
    case("HardSigmoid", X),
    case("HardSigmoid", X, alpha=-0.4, beta=0.3),
    # Swish is of opset 24; ONNX Runtime 1.31 has no kernel for it.
    case("Swish", X, oracle="reference"),
    case("Swish", X, alpha=1.702, oracle="reference"),
    case("Gelu", X),
    case("Gelu", X, approximate="tanh"),
    case("Gelu", normal(40, dtype=np.float64), oracle="reference"),
    case("Identity", A, exact=True),
    case("Identity", BOOLS),
)

CASTS: tuple[Case, ...] = (
    *(
        case("Cast", X, to=to)
        for to in (DType.F64, DType.F16, DType.S8, DType.S32, DType.S64, DType.BOOL)
    ),
    case("Cast", np.abs(X), to=DType.U8),
    *(
        case("Cast", normal(60, dtype=np.int32), to=to)
        for to in (DType.F32, DType.S8, DType.U8, DType.S16, DType.S64, DType.BOOL, DType.F16)
    ),
    case("Cast", normal(60, dtype=np.uint8), to=DType.S8),
    case("Cast", BOOLS, to=DType.F32),
    case("Cast", BOOLS, to=DType.S64),
    case("Cast", X, to=DType.F32, saturate=1, round_mode="up"),
)

CASES = BINARY + UNARY + CASTS
