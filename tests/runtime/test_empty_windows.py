"""Global pooling over axes without elements: what comes out is written, never what memory held."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

import fqfuse

LARGEST, MEAN = -np.inf, np.nan
FORMS = {
    "GlobalMaxPool": ("y = GlobalMaxPool(x)", LARGEST),
    "GlobalAveragePool": ("y = GlobalAveragePool(x)", MEAN),
    "ReduceMax": ("axes = Constant <value_ints = [2, 3]> () y = ReduceMax(x, axes)", LARGEST),
    "ReduceMean": ("axes = Constant <value_ints = [2, 3]> () y = ReduceMean(x, axes)", MEAN),
}


@pytest.mark.parametrize("backend", ["numpy", "auto"])
@pytest.mark.parametrize("spatial", [(0, 3), (3, 0), (0, 0)])
@pytest.mark.parametrize("form", FORMS)
def test_nothing_is_pooled_to_a_number_of_its_own(
    form: str, spatial: tuple[int, int], backend: str
) -> None:
    body, expected = FORMS[form]
    model = onnx.parser.parse_model(
        f'<ir_version: 9, opset_import: ["": 18]> g (float[4, 2, H, W] x) => (float[A, B, C, D] y) {{ {body} }}'
    )
    junk = [np.full((4, 2, 1, 1), 1234.5, np.float32) for _ in range(100)]
    del junk  # for the allocator to hand out again
    session = fqfuse.InferenceSession(model, backend=backend)
    (y,) = session.run(None, {"x": np.zeros((4, 2, *spatial), np.float32)})
    np.testing.assert_array_equal(y, np.full((4, 2, 1, 1), expected, np.float32))
