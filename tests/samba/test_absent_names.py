"""Names of other versions, and misspelt ones: an error says what there is instead."""

from __future__ import annotations

import re

import pytest

import sambaflow.samba as samba
from sambaflow.samba import utils


@pytest.mark.parametrize(
    ("owner", "name", "says"),
    [
        (samba.session, "ctx", ": run(grad_of_outputs=...) starts the backward pass"),
        (samba.session, "trace_grph", "(did you mean 'trace_graph'?)"),
        (utils, "compile", ": samba.session.compile(model"),
        (utils, "trace_grph", "(did you mean 'trace_graph'?)"),
        (utils, "pef_util", "(did you mean 'pef_utils'?)"),
        (samba.optim, "AdamWW", "(did you mean 'AdamW'?)"),
        (samba.env, "use_mock_runtime", "(did you mean 'use_mock_samba_runtime'?)"),
        (samba.sn_private, "sn_gathr", "(did you mean 'sn_gather'?)"),
        (samba.functional.stir, "sn_reduc", "(did you mean 'sn_reduce'?)"),
        (samba, "randm", "(did you mean 'rand"),
    ],
)
def test_an_absent_name_is_told_with_what_there_is(owner, name, says):
    with pytest.raises(AttributeError, match=rf"has no attribute '{name}'.*{re.escape(says)}"):
        getattr(owner, name)
    assert not hasattr(owner, name)
