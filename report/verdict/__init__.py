"""What a plan costs, what costs most of it, and what to change: the first screen of `inspect`.

`work` counts multiply-adds and bytes, those of plans in bodies as often as these run, `bodies` what is inside If, Loop
and Scan without such plans, `shares` how much
of them is int8 and f32, `machine` says how fast this CPU is at best, and `estimate` divides the one
by the other. `catalogue` lists the kinds of findings (`kinds_of_numbers`, `kinds_of_time`, each a
`kind`), `recognize` asks the rules for each step (`rules_of_products`, `rules_of_steps`) and `numbers`
looks at scales and weights, in a plan as `view` shows it. `remedies` knows which quantizer wrote the
model, `layers` which of its nodes to name, `changes` what a remedy does to the steps; `findings` puts
them together with what they gain, and `screen` shows them.
"""
