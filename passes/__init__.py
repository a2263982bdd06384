"""Graph -> Graph. In: a graph as it was imported. Out: the same graph, in which operations and
quantizers stand where the composer can take them in.

The pipeline is one list; each line says why it stands where it stands. A group takes turns to a
fixed point. A pass is a file of its name; what several need is in

- `base.py`, `group.py`: what a pass is, how the pipeline runs, and how a group does
- `reshaping.py`, `reshape_runs.py`: what reshapes do to axes, and what they can move behind
- `cuts.py`: which positions a slice reads
- `retyping.py`: codes in the other 8-bit type
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from ..ir.cleanup import erase_dead
from ..ir.decision import Outcome
from ..ir.graph import Graph
from .align_zero_points import ALIGN_ZERO_POINTS, ALIGNED, aligning
from .base import Contract, Observer, Pass, run_pipeline
from .constant_parameters import CONSTANT_PARAMETERS
from .decode_wide_codes import DECODE_WIDE_CODES
from .detect_quantize_only import DETECT_QUANTIZE_ONLY
from .fold_batch_norm import FOLD_BATCH_NORM
from .fold_constants import FOLD_CONSTANTS
from .gather_codes import GATHER_CODES
from .group import group, passes_of
from .group_to_layer_normalization import GROUP_TO_LAYER_NORMALIZATION
from .mask_to_bounds import MASK_TO_BOUNDS
from .merge_duplicates import MERGE_DUPLICATES
from .move_dequantize import MOVE_DEQUANTIZE
from .move_factor import MOVE_FACTOR
from .move_quantize import MOVE_QUANTIZE
from .move_reshape import MOVE_RESHAPE
from .move_slice import MOVE_SLICE, moving
from .nest_concat import NEST_CONCAT
from .nest_variadic import NEST_VARIADIC
from .normalize_gemm import NORMALIZE_GEMM
from .pad_into_convolution import PAD_INTO_CONVOLUTION
from .quantize_at_run_time import DYNAMIC, QUANTIZE_AT_RUN_TIME, quantizing
from .recognize_activations import RECOGNIZE_ACTIVATIONS
from .recognize_shuffle import RECOGNIZE_SHUFFLE
from .reduction_to_pooling import REDUCTION_TO_POOLING
from .reorder_scale import REORDER_SCALE
from .retype_matmul_operand import RETYPE_MATMUL_OPERAND
from .retype_signed_codes import RETYPE_SIGNED_CODES
from .scale_into_product import SCALE_INTO_PRODUCT
from .scale_rows_behind_product import SCALE_ROWS_BEHIND_PRODUCT
from .separate_computed_bias import SEPARATE_COMPUTED_BIAS
from .shift_behind_product import SHIFT_BEHIND_PRODUCT
from .skip_unread_steps import SKIP_UNREAD_STEPS
from .slice_pieces import SLICE_PIECES
from .split_computed_ranges import SPLIT_COMPUTED_RANGES
from .split_fake_quantize import SPLIT_FAKE_QUANTIZE
from .split_joined_source import SPLIT_JOINED_SOURCE
from .split_weights_zero_point import SPLIT_WEIGHTS_ZERO_POINT
from .tabulate import TABULATE
from .unify_concat_types import UNIFY_CONCAT_TYPES
from .widen_operands import WIDEN_OPERANDS

__all__ = [
    "ALIGNED",
    "DYNAMIC",
    "PIPELINE",
    "Contract",
    "Observer",
    "Pass",
    "begin",
    "has_place",
    "optimize",
    "passes_of",
    "run_pipeline",
]

PIPELINE: tuple[Pass, ...] = (
    # because: every later pass asks whether a value is constant
    FOLD_CONSTANTS,
    # because: the moves of quantizers know operations of one output, and what holds for each piece
    # is a slice's business
    SLICE_PIECES,
    # because: to all that follows a sum of branches shall be what it is for two, an add
    NEST_VARIADIC,
    # because: a bias and what is behind it shall find a product of decoded values
    SCALE_INTO_PRODUCT,
    # because: integers that are decoded by 1 have taken their scale by now, and all that follows
    # moves constant ones
    CONSTANT_PARAMETERS,
    # because: its axes are constant by now, and quantizers move past a pool of codes to what is in
    # front of it
    REDUCTION_TO_POOLING,
    # because: its factor and shift take the activation and the quantizer behind them
    GROUP_TO_LAYER_NORMALIZATION,
    # because: its zeros are constant by now, and it stands between what makes a value and its
    # quantizer
    PAD_INTO_CONVOLUTION,
    # because: a decomposed activation forks, and a chain of post-ops does not
    RECOGNIZE_ACTIVATIONS,
    # because: a normalization between a convolution and its quantizer hides one from the other
    FOLD_BATCH_NORM,
    # because: behind the fold, which takes such a bias apart itself; all that follows wants
    # constant ones
    SEPARATE_COMPUTED_BIAS,
    # because: activations and normalizations are one operation each by now, and quantizers have not
    # moved apart yet
    MOVE_SLICE,
    # because: what reads a few steps alone has moved up against the layer by now
    SKIP_UNREAD_STEPS,
    # because: its ranges are constant by now, and what splits it asks whether its zero point is an
    # integer
    ALIGN_ZERO_POINTS,
    # because: all that follows wants constant ranges, or codes
    SPLIT_COMPUTED_RANGES,
    # because: once it is split, a FakeQuantize onto the integer grid looks like any other
    DETECT_QUANTIZE_ONLY,
    # because: all that follows knows Quantize and Dequantize only
    SPLIT_FAKE_QUANTIZE,
    # because: the quantize half of a weight quantizer is now a function of a constant
    FOLD_CONSTANTS,
    # because: masks are constant and codes have their ranges by now, and a quantizer behind a mask
    # shall see post-ops
    MASK_TO_BOUNDS,
    # because: its transposes are data movement that the moves below can cross
    NORMALIZE_GEMM,
    # because: weights are constant codes by now, and every product is one of three
    SHIFT_BEHIND_PRODUCT,
    # because: likewise, and what is shifted by one number stands in front no longer
    SCALE_ROWS_BEHIND_PRODUCT,
    # because: what adds or multiplies is there by now, and quantizers and reshapes move over what
    # this puts in
    WIDEN_OPERANDS,
    # because: a factor in front of a quantizer hides what computes the value from it
    MOVE_FACTOR,
    # because: a value quantized twice alike has two readers, which would keep it in f32
    MERGE_DUPLICATES,
    # because: it must be next to the producer before Dequantize moves up against it
    MOVE_QUANTIZE,
    # because: a quantizer behind it has moved into the table by now, and what it decodes is moved
    # on next
    GATHER_CODES,
    # because: what data movement, max pools and concatenations handle shall be codes
    group(UNIFY_CONCAT_TYPES, MOVE_DEQUANTIZE),
    # because: quantizers between its three operations have moved away, and its reshapes have not
    # yet
    RECOGNIZE_SHUFFLE,
    # because: quantizers have passed reshapes; in front of the next move, since where a reshape
    # goes, quantizers meet
    MOVE_RESHAPE,
    # because: reshapes that moved stood between a Dequantize and what it can pass
    group(UNIFY_CONCAT_TYPES, MOVE_DEQUANTIZE),
    # because: which scales meet in a concatenation is known now, and each product may still choose
    # its source's type
    SPLIT_JOINED_SOURCE,
    # because: it follows codes over the data movement that the moves put between the two halves
    RETYPE_MATMUL_OPERAND,
    # because: what the model quantizes is decoded right in front of its products by now
    QUANTIZE_AT_RUN_TIME,
    # because: what that puts in divides by single numbers, of any rank
    WIDEN_OPERANDS,
    # because: nothing moves over a product any more, and its source is the codes that it will read
    SPLIT_WEIGHTS_ZERO_POINT,
    # because: scales along an axis, concatenations and second operands are settled by now
    RETYPE_SIGNED_CODES,
    # because: codes that are u8 now may be the ones in front of them again, and may be joined with
    # others
    MOVE_DEQUANTIZE,
    # because: the codes that an activation starts from are known once nothing moves any more
    TABULATE,
    # because: a Quantize that moved in front of a lookup in a table may stand on a constant now
    FOLD_CONSTANTS,
    # because: codes that moved together have lost the quantizers between them by now
    DECODE_WIDE_CODES,
    # because: the two moves may have made equal neighbours
    MERGE_DUPLICATES,
    # because: what is joined, codes or values, changes no more
    NEST_CONCAT,
    # because: only multiplications that no quantizer took are left now
    REORDER_SCALE,
)


def optimize(
    graph: Graph,
    observers: tuple[Observer, ...] = (),
    dynamic: str | None = None,
    approximate: Collection[str] = (),
    *,
    begun: bool = False,
) -> Graph:
    """Runs the pipeline on an imported graph, in place, and drops what nothing reads any more.

    `dynamic`: which products have their sources quantized at run time, see `DYNAMIC`; `approximate`:
    names of `APPROXIMATIONS`; `begun`: `begin` has run on the graph.
    """
    run_pipeline(
        graph, _asked(PIPELINE[_SAME:] if begun else PIPELINE, dynamic, approximate), observers
    )
    erase_dead(graph)
    return graph


def begin(graph: Graph, observers: tuple[Observer, ...] = (), dynamic: str | None = None) -> Graph:
    """Runs the passes of `optimize` that are the same for all approximations, in place."""
    return run_pipeline(graph, _asked(PIPELINE[:_SAME], dynamic, ()), observers)


def has_place(graph: Graph, name: str, approximate: Collection[str]) -> bool:
    """Whether a pass makes an approximation of `ALIGNED` in a graph that is begun, beside others that
    were asked for; all of them are made.
    """
    aligning((*approximate, name)).run(graph)
    return any(one.rule == name and one.outcome is Outcome.FIRED for one in graph.decisions)


_SAME = PIPELINE.index(ALIGN_ZERO_POINTS)


def _asked(
    passes: Iterable[Pass], dynamic: str | None, approximate: Collection[str]
) -> Iterator[Pass]:
    """The passes, as they are asked for."""
    asked = {
        QUANTIZE_AT_RUN_TIME.name: quantizing(dynamic),
        MOVE_SLICE.name: moving(dynamic),
        ALIGN_ZERO_POINTS.name: aligning(approximate),
    }
    return (asked.get(step.name, step) for step in passes)
