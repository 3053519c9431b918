"""A program that decodes, with the weights of a training: export.py STATE.safetensors FILE.pef."""

from __future__ import annotations

import sys

from model import Fit, decoder
from safetensors.torch import load_file

if __name__ == "__main__":
    state = load_file(sys.argv[1])
    decoder({name: state[name] for name in Fit().state_dict()}).save(sys.argv[2])
