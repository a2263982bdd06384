"""Graph -> ONNX: the quantized model as the passes leave it, in standard operators.

Comes in: a graph behind the passes, whose quantizers stand where primitives can take them. Goes
out: an `onnx.ModelProto` that other runtimes load.

    names.py        what each value and node is called, and the initializers
    rows.py         a node of the op table as the ONNX node that it means
    spelled.py      fqfuse's own ops, in standard operators
    quantizers.py   Quantize and Dequantize
    run_time.py     quantization by parameters that are computed in each run
    left_in_f32.py  what ONNX Runtime computes in f32 all the same
    liberties.py    where ONNX Runtime's optimizations would compute other numbers
    zero_points.py  codes that decode by parameters that ONNX has not
    clips.py        relu and clip that a Quantize says
    concats.py      concatenations of codes that decode by parameters of their own
    normalizations.py  a scale and a shift for each channel, as the normalization that they were
    on_codes.py     such a scale and shift between quantizers, as a convolution of codes
    channels.py     codes with a scale for each channel, as codes with one
    packed.py       products with weights in packed blocks
    factors.py      a number behind a product, in the scale of its operand
    sums.py         sums in front of a normalization
    constants.py    constants that were codes, as codes again
    foreign.py      operators that were kept as they are
    biases.py       biases as s32 codes, and in a shape that keeps products apart from them
    qoperator.py    Dequantize -> op -> Quantize as one operator on codes
    signs.py        signed codes as unsigned ones, which operators on codes want throughout
    model.py        the model around the nodes
    file.py         the model on disk
    seven_bits.py   quantizers with 7 bits in place of 8
    mending.py      other edits that `fix` tries: quantizers taken out, weights and ranges anew
    borders.py      inputs and outputs of half floats as f32
"""

from __future__ import annotations

from .model import FORMS, Exported, model_from_graph

__all__ = ["FORMS", "Exported", "model_from_graph"]
