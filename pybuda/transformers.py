"""What programs import of the original's pipelines of transformers, which are missing."""

raise ImportError("no pybuda.transformers: place the model of a pipeline as a PyTorchModule")
