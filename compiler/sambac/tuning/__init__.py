"""Formulations of operators, measured on this host.

    tune        the questions that a model asks, the hottest first, and what the host answers
    measuring   the candidates of one question as small models, timed in turns
    host        what this host is

What comes of it is a `sambac.tuning_file.HostTuning`, which compilations read.
"""

from .tune import tune_choices

__all__ = ["tune_choices"]
