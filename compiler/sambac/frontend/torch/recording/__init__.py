"""Recording a module: the operators that it runs, as a program of torch.export."""
