"""The gradient rules of the families, and what they are written with.

A rule belongs to the family of its operator, whose file names it beside the other facts. Most
modules here hold the rules of one kind of operator. The others serve all of them: `rules`
(operands, constants, masks, shapes), `row_sums`, `statistics` and `windows`.
"""
