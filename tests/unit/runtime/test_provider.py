"""Execution providers: one value says whose kernels run a program, in every way of calling them."""

from __future__ import annotations

import copy
import pickle
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper
from training_programs import Reference, assert_state, batches, linear_regression

import sambarun
from pef import CallForm
from sambarun.sessions import provider
from sambarun.sessions.host_features import host_features
from sambarun.sessions.opening import Tuning
from sambarun.sessions.provider import _PACKAGES, CPU, Provider
from sambarun.sessions.threads import Threads

OTHERS = [name for name in onnxruntime.get_available_providers() if name != CPU.name]
OPTIONS = {"use_arena": "0", "arena_extend_strategy": "kSameAsRequested"}
SECOND = [CPU.name, *OTHERS[:1]]


@dataclass(frozen=True)
class Counting(Provider):
    """The processor's kernels, and a note of all that a run asks of a provider."""

    asked: list[str] = field(default_factory=list, hash=False)

    def open(self, model: bytes, options: Any) -> Any:
        self.asked.append("open")
        return super().open(model, options)

    def tensor(self, content: Any, dtype: int) -> Any:
        self.asked.append("tensor")
        return super().tensor(content, dtype)

    @property
    def device(self) -> Any:
        self.asked.append("device")
        return super().device


@pytest.fixture
def taking_options(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the providers that every build has take any options, as others do."""
    monkeypatch.setattr(provider, "_WITHOUT_OPTIONS", ())


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, str]]]:
    """The providers, with their options, of all sessions that are made."""
    found: list[tuple[str, dict[str, str]]] = []
    real = onnxruntime.InferenceSession

    def session(*given: Any, providers: Any, provider_options: Any, **words: Any) -> Any:
        found.extend(zip(providers, provider_options, strict=True))
        return real(*given, providers=providers, provider_options=provider_options, **words)

    monkeypatch.setattr(onnxruntime, "InferenceSession", session)
    return found


@pytest.fixture
def crossings(spec_type, sec_type, value_type):
    """Sections called in each of the three forms: bound, with values, with Python objects."""
    node = helper.make_node
    floats = helper.make_tensor_type_proto(TensorProto.FLOAT, None)
    sequence = value_type(None, 0, helper.make_sequence_type_proto(floats))
    return spec_type(
        sections=[
            sec_type([node("Mul", ["x", "w"], ["h"])], ["x"], ["h"], ["w"]),
            sec_type([node("SequenceConstruct", ["h", "h"], ["s"])], ["h"], ["s"],
                     form=CallForm.VALUES),
            sec_type([node("ConcatFromSequence", ["s"], ["c"], axis=0)], ["s"], ["c"],
                     form=CallForm.VALUES),
            sec_type([node("Relu", ["c"], ["y"])], ["c"], ["y"], form=CallForm.HOST),
        ],
        values={"x": value_type(), "h": value_type(), "s": sequence, "c": value_type((8,)),
                "y": value_type((8,))},
        inputs=["x"],
        outputs=["y"],
        weights={"w": np.float32([1, -1, 2, -2])},
    ).program()  # fmt: skip


def assert_crossed(executable: sambarun.Executable) -> None:
    outputs = executable.run({"x": np.float32([1, 2, 3, 4])})
    np.testing.assert_array_equal(outputs["y"], np.float32([1, 0, 6, 0] * 2))


@pytest.mark.usefixtures("taking_options")
@pytest.mark.parametrize("name", SECOND)
@pytest.mark.parametrize("link", [True, False], ids=["linked", "unlinked"])
def test_one_object_is_the_provider_of_every_session(opened, crossings, name, link):
    second = Provider(name, OPTIONS)
    with sambarun.load(crossings, link=link, provider=second) as executable:
        assert_crossed(executable)
        with executable.clone() as other:
            assert_crossed(other)
    tried = [entry for entry in opened if entry != (CPU.name, {})]
    assert tried == [(second.name, OPTIONS)] * len(tried)
    assert len(tried) >= (1 if link else 4)


@pytest.mark.usefixtures("taking_options")
@pytest.mark.parametrize("name", SECOND)
def test_programs_train_with_it(opened, name):
    second = Provider(name, OPTIONS)
    spec = linear_regression()
    reference = Reference.of(spec)
    with sambarun.load(spec.program(), provider=second) as executable:
        for batch in batches(3):
            executable.step(batch)
            reference.step(batch["x"], batch["y"])
        assert_state(executable, reference)
    assert opened
    assert {found for found, _ in opened} <= {name, CPU.name}
    assert name in {found for found, _ in opened}


@dataclass(frozen=True)
class Picky(Provider):
    """A provider that has no kernel for `Relu`."""

    @property
    def is_processor(self) -> bool:
        return False

    def open(self, model: bytes, options: Any) -> Any:
        if b"Relu" in model:
            raise RuntimeError("fallback to CPU EP has been explicitly disabled by the user.")
        return CPU.open(model, options)


@pytest.fixture
def three_sections(spec_type, sec_type, value_type):
    """Sections of which the middle one is a `Relu`."""
    node = helper.make_node
    return spec_type(
        sections=[
            sec_type([node("Neg", ["x"], ["a"])], ["x"], ["a"]),
            sec_type([node("Relu", ["a"], ["b"])], ["a"], ["b"]),
            sec_type([node("Neg", ["b"], ["y"])], ["b"], ["y"]),
        ],
        values={name: value_type() for name in "xaby"},
        inputs=["x"],
        outputs=["y"],
    ).program()


@pytest.mark.usefixtures("taking_options")
@pytest.mark.parametrize("link", [True, False], ids=["linked", "unlinked"])
def test_what_a_provider_cannot_run_stays_on_the_processor(opened, three_sections, link):
    with sambarun.load(three_sections, link=link, provider=Picky(options=OPTIONS)) as executable:
        outputs = executable.run({"x": np.float32([1, -2, 3, -4])})
        np.testing.assert_array_equal(outputs["y"], np.float32([0, -2, 0, -4]))
        assert [*executable.providers()] == [0, 1, 2]
    # Besides the start of the provider: each section alone, the second one on the processor.
    assert opened == [(CPU.name, OPTIONS)] + [(CPU.name, {})] * 3


@pytest.mark.skipif(not OTHERS, reason="onnxruntime has one provider alone")
def test_which_provider_runs_is_told(three_sections):
    """That of this build has kernels for what asks servers of the network, and no others."""
    with sambarun.load(three_sections, provider=Provider(OTHERS[0])) as executable:
        assert executable.providers() == dict.fromkeys(range(3), CPU.name)
        spans = executable.profile({"x": np.ones(4, np.float32)}).spans
        assert [span.provider for span in spans] == [CPU.name] * 3
    with sambarun.load(three_sections) as executable:
        assert executable.providers() == dict.fromkeys(range(3), CPU.name)


def test_sections_without_operators_have_no_provider():
    spec = linear_regression()
    with sambarun.load(spec.program()) as executable:
        types = [section.type.name for section in executable.program.sections]
        assert [*executable.providers()] == [i for i, t in enumerate(types) if t != "REDUCE"]


def test_wrong_options_are_told_when_a_program_is_loaded(monkeypatch, three_sections):
    def refuse(*_: Any, **__: Any) -> None:
        raise RuntimeError("/src/core/factory.cc:12 void make(const Map&, int) Invalid option: x")

    monkeypatch.setattr(onnxruntime, "InferenceSession", refuse)
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: [CPU.name, "Other"])
    with pytest.raises(sambarun.RunError) as raised:
        sambarun.load(three_sections, provider=Provider("Other"))
    assert str(raised.value) == "Other cannot be started: Invalid option: x"


@pytest.mark.usefixtures("taking_options")
@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("CPUExecutionProvider", {}),
        ("CPUExecutionProvider:a=1", {"a": "1"}),
        ("CPUExecutionProvider: a=b=c,d=", {"a": "b=c", "d": ""}),
        ("CPUExecutionProvider:a=HETERO:X,Y,b=2", {"a": "HETERO:X,Y", "b": "2"}),
    ],
)
def test_providers_are_spelled(text, options):
    assert Provider.spelled(text) == Provider(options=options)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("CPUExecutionProvider:a", "'a' is no option of CPUExecutionProvider; write it as"),
        ("CPUExecutionProvider:=a", "'=a' is no option of CPUExecutionProvider; write it as"),
        ("CPUExecutionProvider:a=1,a=2", "The option 'a' of CPUExecutionProvider is given twice."),
        ("cuda", "(did you mean 'CUDAExecutionProvider'?)"),
        ("CPU", "(did you mean 'CPUExecutionProvider'?)"),
        ("CPUExecutionProvidr:a=1", "(did you mean 'CPUExecutionProvider'?)"),
    ],
)
def test_odd_spellings_are_refused(text, told):
    with pytest.raises(sambarun.RunError) as raised:
        Provider.spelled(text)
    assert told in str(raised.value)


def test_sessions_values_and_bindings_are_made_by_it(crossings):
    counting = Counting()
    with sambarun.load(crossings, link=False, provider=counting) as executable:
        assert_crossed(executable)
    assert {"open", "tensor", "device"} == set(counting.asked)
    assert counting.asked.count("open") == 4


def test_nothing_said_is_the_processor(opened, crossings):
    with sambarun.load(crossings) as executable:
        assert_crossed(executable)
    assert {name for name, _ in opened} == {"CPUExecutionProvider"}


def test_features_of_the_processor_are_no_features_of_other_kernels(opened, monkeypatch):
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: [CPU.name, "Other"])
    assert host_features(Tuning(Threads(1), provider=Provider("Other"))) == frozenset()
    assert not opened


def test_a_provider_that_onnxruntime_lacks_is_refused():
    """onnxruntime would warn and take the processor's kernels."""
    has = ", ".join(onnxruntime.get_available_providers())
    with pytest.raises(sambarun.RunError) as raised:
        Provider("CANNExecutionProvider")
    assert str(raised.value) == (
        "The installed onnxruntime has been built without CANNExecutionProvider, which the package "
        f"onnxruntime-cann brings in its place; it has {has}."
    )


def test_packages_are_of_providers_that_there_are():
    assert _PACKAGES.keys() <= {*onnxruntime.get_all_providers()} - {CPU.name}


def test_a_provider_that_nobody_knows_is_refused():
    has = ", ".join(onnxruntime.get_available_providers())
    with pytest.raises(sambarun.RunError) as raised:
        Provider("CPUExecutionProvidr")
    assert str(raised.value) == (
        "There is no execution provider 'CPUExecutionProvidr' (did you mean "
        f"'CPUExecutionProvider'?). The installed onnxruntime has {has}."
    )


def test_memory_that_the_host_does_not_reach_is_refused():
    with pytest.raises(sambarun.RunError) as raised:
        Provider(memory="cuda:0")
    assert str(raised.value) == (
        "The memory of CPUExecutionProvider is 'cuda:0'; symbols lie in memory that the host reads "
        "and writes too: cpu:0."
    )


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"name": 3}, "name is 3; a name was expected."),
        (
            {"options": {"device": 1}},
            "options['device'] is 1; a dict of texts by name was expected.",
        ),
        ({"options": {1: "cpu"}}, "options has the key 1; a dict of texts by name was expected."),
        ({"options": ["cpu"]}, "options is a list; a dict of texts by name was expected."),
        ({"memory": None}, "memory is None; a name was expected."),
    ],
)
def test_wrong_kinds_are_refused(given, told):
    with pytest.raises(sambarun.RunError) as raised:
        Provider(**given)
    assert str(raised.value) == told


def test_loading_wants_a_provider(crossings):
    with pytest.raises(sambarun.RunError, match=r"provider is 'CPU'; a sambarun\.Provider was exp"):
        sambarun.load(crossings, provider="CPU")


@pytest.mark.usefixtures("taking_options")
def test_a_provider_is_a_plain_value():
    given = {"a": "b"}
    one = Provider(options=given)
    assert one.device is not None
    given["a"] = "c"
    assert one.options == {"a": "b"}
    assert one == Provider(options={"a": "b"}) != CPU
    assert hash(one) == hash(CPU)
    assert copy.deepcopy(one) == pickle.loads(pickle.dumps(one)) == one


@dataclass(frozen=True)
class Device:
    """What onnxruntime says of a device that a library has a provider for."""

    ep_name: str
    ep_metadata: dict[str, str]


@pytest.fixture
def plugin(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """The path of a library whose provider is the processor's by another way."""
    path = tmp_path / "plugin.so"
    path.touch()
    loaded: list[str] = []

    def register(name: str, place: str) -> None:
        assert name == place
        assert place not in loaded, "onnxruntime loads a library once"
        loaded.append(place)

    monkeypatch.setattr(onnxruntime, "register_execution_provider_library", register)
    found = [Device(CPU.name, {"library_path": str(path)}), Device("Elsewhere", {})]
    monkeypatch.setattr(onnxruntime, "get_ep_devices", lambda: found if loaded else found[1:])
    return str(path)


@pytest.mark.usefixtures("taking_options")
def test_a_provider_of_a_plugin_library(plugin, three_sections):
    provider = Provider.spelled(f"{CPU.name}@{plugin}:use_arena=1")
    assert provider == Provider(CPU.name, {"use_arena": "1"}, library=plugin)
    assert provider.library == plugin
    with sambarun.load(three_sections, provider=provider) as executable:
        assert set(executable.providers().values()) == {CPU.name}


def test_what_a_plugin_library_does_not_have(plugin):
    with pytest.raises(
        sambarun.RunError, match=r"has no execution provider 'CPUExecutionProvidr' \(did you"
    ):
        Provider("CPUExecutionProvidr", library=plugin)
    with pytest.raises(
        sambarun.RunError, match="has no execution provider 'Elsewhere'; it has CPUExec"
    ):
        Provider("Elsewhere", library=plugin)


def test_a_plugin_library_without_a_device_here(plugin, monkeypatch):
    monkeypatch.setattr(onnxruntime, "get_ep_devices", lambda: [Device(CPU.name, {})])
    with pytest.raises(sambarun.RunError, match="providers for other devices than this host's"):
        Provider(CPU.name, library=plugin)


def test_files_that_are_no_plugin_libraries(tmp_path):
    with pytest.raises(sambarun.RunError, match=r"^There is no library '.*absent\.so'\.$"):
        Provider(CPU.name, library=str(tmp_path / "absent.so"))
    text = tmp_path / "text.so"
    text.write_text("nothing to load")
    for _ in range(2):
        with pytest.raises(
            sambarun.RunError, match=r"text\.so cannot be loaded as a library of execution"
        ):
            Provider(CPU.name, library=str(text))
    with pytest.raises(sambarun.RunError, match="library"):
        Provider.spelled(f"{CPU.name}@")
