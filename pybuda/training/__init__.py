"""Training on one device: the passes of its modules, its gradients and its optimizer."""
