"""onnxruntime sessions: how they are opened, their threads and memory, what a host can do."""
