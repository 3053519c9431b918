"""Parts of modules: `parameter`."""
