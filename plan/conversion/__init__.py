"""Conversion of plans for `onednn-v2` to `onednn-v3`: `convert.py` is the way in.

- `real_domain.py`: what an output scale and a bias in the accumulator's units are in real numbers
- `output_scale.py`: an output scale taken apart into scales of source, weights and destination
- `convert.py`: the plan as a whole, mechanical (every float operation kept) or semantic
"""
