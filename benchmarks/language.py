"""Small language models of the transformers library with random weights, exported to ONNX: what its
users' files look like.

Needs PyTorch, transformers and onnxscript; nothing is downloaded. Weights come from a seed. All are
exported by both exporters of PyTorch, with symbols for the batch and for every length. GPT-2 and
Llama (rotary positions, two query heads to each key head) read their caches from inputs
`past.<layer>.key` and `.value`, and write `present...`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from fqfuse.measure.arrays import Array, Feeds

WIDTH, HEADS, LAYERS, VOCABULARY, POSITIONS = 64, 4, 2, 199, 128
_SEED = 0
# The default spread of weights, 0.02, is made for wider networks, and leaves attention uniform
# here.
_KIND = {"attn_implementation": "eager", "initializer_range": WIDTH**-0.5}
EXPORTERS = {"trace": False, "dynamo": True}
"""PyTorch's exporters, and what `torch.onnx.export(dynamo=...)` calls them."""


@dataclass(frozen=True)
class LanguageModel:
    """A kind of model.

    Attributes:
        name: `bert`, `gpt2` or `llama`.
        caches: how many heads each cache has; 0: no caches, and every run reads the whole sequence.
        make: gives the network of transformers.
    """

    name: str
    caches: int
    make: Callable[[], Any]

    @property
    def past(self) -> list[str]:
        """The names of the caches that it reads, in order."""
        return (
            [f"past.{layer}.{half}" for layer in range(LAYERS) for half in ("key", "value")]
            if self.caches
            else []
        )

    @property
    def present(self) -> list[str]:
        """The names of the caches that it writes, in order."""
        return [name.replace("past", "present") for name in self.past]

    def feeds(self, tokens: Array, past: Sequence[Array] = ()) -> dict[str, Array]:
        """The inputs for `tokens` int64 [batch, sequence] behind the caches of what was read
        before.

        Each text but the first begins with one token of padding.
        """
        caches = past or self.empty(len(tokens))
        mask = np.ones(
            (len(tokens), tokens.shape[1] + (caches[0].shape[2] if caches else 0)), np.int64
        )
        mask[1:, 0] = 0
        feeds = {
            "input_ids": tokens,
            "attention_mask": mask,
            **dict(zip(self.past, caches, strict=True)),
        }
        if not self.caches:
            feeds["token_type_ids"] = np.repeat(
                np.arange(tokens.shape[1])[None] % 2, len(tokens), axis=0
            )
        return feeds

    def empty(self, batch: int) -> list[Array]:
        """The caches before the first token."""
        return [np.zeros((batch, self.caches, 0, WIDTH // HEADS), np.float32) for _ in self.past]

    def export(self, target: Path, exporter: str) -> None:
        """Write the f32 model."""
        torch: Any = import_module("torch")
        torch.manual_seed(_SEED)
        rng = np.random.default_rng(_SEED)
        past = [
            rng.standard_normal((2, self.caches, 3, WIDTH // HEADS), np.float32) for _ in self.past
        ]
        example = self.feeds(rng.integers(0, VOCABULARY, (2, 5)), past)
        dims = self._dims()
        dynamo = EXPORTERS[exporter]
        dynamic: dict[str, Any] = (
            {"dynamic_shapes": _free(torch, example, dims)} if dynamo else {"dynamic_axes": dims}
        )
        torch.onnx.export(
            _wrapped(torch, self.make(), self.caches).eval(),
            tuple(torch.from_numpy(array) for array in example.values()),
            str(target),
            input_names=list(example),
            output_names=["logits", *self.present],
            dynamo=dynamo,
            external_data=False,
            verbose=False,
            **dynamic,
        )

    def _dims(self) -> dict[str, dict[int, str]]:
        """Return the dimensions of inputs and outputs that are no numbers, by name."""
        tokens = {0: "batch", 1: "sequence"}
        if not self.caches:
            return dict.fromkeys(
                ("input_ids", "attention_mask", "token_type_ids", "logits"), tokens
            )
        past, total = {0: "batch", 2: "past"}, {0: "batch", 2: "total"}
        dims = {"input_ids": tokens, "attention_mask": {0: "batch", 1: "total"}, "logits": tokens}
        return dims | dict.fromkeys(self.past, past) | dict.fromkeys(self.present, total)


def _free(torch: Any, example: Feeds, dims: Mapping[str, Mapping[int, str]]) -> Any:
    """Return the dimensions as `torch.export` wants them, for it to find out which are equal; those
    of a variadic argument are a tuple.
    """
    return (tuple(dict.fromkeys(dims[name], torch.export.Dim.DYNAMIC) for name in example),)


def _wrapped(torch: Any, network: Any, caches: int) -> Any:
    """The network over plain tensors: tokens, mask, then caches or kinds of tokens -> logits, then
    caches.
    """
    cache: Any = import_module("transformers").DynamicCache

    class Wrapped(torch.nn.Module):  # type: ignore[misc]  # the base comes from a package that is imported on demand
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, *tensors: Any) -> Any:
            tokens, mask, *rest = tensors
            if not caches:
                return self.network(
                    input_ids=tokens, attention_mask=mask, token_type_ids=rest[0]
                ).logits
            past = cache(list(zip(rest[::2], rest[1::2], strict=True)))
            found = self.network(
                input_ids=tokens, attention_mask=mask, past_key_values=past, use_cache=True
            )
            return found.logits, *(
                half
                for layer in found.past_key_values.layers
                for half in (layer.keys, layer.values)
            )

    return Wrapped()


def _sizes() -> dict[str, Any]:
    """Return what the configurations of BERT and Llama have in common."""
    sizes = {
        "hidden_size": WIDTH,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "intermediate_size": 2 * WIDTH,
    }
    return {"vocab_size": VOCABULARY, "max_position_embeddings": POSITIONS} | _KIND | sizes


def _bert() -> Any:
    library: Any = import_module("transformers")
    return library.BertForMaskedLM(library.BertConfig(**_sizes()))


def _gpt2() -> Any:
    library: Any = import_module("transformers")
    sizes = {"n_embd": WIDTH, "n_layer": LAYERS, "n_head": HEADS}
    return library.GPT2LMHeadModel(
        library.GPT2Config(vocab_size=VOCABULARY, n_positions=POSITIONS, **_KIND, **sizes)
    )


def _llama() -> Any:
    library: Any = import_module("transformers")
    return library.LlamaForCausalLM(library.LlamaConfig(num_key_value_heads=HEADS // 2, **_sizes()))


LANGUAGE_MODELS = {
    model.name: model
    for model in (
        LanguageModel("bert", 0, _bert),
        LanguageModel("gpt2", HEADS, _gpt2),
        LanguageModel("llama", HEADS // 2, _llama),
    )
}
