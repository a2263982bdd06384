"""From a graph to a plan: `compose.py` is the way in.

- `formula/`: what a chain of operations computes
- `mapping/`: the formula as attributes of a primitive
- `steps/`: walking the graph, one step after the other
- `registry.py`: all rules, for docs/rules.md
"""
