"""How far an int8 model is from the f32 one, layer by layer: `fqfuse compare`; and what it answers on CPUs without VNNI: `fqfuse
simulate`; and what repairs it: `fqfuse fix`.

`data` finds or draws the inputs, `walk` runs a graph node by node, `matching` pairs the values of both models, `measures` says how
far two arrays are apart, `layers` runs both models side by side and measures, `compare` is the whole way to figures, `suggest` tries
what to leave in f32, `document` and `screen` tell it in the same `words`; `fqfuse.compare` is in `document`.

`simulation` runs a model exactly and as such a CPU does, `remedy` gives layers 7 bits and measures what that costs, `simulate` is
the whole way in one call and as data, `simulation_screen` tells it.

`fixing` tries remedies and keeps those that help, `repair` holds what it did, `fix_screen` tells it.
"""
