"""The kinds of findings about time, and those that cost nothing: between them each step that writes f32,
multiplies it or runs outside the primitives has its place. `{names}` stands for the layers.
"""

from __future__ import annotations

from .kind import Effect, Gain, Kind
from .remedies import Tool

_STATIC = (
    "calibrate instead: quantize_static(..., quant_format=QuantFormat.QDQ, "
    "activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8, per_channel=True)"
)

_CALIBRATED = (
    f'{_STATIC}; a transformer with op_types_to_quantize=["MatMul", "Gemm"], too: quantized additions and '
    "softmaxes cost 2 to 14 dB of SQNR (a BERT became no faster by them, a Swin took a fifth less time), and a "
    "quantized mask makes outputs wrong"
)

_MASK = (
    "the additions of the attention mask, in front of each softmax, in ignored_scope: quantized, a mask of "
    "-3.4e38 makes the outputs wrong"
)

_DYNAMIC_LSTM = (
    'ONNX Runtime\'s quantize_dynamic(..., op_types_to_quantize=["LSTM"]) (an LSTM 256 wide kept 30 dB of '
    "SQNR)"
)

_ONE_BY_ONE = (
    "its products run in f32, one step of the sequence after the other, and what is quantized in front of it "
    "is decoded"
)

_FOLDED = (
    "a Mul by a constant behind a product (a query times 1/sqrt(d)): fold it into the weights in front before the "
    "model is quantized"
)

_APART = (
    "quantize the input of {names}, and their other readers: the types of all these into op_types_to_quantize, none "
    "of them in nodes_to_exclude; more types may cost accuracy: `fqfuse compare F32 INT8` measures it"
)

_APART_OPERATORS = (
    "QOperator has no form for PRelu, normalizations and others, whatever the options say: "
    "quant_format=QuantFormat.QDQ for those"
)

ABOUT_TIME = (
    Kind(
        "not-quantized",
        "layer in a model without quantizers",
        "layers in a model without quantizers",
        "The model holds no quantizer.",
        "nothing in the model says in which range its values lie, so all of it stays f32",
        remedies={
            Tool.ANY: (
                "quantize it with calibration data: nncf.quantize(model, nncf.Dataset(data)), or ONNX "
                "Runtime's quantize_static(..., per_channel=True)"
            ),
        },
    ),
    Kind(
        "unquantized-recurrence",
        "recurrent layer in f32",
        "recurrent layers in f32",
        "An LSTM that computes in f32, though its weights or input may be codes.",
        _ONE_BY_ONE,
        effect=Effect.PRIMITIVES,
        remedies={
            Tool.NNCF: (
                f"nncf.quantize leaves an LSTM in f32; on the file that it wrote: {_DYNAMIC_LSTM}"
            ),
            Tool.ORT: (
                f"it has no int8 form of an LSTM; on the model without quantizers around "
                f"{{names}}: {_DYNAMIC_LSTM}, and quantize_static behind it for the other layers"
            ),
            Tool.ANY: f"{_DYNAMIC_LSTM}; it takes any ONNX file whose LSTM has weights in f32",
        },
    ),
    Kind(
        "f32-gru",
        "GRU in f32",
        "GRUs in f32",
        "A GRU with linear_before_reset=0, whatever the quantization around it.",
        _ONE_BY_ONE,
        effect=Effect.PRIMITIVES,
        remedies={
            Tool.ANY: (
                "no quantizer writes codes for a GRU; fqfuse quantizes {names} itself with --approximate "
                "int8-recurrence (a GRU 256 wide kept 33 dB of SQNR), which clips an input without quantizer "
                "to -1..1: fqfuse compare F32 MODEL --approximate int8-recurrence measures yours"
            ),
        },
    ),
    Kind(
        "f32-rnn",
        "GRU or RNN that has no int8 form",
        "GRUs or RNNs that have no int8 form",
        "An RNN, or a GRU that the library multiplies in f32 only, such as PyTorch's with linear_before_reset=1, whatever the"
        " quantization around it.",
        _ONE_BY_ONE,
        effect=Effect.PRIMITIVES,
        no_remedy="no quantizer helps: oneDNN multiplies no codes in this one",
    ),
    Kind(
        "dynamic-recurrence",
        "LSTM on codes with f32 around it",
        "LSTMs on codes with f32 around them",
        "A DynamicQuantizeLSTM, and the steps that write f32 for it.",
        "it multiplies codes already; ranges of its input and state are taken in each run, so that both "
        "are f32 in between",
        no_remedy=(
            "nothing to change, this is the fastest form of an LSTM: quantize_static would leave it in f32, "
            "which took 2.6 times as long"
        ),
    ),
    Kind(
        "control-flow",
        "loop or branch with layers inside",
        "loops and branches with layers inside",
        "An If, Loop or Scan whose bodies hold convolutions, matrix products or recurrent layers without quantizers.",
        "its layers are f32 in every trip: the quantizer did not look into its bodies, which most do not "
        "do unless they are told to",
        effect=Effect.PRIMITIVES,
        remedies={
            Tool.ANY: (
                "export {names} without control flow: a traced PyTorch model (torch.jit.trace) unrolls "
                "loops of a fixed length and keeps the branch that was taken; write recurrences as nn.LSTM, "
                "nn.GRU or nn.RNN"
            ),
            Tool.ORT_DYNAMIC: (
                "ONNX Runtime, quantize_dynamic(..., extra_options={{'EnableSubgraph': True}}), quantizes "
                "the products in {names}, too"
            ),
        },
    ),
    Kind(
        "double-precision",
        "step in double precision",
        "steps in double precision",
        "Values of type double.",
        "the primitives compute in int8 and f32: each such operator runs on NumPy between casts",
        effect=Effect.PRIMITIVES,
        remedies={
            Tool.ANY: "export the model in float32 before it is quantized (PyTorch: model.float())",
        },
    ),
    Kind(
        "half-floats",
        "conversion from or to half floats",
        "conversions from and to half floats",
        "An input or output of 16-bit floats (float16, bfloat16), or an operator with its own types between them. The rest of"
        " a model in half floats is computed in f32.",
        "steps compute in int8 and f32, so what the model takes or gives in half floats is converted, by NumPy and one "
        "core",
        effect=Effect.CASTS_GO,
        remedies={
            Tool.ORT: (
                "give it the f32 model; or keep inputs and outputs in f32 where it is converted: "
                "convert_float_to_float16(model, keep_io_types=True)"
            ),
            Tool.NNCF: "give nncf.quantize the f32 model, and convert nothing to half floats behind it",
            Tool.PYTORCH: "model.float() before the model is quantized and exported, in place of model.half()",
            Tool.ANY: (
                "quantize the f32 model; or keep inputs and outputs in f32 where it is converted to half floats: "
                "convert_float_to_float16(model, keep_io_types=True)"
            ),
        },
        fix="",
    ),
    Kind(
        "wide-codes",
        "step around 16-bit quantizers",
        "steps around 16-bit quantizers",
        "A quantizer with more than 256 codes.",
        "no primitive multiplies 16-bit codes: they are decoded, layers run in f32, and functions between two such "
        "quantizers on NumPy",
        effect=Effect.PRIMITIVES,
        remedies={
            Tool.ORT: {
                "where all activations have 16 bits": "activation_type=QuantType.QUInt8",
                "where some have": "no 16-bit type for the inputs of {names} in TensorQuantOverrides",
            },
            Tool.NNCF: "QuantizationParameters(num_bits=8) for activations and weights, NNCF's default",
            Tool.PYTORCH: "observers with dtype=torch.quint8 in the qconfig of {names}",
            Tool.ANY: "quantize to 8 bits in front of {names}",
        },
    ),
    Kind(
        "float-codes",
        "step around quantizers to floats of few bits",
        "steps around quantizers to floats of few bits",
        "A quantizer whose codes are floats of 8 or 4 bits, or numbers in blocks with a common exponent.",
        "oneDNN 3.2 multiplies no such codes, so they are decoded, and the layer runs in f32; the "
        "rounding to them runs on NumPy",
        effect=Effect.PRIMITIVES,
        remedies={
            Tool.ORT: "activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8 for {names}",
            Tool.ANY: "quantize {names} to int8: float8, float4 and block floats are made for GPUs and NPUs",
        },
    ),
    Kind(
        "per-channel-activation",
        "step around a per-channel quantizer of activations",
        "steps around per-channel quantizers of activations",
        "A quantizer with a scale for each channel on an activation.",
        "a product sums over channels, so one factor cannot stand in front of the sum: codes are "
        "decoded, and the layer runs in f32",
        effect=Effect.CONVERSIONS_GO,
        remedies={
            Tool.ORT: (
                "per_channel concerns weights only: give the input of {names} one entry in "
                "TensorQuantOverrides"
            ),
            Tool.NNCF: (
                "in AdvancedQuantizationParameters: activations_quantization_params="
                "QuantizationParameters(per_channel=False)"
            ),
            Tool.PYTORCH: "torch.per_tensor_affine for activations in the qconfig of {names}",
            Tool.ANY: "quantize the input of {names} per tensor",
        },
    ),
    Kind(
        "fractional-zero-point",
        "step around a fractional zero point",
        "steps around fractional zero points",
        "A range in which no code is exactly 0: -1 to 1 in 256 levels has zero point 127.5.",
        "padding needs a code that is exactly 0, and zero points are integers: codes are decoded, and "
        "the layer runs in f32",
        effect=Effect.CONVERSIONS_GO,
        remedies={
            Tool.NNCF: (
                "choose ranges that hold 0 on their grid: signed ones from -h to h*127/128, as NNCF's own "
                "initialization does"
            ),
            Tool.ANY: "move the range of the input of {names} so that one code is exactly 0",
        },
    ),
    Kind(
        "whole-quantizer",
        "quantizer that stays an operator",
        "quantizers that stay operators",
        "A FakeQuantize without 8-bit codes: its range lies far from 0 (100000 to 100001), is infinite, has more than 256 "
        "levels, or one range for each element.",
        "its range has no scale and zero point that f32 tells apart: it runs as an ONNX operator, on NumPy, and "
        "what reads it multiplies f32",
        effect=Effect.CONVERSIONS_GO,
        remedies={
            Tool.NNCF: (
                "calibrate {names} anew, with a dataset like the real inputs; where they lie so far from 0, move "
                "them towards it in front (normalize the input), or put the layers behind into ignored_scope"
            ),
            Tool.ANY: (
                "give {names} a finite range near 0, of 256 levels at most, one for the tensor or along one axis; "
                "move numbers so far from 0 towards it in front"
            ),
        },
    ),
    Kind(
        "dynamic-quantizer",
        "range taken at run time",
        "ranges taken at run time",
        "DynamicQuantizeLinear, or any quantizer whose scale is computed or fed in a run.",
        "its range is known only in a run: the whole tensor is written in f32 and read again before it "
        "becomes codes",
        effect=Effect.CONVERSIONS_GO,
        remedies={
            Tool.ORT: _CALIBRATED,
            Tool.ORT_DYNAMIC: _CALIBRATED,
            Tool.PYTORCH: "a static qconfig (get_default_qconfig) with calibration, no dynamic one",
            Tool.ANY: "quantize statically, with calibration data, so that scales are constants",
        },
        fix=" --data DATA",
    ),
    Kind(
        "dynamic-beside-lstm",
        "range taken at run time beside an LSTM",
        "ranges taken at run time beside an LSTM",
        "DynamicQuantizeLinear in a model with DynamicQuantizeLSTM.",
        "the whole tensor has to be written in f32 and read again for its range before it becomes "
        "codes",
        effect=Effect.CONVERSIONS_GO,
        remedies={
            Tool.ANY: (
                f"from the f32 model, in this order: {_DYNAMIC_LSTM}; then calibrate the other layers: "
                "quantize_static(..., per_channel=True), which by itself would leave the LSTM in f32"
            ),
        },
    ),
    Kind(
        "f32-embedding",
        "lookup in a table of f32",
        "lookups in tables of f32",
        "Gather from an f32 table: an embedding that is not quantized, or that was decoded beforehand because it has no more "
        "rows than are read.",
        "four bytes an element are read from the table and handed on",
        remedies={
            Tool.ORT: 'op_types_to_quantize with "Gather"; {names} not in nodes_to_exclude',
            Tool.ORT_DYNAMIC: 'op_types_to_quantize with "Gather"; {names} not in nodes_to_exclude',
            Tool.PYTORCH: "float_qparams_weight_only_qconfig for the embedding {names}",
            Tool.ANY: "quantize the table of {names} per tensor to 8 bits",
        },
    ),
    Kind(
        "squeeze-excitation",
        "layer of a squeeze and excitation in f32",
        "layers of squeeze and excitation in f32",
        "A pooling over all positions, two f32 products of its result, and a multiplication of all positions by that: "
        "MobileNetV3, EfficientNet.",
        "the products between the pooling and the multiplication have no quantizers, so the average "
        "and what is computed of it are f32, and the factors get a quantizer of their own",
        effect=Effect.CONVERSIONS_GO,
        no_remedy=(
            "no setting of a quantizer pays: a MobileNetV3 Small took 1.35 ms with these layers quantized by ONNX "
            "Runtime, 1.34 without; NNCF cannot"
        ),
    ),
    Kind(
        "f32-attention",
        "product of two activations in f32",
        "products of two activations in f32",
        "A matrix product of two activations, such as in attention, with an operand that no quantizer provides as codes.",
        "an operand has no quantizer in front, so it multiplies f32, and what makes that operand "
        "writes f32",
        with_additions=frozenset({Tool.NNCF}),
        remedies={
            Tool.ORT: (
                "take {names} out of nodes_to_exclude, and MatMul into op_types_to_quantize; with "
                'QuantFormat.QOperator also extra_options={{"MatMulConstBOnly": False}} (the default)'
            ),
            Tool.ORT_DYNAMIC: (
                f"{_STATIC}; {{names}} not in nodes_to_exclude (a BERT took 11.3 ms before, 10.1 ms so with "
                'op_types_to_quantize=["MatMul", "Gemm"]); quantize_dynamic would quantize them with '
                'extra_options={{"MatMulConstBOnly": False}}, but takes the ranges of both operands in each '
                "run then, which costs more than it saves (13.4 ms)"
            ),
            Tool.NNCF: (
                "call nncf.quantize without model_type=nncf.ModelType.TRANSFORMER, or take {names} out of "
                f"ignored_scope, and check accuracy; leave {_MASK}"
            ),
            Tool.PYTORCH: (
                "PT2E: quantizer.set_function_type_qconfig(torch.matmul, config); FX: a qconfig for the function or "
                "module at {names}"
            ),
            Tool.ANY: "put a quantizer in front of both operands of {names}",
        },
    ),
    Kind(
        "f32-product",
        "convolution or matmul in f32",
        "convolutions and matmuls in f32",
        "A convolution, or a matrix product with constant weights, whose input no quantizer provides as codes.",
        "its input has no quantizer, so it multiplies f32, and what makes that input writes f32",
        remedies={
            Tool.ORT: (
                "take {names} out of nodes_to_exclude, and Conv, Gemm and MatMul into op_types_to_quantize"
            ),
            Tool.ORT_DYNAMIC: f"{_STATIC}; {{names}} not in nodes_to_exclude",
            Tool.NNCF: (
                "take {names} out of ignored_scope; what is not in it, NNCF leaves in f32 by a rule of its own, "
                "which no option changes"
            ),
            Tool.PYTORCH: "give {names} a qconfig: qconfig_mapping.set_module_name(name, qconfig)",
            Tool.ANY: "put quantizers in front of the inputs and the weights of {names}",
        },
        fix=" --data DATA",
    ),
    Kind(
        "left-by-qoperator",
        "operator that QOperator has no form for",
        "operators that QOperator has no form for",
        "A ConvTranspose in f32, or a Resize that interpolates codes without a scale, in a QOperator file. "
        "QuantFormat.QOperator also leaves out Slice, GatherElements, TopK, CumSum and normalizations, which would be no "
        "faster on codes.",
        "ONNX Runtime leaves a ConvTranspose in f32 there, whatever its options say, and gives a Resize codes without "
        "their scale, between which no primitive interpolates: NumPy does",
        effect=Effect.PRIMITIVES,
        remedies={
            Tool.ANY: (
                "ONNX Runtime's quantize_static with quant_format=QuantFormat.QDQ: it quantizes {names} like "
                "any layer (a DeepLab that resizes took 7.1 ms in QOperator, 0.64 ms in QDQ)"
            ),
        },
    ),
    Kind(
        "f32-weights",
        "layer whose weights have no quantizer",
        "layers whose weights have no quantizer",
        "A convolution or matrix product that reads codes, with weights in f32 or of more than 8 bits.",
        "codes are multiplied by codes only: the input is decoded, and the layer runs in f32",
        remedies={
            Tool.ORT: {
                "where weights have no quantizer": "take {names} out of nodes_to_exclude",
                "where weights have more than 8 bits": "weight_type=QuantType.QInt8",
            },
            Tool.NNCF: "take the weights of {names} out of ignored_scope",
            Tool.PYTORCH: "weight=default_per_channel_weight_observer in the qconfig of {names}",
            Tool.ANY: "quantize the weights of {names} to 8 bits",
        },
        fix=" --data DATA",
    ),
    Kind(
        "quantized-outside",
        "product in a body whose input is quantized outside of it",
        "products in bodies whose inputs are quantized outside of them",
        "A QuantizeLinear and DequantizeLinear in front of an If, Loop or Scan, and a product of their result in a body.",
        "codes end where a body begins: it is handed f32, and multiplies that",
        remedies={
            Tool.ANY: (
                "put the QuantizeLinear and DequantizeLinear of their inputs into the body, in front of {names}"
            ),
        },
    ),
    Kind(
        "weights-only",
        "product that decodes weights in blocks",
        "products that decode weights in blocks",
        "A matrix product of f32 with weights in blocks of codes (MatMulNBits).",
        "the codes save memory, not arithmetic: they are decoded in front of each product in f32",
        remedies={
            Tool.ANY: {
                "where the model lets activations become codes (accuracy_level=4)": (
                    "compile with --dynamic matmul: the model permits it, and ONNX Runtime does so unasked"
                ),
                "where it does not": (
                    "nothing where tokens come one by one, which memory bounds; where many come at once, let "
                    "activations become codes, too: at run time (--dynamic matmul), or by calibration "
                    "(quantize_static, nncf.quantize)"
                ),
                "where the model quantizes its activations": (
                    "let weights have one scale for each output channel, and activations one for the tensor: products in int8 "
                    "take no codes in blocks beside a quantizer of the model's own"
                ),
            },
        },
    ),
    Kind(
        "asymmetric-weights",
        "layer with asymmetric weights",
        "layers with asymmetric weights",
        "Weights with a zero point that is not 0, or with several.",
        "a zero point of weights needs a sum over every window of the input: convolutions take none, "
        "so the layer runs in f32, or that sum does, as products of its own",
        remedies={
            Tool.ORT: 'weight_type=QuantType.QInt8, extra_options={{"WeightSymmetric": True}}',
            Tool.NNCF: (
                "weights_quantization_params=QuantizationParameters(mode=QuantizationScheme.SYMMETRIC), "
                "which is the default"
            ),
            Tool.PYTORCH: "torch.per_channel_symmetric for weights in the qconfig of {names}",
            Tool.ANY: "quantize the weights of {names} symmetrically",
        },
        fix=" --f32 F32",
    ),
    Kind(
        "weights-along-inputs",
        "layer with scales along its input channels",
        "layers with scales along their input channels",
        "Per-channel weights along another axis than the output channels.",
        "a product sums over input channels, so their factors cannot stand behind the sum: the layer "
        "runs in f32",
        remedies={
            Tool.ORT: (
                'extra_options={{"QDQOpTypePerChannelSupportToAxis": {{"MatMul": 1, "Conv": 0}}}} for '
                "{names}"
            ),
            Tool.PYTORCH: "ch_axis=0 (ConvTranspose: 1) in the weight observer of {names}",
            Tool.ANY: "quantize the weights of {names} along their output channels",
        },
        fix=" --f32 F32",
    ),
    Kind(
        "concat-parameters",
        "part of a layer cut up behind a concatenation",
        "parts of layers cut up behind a concatenation",
        "Codes of different sign or scale are concatenated in front of a layer. The layer becomes one for each part, with f32"
        " sums between.",
        "codes with other scales or signs cannot lie side by side, so each part is multiplied by "
        "itself, and the sum between them is f32",
        remedies={
            Tool.ORT: (
                "activation_type=QuantType.QUInt8 for all, and a quantizer behind the concatenation: "
                '"Concat" in op_types_to_quantize'
            ),
            Tool.NNCF: "preset=nncf.QuantizationPreset.PERFORMANCE: all activations of one sign",
            Tool.PYTORCH: "one FakeQuantize module, shared by all inputs of the concatenation",
            Tool.ANY: "give all inputs of the concatenation one scale and zero point",
        },
        fix="",
    ),
    Kind(
        "code-table",
        "activation as a table of codes",
        "activations as tables of codes",
        "An activation between two quantizers whose arithmetic is a table of 256 entries.",
        "one byte in, one byte out: a kernel of its own looks it up",
        Gain.NOTHING,
        no_remedy="nothing to change: a table costs less than the arithmetic",
    ),
    Kind(
        "fallback",
        "operator without a primitive",
        "operators without a primitive",
        "A step `onnx.<Op>` on f32 numbers or codes.",
        "no primitive computes it: NumPy does, one core, with f32 in front of it and behind it",
        effect=Effect.PRIMITIVES,
        remedies={
            Tool.ANY: (
                "export {names} as operators that primitives compute (convolution, matmul, pooling, "
                "elementwise, softmax, layer norm)"
            ),
        },
    ),
    Kind(
        "model-output",
        "output of the model in f32",
        "outputs of the model in f32",
        "f32 that no other step reads.",
        "the model's caller wants f32",
        Gain.NOTHING,
        no_remedy="nothing to change: the model declares this type",
    ),
    Kind(
        "f32-residual",
        "step that hands f32 to a residual addition",
        "steps that hand f32 to residual additions",
        "An addition of two f32 tensors, and the steps that write them. Where a layer normalization reads the sum, as in "
        "transformers, it belongs to [float-operation](#float-operation).",
        "the skip has no quantizer, so both sides of the addition are written and read in f32",
        effect=Effect.QUANTIZERS_GO,
        remedies={
            Tool.ORT: (
                'op_types_to_quantize with "Add"; the additions behind {names} not in nodes_to_exclude, those of an '
                "attention mask there: quantized, a mask of -3.4e38 makes the outputs wrong"
            ),
            Tool.ORT_DYNAMIC: f"{_STATIC}, with the additions",
            Tool.NNCF: (
                "call nncf.quantize without model_type=nncf.ModelType.TRANSFORMER, which leaves all additions out, or "
                f"take those behind {{names}} out of ignored_scope, and check accuracy; leave {_MASK}"
            ),
            Tool.PYTORCH: "FloatFunctional.add with a qconfig in place of + behind {names}",
            Tool.ANY: "put a quantizer on both inputs of the addition behind {names}",
        },
    ),
    Kind(
        "f32-pooling",
        "pooling or resizing in f32 in front of a quantizer",
        "poolings and resizings in f32 in front of quantizers",
        "A pooling or resizing that reads f32 and whose result is quantized.",
        "a quantizer stands behind it and none in front, so that it reads and writes four bytes an element, and "
        "codes are made in a step of their own",
        effect=Effect.CONVERSIONS_GO,
        remedies={
            Tool.ORT: (
                "quantize what {names} read: the types of the nodes in front into op_types_to_quantize (Tanh, "
                "say, is not there by itself), beside those that are there; none of them in nodes_to_exclude; more "
                "types may cost accuracy: `fqfuse compare F32 INT8` measures it"
            ),
            Tool.NNCF: (
                "take {names}, and the nodes in front, out of ignored_scope "
                "(model_type=nncf.ModelType.TRANSFORMER leaves all additions out)"
            ),
            Tool.PYTORCH: "give the layers in front of {names} a qconfig",
            Tool.ANY: "put a quantizer in front of {names}",
        },
    ),
    Kind(
        "float-operation",
        "step around operations in f32",
        "steps around operations in f32",
        "Softmax, layer normalization or other f32 arithmetic, the layers that write f32 for it, and additions whose sums a "
        "layer normalization reads.",
        "softmax, norms and their like read and write f32; along a middle axis, softmaxes take reorders, and most "
        "reductions NumPy",
        effect=Effect.PRIMITIVES,
        no_remedy="no quantizer helps: these operations compute in f32, whatever they read",
    ),
    Kind(
        "decoded-operand",
        "elementwise operation on codes that are decoded first",
        "elementwise operations on codes that are decoded first",
        "Two quantized tensors are multiplied or added, and one has a zero point, as after a hard swish: squeeze and "
        "excitation in MobileNetV3 and EfficientNet.",
        "the primitive for two tensors takes no zero point: codes become f32 in front of it",
        effect=Effect.REORDERS_GO,
        no_remedy=(
            "no setting pays everywhere: symmetric activations need no decoding, and cost accuracy and as much time "
            "elsewhere (a MobileNetV3 Small took 1.35 ms with zero points, 1.38 ms without; an SE-ResNet 1.35 and 1.08)"
        ),
    ),
    Kind(
        "quantizer-apart",
        "layer whose quantizer is a step of its own",
        "layers whose quantizers are steps of their own",
        "A quantizer after f32 that others also read, or after an operation that cannot store its codes.",
        "what stands in front writes f32, because others read that, too, or because it cannot store codes, so "
        "that these need a pass of their own",
        effect=Effect.CONVERSIONS_GO,
        remedies={
            Tool.NNCF: (
                "quantize the input of {names}, and their other readers; if model_type=TRANSFORMER was given, call "
                "nncf.quantize without it, and check accuracy; what it leaves in f32 besides (normalizations), no option "
                "changes"
            ),
            Tool.ORT: {"in QDQ": _APART, "in QOperator": f"{_APART_OPERATORS}; {_APART}"},
            Tool.PYTORCH: "give {names}, and their other readers, a qconfig, too",
            Tool.ANY: "quantize the input of {names}, and their other readers",
        },
    ),
    Kind(
        "quantizer-between",
        "quantizer between a layer and its addition",
        "quantizers between layers and their additions",
        "A quantizer on the output of a convolution that only an addition reads.",
        "the sum is rounded twice: a few instructions for each element, no byte",
        Gain.NOTHING,
        no_remedy="nothing to gain: it is fused, and costs registers only",
    ),
    Kind(
        "requantized",
        "step that only changes scales of codes",
        "steps that only change scales of codes",
        "Codes with one scale where a consumer needs another: a concatenation of codes with several scales, or a part of a "
        "Split times a constant.",
        "all codes are read and written once more",
        effect=Effect.ALL_GO,
        remedies={
            Tool.ORT: {
                "around a Concat": (
                    'the same "scale" and "zero_point" for the output of the Concat and its inputs: '
                    'extra_options={{"TensorQuantOverrides": ...}}'
                ),
                "behind a constant factor": _FOLDED,
                "in front of a product of two activations": (
                    "activation_type=QuantType.QInt8: of two activations the second has to have signs"
                ),
                "elsewhere": (
                    'the same "scale" and "zero_point" for what {names} read and write: '
                    'extra_options={{"TensorQuantOverrides": ...}}'
                ),
            },
            Tool.NNCF: {
                "around a Concat": "one scale for the output of the Concat and its inputs, which no option of NNCF gives",
                "behind a constant factor": _FOLDED,
                "elsewhere": "one scale on both sides of {names}, which no option of NNCF gives",
            },
            Tool.PYTORCH: "share one FakeQuantize module between the readers of {names}",
            Tool.ANY: f"give both sides of {{names}} one scale and zero point; {_FOLDED}",
        },
    ),
    Kind(
        "layout-copy",
        "step that only moves codes",
        "steps that only move codes",
        "Concatenations, transpositions and slices of codes.",
        "each reads and writes its tensor once, a byte an element",
        effect=Effect.ALL_GO,
        no_remedy="no quantizer helps: the network moves this data, in codes already",
    ),
    Kind(
        "own-step",
        "elementwise step on codes",
        "elementwise steps on codes",
        "A binary or activation on codes that follows a concatenation, or whose input others read.",
        "no layer in front takes it: its codes are read and written",
        effect=Effect.ALL_GO,
        no_remedy="no quantizer helps: arithmetic between layers, in codes already",
    ),
    Kind(
        "index-arithmetic",
        "step on indices or masks",
        "steps on indices or masks",
        "Operators on integers that are not codes.",
        "indices, sizes and masks are small, and NumPy computes them",
        Gain.NOTHING,
        no_remedy="nothing to change",
    ),
    Kind(
        "open-sizes",
        "operation of open sizes",
        "operations of open sizes",
        "A model exported with dynamic axes. Sizes are computed from those of the inputs (Shape, Gather, Concat, Range), and "
        "masks of more than 4,096 elements in each run. An addition stays a separate step where the sizes of its sides may "
        "differ.",
        "the model leaves sizes open: additions of unknown sizes are not fused into the layers in front, and large masks of "
        "positions are made in each run",
        effect=Effect.FUSED,
        remedies={
            Tool.ANY: (
                "export with fixed sizes, a file for each that you need (torch.onnx.export without dynamic_axes and "
                "dynamic_shapes), or fix each open size of this file: python -m "
                "onnxruntime.tools.make_dynamic_shape_fixed --dim_param NAME --dim_value N MODEL.onnx FIXED.onnx; "
                "--size of fqfuse only says what to estimate or measure"
            ),
        },
        fix=" --size NAME=N",
    ),
    Kind(
        "decoded-for-shape",
        "tensor that is decoded for its shape",
        "tensors that are decoded for their shape",
        "A DequantizeLinear that only a Shape reads, in traced transformers with open sizes that ONNX Runtime quantized.",
        "codes have the same shape, and fqfuse decodes them nevertheless: a gap of fqfuse, no mistake in the model",
        effect=Effect.ALL_GO,
        remedies={
            Tool.ANY: (
                "nothing in the quantizer; a model exported with fixed sizes (torch.onnx.export without "
                "dynamic_axes) has no Shape behind {names}"
            ),
        },
    ),
    Kind(
        "other",
        "step in f32 that fits no kind",
        "steps in f32 that fit no kind",
        "No rule of this catalogue recognizes it.",
        "it writes f32, and no rule here knows why: see --steps and --decisions",
        no_remedy="unknown: please report the model's structure",
    ),
)
