"""From the graph to the steps of a plan. In: a graph that the passes have finished. Out: steps,
outcomes of quantizers, decisions.

- `two_operands.py`, `fake_quantize.py`: what a node does to the chain in front of it
- `chain.py`: the longest chain behind a value that fits a primitive
- `residual.py`: which of two anchors that meet in an add absorbs it
- `operands.py`, `prelu.py`: the source, weights and bias that a primitive reads
- `records.py`: fates and decisions of a step, and what was weighed
- `builder.py`: steps in the making: who claimed which node, what became of which quantizer
- `build.py`: the recipe of a step, which all kinds have in common
- `primitives.py`, `anchors.py`, `integer_products.py`, `recurrent.py`, `elementwise.py`: one file for
  each kind of step
- `standalone_quantizers.py`, `run_time_decoding.py`: steps of quantizers that no primitive took
- `depthwise.py`: two steps that are composed: a depthwise convolution as a post-op of the one in front
"""
