"""The networks of `subjects` as PyTorch modules, with the weights of their ONNX files: what a setting
of PyTorch does can be set beside what the other quantizers do.

Written as users write them, so that the quantizers of PyTorch find the modules and functions that
they look for.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import onnx
import torch
from onnx import numpy_helper
from torch import Tensor, nn
from torch.nn import functional

from ..networks import bert, lstm
from ..networks.small import ROWS, STAGES


class _Block(nn.Module):
    def __init__(self, inputs: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU()
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.relu2: nn.Module | None = nn.ReLU()
        self.downsample = None
        if stride > 1 or inputs != channels:
            self.downsample = nn.Sequential(
                nn.Conv2d(inputs, channels, 1, stride, bias=False), nn.BatchNorm2d(channels)
            )

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        y = y + (x if self.downsample is None else self.downsample(x))
        return self.relu(y) if self.relu2 is None else self.relu2(y)


class _ResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        channels = 32
        self.conv1 = nn.Conv2d(3, channels, 3, 2, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU()
        for stage, (wide, stride) in enumerate(STAGES, start=1):
            blocks = nn.Sequential(_Block(channels, wide, stride), _Block(wide, wide, 1))
            setattr(self, f"layer{stage}", blocks)
            channels = wide
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(channels, 100)

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.fc(torch.flatten(self.avgpool(x), 1))


class _Squeeze(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc1 = nn.Conv2d(channels, channels // 4, 1, bias=False)
        self.relu = nn.ReLU()
        self.fc2 = nn.Conv2d(channels // 4, channels, 1, bias=False)
        self.scale = nn.Hardsigmoid()

    def forward(self, x: Tensor) -> Tensor:
        return self.scale(self.fc2(self.relu(self.fc1(self.avgpool(x))))) * x


class _Inverted(nn.Module):
    def __init__(
        self, inputs: int, expanded: int, channels: int, stride: int, squeezed: bool, hard: bool
    ) -> None:
        super().__init__()
        act = nn.Hardswish if hard else nn.ReLU
        self.shortcut = stride == 1 and inputs == channels
        self.expand = nn.Conv2d(inputs, expanded, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(expanded)
        self.act1 = act()
        self.depthwise = nn.Conv2d(expanded, expanded, 3, stride, 1, groups=expanded, bias=False)
        self.norm2 = nn.BatchNorm2d(expanded)
        self.act2 = act()
        self.se = _Squeeze(expanded) if squeezed else nn.Identity()
        self.project = nn.Conv2d(expanded, channels, 1, bias=False)
        self.norm3 = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        y = self.act1(self.norm1(self.expand(x)))
        y = self.act2(self.norm2(self.depthwise(y)))
        y = self.norm3(self.project(self.se(y)))
        return y + x if self.shortcut else y


class _MobileNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        parts: dict[str, nn.Module] = {"stem": _conv(3, 16, 3, 2)}
        channels = 16
        for index, (expanded, wide, stride, squeezed, hard) in enumerate(ROWS):
            parts[f"block{index}"] = _Inverted(channels, expanded, wide, stride, squeezed, hard)
            channels = wide
        parts["last"] = _conv(channels, 288, 1, 1)
        self.features = nn.Sequential()
        for name, part in parts.items():
            self.features.add_module(name, part)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(288, 100)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(torch.flatten(self.avgpool(self.features(x)), 1))


def _conv(inputs: int, channels: int, kernel: int, stride: int) -> nn.Sequential:
    part = nn.Sequential()
    conv = nn.Conv2d(inputs, channels, kernel, stride, kernel // 2, bias=False)
    part.add_module("conv", conv)
    part.add_module("norm", nn.BatchNorm2d(channels))
    part.add_module("act", nn.Hardswish())
    return part


class _SelfAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(bert.WIDTH, bert.WIDTH) for _ in range(3))

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        query, key, value = (
            part(x).view(1, bert.SEQUENCE, bert.HEADS, -1).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )
        scores = torch.matmul(query, key.transpose(2, 3)) / (bert.WIDTH // bert.HEADS) ** 0.5
        weights = torch.softmax(scores + bias, -1)
        context = torch.matmul(weights, value).transpose(1, 2)
        return context.reshape(1, bert.SEQUENCE, bert.WIDTH)


class _Output(nn.Module):
    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.dense = nn.Linear(inputs, bert.WIDTH)
        self.LayerNorm = nn.LayerNorm(bert.WIDTH, eps=1e-12)

    def forward(self, x: Tensor, skip: Tensor) -> Tensor:
        return self.LayerNorm(self.dense(x) + skip)


class _Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.Module()
        self.attention.self = _SelfAttention()
        self.attention.output = _Output(bert.WIDTH)
        self.intermediate = nn.Module()
        self.intermediate.dense = nn.Linear(bert.WIDTH, bert.INTERMEDIATE)
        self.output = _Output(bert.INTERMEDIATE)

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        x = self.attention.output(self.attention.self(x, bias), x)
        return self.output(functional.gelu(self.intermediate.dense(x)), x)


class _Bert(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embeddings = nn.Module()
        self.embeddings.word_embeddings = nn.Embedding(bert.VOCABULARY, bert.WIDTH)
        self.embeddings.token_type_embeddings = nn.Embedding(bert.TYPES, bert.WIDTH)
        positions = torch.zeros(1, bert.SEQUENCE, bert.WIDTH)
        self.embeddings.position_embeddings = nn.ParameterDict({"weight": positions})
        self.embeddings.LayerNorm = nn.LayerNorm(bert.WIDTH, eps=1e-12)
        self.encoder = nn.Module()
        self.encoder.layer = nn.ModuleList([_Layer(), _Layer()])
        self.pooler = nn.Module()
        self.pooler.dense = nn.Linear(bert.WIDTH, bert.WIDTH)
        self.classifier = nn.Linear(bert.WIDTH, bert.CLASSES)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor
    ) -> tuple[Tensor, Tensor]:
        bias = (1.0 - attention_mask[:, None, None].to(torch.float32)) * -10000.0
        parts = self.embeddings
        x = parts.word_embeddings(input_ids) + parts.token_type_embeddings(token_type_ids)
        x = parts.LayerNorm(x + parts.position_embeddings["weight"])
        for layer in self.encoder.layer:
            x = layer(x, bias)
        return x, self.classifier(torch.tanh(self.pooler.dense(x[:, 0])))


class _Lstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(
            lstm.WIDTH, lstm.WIDTH, lstm.LAYERS, batch_first=True, bidirectional=True
        )
        self.fc = nn.Linear(2 * lstm.WIDTH, lstm.CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.lstm(x)[0][:, -1])


MODULES: Mapping[str, type[nn.Module]] = {
    "resnet": _ResNet,
    "mobilenet": _MobileNet,
    "bert": _Bert,
    "lstm": _Lstm,
}


def load(network: str, source: Path) -> nn.Module:
    """The network of `subjects`, with the weights of its f32 file.

    Raises:
        RuntimeError: a weight is missing, left over, or of another shape.
    """
    module = MODULES[network]().eval()
    initializers = onnx.load(source).graph.initializer
    weights = {
        item.name.replace("downsample.downsample", "downsample"): torch.from_numpy(
            numpy_helper.to_array(item).copy()
        )
        for item in initializers
    }
    wanted = module.state_dict()
    if network == "lstm":
        weights = _lstm_weights(weights)
    for name, value in wanted.items():
        if name.endswith("num_batches_tracked"):
            weights[name] = value
        elif name in weights and _is_linear(module, name):
            weights[name] = weights[name].T
    module.load_state_dict(weights)
    return module


def share_relus(module: nn.Module) -> nn.Module:
    """The same network, whose blocks call one ReLU module twice, as torchvision's ResNet does."""
    for block in module.modules():
        if isinstance(block, _Block):
            block.relu2 = None
    return module


def _is_linear(module: nn.Module, name: str) -> bool:
    """Weights of MatMul lie the other way round; those of Gemm (the classifier) do not."""
    owner, _, leaf = name.rpartition(".")
    gemm = owner in ("fc", "classifier", "pooler.dense")
    return leaf == "weight" and not gemm and isinstance(module.get_submodule(owner), nn.Linear)


def _lstm_weights(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """From ONNX's order of gates (input, output, forget, cell) to PyTorch's (input, forget, cell,
    output).
    """
    order = (0, 2, 3, 1)
    found = {name: value for name, value in weights.items() if name.startswith("fc.")}
    for layer in range(lstm.LAYERS):
        prefix = f"lstm.layer.{layer}"
        for direction, end in enumerate(("", "_reverse")):
            both = weights[f"{prefix}.bias"][direction].chunk(2)
            parts = {
                "weight_ih": weights[f"{prefix}.weight_ih"][direction],
                "weight_hh": weights[f"{prefix}.weight_hh"][direction],
                "bias_ih": both[0],
                "bias_hh": both[1],
            }
            for name, value in parts.items():
                gates = value.chunk(4)
                joined = torch.cat([gates[gate] for gate in order])
                found[f"lstm.{name}_l{layer}{end}"] = joined
    return found
