"""Cases of convolution and pooling."""

from __future__ import annotations

import numpy as np

from .harness import Case, case, normal

X1, X2, X3 = normal(2, 4, 13), normal(2, 4, 11, 13), normal(1, 4, 7, 6, 5)

CONVOLUTION: tuple[Case, ...] = (
    case("Conv", X2, normal(6, 4, 3, 3)),
    case("Conv", X2, normal(6, 4, 3, 3), normal(6), pads=(1, 1, 1, 1)),
    case("Conv", X2, normal(6, 4, 1, 1), normal(6)),
    case("Conv", X2, normal(6, 4, 1, 1), strides=(2, 2)),
    case("Conv", X2, normal(6, 4, 1, 1), pads=(1, 0, 0, 2)),
    case(
        "Conv",
        X2,
        normal(6, 4, 3, 2),
        normal(6),
        pads=(0, 1, 2, 0),
        strides=(2, 3),
        dilations=(2, 1),
        kernel_shape=(3, 2),
    ),
    case("Conv", X2, normal(6, 2, 3, 3), normal(6), group=2, pads=(1, 1, 1, 1)),
    case("Conv", X2, normal(8, 2, 1, 1), normal(8), group=2),
    case("Conv", X2, normal(4, 1, 3, 3), normal(4), group=4, pads=(1, 1, 1, 1), strides=(2, 2)),
    case("Conv", X2, normal(8, 1, 3, 3), normal(8), group=4, dilations=(2, 2)),
    case("Conv", X2, normal(6, 4, 3, 3), auto_pad="SAME_UPPER", strides=(2, 2)),
    case("Conv", X2, normal(6, 4, 4, 2), auto_pad="SAME_LOWER", strides=(2, 3)),
    case("Conv", X2, normal(6, 4, 3, 3), auto_pad="VALID"),
    case("Conv", X1, normal(5, 4, 3), normal(5), pads=(2, 0), strides=(2,)),
    case("Conv", X3, normal(5, 4, 3, 2, 1), normal(5), pads=(1, 0, 0, 1, 1, 0), strides=(1, 2, 1)),
    # several blocks of columns
    case("Conv", normal(3, 32, 70, 70), normal(32, 32, 3, 3), normal(32), pads=(1, 1, 1, 1)),
    case("Conv", normal(40, 8, 24, 24), normal(4, 8, 5, 5)),  # several images a block
    case("Conv", X2.astype(np.float64), normal(6, 4, 3, 3, dtype=np.float64)),
    # ONNX Runtime's CPU build has no f16 kernel for Conv.
    case("Conv", X2.astype(np.float16), normal(6, 4, 3, 3).astype(np.float16), oracle="reference"),
    case("ConvTranspose", X2, normal(4, 3, 3, 3)),
    case("ConvTranspose", X2, normal(4, 3, 3, 2), normal(3), strides=(2, 3), pads=(1, 0, 0, 1)),
    case(
        "ConvTranspose",
        X2,
        normal(4, 3, 3, 3),
        normal(3),
        strides=(2, 2),
        pads=(1, 1, 1, 1),
        output_padding=(1, 1),
    ),
    case(
        "ConvTranspose",
        X2,
        normal(4, 3, 3, 3),
        normal(6),
        strides=(3, 2),
        dilations=(1, 2),
        group=2,
    ),
    case("ConvTranspose", X2, normal(4, 1, 2, 2), group=4, strides=(2, 2)),
    case("ConvTranspose", X2, normal(4, 3, 3, 3), strides=(2, 2), output_shape=(22, 26)),
    case(
        "ConvTranspose",
        X2,
        normal(4, 3, 3, 3),
        strides=(2, 2),
        output_shape=(22, 26),
        auto_pad="SAME_UPPER",
    ),
    case("ConvTranspose", X2, normal(4, 3, 3, 3), strides=(2, 2), auto_pad="SAME_UPPER"),
    case("ConvTranspose", X2, normal(4, 3, 3, 3), strides=(2, 2), auto_pad="SAME_LOWER"),
    case("ConvTranspose", X1, normal(4, 3, 4), normal(3), strides=(2,), pads=(1, 2)),
    case("ConvTranspose", X3, normal(4, 3, 2, 3, 2), strides=(2, 1, 2)),
    case("ConvInteger", normal(2, 4, 9, 9, dtype=np.uint8), normal(6, 4, 3, 3, dtype=np.uint8)),
    case(
        "ConvInteger",
        normal(2, 4, 9, 9, dtype=np.uint8),
        normal(6, 4, 3, 3, dtype=np.int8),
        np.asarray(130, np.uint8),
        pads=(1, 1, 0, 0),
    ),
    case(
        "ConvInteger",
        normal(2, 4, 9, 9, dtype=np.uint8),
        normal(6, 2, 3, 3, dtype=np.int8),
        np.asarray(7, np.uint8),
        np.asarray(-3, np.int8),
        group=2,
        strides=(2, 2),
    ),
    # A zero point for each output channel: ONNX Runtime takes a scalar only.
    case(
        "ConvInteger",
        normal(1, 3, 5, 5, dtype=np.uint8),
        normal(2, 3, 3, 3, dtype=np.uint8),
        np.asarray(7, np.uint8),
        np.asarray([1, 200], np.uint8),
        oracle="by hand",
    ),
)

POOLING: tuple[Case, ...] = (
    *(
        case(op, x, **attrs)
        for op in ("MaxPool", "AveragePool")
        for x, attrs in (
            (X2, {"kernel_shape": (2, 2), "strides": (2, 2)}),
            (X2, {"kernel_shape": (3, 2), "strides": (2, 1), "pads": (1, 0, 1, 1)}),
            (X2, {"kernel_shape": (3, 3), "strides": (2, 2), "ceil_mode": 1}),
            (X2, {"kernel_shape": (2, 2), "strides": (3, 3), "ceil_mode": 1, "pads": (1, 1, 1, 1)}),
            (X2, {"kernel_shape": (3, 2), "strides": (3, 2), "pads": (0, 0, 2, 1), "ceil_mode": 1}),
            (X2, {"kernel_shape": (3, 3), "auto_pad": "SAME_UPPER", "strides": (2, 2)}),
            (X2, {"kernel_shape": (2, 4), "auto_pad": "SAME_LOWER", "strides": (1, 3)}),
            (X2, {"kernel_shape": (3, 3), "auto_pad": "VALID"}),
            (X2, {"kernel_shape": (3, 2), "dilations": (2, 3)}),
            (X1, {"kernel_shape": (4,), "strides": (3,), "pads": (1, 2)}),
            (X3, {"kernel_shape": (2, 3, 2), "strides": (1, 2, 1), "pads": (0, 1, 1, 1, 0, 0)}),
            (X2.astype(np.float64), {"kernel_shape": (2, 2)}),
        )
    ),
    case(
        "MaxPool",
        normal(2, 3, 8, 8, dtype=np.uint8),
        kernel_shape=(3, 3),
        pads=(1, 1, 1, 1),
        exact=True,
    ),
    case(
        "MaxPool",
        normal(2, 3, 8, 8, dtype=np.int8),
        kernel_shape=(3, 3),
        pads=(1, 1, 1, 1),
        strides=(2, 2),
        exact=True,
    ),
    case("MaxPool", -np.abs(X2) - 1, kernel_shape=(3, 3), pads=(1, 1, 1, 1), storage_order=1),
    case("AveragePool", X2, kernel_shape=(3, 2), pads=(1, 0, 1, 1), count_include_pad=1),
    case(
        "AveragePool",
        X2,
        kernel_shape=(3, 3),
        strides=(2, 2),
        pads=(1, 1, 1, 1),
        count_include_pad=1,
        auto_pad="NOTSET",
    ),
    case(
        "AveragePool",
        X2,
        kernel_shape=(2, 3),
        strides=(3, 2),
        pads=(1, 1, 0, 2),
        count_include_pad=1,
        ceil_mode=1,
    ),
    case(
        "AveragePool",
        X1,
        kernel_shape=(3,),
        strides=(2,),
        dilations=(2,),
        count_include_pad=1,
        pads=(2, 2),
    ),
    # partial windows, and padding in ceil_mode, are wrong in ONNX's reference and in ONNX Runtime: `test_poolings.py`
    *(
        case("LpPool", x, p=p, **attrs)
        for p in (1, 2, 3)
        for x, attrs in (
            (X1, {"kernel_shape": (3,), "strides": (2,)}),
            (X2, {"kernel_shape": (3, 2), "strides": (2, 1), "pads": (1, 0, 1, 1)}),
            (X2, {"kernel_shape": (2, 2), "auto_pad": "SAME_UPPER"}),
            (X2, {"kernel_shape": (3, 2), "dilations": (2, 1)}),
        )
    ),
    case("LpPool", X2[..., :3], kernel_shape=(2, 2), strides=(1, 1), ceil_mode=1),
    # neither ONNX Runtime nor onnx.reference has its newest form
    *(case("GlobalLpPool", x, p=p, oracle="by hand") for x in (X1, X2) for p in (1, 2)),
    *(
        case(op, x)
        for op in ("GlobalAveragePool", "GlobalMaxPool")
        for x in (X1, X2, X3, X2.astype(np.float64))
    ),
)

CASES = CONVOLUTION + POOLING
