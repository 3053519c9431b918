"""What a program, a plan and an executable show of themselves, in a line and in a notebook."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import pytest

import pef
import sambac
import sambarun
from benchmarks.models import synthetic
from pef.costs import Estimate
from pef.report import report, whole
from pef.report.notebook import table_html
from pef.text import Table, human_time
from sambac import CompileOptions
from sambac.planning.plans import (
    CostReport,
    FusionPlan,
    Group,
    MemoryPlan,
    Placement,
    ProgramPlan,
    SectionCost,
    SectionPlan,
)
from sambac.planning.program import plan_program


@pytest.fixture(scope="module")
def program() -> pef.Program:
    return sambac.compile(synthetic.chain(500), CompileOptions(level="O0"))


class _Balanced(HTMLParser):
    """Fails where an element ends that is not the one that is open."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.rows = 0

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.open.append(tag)
        self.rows += tag == "tr"

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def balanced(text: str) -> _Balanced:
    parser = _Balanced()
    parser.feed(text)
    parser.close()
    assert not parser.open
    return parser


def test_a_program_is_a_line(program: pef.Program) -> None:
    assert repr(program) == (
        f"<pef.Program chain for {program.arch}: 500 sections, 500 calls, "
        f"{len(program.symbols):,} symbols>"
    )


def test_a_notebook_shows_the_slowest_sections(program: pef.Program) -> None:
    shown = program._repr_html_()
    rows = report(program)
    assert balanced(shown).rows == 1 + 10 + 1 + len(rows["regions"])
    assert len(shown) < 10_000
    slowest = max(rows["sections"], key=lambda row: row["latency_us"])
    assert f">{slowest['name']}<" in shown
    assert human_time(whole(rows).costs["latency_us"]) in shown
    assert "490 rows more" in shown
    assert "modelled" in shown


def test_an_executable_shows_its_program(program: pef.Program, tmp_path: Path) -> None:
    program.save(tmp_path / "chain.pef")
    with sambarun.load(tmp_path / "chain.pef") as executable:
        assert repr(executable) == f"<sambarun.Executable of {program!r}>"
        assert executable._repr_html_().endswith(program._repr_html_())
    assert "500 sections" in repr(executable), "one that is closed as well"


def test_plans_show_themselves() -> None:
    fusion = FusionPlan((Group("a&b", ("x", "y")), Group("c", ("z",), "rule")))
    assert repr(fusion) == "<FusionPlan: 2 groups of 3 operators>"
    assert "a&amp;b" in fusion._repr_html_()
    sections = SectionPlan((), (), 2048, 1024)
    assert repr(sections) == "<SectionPlan: 0 sections, 0 calls, traffic of 2.00 KiB>"
    region = pef.Region(pef.RegionKind.DDR, 100, 64, 0, 64)
    memory = MemoryPlan({"small": Placement(pef.RegionKind.DDR, 0, 4)}, (region,))
    assert repr(memory) == "<MemoryPlan: 1 buffer, DDR 64 B>"
    for plan in (fusion, sections, memory):
        balanced(plan._repr_html_())


def test_costs_are_a_line() -> None:
    costs = tuple(
        SectionCost(
            Estimate(latency=3e-6, limited_by="compute"), {f"op{at}": 1 for at in range(99)}
        )
        for _ in range(500)
    )
    told = repr(CostReport(costs, ("one",)))
    assert told == "<CostReport: 500 sections, 1.5 ms modelled, 1 warning>"
    assert len(repr(costs[0])) < 400, "without the units of each operator"


def test_the_plan_of_a_program_shows_its_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    plans: list[ProgramPlan] = []

    def kept(*arguments: object) -> ProgramPlan:
        plans.append(plan_program(*arguments))  # type: ignore[arg-type]
        return plans[-1]

    monkeypatch.setattr("sambac.pipeline.plan_program", kept)
    sambac.compile(synthetic.chain(8), CompileOptions(level="O0"))
    (plan,) = plans
    assert repr(plan).startswith("<ProgramPlan of main: 8 sections, <MemoryPlan: ")
    shown = plan._repr_html_()
    assert ">main<" in shown
    balanced(shown)


def test_tables_are_cut_and_escaped() -> None:
    rows = [(f"<{n}>", str(n)) for n in range(30)]
    table = Table(("name", "n"), rows, ("n",), shares={"n": [n / 10 for n in range(30)]})
    shown = table_html("a < b", table, most=20)
    assert balanced(shown).rows == 21
    assert "&lt;19&gt;" in shown
    assert "&lt;20&gt;" not in shown
    assert "10 rows more" in shown
