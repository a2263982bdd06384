"""Arguments of `compare` that are of another kind than they should be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fqfuse
from fqfuse.models.digits import digits_model_path


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"data": 3}, "data is of type int"),
        ({"data": Path("images.npz")}, "data is of type .*Path"),
        ({"data": {1: 2}}, "unknown inputs: 1"),
        ({"against": []}, "nothing called \\[\\]"),
        ({"suggest": np.zeros(2)}, "suggest is of type ndarray"),
    ],
)
def test_arguments_of_other_kinds(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(fqfuse.InvalidInput, match=said):
        fqfuse.compare(digits_model_path("f32"), digits_model_path("qdq"), **arguments)


@pytest.mark.parametrize("names", [b"", [["drop-rounding"]], "drop-rounding", 3])
def test_names_of_approximations_are_a_list_of_names(names: Any) -> None:
    with pytest.raises(fqfuse.InvalidInput, match="approximat"):
        fqfuse.compile(digits_model_path("qdq"), approximate=names)
