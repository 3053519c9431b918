"""The command line of applications."""

from __future__ import annotations

import argparse
import copy
import json
import logging
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path

import pytest
from forked import Forks

import sambaflow.samba as samba
from sambaflow.samba.argconf.args import CommonArgs, CompileArgs, RunArgs
from sambaflow.samba.arguments.app_options import (
    COMMANDS,
    HIDDEN_COMMANDS,
    OPTIONS,
    defaults,
)
from sambaflow.samba.schema.snconfig import SNConfig
from sambaflow.samba.utils.argparser import SambaConfig, parse_app_args, parse_yaml_to_args

_EVERY = [*COMMANDS, *HIDDEN_COMMANDS]
# Read by public applications without being defined there.
_READ = [
    "command",
    "pef",
    "inference",
    "mapping",
    "reduce_on_rdu",
    "data_parallel",
    "batch_size",
    "visualize",
    "microbatch_size",
    "n_chips",
    "num_tiles",
    "num_iterations",
    "num_sections",
    "num_spatial_batches",
    "run_graph_only",
    "min_duration",
    "min_throughput",
    "bench_report_json",
    "json",
    "compiled_stats_json",
    "acc_report_json",
    "data_parallel_mode",
    "distlearn_config",
    "world_size",
    "pef_name",
    "output_folder",
    "mac_human_decision",
    "mac_v1",
    "resources_scaling_factors",
    "verbose_report",
    "resource_report_path",
    "tensormem",
    "log_level",
    "debug",
]


@pytest.fixture(autouse=True)
def _anew() -> Iterator[None]:
    yield
    samba.session.reset()  # it took the options


@pytest.mark.parametrize("command", _EVERY)
def test_every_command_has_every_attribute(command: str) -> None:
    args = parse_app_args([command, "-p", "m.pef"])
    assert args.command == command
    assert not [name for name in _READ if not hasattr(args, name)]


@pytest.mark.parametrize(
    ("words", "attribute", "value"),
    [
        ("compile -b=64 -mb=4", "microbatch_size", 4),
        ("compile -b 1", "batch_size", 1),
        ("compile --batch-size=48", "batch_size", 48),
        ("compile -o0", "optim_level", "o0"),
        ("compile", "optim_level", "o3"),
        ("compile -o1 --output-folder out2", "output_folder", "out2"),
        ("compile", "output_folder", "./out"),
        ("compile --compiler-configs c.json", "compiler_configs_file", "c.json"),
        ("compile --resources-scaling-factors 0.5 1 2", "resources_scaling_factors", [0.5, 1, 2]),
        ("compile -ws 2 --data-parallel", "world_size", 2),
        ("compile --graphamp-preset mp1", "graphamp_preset", "mp1"),
        ("compile", "n_chips", 1),
        ("compile", "num_tiles", 4),
        ("run -p m", "mapping", "section"),
        ("run -p m --mapping spatial", "mapping", "spatial"),
        ("run -p m --data-parallel-mode inorder", "data_parallel_mode", "inorder"),
        ("run --pef=m -n 7", "num_iterations", 7),
        ("run -p m", "num_iterations", 100),
        ("measure-performance -p m", "min_throughput", 0.0),
        ("measure-performance -p m --json a.json", "json", "a.json"),
        ("test -p m --visualize", "visualize", True),
        ("run -p m", "visualize", False),
        ("run -p m --samba_runtime_profile", "samba_runtime_profile", True),
    ],
)
def test_options(words: str, attribute: str, value: object) -> None:
    assert getattr(parse_app_args(words.split()), attribute) == value


@pytest.mark.parametrize("command", ["run", "test", "measure-performance", "measure-sections"])
def test_what_runs_needs_a_pef(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as error:
        parse_app_args([command])
    assert error.value.code == 2
    assert "--pef is missing" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("compile -b 0", "-b/--batch-size: 0 is out of range, expected 1 or more"),
        ("run -p m -b -3", "-b/--batch-size: -3 is out of range, expected 1 or more"),
        ("compile -b two", "-b/--batch-size: invalid int value: 'two'"),
        ("compile -mb 0", "--microbatch-size: 0 is out of range"),
        ("compile --n-chips 9", "--n-chips: 9 is out of range, expected 1 to 8"),
        ("compile --num-tiles 3", "--num-tiles: invalid choice: 3"),
        ("compile -ws 0", "--world-size: 0 is out of range"),
        ("run -p m -n -1", "--num-iterations: -1 is out of range, expected 0 or more"),
        ("measure-performance -p m -n 0", "--num-iterations: 0 is out of range, expected 1"),
        ("measure-performance -p m --min-duration -1", "--min-duration: -1 is out of range"),
        ("measure-performance -p m --min-duration nan", "--min-duration: nan is out of range"),
        ("measure-performance -p m --min-throughput x", "invalid float value: 'x'"),
        ("measure-sections -p m --num-sections 0", "--num-sections: 0 is out of range"),
    ],
)
def test_numbers_out_of_range_are_refused(
    words: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as error:
        parse_app_args(words.split())
    assert error.value.code == 2
    assert told in capsys.readouterr().err


def test_unknown_options_are_argparses_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse_app_args(["compile", "--no-such"])
    assert "unrecognized arguments: --no-such" in capsys.readouterr().err


def test_a_later_declaration_wins() -> None:
    def common(parser: ArgumentParser) -> None:
        parser.add_argument("-b", "--batch-size", type=int, default=9)
        parser.add_argument("-e", "--num-epochs", type=int, default=1)
        parser.add_argument("--visualize", action="store_true")
        parser.add_argument("-lr", type=float, default=0.1)

    def run(parser: ArgumentParser) -> None:
        parser.add_argument("-e", "--num-epochs", type=int, default=5)
        parser.add_argument("--num-iterations", type=int, default=3)

    args = parse_app_args(["run", "-p", "m", "-lr", "0.5"], common, run)
    assert (args.batch_size, args.num_epochs, args.num_iterations, args.lr) == (9, 5, 3, 0.5)
    args = parse_app_args(["run", "-p", "m", "-b", "2", "-n", "4"], common, run)
    assert (args.batch_size, args.num_iterations) == (2, 4)
    assert parse_app_args(["compile"], common, run).num_epochs == 1


def test_whose_commands_the_callbacks_add_to() -> None:
    def marker(name: str) -> object:
        return lambda parser: parser.add_argument(f"--{name}", action="store_true")

    found = {
        command: vars(parse_app_args([command, "-p", "m"], marker("c"), marker("r"), marker("t")))  # type: ignore[arg-type]
        for command in _EVERY
    }
    having = {mark: {name for name in _EVERY if mark in found[name]} for mark in "crt"}
    assert having == {
        "c": set(_EVERY),
        "r": {"run", "measure-performance", "measure-sections"},
        "t": {"test"},
    }


def _help(capsys: pytest.CaptureFixture[str], *words: str, dev_mode: bool = False) -> str:
    with pytest.raises(SystemExit) as error:
        parse_app_args(words, dev_mode=dev_mode)
    assert error.value.code == 0
    return capsys.readouterr().out


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    text = _help(capsys, "--help")
    assert "[-h] {compile,run,test,measure-performance} ..." in text
    assert "different modes of operation" in text
    assert "measure-sections" not in text
    assert "measure-sections" in _help(capsys, "--help", dev_mode=True)


def test_experimental_options_are_in_the_help_on_request(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert "--metapipe-disable" not in _help(capsys, "compile", "--help")
    for text in (
        _help(capsys, "compile", "--debug", "--help"),
        _help(capsys, "compile", "--help", dev_mode=True),
    ):
        assert "--metapipe-disable" in text


def test_the_help_explains(capsys: pytest.CaptureFixture[str]) -> None:
    text = " ".join(_help(capsys, "compile", "--help").split())
    assert "<output-folder>/<pef-name>/<pef-name>.pef. Compile again when" in text
    assert "where the PEF's folder is made (default: ./out)" in text
    assert "default: None" not in text
    assert "default: False" not in text


@pytest.mark.parametrize(("words", "level"), [("--log-level error", 40), ("--debug", 10)])
def test_the_log_level_holds(words: str, level: int) -> None:
    logger = logging.getLogger("sambaflow")
    before = logger.level
    try:
        parse_app_args(["compile", *words.split()])
        assert logger.level == level
    finally:
        logger.setLevel(before)


def test_argv_is_the_processes_own_by_default(forks: Forks, tmp_path: Path) -> None:
    code = "from sambaflow.samba.utils.argparser import *; print(parse_app_args().batch_size)"
    assert forks.run(["", "compile", "-b", "3"], tmp_path, code) == (0, "3\n", "")


def test_no_attribute_has_two_meanings() -> None:
    values: dict[str, set[object]] = {}
    for option in OPTIONS:
        values.setdefault(option.attribute, set()).add(option.default)
    assert not {name for name, found in values.items() if len(found) > 1}


def test_yaml_fills_what_was_not_given(tmp_path: Path) -> None:
    (tmp_path / "o.yaml").write_text(
        "batch-size: '8'\nnum_iterations: 5\nlr: 0.5\nextra: [1]\npef_name: 12\nmapping: spatial\n"
    )
    args = parse_app_args(["run", "-p", "m", "-n", "7"])
    args.lr = None
    found = parse_yaml_to_args(tmp_path / "o.yaml", args)
    assert found is args
    assert (args.batch_size, args.num_iterations, args.lr, args.extra) == (8, 7, 0.5, [1])
    assert (args.pef_name, args.mapping) == ("12", "spatial")


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--shuffle", action="store_false")
    parser.add_argument("--tag", action="append", default=["a"])
    parser.add_argument("-b", "--batch-size", type=int, default=4)


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        ([], {}),
        (["--lr", "0.1"], {"lr": 0.1}),
        (["--hidden=64", "-n", "100"], {"hidden": 64, "num_iterations": 100}),
        (["--shuffle"], {"shuffle": False}),
        (["--tag", "b"], {"tag": ["a", "b"]}),
        (["-b", "4", "--mapping", "section"], {"batch_size": 4, "mapping": "section"}),
        (["--batch=4", "--inference"], {"batch_size": 4, "inference": True}),
    ],
)
def test_yaml_overrides_all_but_what_the_command_line_says(
    words: list[str], kept: dict[str, object], tmp_path: Path
) -> None:
    """Also where what was given is the default, and where an option has a default of its own."""
    wanted = {
        "lr": 0.5, "hidden": 8, "shuffle": 7, "tag": ["z"], "batch_size": 16,
        "num_iterations": 5, "mapping": "spatial", "inference": False, "own": 1,
    }  # fmt: skip
    (tmp_path / "o.yaml").write_text(json.dumps(wanted))
    args = parse_app_args(["run", "-p", "m", *words], _options, _options)
    for copied in (copy.copy(args), copy.deepcopy(args)):
        found = parse_yaml_to_args(tmp_path / "o.yaml", copied)
        assert {name: getattr(found, name) for name in wanted} == {**wanted, **kept}
    assert "given" not in vars(args)
    assert args == Namespace(**vars(args))


def test_numbers_that_are_text_for_yaml(tmp_path: Path) -> None:
    (tmp_path / "o.yaml").write_text("lr: 1e-4\nhidden: '1e3'\nown: 1e-4\n")
    args = parse_yaml_to_args(tmp_path / "o.yaml", parse_app_args(["compile"], _options))
    assert (args.lr, args.hidden, args.own) == (1e-4, 1000, "1e-4")
    assert type(args.hidden) is int


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- 1", "no mapping"),
        ("a: [", "no YAML"),
        ("lr: 1\nlr: 2", "key 'lr' appears twice"),
        ("batch-size: 1\nbatch_size: 1", "batch-size and batch_size are one option$"),
        (
            "batch-size: two\nn_chips: 9\nmapping: all\nlr: high",
            (
                r"batch-size: 'two' is no number that it takes; "
                r"n_chips: 9 is out of range, expected 1 to 8; "
                r"mapping: 'all' is none of section, spatial$"
            ),
        ),
    ],
)
def test_yaml_that_holds_no_options(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "o.yaml").write_text(text)
    with pytest.raises(ValueError, match=message):
        parse_yaml_to_args(tmp_path / "o.yaml", Namespace())


def test_yaml_with_what_is_nearly_an_option_is_told(tmp_path: Path) -> None:
    (tmp_path / "o.yaml").write_text("learning_rate: 0.5\nbatch-sise: 9\nvocabulary: words\n")
    with pytest.warns(UserWarning, match="there is no option") as told:
        args = parse_yaml_to_args(tmp_path / "o.yaml", parse_app_args(["compile"], _options))
    assert (args.lr, args.batch_size, args.learning_rate) == (0.1, 4, 0.5)
    assert [str(warning.message).partition("there is ")[2] for warning in told] == [
        "no option 'learning_rate' (did you mean 'lr'?)",
        "no option 'batch-sise' (did you mean 'batch_size'?)",
    ]


def test_samba_config_checks_types_and_completes() -> None:
    params = SambaConfig(Namespace(command="run", batch_size=4, own=1), SNConfig).get_all_params()
    assert (params["batch_size"], params["own"], params["mapping"]) == (4, 1, "section")
    with pytest.raises(ValueError, match=r"batch_size is '4', expected int; inference is 'no'"):
        SambaConfig(Namespace(batch_size="4", inference="no"), SNConfig)


def test_schema_and_models_agree_with_the_options() -> None:
    usual = defaults()
    from_schema = {name: value for name, value in vars(SNConfig()).items() if name in usual}
    assert len(from_schema) == len(vars(SNConfig())) - 1  # all but the command
    models = {**CompileArgs().model_dump(), **RunArgs().model_dump()}
    for known in (from_schema, models):
        assert {k: v for k, v in known.items() if k in usual} == {
            k: usual[k] for k in known if k in usual
        }


def test_models_keep_further_fields() -> None:
    args = CompileArgs(batch_size=2, own="x")  # type: ignore[call-arg]
    assert args.model_dump()["own"] == "x"
    assert {"tiling_accum", "use_air_ce"} <= set(CompileArgs.model_fields)  # looked up there
    assert set(CommonArgs.model_fields) <= set(RunArgs.model_fields)
    lists = CompileArgs(enable_mixed_precision_ops=["gemm", "softmax"], output_folder=None)
    assert lists.enable_mixed_precision_ops == ["gemm", "softmax"]  # as files of options have it
    with pytest.raises(ValueError, match="batch_size"):
        RunArgs(batch_size="many")  # type: ignore[arg-type]
