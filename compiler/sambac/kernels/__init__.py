"""What the installed onnxruntime can run: its kernel registry, its schemas, its own answers."""
