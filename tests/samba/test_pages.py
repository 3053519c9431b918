"""The code of pages runs, from top to bottom."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from sambaflow.samba import lazy_param

_PAGES = Path(__file__).parents[2] / "docs" / "samba"


@pytest.fixture(autouse=True)
def _off_afterwards() -> Iterator[None]:
    yield
    lazy_param.disable_lazy_param()


@pytest.mark.parametrize("page", ["README.md", "lazy-parameters.md", "optimizers.md"])
def test_the_code_of_a_page_runs(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (_PAGES / page).read_text("utf-8"), re.DOTALL)
    assert blocks
    exec(compile("\n".join(blocks), page, "exec"), {})
