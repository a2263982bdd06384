"""Conversion of plans for `onednn-v2` to `onednn-v3`: `convert.py` is the way in, for callers and
for the oneDNN runtime.

- `output_scale.py`: an output scale, or the scale of an eltwise, as attributes that compute the
  same numbers
- `real_domain.py`: an output scale taken apart into scales of source, weights and destination, and
  post-ops in real numbers
- `convert.py`: the plan as a whole, mechanical (every float operation kept) or semantic
"""
