"""An attention's first product for a single query, as in a language model that goes on by a token."""

from __future__ import annotations

import numpy as np
import onnx

KEYS = """
<ir_version: 8, opset_import: ["" : 17]>
network (float[2, HEADS, 1, WIDTH] q, float[2, HEADS, MANY, WIDTH] k, float[MASK] mask) => (float[2, HEADS, 1, MANY] y) <
    float a = {0.125}
> {
    turned = Transpose <perm = [0, 1, 3, 2]> (k)
    sums = MatMul (q, turned)
    scaled = Mul (sums, a)
    y = Add (scaled, mask)
}
"""
MASKS = ((1,), (1, 1, 1, 0), (2, 1, 1, 0), (2, 0, 1, 0))
"""0: of the result's length."""


def keys_of(seed: int, *, least: int = 1) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A query's row of each head times its keys, with a mask."""
    rng = np.random.default_rng(seed)
    heads, width = (int(rng.integers(1, most)) for most in (9, 140))
    keys = int(rng.integers(least, 600))
    mask = tuple(
        size or whole
        for size, whole in zip(MASKS[seed % len(MASKS)], (0, heads, 0, keys), strict=False)
    )
    text = KEYS
    for name, value in {"HEADS": heads, "WIDTH": width, "MANY": keys}.items():
        text = text.replace(name, str(value))
    made = onnx.parser.parse_model(text.replace("MASK", ", ".join(map(str, mask))))
    shapes = {"q": (2, heads, 1, width), "k": (2, heads, keys, width), "mask": mask}
    return made, {name: rng.standard_normal(of, np.float32) for name, of in shapes.items()}
