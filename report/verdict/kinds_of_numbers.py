"""The kinds of findings about numbers: outputs that are wrong, or accuracy that is lost; `{names}`
stands for the layers.
"""

from __future__ import annotations

from .kind import Effect, Gain, Kind
from .remedies import Tool

_FIX = "fqfuse fix MODEL -o OUT (a ResNet-50 took 53 ms for 95)"


def _by(option: str, otherwise: str = "") -> dict[str, str]:
    """The remedy by an option that gives weights 7 bits, which no product of two activations has."""
    return {
        "where weights are constants": f"{option}; or {_FIX}{otherwise}",
        "where both factors are computed": (
            "fqfuse fix MODEL -o OUT, which gives one of them 7 bits; no option of the quantizer does"
        ),
    }


_REDUCED = _by(
    "reduce_range=True",
    '; who stays on ONNX Runtime gives it the session option session.x64quantprecision, "1": exact, and slower '
    "(a ResNet-50 took 100 ms for 63)",
)

ABOUT_NUMBERS = (
    Kind(
        "absurd-scale",
        "layer next to a quantizer with an absurd scale",
        "layers next to quantizers with an absurd scale",
        "A multiplication by an infinite constant; a scale that is infinite, above 1e30 or below 1e-30; or a scale of 2 and "
        "more in front of a softmax. A mask adds -3.4e38 or -10000, and the calibration took that for data.",
        "one step of its codes is larger than all real values, or smaller than any, or larger than what a softmax "
        "tells apart, so that they "
        "become equal there: behind a mask, outputs are the farther off the sharper the attention is (a cosine to f32 of "
        "0.1 to 0.5 in two BERTs, 0.95 and more in two others)",
        Gain.NUMBERS,
        remedies={
            Tool.ORT: (
                "nodes_to_exclude=[{names}]; or, if a mask is the cause, export it with -100 for what is masked"
            ),
            Tool.NNCF: (
                "ignored_scope=nncf.IgnoredScope(names=[{names}]); or, if a mask is the cause, export it with -100 for what is masked; "
                "model_type=nncf.ModelType.TRANSFORMER instead gave 8 to 12 dB of SQNR less on two BERTs, and up to 4 more on two "
                "others"
            ),
            Tool.PYTORCH: (
                "qconfig_mapping.set_module_name(name, None) for {names}; or, if a mask is the cause, export it with "
                "-100 for what is masked"
            ),
            Tool.ANY: "leave {names} unquantized; or, if a mask is the cause, export it with -100 for what is masked",
        },
        fix="",
    ),
    Kind(
        "few-codes",
        "layer around a quantizer with hardly a code for its values",
        "layers around quantizers with hardly a code for their values",
        "A quantizer with 64 codes or more, of which a part of its source can reach 4 or fewer, whatever the data. The part "
        "is a Sigmoid, Tanh, Softmax or Clip, or codes of another quantizer, to which a Concat gives the step of larger "
        "values.",
        "the step of its codes, which fits larger values beside these, is about as large as their whole range: all of them "
        "become one number, or two to four, whatever the network computes",
        Gain.NUMBERS,
        remedies={
            Tool.ORT: (
                "nodes_to_exclude=[{names}] (the class scores of a detection head went from all zeros to 0.04 and less off "
                "f32), or let the model return what they join as outputs of their own"
            ),
            Tool.NNCF: (
                "ignored_scope=nncf.IgnoredScope(names=[{names}]): what reads the codes, for a Concat alone changes nothing "
                "(a detection head went from all zeros to 0.05 and less off f32); or let the model return what they join apart"
            ),
            Tool.PYTORCH: (
                "split what {names} join: return it apart, or join it behind the last quantizer; in FX mode "
                "qconfig_mapping.set_object_type(torch.cat, None)"
            ),
            Tool.ANY: "leave {names} unquantized, or let the model return what they join as outputs of their own",
        },
        fix="",
    ),
    Kind(
        "coarse-softmax",
        "softmax whose usual results are code 0",
        "softmaxes whose usual results are code 0",
        "A softmax over N places that is quantized with a scale above 2/N. ONNX Runtime gives every softmax 1/256, which is "
        "too coarse for more than 512 places.",
        "N equal results are 1/N, less than half of one code: all that are no peak become 0, and a flat distribution "
        "nothing but zeros",
        Gain.ACCURACY,
        remedies={
            Tool.ORT: (
                "nodes_to_exclude=[{names}] (the coordinates of a keypoint head over 2,304 places went from 0 to 56 dB "
                "of SQNR)"
            ),
            Tool.NNCF: (
                "ignored_scope=nncf.IgnoredScope(names=[...]) with the nodes that read what {names} give"
            ),
            Tool.PYTORCH: "qconfig_mapping.set_module_name(name, None) for {names}",
            Tool.ANY: "leave what {names} give unquantized",
        },
        fix="",
    ),
    Kind(
        "saturated-weights",
        "layer with saturated weights",
        "layers with saturated weights",
        "More than a twentieth of a layer's weights are the largest or smallest code.",
        "weights beyond the range were cut off, which no later layer can repair",
        Gain.ACCURACY,
        remedies={
            Tool.ORT: "per_channel=True, calibrate_method=CalibrationMethod.MinMax",
            Tool.NNCF: (
                "preset=nncf.QuantizationPreset.MIXED, and take weight ranges from the minimum and maximum"
            ),
            Tool.PYTORCH: "give the weights PerChannelMinMaxObserver in the qconfig of {names}",
            Tool.ANY: "take the range of each output channel's weights from their minimum and maximum",
        },
        fix=" --f32 F32",
    ),
    Kind(
        "unused-weight-range",
        "layer with one scale for all of its weights",
        "layers with one scale for all of their weights",
        "One scale for all weights of a layer, where a scale for each output channel would at least halve the power of the "
        "rounding noise. The mean of (largest code of a channel / largest of the layer)^2 is 0.5 or less.",
        "the channel with the largest weights sets the scale for all: the others leave most of their codes "
        "unused",
        Gain.ACCURACY,
        remedies={
            Tool.ORT: "per_channel=True (a small ResNet gained 5.7 dB of SQNR, a BERT 0.8)",
            Tool.ORT_DYNAMIC: "per_channel=True (an LSTM gained 6.6 dB of SQNR, a BERT 3.0)",
            Tool.NNCF: "leave target_device and preset at their defaults: weights per channel",
            Tool.PYTORCH: "give the weights a PerChannelMinMaxObserver in the qconfig of {names}",
            Tool.ANY: "quantize weights per output channel",
        },
        fix=" --f32 F32",
    ),
    Kind(
        "norm-behind-quantizer",
        "layer with a quantizer in front of its normalization",
        "layers with a quantizer in front of their normalization",
        "Convolution, quantizer, BatchNormalization, as quantize_static of ONNX Runtime writes them without pre-processing.",
        "the product is rounded to 8 bits before the normalization scales its channels apart, and once more "
        "behind it",
        Gain.ACCURACY,
        remedies={
            Tool.ORT: (
                "quant_pre_process(model, prepared) of onnxruntime.quantization.shape_inference in front of "
                "quantize_static: it folds normalizations into convolutions (a small MobileNetV3 gained 4.4 dB of "
                "SQNR, a ResNet 1.8); it leaves one behind a Gemm: that BatchNormalization into nodes_to_exclude, and "
                'extra_options={{"OpTypesToExcludeOutputQuantization": ["Gemm"]}} (a face network gained 3.0)'
            ),
            Tool.PYTORCH: (
                "fuse convolution and normalization before the calibration: prepare_fx and prepare_pt2e do, with "
                "model.eval(); in eager mode torch.ao.quantization.fuse_modules"
            ),
            Tool.ANY: "fold the normalization into the weights of {names} before the model is quantized",
        },
    ),
    Kind(
        "dead-channels",
        "layer with dead channels",
        "layers with dead channels",
        "More than a tenth of a layer's output channels have only weights of code 0.",
        "their output is the bias, whatever the input: they were pruned, or the scale of the layer "
        "rounds them to 0",
        Gain.ACCURACY,
        remedies={
            Tool.ORT: "per_channel=True, where it is not set; if they were pruned, take the channels out of the network",
            Tool.ORT_DYNAMIC: "per_channel=True, where it is not set; if they were pruned, take the channels out",
            Tool.PYTORCH: (
                "give the weights a PerChannelMinMaxObserver, where they have none; if they were pruned, take the channels out"
            ),
            Tool.ANY: (
                "quantize weights per output channel, where they are not; if they were pruned, take the channels out of "
                "the network"
            ),
        },
        fix=" --f32 F32",
    ),
    Kind(
        "unused-sign",
        "quantizer that never uses half of its codes",
        "quantizers that never use half of their codes",
        "Signed codes with zero point 0 after a ReLU.",
        "values behind a ReLU are never negative: half of the codes, one bit of eight, is lost",
        Gain.ACCURACY,
        remedies={
            Tool.ORT: (
                'activation_type=QuantType.QUInt8, extra_options={{"ActivationSymmetric": False}} (two convolutional '
                "networks gained 2 dB of SQNR, a third 0.8; it takes time where gates of squeeze and excitation are "
                "multiplied, an SE-ResNet 1.35 ms for 1.08)"
            ),
            Tool.NNCF: "preset=nncf.QuantizationPreset.MIXED",
            Tool.PYTORCH: "give activations quant_min=0, quant_max=255 and torch.quint8 in the qconfig",
            Tool.ANY: "quantize what comes out of a ReLU to unsigned codes",
        },
    ),
    Kind(
        "saturation-without-vnni",
        "layer whose codes are multiplied in f32 on this CPU",
        "layers whose codes are multiplied in f32 on this CPU",
        "int8 products on a CPU without VNNI, with adjacent weights above 64 and no source of 7 bits.",
        "int8 kernels cut sums of two products to 16 bits here: fqfuse multiplies in f32, which takes time, other "
        "runtimes lose accuracy",
        effect=Effect.CODES_FIT,
        remedies={
            Tool.ORT: _REDUCED,
            Tool.ORT_DYNAMIC: _REDUCED,
            Tool.NNCF: _by(
                "overflow_fix=nncf.OverflowFix.ENABLE in advanced_parameters, which takes up to 2 dB of SQNR"
            ),
            Tool.PYTORCH: _by(
                "weights of 7 bits: quant_min=-64, quant_max=63 in the spec or observer of the weights (PT2E: "
                "dataclasses.replace(config.weight, quant_min=-64, quant_max=63)); reduce_range of the "
                "default qconfigs concerns activations, and does not help"
            ),
            Tool.ANY: f"quantize weights to 7 bits, or let {_FIX} do it",
        },
    ),
)
