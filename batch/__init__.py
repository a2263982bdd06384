"""A data set through a plan, in batches: rows in, parts of the output out.

`sources` lists the data, one file a format (`parquet`, `arrays`, `images`); `parts` cuts the rows,
by their numbers alone; `job` says all that a worker has to know; `worker` turns one part into one
file of the output (`writers`), on the processes of `local` or the actors of `on_ray`; `folder`
knows which parts are done; `run` is the whole. `Predictor` is the same session for the engines of
others. `signature` is what a row holds, `rows` what travels between reader, session and writer,
`columns` how Arrow has tensors, `libraries` the one place that imports what is optional.
"""
