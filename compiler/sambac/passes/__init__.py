"""Passes: each file holds one rewriting of the graph, or a few of one thought.

`pipelines` says in which order they run. They lie by the stage that they are for:

    legalize           any model comes into the form that all later stages rely on
    simplify           a legal graph gets smaller, and computes the same
    workarounds        round operators that onnxruntime fails on, or computes otherwise than ONNX
    select_kernels     the operators that run fastest
    differentiation    what is kept for gradients, and what comes of it
    quantize           layers in bytes, and weights of few bits
    device_numbers     results rounded as a device holds them

A pass is a frozen dataclass that derives from `base.Pass`, has its options as fields, a `ClassVar`
called `name`, and one method, `call`, which changes the model and says whether it did. After
legalization each pass takes a graph in legal form (see `legalize.check_legal`) and leaves one.
Graph inputs stay as they are; a pass may replace the value behind a graph output, but neither add,
drop nor reorder outputs.
"""
