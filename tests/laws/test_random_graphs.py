"""The three laws on 2,800 random graphs with branches, and the plan of each: its results lie inside
the graph's intervals.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np
import pytest
from laws.branches import BLOCKS
from laws.budget import ENOUGH
from laws.contracts import broken_by
from laws.intervals import Box
from laws.many import boxes_of, drawn, inside
from laws.registry import feeds_for

from fqfuse.composer.compose import plan_from_graph
from fqfuse.ir.cleanup import erase_dead
from fqfuse.ir.graph import Graph
from fqfuse.ir.text_print import print_graph
from fqfuse.passes import PIPELINE, passes_of
from fqfuse.plan.verify import verify_plan

EACH = -(-2800 // len(BLOCKS))
"""So many graphs around each block; the test run's processes share the blocks."""

LEAST = 3
"""In how many graphs around a block its passes must have changed something: else the laws were held
against nothing.
"""

PASSES = {
    "residual": ("nest_variadic", "split_fake_quantize"),
    "concat": ("unify_concat_types", "nest_concat", "move_quantize", "split_joined_source"),
    "normalized": ("fold_batch_norm", "retype_signed_codes"),
    "grouped": ("group_to_layer_normalization",),
    "attention": ("retype_matmul_operand", "mask_to_bounds"),
    "cut": ("move_slice",),
    "gate": ("normalize_gemm", "reduction_to_pooling"),
    "several_quantizers": ("merge_duplicates",),
    "factor_behind_movement": ("move_factor",),
    "moved": ("move_dequantize", "move_quantize", "slice_pieces", "recognize_shuffle"),
    "quantize_only": ("detect_quantize_only",),
    "embedded": ("gather_codes",),
    "computed_bias": ("separate_computed_bias",),
    "scaled_convolution": ("reorder_scale",),
    "run_time": (
        "scale_into_product",
        "widen_operands",
        "constant_parameters",
        "split_weights_zero_point",
    ),
    "scaled_rows": ("scale_rows_behind_product",),
    "fed_ranges": ("split_computed_ranges", "shift_behind_product"),
    "reshaped": ("move_reshape",),
    "padded": ("pad_into_convolution",),
    "sixteen_bits": ("decode_wide_codes",),
    "decomposed": ("recognize_activations", "tabulate", "fold_constants"),
}
"""What each block is there for."""

OF_LAYERS = {"skip_unread_steps"}
"""Passes over recurrent layers, whose graphs `test_recurrent` draws: these laws have no intervals
of a layer.
"""


def test_every_pass_has_a_block() -> None:
    assert PASSES.keys() == BLOCKS.keys()
    assert {name for names in PASSES.values() for name in names} | OF_LAYERS == {
        step.name for step in passes_of(PIPELINE) if step.contract.real == "identity"
    }


@pytest.mark.hypothesis
@pytest.mark.parametrize("block", BLOCKS)
def test_laws_and_plans_of_random_graphs(block: str) -> None:
    fired: Counter[str] = Counter()
    count = 0

    def hold(graph: Graph) -> None:
        nonlocal count
        feeds = feeds_for(graph)
        boxes = boxes_of(graph, feeds)
        optimized, changed = held_to_the_laws(graph, feeds, boxes)
        plan = plan_from_graph(optimized)
        assert verify_plan(plan) == []
        fired.update(changed)
        inside(graph, plan, "numpy", feeds, boxes)
        count += 1

    drawn(block, EACH, hold)
    seldom = {name: fired[name] for name in PASSES[block] if fired[name] < LEAST}
    assert not (ENOUGH and seldom), f"changed too few of {count} graphs: {seldom}"


def held_to_the_laws(
    graph: Graph, feeds: Mapping[str, np.ndarray], boxes: Mapping[str, Box]
) -> tuple[Graph, set[str]]:
    """The graph behind the pipeline, each pass held to the laws; and which passes changed it."""
    changed: set[str] = set()
    for number, step in enumerate(PIPELINE):
        after = graph.copy()
        step.run(after)
        broken = broken_by(step, graph, after, feeds, boxes)
        assert broken == [], (
            f"#{number} {step.name}\n"
            + "\n".join(broken)
            + "\n"
            + print_graph(graph, explain=False)
        )
        if after != graph:
            told = {decision.rule for decision in set(after.decisions) - set(graph.decisions)}
            changed.update(
                told.intersection(each.name for each in passes_of([step])) or {step.name}
            )
            boxes = boxes_of(after, feeds)
        graph = after
    erase_dead(graph)
    return graph, changed
