"""Messages of the toolchain and of applications."""
