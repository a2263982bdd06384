"""Cases of what moves, picks, reshapes and resizes."""

from __future__ import annotations

import numpy as np

from fqfuse.ir.types import DType

from .harness import Case, case, normal

X = normal(2, 6, 4, 5)
CODES = normal(2, 6, 4, 5, dtype=np.uint8)
LIST = np.asarray  # for s32 indices, where a list would be s64

RESHAPING: tuple[Case, ...] = (
    case("Reshape", X, [2, -1], exact=True),
    case("Reshape", X, [0, 0, 20], exact=True),
    case("Reshape", X, [-1, 3, 0, 5], exact=True),
    case("Reshape", X, [12, 20], exact=True),
    case("Reshape", CODES, [4, 5, 0, 3], exact=True, oracle="by hand"),
    case("Reshape", normal(0, 3), [0, 3], exact=True, allowzero=1),
    case("Reshape", normal(1), [], exact=True),
    *(case("Flatten", X, exact=True, axis=axis) for axis in (0, 1, 2, 4, -1, -4)),
    case("Flatten", CODES, exact=True),
    case("Squeeze", normal(1, 3, 1, 2), [0, 2], exact=True),
    case("Squeeze", normal(1, 3, 1, 2), [-2], exact=True),
    case("Squeeze", normal(1, 3, 1, 2), exact=True, unknown=-1),
    case("Unsqueeze", X, [0], exact=True),
    case("Unsqueeze", X, [-1, 2], exact=True),
    case("Unsqueeze", X, np.asarray(-2), exact=True),
    case("Unsqueeze", CODES, [3, 0], exact=True),
)

MOVEMENT: tuple[Case, ...] = (
    case("Transpose", X, exact=True),
    case("Transpose", X, exact=True, perm=(0, 2, 3, 1)),
    case("Transpose", CODES, exact=True, perm=(3, 0, 2, 1)),
    case("Concat", X, normal(2, 3, 4, 5), exact=True, axis=1),
    case("Concat", X, X, X, exact=True, axis=-1),
    case("Concat", CODES, normal(1, 6, 4, 5, dtype=np.uint8), exact=True, axis=0),
    case("Concat", X, exact=True, axis=2),
    case("Split", X, [1, 3, 2], exact=True, axis=1),
    case("Split", X, [4, 0], exact=True, axis=-2),
    case("Split", X, exact=True, axis=1, num_outputs=3),
    case("Split", X, exact=True, axis=3, num_outputs=3),
    case("Split", CODES, exact=True, num_outputs=2),
    case("Expand", normal(3, 1), [2, 3, 4], exact=True),
    case("Expand", X, [1, 1], exact=True),
    case("Expand", normal(1, 4), [3, 1], exact=True),
    case("Tile", X, [1, 2, 3, 1], exact=True),
    case("Tile", normal(3, dtype=np.int64), [4], exact=True),
    *(
        case("DepthToSpace", normal(2, 12, 3, 5), exact=True, blocksize=2, mode=mode)
        for mode in ("DCR", "CRD")
    ),
    case("SpaceToDepth", normal(2, 3, 4, 6), exact=True, blocksize=2),
    # The mode is of opset 28, which ONNX Runtime does not know yet.
    case("SpaceToDepth", normal(2, 3, 4, 6), exact=True, blocksize=2, mode="CRD", oracle="by hand"),
)

SLICING: tuple[Case, ...] = (
    case("Slice", X, [0, 1], [2, 5], exact=True),
    case("Slice", X, [1, -3], [1000, -1], [1, 3], exact=True),
    case("Slice", X, [0, 1], [6, 5], [1, -1], [2, 2], exact=True),
    case("Slice", X, [-1], [-1000], [3], [-1], exact=True),
    case("Slice", X, [5, 3], [0, -1000], [1, 2], [-2, -1], exact=True),
    case("Slice", X, [4], [2], [1], exact=True),
    case("Slice", X, [2**40], [-(2**40)], [1], [-3], exact=True),
    case("Slice", X, [-100], [-200], [1], [-1], exact=True),  # NumPy's slice would be empty
    case("Slice", normal(0, 3), [5], [-5], [0], [-1], exact=True),
    case(
        "Slice", CODES, LIST([2], np.int32), LIST([4], np.int32), LIST([-3], np.int32), exact=True
    ),
    *(
        case("Pad", X, [0, 1, 2, 0, 0, 0, 1, 3], exact=True, mode=mode)
        for mode in ("constant", "reflect", "edge", "wrap")
    ),
    case("Pad", X, [0, 1, 2, 0, 1, 0, 1, 3], np.asarray(-1.5, np.float32), exact=True),
    case("Pad", X, [1, -1, 2, 1], np.asarray(0.5, np.float32), [2, -1], exact=True),
    case("Pad", X, [0, -1, -2, 0, 0, 0, 1, -3], exact=True),
    case("Pad", CODES, [0, 1, 2, 0, 0, 0, 1, 3], np.asarray(128, np.uint8), exact=True),
    case("Pad", X, [0] * 8, exact=True),
    case("Gather", X, [0, -1, 3], exact=True, axis=1),
    case("Gather", X, np.asarray([[0, 1], [-2, 2]]), exact=True, axis=2),
    case("Gather", CODES, np.asarray(1), exact=True),
    case("Gather", X, LIST([[4]], np.int32), exact=True, axis=-1),
    case("GatherElements", X, normal(2, 6, 3, 5, dtype=np.int64) % 4, exact=True, axis=2),
    case("GatherElements", X, normal(2, 4, 2, 9, dtype=np.int64) % 10 - 5, exact=True, axis=-1),
    case("GatherND", X, [[0, 1], [-1, -2]], exact=True),
    case("GatherND", X, [[[0, 1, 1, -1]]], exact=True),
    case("GatherND", X, [[[0], [-1], [1]], [[1], [2], [0]]], exact=True, batch_dims=1),
    case("GatherND", CODES, [[1, 0]], exact=True),
    case("Trilu", X, exact=True),
    case("Trilu", X, np.asarray(2), exact=True, upper=0),
    case("Trilu", CODES, np.asarray(-1), exact=True),
    case("Trilu", normal(3, 5) > 0, np.asarray(100), exact=True),
)

SHAPES: tuple[Case, ...] = (
    case("Shape", X),
    case("Shape", X, start=1),
    case("Shape", X, start=-3, end=-1),
    case("Shape", X, start=3, end=1),
    case("Shape", CODES, start=-9, end=9),
    case("Size", X),
    case("ConstantOfShape", [2, 3]),
    case("ConstantOfShape", [2, 0, 3], value=7, dtype=DType.S64),
    case("ConstantOfShape", [], value=-1.5, dtype=DType.F32),
    case("ConstantOfShape", [4], value=1, dtype=DType.BOOL),
    case("Range", np.asarray(2), np.asarray(11), np.asarray(3)),
    case("Range", np.asarray(5), np.asarray(-3), np.asarray(-2)),
    case("Range", np.asarray(5), np.asarray(5), np.asarray(1)),
    case(
        "Range",
        np.asarray(0.5, np.float32),
        np.asarray(3.1, np.float32),
        np.asarray(0.3, np.float32),
    ),
)

_UP, _DOWN = LIST([1, 1, 2.5, 2], np.float32), LIST([1, 1, 0.6, 0.7], np.float32)
_COORDINATES = (
    "half_pixel",
    "asymmetric",
    "align_corners",
    "pytorch_half_pixel",
    "half_pixel_symmetric",
)

RESIZE: tuple[Case, ...] = (
    # Element 42 of 57 lies in the middle of 13 and 14: a rounded quotient would move it.
    case(
        "Resize",
        np.arange(19.0, dtype=np.float32),
        None,
        None,
        LIST([57]),
        coordinate_transformation_mode="align_corners",
    ),
    *(
        # What 0.6 and 0.7, rounded to f32, leave of a symbolic size cannot be written down.
        case(
            "Resize",
            normal(1, 2, 6, 7),
            None,
            scales,
            mode=mode,
            coordinate_transformation_mode=coordinates,
            unknown=2 * (scales is _DOWN),
        )
        for mode in ("linear", "cubic")
        for coordinates in _COORDINATES
        for scales in (_UP, _DOWN)
    ),
    # 17 / 1.7 and 12 / 2.4 are no whole numbers where the scales, a bit more in f32, divide in float64;
    # about the middle positions of 34 and 33.5 are missed there.
    *(
        case(
            "Resize",
            np.arange(size, dtype=np.float32),
            None,
            LIST([scale], np.float32),
            exact=True,
            unknown=1,
            coordinate_transformation_mode=coordinates,
            nearest_mode=nearest,
        )
        for coordinates, sizes in (
            ("asymmetric", ((24, 1.7), (41, 2.4), (25, 1.3), (52, 4.8), (48, 1.6363636))),
            ("half_pixel_symmetric", ((39, 3.7), (38, 2.9))),
        )
        for size, scale in sizes
        for nearest in ("floor", "ceil", "round_prefer_ceil", "round_prefer_floor")
    ),
    # Where the position lies between two elements exactly, f32 and float64 may round apart;
    # onnx.reference computes in float64.
    *(
        case(
            "Resize",
            normal(1, 2, 6, 7),
            None,
            scales,
            exact=True,
            coordinate_transformation_mode=coordinates,
            nearest_mode=nearest,
            oracle="reference",
        )
        for coordinates in _COORDINATES
        for nearest in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
        for scales in (_UP, LIST([1, 1, 0.5, 3], np.float32))
    ),
    case(
        "Resize",
        CODES,
        None,
        LIST([1, 1, 2, 2], np.float32),
        exact=True,
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    ),
    case("Resize", CODES, None, LIST([1, 1, 2, 3], np.float32), exact=True),
    case("Resize", X, None, None, [2, 6, 9, 3], exact=True),
    case("Resize", X, None, None, [2, 6, 9, 3], mode="linear"),
    case(
        "Resize", X, None, None, [2, 6, 9, 3], mode="cubic", cubic_coeff_a=-0.5, exclude_outside=1
    ),
    case(
        "Resize",
        X,
        None,
        None,
        [2, 6, 1, 1],
        mode="linear",
        coordinate_transformation_mode="pytorch_half_pixel",
    ),
    case(
        "Resize",
        X,
        None,
        None,
        [2, 6, 1, 1],
        mode="linear",
        coordinate_transformation_mode="align_corners",
    ),
    case("Resize", X, None, None, [9, 3], mode="linear", axes=(2, 3), oracle="reference"),
    case(
        "Resize", X, None, LIST([2, 0.5], np.float32), exact=True, axes=(3, 2), oracle="reference"
    ),
    case("Resize", normal(1, 2, 9), None, LIST([1, 1, 1.7], np.float32), mode="linear", unknown=1),
    case(
        "Resize",
        normal(4, 5).astype(np.float16),
        None,
        LIST([2, 3], np.float32),
        mode="linear",
        oracle="reference",
    ),
)

CASES = RESHAPING + MOVEMENT + SLICING + SHAPES + RESIZE
