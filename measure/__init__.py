"""How fast a model runs: engines in turns, each in a process of its own, and fqfuse step by step.

`bench` is the whole; `feeds` makes inputs. `turns` measures, `process` starts a `worker`, `engines`
says how each engine opens a model, `arrays` carries feeds, `peak` is the machine's own limit. Those
know nothing of fqfuse (but `peak`): the worker takes this folder for a package of its own.
"""
