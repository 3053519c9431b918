"""Which tests are slow: `make test` leaves them to `make test-long`.

`tests/slow.txt` names them, a function a line. `make slow` measures all tests and writes it anew:

    python tests/support/slow.py build/tests.xml
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

TESTS = Path(__file__).parents[1]
LIST = TESTS / "slow.txt"

_SECONDS = 0.5
"""How long a test takes that is slow, with what it sets up; of several cases, their mean."""


_MODULE = re.compile(r"((?:\w+\.)*?)(test_\w+)((?:\.\w+)*)")
"""A test's folders, its file, and its classes, as JUnit's form calls them."""


@cache
def slow_tests() -> frozenset[str]:
    """Return the tests that are listed, as `cli/test_run.py::test_steps`."""
    return frozenset(LIST.read_text().splitlines())


def label(node: str) -> str:
    """Return how the list calls a test that pytest calls `node`."""
    return node.partition("[")[0].removeprefix(f"{TESTS.name}/")


def durations(report: Path) -> Mapping[str, Sequence[float]]:
    """Return the seconds of all cases of each test, from a report in JUnit's form."""
    found: defaultdict[str, list[float]] = defaultdict(list)
    for case in ElementTree.parse(report).iter("testcase"):
        parts = _MODULE.fullmatch(case.attrib["classname"])
        assert parts is not None
        folders, module, classes = parts.groups()
        file = f"{folders}{module}".replace(".", "/")
        node = "::".join([f"{file}.py", *classes.split(".")[1:], case.attrib["name"]])
        found[label(node)].append(float(case.attrib["time"]))
    return found


def main(report: str) -> None:
    """Write the list of what the report says was slow."""
    means = {name: sum(times) / len(times) for name, times in durations(Path(report)).items()}
    slow = sorted(name for name, mean in means.items() if mean >= _SECONDS)
    LIST.write_text("".join(f"{name}\n" for name in slow))


if __name__ == "__main__":
    main(*sys.argv[1:])
