"""Models of PyTorch in files, of which only what is data is loaded unless they are Python."""
