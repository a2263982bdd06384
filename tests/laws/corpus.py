"""The whole corpus: the graphs of all files, and the digits models as the frontend imports them."""

from __future__ import annotations

from laws import (
    graphs_activations,
    graphs_convolutions,
    graphs_edges,
    graphs_movement,
    graphs_products,
    graphs_ranges,
    graphs_residuals,
)
from laws.registry import CORPUS

from fqfuse.frontend import graph_from_onnx
from fqfuse.models.digits import FORMS, digits_model_path

FILES = (
    graphs_activations,
    graphs_convolutions,
    graphs_edges,
    graphs_movement,
    graphs_products,
    graphs_ranges,
    graphs_residuals,
)
"""Importing them adds their graphs."""

SLOW = tuple(f"digits_{form}" for form in FORMS)

CORPUS.update(
    {
        f"digits_{form}": (lambda form=form: graph_from_onnx(digits_model_path(form)))
        for form in FORMS
    }
)
