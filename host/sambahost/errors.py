"""What goes wrong between a Python program and the device, in words that any API can use."""

from __future__ import annotations


class HostError(RuntimeError):
    """A mistake of the program, or of its surroundings: what came, and what was expected.

    An API raises its own error with the text, and adds the cure in words of its own where the class
    of the error tells it one.
    """


class LaunchedAloneError(HostError):
    """Several processes are meant to train together, and this one was launched alone."""


class NotReducedError(HostError):
    """Several processes are meant to train together, and their program averages no gradients."""


class NoStartError(HostError):
    """The gradient of an output is asked for, and the backward pass does not start from it."""
