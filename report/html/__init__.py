"""The page of `fqfuse inspect --html`, and the picture of `--svg`.

`page` puts one file together that needs nothing else: the template, style and scripts of `assets/`, and
the data. `data` says what the page shows, `layout` where the nodes of the graph stand, and `picture` draws
the graph alone.
"""
