"""What programs import from here is all in `pybuda.verify`, but formats."""

from pybuda._C import DataFormat as DataFormat
from pybuda.verify import VerifyConfig as VerifyConfig
