"""Training: from a model and its loss to one graph of a whole step.

The stages, in order: `parameters` makes weights inputs of the graph, `losses` finds or builds what
is minimised, `dropout` turns random masks into inputs, `sambac.autodiff` adds the gradients,
`step` the updates. `sambac.facts` has what they say of the graph that they leave.
"""
