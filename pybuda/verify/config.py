"""What programs import from here is all in `pybuda.verify`, but formats."""

from pybuda._C import DataFormat as DataFormat
from pybuda.verifying import TestKind as TestKind
from pybuda.verifying import VerifyConfig as VerifyConfig
