"""Every rule of training programs is broken once, and says so."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from training_builder import Part
from training_programs import linear_regression

import pef
from pef import Program, SectionType, SymbolKind
from pef.rules import check_program
from pef.states import SEVERAL_MODELS, states_of

NAMES = list(linear_regression().tensors)
INDEX = {name: number for number, name in enumerate(NAMES)}
FORWARD, BACKWARD, UPDATE, EVALUATION = range(4)


def fault(table: str, index: int, **changes: Any) -> Program:
    """The regression with one row of one table changed."""
    program = linear_regression().program()
    rows = list(getattr(program, table))
    rows[index] = replace(rows[index], **changes)
    return replace(program, **{table: tuple(rows)})


def symbol(name: str, **changes: Any) -> Program:
    return fault("symbols", INDEX[name], **changes)


def section(number: int, **changes: Any) -> Program:
    """The regression with a section whose programs fit whatever it binds."""
    program = fault("sections", number, **changes)
    found = program.sections[number]
    formal = list(program.programs)
    formal[number] = replace(
        formal[number],
        inputs=tuple(f"i{n}" for n in range(len(found.inputs))),
        outputs=tuple(f"o{n}" for n in range(len(found.outputs))),
    )
    return replace(program, programs=tuple(formal))


INFERENCE, TRAIN, EVAL = pef.GraphRole
ROLES = {"main": INFERENCE, "train": TRAIN, "eval": EVAL}


def graphs(*rows: tuple[str, int, int]) -> Program:
    program = linear_regression().program()
    found = (pef.NamedGraph(n, (), (), a, b, "", ROLES[n]) for n, a, b in rows)
    return replace(program, graphs=tuple(found))


LOSS, SEED = ("loss", INDEX["loss"]), INDEX["loss__grad"]


def losses(*ports: tuple[Any, ...]) -> Program:
    return fault("graphs", 0, outputs=tuple(pef.Port(*port) for port in ports))


def several(*facts: tuple[str, pef.GraphRole]) -> Program:
    """The regression as one model of several, its graphs of these models and roles."""
    program = linear_regression().program()
    features = (*program.requires.features, SEVERAL_MODELS)
    stated = zip(program.graphs, facts, strict=True)
    return replace(
        program,
        requires=replace(program.requires, features=features),
        graphs=tuple(replace(graph, model=model, role=role) for graph, (model, role) in stated),
    )


def kernel(**changes: Any) -> Program:
    return fault("host_kernels", 0, **changes)


def base(number: int) -> pef.Section:
    return linear_regression().program().sections[number]


def chosen(*variants: pef.Variant, feature: bool = True, **changes: Any) -> Program:
    """The regression with an update that argins choose, and a program that leaves some out."""
    program = fault("sections", UPDATE, variants=variants)
    update = program.programs[UPDATE]
    names = [INDEX[name] for name in ("sgd.lr", "sgd.momentum")]
    inputs, outputs = list(update.inputs), list(update.outputs)
    inputs[2] = inputs[3] = outputs[2] = outputs[3] = ""  # the buffers
    less = replace(update, inputs=tuple(inputs), outputs=tuple(outputs))
    assert names == [LR, MOMENTUM]
    features = (*program.requires.features, *(["argin_variants"] if feature else []))
    return replace(
        program,
        programs=(*program.programs, replace(less, **changes)),
        requires=replace(program.requires, features=features),
    )


LESS, ALL = 4, UPDATE
W, GRAD, AVERAGE, LR = (INDEX[name] for name in ("w", "w__grad", "average", "sgd.lr"))

MOMENTUM = INDEX["sgd.momentum"]


def without_a_gradient() -> Program:
    """A backward pass that leaves out what is no state while the rate is zero."""
    program = chosen(pef.Variant(LESS, (LR,)), pef.Variant(ALL))
    less = replace(program.programs[BACKWARD], outputs=("", "o1"))
    sections = [*program.sections]
    variants = (pef.Variant(5, (LR,)), pef.Variant(BACKWARD))
    sections[BACKWARD] = replace(sections[BACKWARD], variants=variants)
    return replace(program, programs=(*program.programs, less), sections=tuple(sections))


FAULTS: list[tuple[Program, str]] = [
    # programs that argins choose
    (chosen(pef.Variant(LESS, (MOMENTUM,)), pef.Variant(ALL)), ""),
    (chosen(pef.Variant(LESS, (LR,), (MOMENTUM,)), pef.Variant(ALL)), ""),
    (
        chosen(pef.Variant(LESS, (W,)), pef.Variant(ALL)),
        "section 'update' chooses a program by 'w', which is no argin",
    ),
    (
        chosen(pef.Variant(LESS, (), (GRAD,)), pef.Variant(ALL)),
        "section 'update' chooses a program by 'w__grad', which is no argin",
    ),
    (
        chosen(pef.Variant(LESS, (LR, MOMENTUM), (LR,)), pef.Variant(ALL)),
        "section 'update' has a program for 'sgd.lr' being zero and not",
    ),
    (
        chosen(pef.Variant(LESS, (LR,)), pef.Variant(ALL), feature=False),
        "section 'update' chooses a program by argins, and the feature is not required",
    ),
    (
        chosen(pef.Variant(LESS, (LR,)), pef.Variant(ALL, (), (LR,))),
        "section 'update' has no program that fits whatever argins are",
    ),
    (
        chosen(pef.Variant(LESS), pef.Variant(ALL)),
        "program 4 of section 'update' lacks inputs or outputs, and runs whatever argins are",
    ),
    (
        without_a_gradient(),
        "program 5 of section 'backward' does not make 'w__grad', which nothing else has made",
    ),
    (chosen(pef.Variant(LESS, (99,)), pef.Variant(ALL)), "refers to symbol 99 of 22"),
    (chosen(pef.Variant(LESS, (), (99,)), pef.Variant(ALL)), "refers to symbol 99 of 22"),
    # graphs
    (graphs(("main", 0, 4)), "has the graphs main (INFERENCE of ''), expected a training step"),
    (graphs(("train", 0, 3)), "the graphs end at call 3 of 4"),
    (graphs(("train", 0, 2), ("eval", 3, 1)), "graph 'eval' begins at call 3, expected 2"),
    (graphs(("train", 0, 2), ("eval", 2, 2)), "section 'update' of graph 'eval' is of type OPT"),
    (fault("graphs", 0, inputs=()), ""),
    (several(("fit", TRAIN), ("fit", EVAL)), ""),
    (several(("fit", TRAIN), ("serve", INFERENCE)), ""),
    (several(("fit", TRAIN), ("other", EVAL)), "train (TRAIN of 'fit'), eval (EVAL of 'other')"),
    (several(("fit", TRAIN), ("fit", TRAIN)), "eval (TRAIN of 'fit'), expected a training step"),
    (several(("a", INFERENCE), ("b", TRAIN)), "section 'backward' of graph 'train' is of type"),
    (
        several(("a", INFERENCE), ("b", EVAL)),
        "its graphs and the features that it requires disagree on whether it trains",
    ),
    # sections are of the type that they are said to be
    (section(UPDATE, type=SectionType.BCKWD), "'update' of type BCKWD writes 'w' of kind WEIGHT"),
    (section(UPDATE, type=SectionType.FWD), "'update' of type FWD writes 'w' of kind WEIGHT"),
    (section(BACKWARD, type=SectionType.OPT), "of type OPT writes 'w__grad' of kind GRADIENT"),
    (section(BACKWARD, type=SectionType.FWD), "of type FWD writes 'w__grad' of kind GRADIENT"),
    (section(FORWARD, type=SectionType.BCKWD), "type BCKWD writes 'average' of kind BUFFER"),
    (
        section(FORWARD, type=SectionType.BCKWD),
        "of type BCKWD writes 'loss', which the backward pass starts from",
    ),
    (section(FORWARD, type=SectionType.ZEROGRAD), "of type ZEROGRAD writes 'loss' of kind OUTPUT"),
    (
        section(BACKWARD, type=SectionType.GRADNORM),
        "GRADNORM reads 'loss__grad', which it would have of one",
    ),
    (
        section(BACKWARD, type=SectionType.ZEROGRAD),
        "ZEROGRAD reads 'h', which it would have of one",
    ),
    # facts
    (losses(LOSS), "no output of graph 'train' has a gradient that its training starts from"),
    (
        losses((*LOSS, SEED), ("same", LOSS[1], SEED)),
        "'loss' and 'same' have one gradient to start",
    ),
    (symbol("loss__grad", data=None), "'loss' has no default, which starts the backward pass"),
    (symbol("x", duration=pef.Duration.STATE), "'x' of kind INPUT is said to be a state"),
    (
        symbol("w", duration=pef.Duration.TRANSIENT),
        "'w' is there before the first call, but neither state nor constant",
    ),
    (symbol("w", duration=pef.Duration.CONSTANT), "the constant 'w' is written"),
    (symbol("w__grad", parameter=INDEX["b"]), "'b' and its gradient 'w__grad' differ in shape"),
    (
        fault("graphs", 0, outputs=(pef.Port("loss", INDEX["loss"], LR),)),
        "the gradient of 'loss' is no input of graph 'train'",
    ),
    (symbol("average", parameter=W), "'average' is said to belong as BUFFER to the WEIGHT 'w'"),
    (symbol("w__grad", parameter=AVERAGE), "belong as GRADIENT to the BUFFER 'average'"),
    (symbol("w__grad", parameter=99), "symbol 'w__grad' refers to symbol 99 of 22"),
    (
        section(EVALUATION, outputs=(*base(EVALUATION).outputs, AVERAGE), in_place=((4, 3),)),
        "section 'evaluation' of graph 'eval' writes 'average'",
    ),
    (
        section(EVALUATION, inputs=(*base(EVALUATION).inputs, INDEX["h"])),
        "call 3 (section 'evaluation') reads 'h', which nothing has written",
    ),
    (
        replace(
            section(EVALUATION, outputs=(*base(EVALUATION).outputs[:2], INDEX["diff"])),
            graphs=(*graphs(("train", 0, 3), ("eval", 3, 1)).graphs,),
        ),
        "'diff' is computed by two graphs",
    ),
    (
        replace(linear_regression().program(), schedule=(0, 1, 2, 0)),
        "section 'forward' is called by two graphs",
    ),
    # states
    (symbol("average", last_call=2), "state 'average' does not live through the whole schedule"),
    (
        symbol("average", dtype=22, type="tensor(int4)", size=2),
        "state 'average' has elements that are not whole bytes",
    ),
    (symbol("w", last_call=2), "weight 'w' does not live through the whole schedule"),
    (
        fault("regions", 0, persistent=64),
        "state 'b' does not lie in the persistent part of HBM",
    ),
    (symbol("average", allocation=None, size=0), "state 'average' has no place in memory"),
    (
        symbol("w__momentum_buffer", pack=W),
        "section 'update' writes 'w' and uses what shares its memory",
    ),
    # updates
    (section(FORWARD, in_place=()), "'forward' reads and writes 'average', but not in place"),
    (
        section(UPDATE, in_place=((0, 2),)),
        "section 'update' updates 'w' in place under the name 'w__momentum_buffer'",
    ),
    (
        section(BACKWARD, outputs=(*base(BACKWARD).outputs, INDEX["h"])),
        "section 'backward' reads and writes 'h', but not in place",
    ),
    # argins
    (symbol("sgd.lr", kind=SymbolKind.BUFFER), "argin 'sgd.lr' is no float64 scalar of kind ARGIN"),
    (symbol("sgd.lr", data=None), "argin 'sgd.lr' has no content"),
    (fault("argins", 0, default=0.2), "argin 'sgd.lr' has the default 0.2, its content is 0.1"),
    (fault("argins", 0, symbol=W), "argin 'sgd.lr' is no float64 scalar of kind ARGIN"),
    # host kernels
    (kernel(kind="magic"), "host kernel 'magic' is unknown"),
    (kernel(inputs=(LR,)), "does not read two argins, the rate and the seed"),
    (kernel(inputs=(LR, W)), "does not read two argins, the rate and the seed"),
    (kernel(outputs=()), "does not write one float32 tensor in memory"),
    (kernel(outputs=(AVERAGE,)), "writes 'average', which is no activation"),
    (kernel(parameters="{}"), "has no site, a number, in its parameters"),
    (kernel(parameters='{"site": -1}'), "has no site, a number, in its parameters"),
    (kernel(parameters='{"site": true}'), "has no site, a number, in its parameters"),
    (kernel(section=UPDATE), "call 0 (section 'forward') reads 'mask', which nothing has written"),
    (symbol("mask", first_call=1), "host kernel 'dropout_mask' of call 0 uses 'mask', which lives"),
]


@pytest.mark.parametrize(("program", "message"), [f for f in FAULTS if f[1]])
def test_each_rule_names_the_culprit(program: Program, message: str) -> None:
    problems = check_program(program)
    assert any(message in problem for problem in problems), problems


def test_a_program_that_does_not_say_that_it_trains_has_no_states() -> None:
    program = linear_regression().program()
    plain = replace(program, requires=pef.Requirements(program.requires.opsets))
    assert not states_of(plain).all
    problems = check_program(plain)
    assert "'average' is a state of a program that says it has none" in problems
    assert not any("host kernel 'dropout_mask'" in problem for problem in problems)


@pytest.mark.parametrize("name", ["w", "average", "w__momentum_buffer"])
def test_states_may_lack_content(name: str) -> None:
    assert check_program(symbol(name, data=None)) == []


def reducing(**changes: Any) -> Program:
    spec = linear_regression()
    forward, backward, update, evaluation = spec.parts
    part = replace(Part("reduce", SectionType.REDUCE, [], ["w__grad"], {}), **changes)
    return replace(spec, parts=[forward, backward, part, update, evaluation]).program()


def test_reductions_list_gradients() -> None:
    assert check_program(reducing()) == []
    wrong = check_program(reducing(inputs=["w__grad", "w"]))
    assert wrong == ["section 'reduce' of type REDUCE lists 'w', which is no gradient in memory"]
    wrong = check_program(reducing(outputs={"w__grad": "w__grad"}))
    assert "section 'reduce' of type REDUCE has weights or outputs" in wrong


def test_a_state_may_be_overwritten_as_a_whole() -> None:
    """A section that does not read a state may give it a new value."""
    read, changed = base(UPDATE), INDEX["w__momentum_buffer"]
    kept = [at for at, index in enumerate(read.inputs) if index != changed]
    program = section(
        UPDATE,
        inputs=tuple(read.inputs[at] for at in kept),
        in_place=tuple((kept.index(at), to) for at, to in read.in_place if at in kept),
    )
    assert check_program(program) == []


def test_what_is_no_state_is_written_once() -> None:
    program = section(UPDATE, outputs=(*base(UPDATE).outputs, INDEX["diff"]))
    assert any("writes 'diff', which has been written" in p for p in check_program(program))


def absent_weights() -> Program:
    """The evaluation of the regression as a program for inference without its weights."""
    program = linear_regression().program()
    return replace(
        program,
        requires=replace(program.requires, features=("weight_states",)),
        graphs=(replace(program.graphs[1], name="main", first_call=0, calls=1),),
        schedule=(EVALUATION,),
    )


def test_only_programs_whose_weights_are_states_may_lack_their_content() -> None:
    weight = replace(linear_regression().program().symbols[W], data=None, last_call=1)
    program = absent_weights()
    symbols = [replace(symbol, last_call=min(symbol.last_call, 1)) for symbol in program.symbols]
    symbols[W] = weight
    program = replace(program, symbols=tuple(symbols))
    assert W in states_of(program).own
    assert "weight 'w' has no data" not in check_program(program)
    constant = replace(program, requires=replace(program.requires, features=()))
    assert "weight 'w' has no data" in check_program(constant)
    symbols[W] = replace(weight, allocation=None, size=0)
    homeless = replace(program, symbols=tuple(symbols))
    assert "state 'w' has no place in memory" in check_program(homeless)
