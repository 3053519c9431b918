"""What onnxruntime says, without its numbers and positions, but never nothing."""

from __future__ import annotations

import pytest

from sambarun.sessions.ort_errors import message_of

_INIT = "[ONNXRuntimeError] : 1 : FAIL : Exception during initialization: "


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            (
                f"{_INIT}/src/math/clip.h:23 Clip_6Base<T>::Clip_6Base(const OpKernelInfo&) "
                "[with T = float] min_ <= max_ was false. \n"
            ),
            "min_ <= max_ was false.",
        ),
        (
            (
                f"{_INIT}/src/relu_clip_fusion.cc:83 virtual Status FuseReluClip::Apply() const "
                "Unexpected data type for Clip 'min' input of 11\n"
            ),
            "Unexpected data type for Clip 'min' input of 11",
        ),
        (
            (
                "[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : Non-zero status. Status Message: "
                "/src/scan.cc:9 void f(int) x == y was false. Sizes differ."
            ),
            "Sizes differ.",
        ),
        (
            (
                "Error in execution: Non-zero status code returned while running ArgMax node. "
                "Name:'a' Status Message: "
            ),
            "onnxruntime's ArgMax fails on what it is given here, and does not say why",
        ),
        ("[ONNXRuntimeError] : 2 : INVALID_ARGUMENT : Invalid rank", "Invalid rank"),
    ],
)
def test_a_sentence_is_left(text: str, sentence: str) -> None:
    assert message_of(RuntimeError(text)) == sentence
