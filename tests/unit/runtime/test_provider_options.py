"""Options that an execution provider does not take are refused."""

from __future__ import annotations

from typing import Any

import onnxruntime
import pytest
from onnx import helper

import sambarun
from sambarun.sessions.provider import CPU, Provider


@pytest.fixture
def negation(spec_type, sec_type, value_type):
    return spec_type(
        sections=[sec_type([helper.make_node("Neg", ["x"], ["y"])], ["x"], ["y"])],
        values={name: value_type() for name in "xy"},
        inputs=["x"],
        outputs=["y"],
    ).program()


@pytest.mark.parametrize("name", [CPU.name, "AzureExecutionProvider"])
def test_options_of_a_provider_that_takes_none_are_refused(monkeypatch, name):
    """onnxruntime passes over them."""
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: [name])
    with pytest.raises(sambarun.RunError) as raised:
        Provider.spelled(f"{name}:foo=1,bar=2")
    assert str(raised.value) == f"{name} takes no options, so not 'foo', 'bar'."


def test_options_that_a_provider_does_not_list_are_refused(monkeypatch, negation):
    """Those in effect are the ones it knows; some builds pass over the rest."""

    class Session(onnxruntime.InferenceSession):
        def __init__(self, model: bytes, options: Any, **_: Any) -> None:
            super().__init__(model, options, providers=[CPU.name])

        def get_providers(self) -> list[str]:
            return ["Other", CPU.name]

        def get_provider_options(self) -> dict[str, dict[str, str]]:
            return {"Other": {"device_id": "0", "arena": "1"}, CPU.name: {}}

    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: [CPU.name, "Other"])
    monkeypatch.setattr(onnxruntime, "InferenceSession", Session)
    with pytest.raises(sambarun.RunError) as raised:
        sambarun.load(negation, provider=Provider("Other", {"device": "1", "arena": "0"}))
    assert str(raised.value) == (
        "Other has no option 'device' (did you mean 'device_id'?); it has arena, device_id."
    )


@pytest.mark.parametrize(
    ("given", "more"),
    [({}, ""), ({"a": "1", "b": "x"}, ", or it does not take a=1, b=x")],
    ids=["alone", "options"],
)
def test_a_provider_that_does_not_start_is_refused(given, more, monkeypatch, negation):
    """onnxruntime would go on with the processor's kernels."""
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: [CPU.name, "Other"])
    real = onnxruntime.InferenceSession
    monkeypatch.setattr(
        onnxruntime,
        "InferenceSession",
        lambda model, options, **_: real(model, options, providers=[CPU.name]),
    )
    with pytest.raises(sambarun.RunError) as raised:
        sambarun.load(negation, provider=Provider("Other", given))
    assert str(raised.value) == (
        "The installed onnxruntime has Other, but cannot start it: a library that it needs, or its "
        f"device, is missing{more}."
    )
