"""What programs import from here is all in `pybuda.verify`."""

from pybuda.verify import verify_module as verify_module
