"""What goes round operators that fail in onnxruntime, or give other results than ONNX says."""
