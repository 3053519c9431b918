"""From an exported program to an ONNX graph in which parameters and stops survive.

The exporter's optimizer folds and merges whatever is constant: parameters vanish, equal ones become
one. So they are inputs of the graph while it runs, and initializers again afterwards.

It also takes 1e-8 for 0 and 1.000001 for 1; while it runs, here, it does not. Its rules that remove
`x + 0` and `x * 1` compare numbers with a tolerance, so that they remove the epsilon of `log(x +
1e-8)` too, and a decay of 0.999999. And what is added at all rows, it takes for what is written.
Nor does it ask whether what it fuses into an operator is of the shapes that this one takes, or
whether bounds cross: `relu(clamp(x, max=-1))` is 0, and one Clip of both bounds is -1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace

import onnx_ir as ir
import torch
from onnx_ir.convenience import get_const_tensor
from onnx_ir.tensor_adapters import TorchTensor
from onnxscript.rewriter import _ir_utils, _matcher
from onnxscript.rewriter._basics import MatchContext
from onnxscript.rewriter.rules.common import no_op_static_scatter_nd_rule as all_rows_rule
from onnxscript.rewriter.rules.common import successive_clip_rule, successive_relu_clip_rule
from onnxscript.rewriter.rules.common._fuse_relus_clips import _FuseReluClipBase
from onnxscript.rewriter.rules.fusion import _rms_normalization, _rotary_embedding
from onnxscript.version_converter import convert_version
from torch._guards import detect_fake_mode
from torch.export import ExportedProgram
from torch.onnx import OnnxExporterError, ONNXProgram
from torch.onnx._internal.exporter import _ir_passes
from torch.onnx._internal.exporter._constants import LOCAL_FUNCTION_DOMAIN

from pef.wording import listed
from sambac.errors import CompileError, InternalError
from sambac.frontend.torch.patching import quiet, replaced
from sambac.graph.constants import AbsentTensor
from sambac.graph.names import FreshNames
from sambac.graph.nodes import all_nodes, has_subgraphs, same_size, text_attribute
from sambac.graph.opsets import mark_differing
from sambac.graph.origins import MODULE_SCOPES

from .errors import refusal
from .programs.expansion import decomposed_once
from .programs.fitting import compared_in_their_types, numbers_in_float64
from .programs.forms import require_forms
from .programs.names import kept_names, name_outputs, new_names
from .programs.views import views_of_any_strides
from .programs.writes import Results
from .shortcuts import promoted_where_types_differ, rules_where_they_begin
from .states import ModuleStates, has_no_content
from .translations import translations
from .translations.operators import MARKED, STOP_DOMAIN

OPSET = 23
"""The operator set that training works on; graphs for inference have it too."""

_EXPORTERS_OPSET = 18
"""The operator set that the exporter writes most operators for, before it converts them."""

_HIDDEN = "sambac.hidden"
"""The domain that random operators have while the exporter's optimizer runs, which would make
constants of those that read constants."""

RANDOM = frozenset({"Bernoulli", "Dropout"})


@dataclass(frozen=True)
class Exported:
    """A graph with parameters and buffers as initializers, under their qualified names.

    `updates` maps buffers to the graph outputs with their next values, which follow the public
    ones. `marked` has the nodes that are special to gradients, and the kind of each.
    """

    model: ir.Model
    updates: Mapping[str, str]
    marked: Mapping[ir.Node, str]


def to_onnx(
    program: ExportedProgram, results: Results, states: ModuleStates, *, name: str, training: bool
) -> Exported:
    """Return the graph of `program`, whose results are arranged as `results` says.

    `name` is what messages call it. Without `training` there are no stops. Raises `CompileError`
    for operators without an ONNX form.
    """
    onnx_program = _translated(program, name, training)
    _lower_states(onnx_program.model, states)
    model = _optimized(onnx_program)
    _raise_states(model, states)
    updates = name_outputs(model, results)
    # What the exporter could not convert has another version; no other needs one.
    mark_differing(model.graph, model.opset_imports, model.opset_imports)
    _inherit_scopes(model.graph)
    return Exported(model, updates, _reveal_marked(model))


def _translated(program: ExportedProgram, name: str, training: bool) -> ONNXProgram:
    _want_no_gradients(program)
    table = translations(training=training)
    ways = (kept_names, decomposed_once, compared_in_their_types, numbers_in_float64)
    others = (promoted_where_types_differ, views_of_any_strides, _bodies_of_one_version)
    with quiet(), ExitStack() as stack:
        for context in (*ways, *others):
            stack.enter_context(context())
        try:
            onnx_program = torch.onnx.export(
                program,
                dynamo=True,
                opset_version=OPSET,
                optimize=False,
                verbose=False,
                custom_translation_table=table,
            )
        except OnnxExporterError as error:
            require_forms(name, program, table, OPSET)
            raise refusal(name, error) from error
        finally:
            _forget_sizes(program)
    if onnx_program is None:
        raise InternalError(f"torch.onnx.export returned nothing for {name}")
    _convert_bodies(onnx_program.model)
    return onnx_program


def _forget_sizes(program: ExportedProgram) -> None:
    """Forget the sizes of values that the exporter has opened, running operators once more.

    They are in no operator's result, for which PyTorch refuses to run those of `program` again, as
    where it is exported to train and to evaluate.
    """
    mode = detect_fake_mode([node.meta.get("val") for node in program.graph.nodes])
    if mode is not None and mode.shape_env is not None:
        mode.shape_env.pending_fresh_unbacked_symbols.clear()


@contextmanager
def _bodies_of_one_version() -> Iterator[None]:
    """Let bodies be functions of one version, wherever they are called.

    Calls in bodies of loops have the version of the opset, and the exporter takes theirs from it.
    """
    before = _ir_passes._maybe_set_opset_version

    def set_version(imports: dict[str, int], domain: str, version: int | None) -> None:
        before(imports, domain, None if domain == LOCAL_FUNCTION_DOMAIN else version)

    with replaced(_ir_passes, "_maybe_set_opset_version", set_version):
        yield


def _convert_bodies(model: ir.Model) -> None:
    """Convert what stands inside of control flow to `OPSET`, in place.

    The exporter writes choices and loops for that opset from the start, so that it passes their
    bodies over when it converts the rest.
    """
    outer = [node for node in all_nodes(model.graph) if has_subgraphs(node)]
    if not outer:
        return
    for node in outer:
        node.version = _EXPORTERS_OPSET
    model.opset_imports[""] = _EXPORTERS_OPSET
    with quiet():
        convert_version(model, OPSET)


def _want_no_gradients(program: ExportedProgram) -> None:
    """Let the inputs of `program`, in place, be of the same shapes without gradients.

    The exporter runs it on them once more. PyTorch lays the results of attention out in memory in
    another way where its mask has gradients, which views that were recorded before do not fit.
    """
    for node in program.graph.find_nodes(op="placeholder"):
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor):
            node.meta["val"] = value.detach()


def _optimized(onnx_program: ONNXProgram) -> ir.Model:
    """Let the exporter fold and fuse, but for what it must not touch.

    It renames inputs that are outputs too, which is undone.
    """
    model = onnx_program.model
    names = [value.name for value in model.graph.inputs]
    _hide(model)
    kept = (exact_numbers(), kept_sums(), kept_shapes(), kept_bounds(), new_names(model))
    with ExitStack() as stack:
        for context in (quiet(), *kept, rules_where_they_begin()):
            stack.enter_context(context)
        onnx_program.optimize()
    model = onnx_program.model
    for node in all_nodes(model.graph):
        if node.domain == _HIDDEN:
            node.domain, node.overload = "", ""
    for value, name in zip(model.graph.inputs, names, strict=True):
        value.name = name
    return model


def _hide(model: ir.Model) -> None:
    """Keep random operators as they are, and stops but for those of constants, which may fold.

    Each random operator is one of its own kind, or two that read the same would become one.
    """
    varying = set(model.graph.inputs)
    for number, node in enumerate(all_nodes(model.graph)):
        if node.op_type in RANDOM and node.domain == "":
            node.domain, node.overload = _HIDDEN, str(number)
        if node.domain == _HIDDEN or not node.inputs or not varying.isdisjoint(node.inputs):
            varying.update(node.outputs)
        elif node.domain == STOP_DOMAIN:
            node.op_type, node.domain, node.version = MARKED[node.op_type], "", None
    for domain in (_HIDDEN, STOP_DOMAIN):
        model.graph.opset_imports[domain] = 1


def _lower_states(model: ir.Model, states: ModuleStates) -> None:
    """Turn the states among the initializers of `model` into inputs, each under its first name."""
    initializers = model.graph.initializers
    fresh = FreshNames((*states.content, *states.aliases))
    for value in model.graph.inputs:
        value.name = fresh(str(value.name))
    for alias, name in states.aliases.items():
        if alias in initializers:
            value = initializers.pop(alias)
            value.name = name
            owner = initializers.setdefault(name, value)
            if owner is not value:
                value.replace_all_uses_with(owner, replace_graph_outputs=True)
    for name in states.content:
        if name in initializers:
            value = initializers.pop(name)
            value.const_value = None
            model.graph.inputs.append(value)
    raw = {name: getattr(value.const_value, "raw", None) for name, value in initializers.items()}
    lost = [
        name
        for name, tensor in raw.items()
        if isinstance(tensor, torch.Tensor) and has_no_content(tensor)
    ]
    if lost:
        raise CompileError(
            f"the constants {listed(lost, separator=', ')} have no content, as the module is on "
            "PyTorch's meta device; register them as buffers"
        )


def _raise_states(model: ir.Model, states: ModuleStates) -> None:
    """Turn the inputs that are states into initializers again, and add those nobody reads."""
    graph = model.graph
    inputs = {str(value.name): value for value in graph.inputs}
    for name, tensor in states.content.items():
        content = TorchTensor(tensor, name=name)
        kept = AbsentTensor(content.dtype, tuple(tensor.shape), name)
        value = inputs.get(name)
        if value is None:
            value = ir.val(name)
        else:
            graph.inputs.remove(value)
        value.const_value = kept if has_no_content(tensor) else content
        value.type, value.shape = ir.TensorType(content.dtype), ir.Shape(tuple(tensor.shape))
        graph.register_initializer(value)


def _reveal_marked(model: ir.Model) -> Mapping[ir.Node, str]:
    """Turn what is special to gradients into plain operators; return these, and what each was."""
    nodes = [node for node in all_nodes(model.graph) if node.domain == STOP_DOMAIN]
    marked = {node: node.op_type for node in nodes}
    for node, kind in marked.items():
        node.op_type, node.domain, node.version = MARKED[kind], "", None
    for domain in (_HIDDEN, STOP_DOMAIN):
        model.graph.opset_imports.pop(domain, None)
    return marked


def _inherit_scopes(graph: ir.Graph) -> None:
    """Give nodes that the optimizer made the module path of what they read, or are read by."""
    for node in (*graph, *reversed(graph)):
        if MODULE_SCOPES in node.metadata_props:
            continue
        around = [value.producer() for value in node.inputs if value is not None]
        around += [use.node for value in node.outputs for use in value.uses()]
        scopes = (other.metadata_props.get(MODULE_SCOPES) for other in around if other is not None)
        found = next((text for text in scopes if text is not None), None)
        if found is not None:
            node.metadata_props[MODULE_SCOPES] = found


@contextmanager
def exact_numbers() -> Iterator[None]:
    """Let numbers in the patterns of the exporter's optimizer match themselves alone."""
    exactly = SimpleNamespace(isclose=_are_equal)
    with replaced(_matcher, "math", exactly), replaced(_ir_utils, "math", exactly):
        yield


def _are_equal(found: float, wanted: float, **tolerances: float) -> bool:
    return found == wanted


@contextmanager
def kept_sums() -> Iterator[None]:
    """Let a ScatterND with a reduction be, though its indices are those of all rows in order.

    The exporter's optimizer puts the updates in its place, whatever they are to be added to.
    """
    covers = all_rows_rule._condition_function

    def writes_all(context: MatchContext, **values: ir.Value) -> object:
        reduced = text_attribute(context.root, "reduction", "none") != "none"
        return False if reduced else covers(context, **values)

    with replaced(all_rows_rule, "_condition_function", writes_all):
        yield


@contextmanager
def kept_shapes() -> Iterator[None]:
    """Let normalisations and rotations be fused where their operators take these operands.

    They take fewer shapes than the multiplications that they stand for, which broadcast both ways,
    and ONNX defines a normalisation for a scale of another type than x by what has no types.
    """
    with ExitStack() as stack:
        for rule in (_rms_normalization._rule1, _rms_normalization._rule2):
            both = _where(_scales, rule._condition_function)
            stack.enter_context(replaced(rule, "_condition_function", both))
        rule = _rotary_embedding._rule
        both = _where(_rotates, rule._condition_function)
        stack.enter_context(replaced(rule, "_condition_function", both))
        yield


@contextmanager
def kept_bounds() -> Iterator[None]:
    """Let one Clip be made of two, or of one and a Relu, only where its bounds do not cross."""
    with ExitStack() as stack:
        for rule in (successive_clip_rule, successive_relu_clip_rule):
            owner = rule._condition_function.__self__
            both = _where(partial(_are_in_order, owner), rule._condition_function)
            stack.enter_context(replaced(rule, "_condition_function", both))
        yield


def _are_in_order(rule: _FuseReluClipBase, **values: ir.Value) -> bool:
    """Tell whether the bounds of the Clip that `rule` would make are known, and in order."""
    names = ("out_first_clip", "out_second_clip")
    first, second = (values[name].producer() if name in values else None for name in names)
    if first is None or not all(map(_has_constants, (first, second))):
        return False
    low, high = rule.compute_clip_min_max(first, second)
    return low is None or high is None or bool(low.numpy() <= high.numpy())


def _has_constants(clip: ir.Node | None) -> bool:
    bounds = () if clip is None else clip.inputs[1:]
    return all(bound is None or get_const_tensor(bound) is not None for bound in bounds)


def _where(fits: Callable[..., bool], condition: Callable[..., object]) -> Callable[..., object]:
    def both(context: MatchContext, **values: ir.Value) -> object:
        return fits(**values) and condition(context, **values)

    return both


def _scales(x: ir.Value, scale: ir.Value, **_: object) -> bool:
    """Tell whether `scale`, of a RMSNormalization, broadcasts to the shape of `x`, in its type."""
    if x.shape is None or scale.shape is None or len(scale.shape) > len(x.shape):
        return False
    if x.dtype != scale.dtype:
        return False
    ends = list(x.shape)[len(x.shape) - len(scale.shape) :]
    return all(pair[0] == 1 or same_size(*pair) for pair in zip(scale.shape, ends, strict=True))


def _rotates(x: ir.Value, freqs: ir.Value, **_: object) -> bool:
    """Tell whether `freqs`, of a RotaryEmbedding, has a row for each of `x`: [B, H, L, E]."""
    if x.shape is None or freqs.shape is None or len(x.shape) != 4 or len(freqs.shape) != 3:
        return False
    return same_size(freqs.shape[0], x.shape[0]) and same_size(freqs.shape[1], x.shape[2])
