"""From a graph to a plan: `compose.py` is the way in. In: a graph that the passes have finished, and
the name of a target. Out: a `Plan`.

- `formula/`: what a chain of operations computes
- `mapping/`: the formula as attributes of a primitive
- `steps/`: walking the graph, one step after the other
- `approximations.py`: which may be asked for by name
- `registry.py`: all rules, for docs/contributing/rules.md
"""
