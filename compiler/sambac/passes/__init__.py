"""Passes: each file holds one rewriting of the graph, or a few of one thought.

`pipelines` says in which order they run.

A pass is a frozen dataclass that derives from `base.Pass`, has its options as fields, a `ClassVar`
called `name`, and one method, `call`, which changes the model and says whether it did. After
legalization each pass takes a graph in legal form (see `check_legal`) and leaves one. Graph inputs
stay as they are; a pass may replace the value behind a graph output, but neither add, drop nor
reorder outputs.
"""
