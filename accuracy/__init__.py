"""How far an int8 model is from the f32 one, layer by layer: `fqfuse compare`.

`data` finds or draws the inputs, `walk` runs a graph node by node, `matching` pairs the values of both models, `measures` says how
far two arrays are apart, `layers` runs both models side by side and measures, `compare` is the whole way in one call, `document` and
`screen` tell it.
"""
