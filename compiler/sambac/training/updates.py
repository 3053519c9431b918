"""The formulas of the optimizers: new parameter and new state from parameter, gradient and state.

Each is written as its definition is, over terms. Where PyTorch has the optimizer, the state means
what PyTorch's means and starts as PyTorch's does, so that checkpoints can be exchanged.

A state may be overwritten in place because of how the formulas are made: the last operator of
every new value is elementwise, and whatever else reads the old value comes before that operator.

Asking a formula for a number is what makes it an argin. A `dampening`, `lr_decay` or limit of a
ratio of zero leaves its term out, so that it is none. `momentum` and `weight_decay` are asked for
as terms: a program for their being zero is derived from the formula, which says what it means then
(see `variants`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import singledispatch

from sambac.errors import InternalError
from sambac.optimizers import LAMB, LARS, SGD, Adagrad, Adam, AdamW, Optimizer, RMSprop

from .terms import Term


@dataclass(frozen=True)
class Scalars:
    """The scalars of one optimizer: `argin` gives a hyperparameter, `step` counts from 1.

    `term` gives a hyperparameter that is zero more often than not, of a term in a sum. Given one,
    `step` counts the steps in which it is not zero.
    """

    argin: Callable[[str], Term]
    term: Callable[[str], Term]
    step: Callable[..., Term]


@dataclass(frozen=True)
class Slot:
    """A tensor of optimizer state beside every parameter, by PyTorch's name for it."""

    name: str
    initial: float = 0.0


@dataclass(frozen=True)
class Update:
    """New values: of the parameter, and of its state by slot."""

    weight: Term
    slots: Mapping[str, Term]


@dataclass(frozen=True)
class Tensors:
    """Old values: the parameter, its gradient, and its state by slot; all of one shape."""

    weight: Term
    gradient: Term
    slots: Mapping[str, Term]


def is_elementwise(optimizer: Optimizer) -> bool:
    """Tell whether an element's update depends on nothing but that element's own values."""
    return not isinstance(optimizer, LAMB | LARS)


@singledispatch
def slots(optimizer: Optimizer) -> tuple[Slot, ...]:
    """Return the state that `optimizer` keeps for a parameter."""
    raise InternalError(f"no formula for the optimizer {type(optimizer).__name__}")


@singledispatch
def update(optimizer: Optimizer, n: Scalars, old: Tensors) -> Update:
    """Append one update by `optimizer` and return the new values."""
    raise InternalError(f"no formula for the optimizer {type(optimizer).__name__}")


@slots.register
def _(optimizer: SGD) -> tuple[Slot, ...]:
    return (Slot("momentum_buffer"),)


@update.register
def _(optimizer: SGD, n: Scalars, old: Tensors) -> Update:
    """Momentum: v = momentum * v + (1 - dampening) * g, undamped in the first step; w -= lr * v.

    Nesterov moves by g + momentum * v instead. Without momentum w -= lr * g, and v stays.
    """
    lr, momentum = n.argin("lr"), n.term("momentum")
    g = _with_decay(n, old)
    new = g
    if optimizer.dampening:
        later = (n.step(momentum) - 1).is_positive() * momentum.is_positive()
        new = g * (1 - n.argin("dampening") * later)
    v = new.plus(old.slots["momentum_buffer"], momentum)
    direction = g.plus(v, momentum) if optimizer.nesterov else v
    return Update(old.weight.plus(direction, -lr), {"momentum_buffer": _kept(momentum, v, old)})


@slots.register
def _(optimizer: Adam) -> tuple[Slot, ...]:
    largest = (Slot("max_exp_avg_sq"),) if optimizer.amsgrad else ()
    return (Slot("exp_avg"), Slot("exp_avg_sq"), *largest)


@update.register
def _(optimizer: Adam, n: Scalars, old: Tensors) -> Update:
    """Adam: m and v are moving averages of g and g * g; w -= lr * m' / (sqrt(v') + eps).

    m' and v' are m and v divided by 1 - beta ** step, or as they are without correction. These
    divisions are moved to the scalars: sqrt(v / c) + eps = (sqrt(v) + eps * sqrt(c)) / sqrt(c).
    AMSGrad takes the largest v so far.
    """
    decoupled = isinstance(optimizer, AdamW)
    w, lr = old.weight, n.argin("lr")
    g = old.gradient if decoupled else _with_decay(n, old)
    if decoupled:
        w = w * (1 - lr * n.term("weight_decay"))
    m, v = _moments(n, g, old.slots)
    new = {"exp_avg": m, "exp_avg_sq": v}
    if optimizer.amsgrad:
        v = new["max_exp_avg_sq"] = v.maximum(old.slots["max_exp_avg_sq"])
    if not optimizer.bias_correction:
        return Update(w.plus(m / (v.sqrt() + n.argin("eps")), -lr), new)
    first, second = _corrections(n)
    root = second.sqrt()
    direction = m / (v.sqrt() + n.argin("eps") * root)
    return Update(w.plus(direction, -lr * root / first), new)


@slots.register
def _(optimizer: RMSprop) -> tuple[Slot, ...]:
    mean = (Slot("grad_avg"),) if optimizer.centered else ()
    return (Slot("square_avg"), Slot("momentum_buffer"), *mean)


@update.register
def _(optimizer: RMSprop, n: Scalars, old: Tensors) -> Update:
    """RMSprop: s is the moving average of g * g; w -= lr * g / (sqrt(s) + eps).

    Centred: s less the square of the moving average of g. With momentum the quotient is added up
    in a buffer, b = momentum * b + quotient, and w -= lr * b. Without it b stays.
    """
    lr, alpha, momentum = n.argin("lr"), n.argin("alpha"), n.term("momentum")
    g = _with_decay(n, old)
    s = _average(old.slots["square_avg"], g * g, alpha)
    new, spread = {"square_avg": s}, s
    if optimizer.centered:
        mean = new["grad_avg"] = _average(old.slots["grad_avg"], g, alpha)
        spread = s - mean * mean
    quotient = g / (spread.sqrt() + n.argin("eps"))
    direction = quotient.plus(old.slots["momentum_buffer"], momentum)
    new["momentum_buffer"] = _kept(momentum, direction, old)
    return Update(old.weight.plus(direction, -lr), new)


@slots.register
def _(optimizer: Adagrad) -> tuple[Slot, ...]:
    return (Slot("sum", optimizer.initial_accumulator_value),)


@update.register
def _(optimizer: Adagrad, n: Scalars, old: Tensors) -> Update:
    """Adagrad: s += g * g; w -= lr / (1 + (step - 1) * lr_decay) * g / (sqrt(s) + eps)."""
    lr = n.argin("lr")
    if optimizer.lr_decay:
        lr = lr / (1 + (n.step() - 1) * n.argin("lr_decay"))
    g = _with_decay(n, old)
    s = old.slots["sum"] + g * g
    return Update(old.weight.plus(g / (s.sqrt() + n.argin("eps")), -lr), {"sum": s})


@slots.register
def _(optimizer: LAMB) -> tuple[Slot, ...]:
    return (Slot("exp_avg"), Slot("exp_avg_sq"))


@update.register
def _(optimizer: LAMB, n: Scalars, old: Tensors) -> Update:
    """LAMB: u = m' / (sqrt(v') + eps) + weight_decay * w; w -= lr * |w| / |u| * u, |.| of L2.

    m' and v' as in Adam. The ratio of norms is between its limits, and 1 where a norm is 0.
    """
    m, v = _moments(n, old.gradient, old.slots)
    if optimizer.bias_correction:
        first, second = _corrections(n)
        root = second.sqrt()
        u = m / (v.sqrt() + n.argin("eps") * root) * (root / first)
    else:
        u = m / (v.sqrt() + n.argin("eps"))
    u = u.plus(old.weight, n.term("weight_decay"))
    trust = _trust(optimizer, n, old.weight.squared_norm().sqrt(), u.squared_norm().sqrt())
    new = {"exp_avg": m, "exp_avg_sq": v}
    return Update(old.weight.plus(u, -n.argin("lr") * trust), new)


@slots.register
def _(optimizer: LARS) -> tuple[Slot, ...]:
    return (Slot("momentum_buffer"),)


@update.register
def _(optimizer: LARS, n: Scalars, old: Tensors) -> Update:
    """LARS: v = momentum * v + lr * r * (g + weight_decay * w); w -= v; without momentum v stays.

    r = trust * |w| / (|g| + weight_decay * |w| + eps), |.| of L2; 1 where |w| or |g| is 0.
    """
    weight, gradient = (term.squared_norm().sqrt() for term in (old.weight, old.gradient))
    size = gradient + n.term("weight_decay") * weight
    some = weight.is_positive() * gradient.is_positive()
    rate = some * (n.argin("trust") * weight / (size + n.argin("eps") + (1 - some))) + (1 - some)
    move = _with_decay(n, old) * (n.argin("lr") * rate)
    momentum = n.term("momentum")
    v = move.plus(old.slots["momentum_buffer"], momentum)
    return Update(old.weight - v, {"momentum_buffer": _kept(momentum, v, old)})


def _with_decay(n: Scalars, old: Tensors) -> Term:
    """Return the gradient of the loss with L2 regularisation: g + weight_decay * w."""
    return old.gradient.plus(old.weight, n.term("weight_decay"))


def _kept(momentum: Term, new: Term, old: Tensors) -> Term:
    """Return the next value of the momentum buffer: `new`, and the old one without momentum."""
    kept = old.slots["momentum_buffer"]
    return kept.where(momentum.is_zero(), new)


def _average(old: Term, new: Term, keep: Term) -> Term:
    """Return the moving average keep * old + (1 - keep) * new."""
    return (old * keep).plus(new, 1 - keep)


def _moments(n: Scalars, g: Term, old: Mapping[str, Term]) -> tuple[Term, Term]:
    """Return Adam's moving averages of g and of g * g."""
    m = _average(old["exp_avg"], g, n.argin("beta1"))
    return m, _average(old["exp_avg_sq"], g * g, n.argin("beta2"))


def _corrections(n: Scalars) -> tuple[Term, Term]:
    """Return by how much moving averages that began as zero are too small, for m and v."""
    step = n.step()
    return 1 - n.argin("beta1") ** step, 1 - n.argin("beta2") ** step


def _trust(optimizer: LAMB, n: Scalars, above: Term, below: Term) -> Term:
    """Return above / below between the limits of `optimizer`, and 1 where one of the two is 0."""
    some = above.is_positive() * below.is_positive()
    ratio = above / (below + (1 - some))
    if optimizer.min_trust:
        ratio = ratio.maximum(n.argin("min_trust"))
    if optimizer.max_trust:
        ratio = ratio.minimum(n.argin("max_trust"))
    return some * ratio + (1 - some)
