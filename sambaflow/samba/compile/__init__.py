"""From traced models to PEFs; loaded with the first compilation."""
