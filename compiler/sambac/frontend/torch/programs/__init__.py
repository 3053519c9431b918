"""Programs of torch.export, put so that ONNX can say them and gradients stay what they are."""
