"""The networks that settings are tried on: small ones, for quantizers take seconds on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import onnx

from fqfuse.measure.arrays import Feeds, split_feeds

from ..networks.bert import build_bert, sample_tokens
from ..networks.lstm import build_lstm, sample_sequences
from ..networks.small import build_small_mobilenet, build_small_resnet, sample_small_images

CALIBRATION, TRIED = 32, 16
"""Random inputs that ranges come from, and others that the SQNR is taken over."""

_SEED = 0
# Streams of random numbers that never meet: [_SEED, 1] calibrates the builders' statistics.
_CALIBRATION_STREAM, _TRIED_STREAM = 2, 3
_SAMPLES = 8  # for the builders' statistics


@dataclass(frozen=True)
class Subject:
    """A network.

    Attributes:
        name: of the network, for people.
        build: the f32 model.
        sample: `count` random inputs, stacked.
    """

    name: str
    build: Callable[[], onnx.ModelProto]
    sample: Callable[[np.random.Generator, int], Feeds]

    def calibration(self) -> list[dict[str, np.ndarray]]:
        """Feeds for the quantizer."""
        return self._feeds(_CALIBRATION_STREAM, CALIBRATION)

    def tried(self) -> list[dict[str, np.ndarray]]:
        """Feeds that the quantizer does not see."""
        return self._feeds(_TRIED_STREAM, TRIED)

    def _feeds(self, stream: int, count: int) -> list[dict[str, np.ndarray]]:
        return list(split_feeds(self.sample(np.random.default_rng([_SEED, stream]), count)))


SUBJECTS: Mapping[str, Subject] = {
    subject.name: subject
    for subject in (
        Subject("resnet", partial(build_small_resnet, _SEED, _SAMPLES), sample_small_images),
        Subject("mobilenet", partial(build_small_mobilenet, _SEED, _SAMPLES), sample_small_images),
        Subject("bert", partial(build_bert, _SEED, _SAMPLES, 2), sample_tokens),
        Subject("lstm", partial(build_lstm, _SEED, _SAMPLES), sample_sequences),
    )
}
