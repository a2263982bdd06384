"""Graph -> Graph. The pipeline is one list; each line says why it stands where it stands. A group
takes turns to a fixed point.
"""

from __future__ import annotations

from ..ir.cleanup import erase_dead
from ..ir.graph import Graph
from .base import Contract, Observer, Pass, run_pipeline
from .choose_residual_sum import ChooseResidualSum
from .constant_parameters import ConstantParameters
from .decode_wide_codes import DecodeWideCodes
from .detect_quantize_only import DetectQuantizeOnly
from .fold_batch_norm import FoldBatchNorm
from .fold_constants import FoldConstants
from .gather_codes import GatherCodes
from .group import Group, passes_of
from .group_to_layer_normalization import GroupToLayerNormalization
from .mask_to_bounds import MaskToBounds
from .merge_duplicates import MergeDuplicates
from .move_dequantize import MoveDequantize
from .move_quantize import MoveQuantize
from .move_reshape import MoveReshape
from .nest_concat import NestConcat
from .nest_variadic import NestVariadic
from .normalize_gemm import NormalizeGemm
from .pad_into_convolution import PadIntoConvolution
from .quantize_at_run_time import DYNAMIC, QuantizeAtRunTime
from .recognize_activations import RecognizeActivations
from .recognize_shuffle import RecognizeShuffle
from .reduction_to_pooling import ReductionToPooling
from .reorder_scale import ReorderScale
from .retype_matmul_operand import RetypeMatmulOperand
from .retype_signed_codes import RetypeSignedCodes
from .scale_into_product import ScaleIntoProduct
from .separate_computed_bias import SeparateComputedBias
from .slice_pieces import SlicePieces
from .split_fake_quantize import SplitFakeQuantize
from .split_joined_source import SplitJoinedSource
from .split_weights_zero_point import SplitWeightsZeroPoint
from .tabulate import Tabulate
from .unify_concat_types import UnifyConcatTypes
from .widen_operands import WidenOperands

__all__ = [
    "DYNAMIC",
    "PIPELINE",
    "Contract",
    "Observer",
    "Pass",
    "optimize",
    "passes_of",
    "run_pipeline",
]

PIPELINE: tuple[Pass, ...] = (
    # because: every later pass asks whether a value is constant
    FoldConstants(),
    # because: the moves of quantizers know operations of one output, and what holds for each piece
    # is a slice's business
    SlicePieces(),
    # because: to all that follows a sum of branches shall be what it is for two, an add
    NestVariadic(),
    # because: a bias and what is behind it shall find a product of decoded values
    ScaleIntoProduct(),
    # because: integers that are decoded by 1 have taken their scale by now, and all that follows
    # moves constant ones
    ConstantParameters(),
    # because: its axes are constant by now, and quantizers move past a pool of codes to what is in
    # front of it
    ReductionToPooling(),
    # because: its factor and shift take the activation and the quantizer behind them
    GroupToLayerNormalization(),
    # because: its zeros are constant by now, and it stands between what makes a value and its
    # quantizer
    PadIntoConvolution(),
    # because: a decomposed activation forks, and a chain of post-ops does not
    RecognizeActivations(),
    # because: a normalization between a convolution and its quantizer hides one from the other
    FoldBatchNorm(),
    # because: behind the fold, which takes such a bias apart itself; all that follows wants
    # constant ones
    SeparateComputedBias(),
    # because: once it is split, a FakeQuantize onto the integer grid looks like any other
    DetectQuantizeOnly(),
    # because: all that follows knows Quantize and Dequantize only
    SplitFakeQuantize(),
    # because: the quantize half of a weight quantizer is now a function of a constant
    FoldConstants(),
    # because: masks are constant and codes have their ranges by now, and a quantizer behind a mask
    # shall see post-ops
    MaskToBounds(),
    # because: its transposes are data movement that the moves below can cross
    NormalizeGemm(),
    # because: what adds or multiplies is there by now, and quantizers and reshapes move over what
    # this puts in
    WidenOperands(),
    # because: a value quantized twice alike has two readers, which would keep it in f32
    MergeDuplicates(),
    # because: it must be next to the producer before Dequantize moves up against it
    MoveQuantize(),
    # because: a quantizer behind it has moved into the table by now, and what it decodes is moved
    # on next
    GatherCodes(),
    # because: what data movement, max pools and concatenations handle shall be codes
    Group((UnifyConcatTypes(), MoveDequantize())),
    # because: quantizers between its three operations have moved away, and its reshapes have not
    # yet
    RecognizeShuffle(),
    # because: quantizers have passed reshapes; in front of the next move, since where a reshape
    # goes, quantizers meet
    MoveReshape(),
    # because: reshapes that moved stood between a Dequantize and what it can pass
    Group((UnifyConcatTypes(), MoveDequantize())),
    # because: which scales meet in a concatenation is known now, and each product may still choose
    # its source's type
    SplitJoinedSource(),
    # because: it follows codes over the data movement that the moves put between the two halves
    RetypeMatmulOperand(),
    # because: what the model quantizes is decoded right in front of its products by now
    QuantizeAtRunTime(),
    # because: what that puts in divides by single numbers, of any rank
    WidenOperands(),
    # because: nothing moves over a product any more, and its source is the codes that it will read
    SplitWeightsZeroPoint(),
    # because: scales along an axis, concatenations and second operands are settled by now
    RetypeSignedCodes(),
    # because: codes that are u8 now may be the ones in front of them again, and may be joined with
    # others
    MoveDequantize(),
    # because: the codes that an activation starts from are known once nothing moves any more
    Tabulate(),
    # because: a Quantize that moved in front of a lookup in a table may stand on a constant now
    FoldConstants(),
    # because: codes that moved together have lost the quantizers between them by now
    DecodeWideCodes(),
    # because: the two moves may have made equal neighbours
    MergeDuplicates(),
    # because: what is joined, codes or values, changes no more
    NestConcat(),
    # because: only multiplications that no quantizer took are left now
    ReorderScale(),
    # because: the other branch's quantization, which it prefers, is where it will be
    ChooseResidualSum(),
)


def optimize(
    graph: Graph, observers: tuple[Observer, ...] = (), dynamic: str | None = None
) -> Graph:
    """Runs the pipeline on an imported graph, in place, and drops what nothing reads any more;
    `dynamic`: which products have their sources quantized at run time, see `DYNAMIC`.
    """
    steps = (
        QuantizeAtRunTime(dynamic) if isinstance(step, QuantizeAtRunTime) else step
        for step in PIPELINE
    )
    run_pipeline(graph, steps, observers)
    erase_dead(graph)
    return graph
