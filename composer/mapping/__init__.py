"""From a formula to the attributes of a primitive. In: a chain behind a front. Out: `Composed`, or
a refusal.

- `composed.py`: `Front` and `Composed`, what goes in and comes out
- `cost.py`: the cost model
- `homes.py`: where an operation may go, cheapest first
- `compared_codes.py`: comparisons, maxima and minima with codes
- `scale_propagation.py`: factors and shifts that go into the front's scale and bias, past what stands between
- `to_post_ops.py`: operations that become post-ops
- `post_ops_composer.py`: the whole, one operation at a time
"""
