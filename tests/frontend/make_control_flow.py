"""Writes the files of `control_flow/`: loops and branches as PyTorch's two exporters write them.

Run by hand, with torch 2.13 and onnxscript: `python tests/frontend/make_control_flow.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import torch
from torch import Tensor, nn

FOLDER = Path(__file__).parent / "control_flow"
WIDTH = 8


class Cell(nn.Module):
    """An LSTM cell by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.x, self.h = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(WIDTH, 4 * WIDTH)

    def forward(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        i, f, o, n = (self.x(x) + self.h(h)).chunk(4, -1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(n)
        return torch.sigmoid(o) * torch.tanh(c), c


class Steps(nn.Module):
    """The cell in a scripted loop that appends to a list."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = Cell()

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h, c = torch.zeros(x.size(1), 8), torch.zeros(x.size(1), 8)
        rows = []
        for t in range(x.size(0)):
            h, c = self.cell(x[t], h, c)
            rows.append(h)
        return torch.stack(rows, 1), torch.cat(rows, 0)


class Greedy(nn.Module):
    """Greedy decoding: the tokens grow in each trip."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(30, WIDTH), nn.Linear(WIDTH, 30)
        self.q, self.k, self.v = (nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def forward(self, tokens: Tensor, steps: Tensor) -> Tensor:
        for _ in range(int(steps)):
            e = self.embed(tokens)
            q, k, v = self.q(e[:, -1:]), self.k(e), self.v(e)
            mixed = torch.softmax(q @ k.transpose(1, 2), -1) @ v
            tokens = torch.cat([tokens, self.head(mixed)[:, -1].argmax(-1, keepdim=True)], 1)
        return tokens


class Branch(nn.Module):
    """Two layers, one of which runs."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = (nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        if bool(x.sum() > 0):  # noqa: SIM108  (scripted as it stands)
            y = torch.relu(self.a(x))
        else:
            y = torch.tanh(self.b(x))
        return self.c(y)


class Cond(Branch):
    """The same by `torch.cond`."""

    def forward(self, x: Tensor) -> Tensor:
        y = torch.cond(
            x.sum() > 0, lambda x: torch.relu(self.a(x)), lambda x: torch.tanh(self.b(x)), (x,)
        )
        return self.c(y)


class Scan(nn.Module):
    """A recurrence by PyTorch's scan."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        from torch._higher_order_ops.scan import scan

        def step(c: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            y = torch.relu(self.a(c) + x)
            return y, y.clone()

        return scan(step, torch.zeros(2, 8), x)


def scripted(module: nn.Module, inputs: tuple[Any, ...], name: str, **told: Any) -> None:
    """By torch.jit.script and the older exporter."""
    path = str(FOLDER / f"{name}.onnx")
    torch.onnx.export(
        torch.jit.script(module), inputs, path, dynamo=False, opset_version=17, **told
    )


def exported(module: nn.Module, inputs: tuple[Any, ...], name: str, **told: Any) -> None:
    """By torch.export and the newer exporter."""
    program = torch.onnx.export(module.eval(), inputs, dynamo=True, opset_version=18, **told)
    model = program.model_proto
    _forget(model)
    _forget_places(model.graph)
    onnx.save(model, FOLDER / f"{name}.onnx")


def _forget_places(graph: onnx.GraphProto) -> None:
    """Takes out where on this machine the source lay."""
    _forget(graph)
    for held in (*graph.node, *graph.value_info, *graph.input, *graph.output):
        _forget(held)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _forget_places(attribute.g)


def _forget(held: Any) -> None:
    del held.metadata_props[:]
    held.ClearField("doc_string")


def main() -> None:
    """Writes all of them."""
    torch.manual_seed(0)
    FOLDER.mkdir(exist_ok=True)
    x, tokens = torch.randn(4, 2, WIDTH), torch.randint(0, 30, (1, 3))
    steps = {"x": {0: "T", 1: "N"}}
    scripted(Steps(), (x,), "steps", input_names=["x"], dynamic_axes=steps)
    scripted(
        Greedy(),
        (tokens, torch.tensor(4)),
        "greedy",
        input_names=["tokens", "steps"],
        dynamic_axes={"tokens": {0: "N", 1: "T"}},
    )
    scripted(Branch(), (x[0],), "branch", input_names=["x"], dynamic_axes={"x": {0: "N"}})
    exported(Cond(), (x[0],), "cond", input_names=["x"])
    exported(Scan(), (x,), "scan", input_names=["x"])


if __name__ == "__main__":
    main()
