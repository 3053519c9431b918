"""Views of what lies in memory otherwise than when it was recorded first."""

import pytest
import torch
from torch._subclasses import FakeTensorMode

from sambac.frontend.torch.programs.views import views_of_any_strides


def test_a_view_that_strides_do_not_allow_is_a_copy_while_recording_alone() -> None:
    with FakeTensorMode() as mode:
        turned = torch.empty(2, 3).t()
        with views_of_any_strides():
            assert turned.view(6).shape == (6,)
            assert torch.ops.aten._unsafe_view(turned, [2, 3]).shape == (2, 3)
            assert turned.t().view(6).untyped_storage() == turned.untyped_storage()
            with pytest.raises(RuntimeError, match="invalid"):
                turned.view(7)
        with pytest.raises((RuntimeError, ValueError), match="view"):
            turned.view(6)
        assert mode.cache_enabled
