"""What programs use beside the library transformers, which the first pipeline imports."""
