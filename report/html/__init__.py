"""The page of `fqfuse inspect --html`, the picture of `--svg`, and what a notebook shows of a plan.

`page` puts one file together that needs nothing else: the template, style and scripts of `assets/`, and
the data. `data` says what the page shows, `layout` where the nodes of the graph stand, `picture` draws
the graph alone, and `fragment` the verdict for a notebook.
"""
