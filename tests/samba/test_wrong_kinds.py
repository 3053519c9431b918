"""Every argument of every public function given what it cannot take: each is refused by name.

A text is no flag, however true it is, and True is no number. What arguments take more than a type
to judge, as inputs and optimizers, is in `test_misuse`.
"""

from __future__ import annotations

import inspect
from argparse import Namespace

import numpy as np
import pytest
import torch
from raised import raised_by_the_package
from samba_documented import DOCUMENTED
from torch import nn

import sambaflow.samba as samba
from sambaflow.frameworks.quantized.quantized_linear import QuantizedLinear
from sambaflow.samba import SambaError, directives, lazy_param, optim, sn_private, utils
from sambaflow.samba.functional import stir
from sambaflow.samba.graph import FwdGraph, SambaGraph
from sambaflow.samba.materialize import materialize
from sambaflow.samba.profiler import Profiler
from sambaflow.samba.sambaloader import SambaLoader
from sambaflow.samba.test import TestWithGold
from sambaflow.samba.utils import benchmark_acc, checkpoint, common, pef_utils, tensorboard_debug
from sambaflow.samba.utils.argparser import SambaConfig, parse_app_args, parse_yaml_to_args
from sambaflow.samba.utils.dataset import mnist
from sambaflow.samba.utils.trainer.samba import train as train_on_device
from sambaflow.samba.utils.trainer.torch import train as train_on_host

SESSION = samba.session
KINDS = {
    "nothing": None,
    "flag": True,
    "numpy's flag": np.True_,
    "number": 2,
    "numpy's number": np.int64(2),
    "fraction": 2.5,
    "NaN": float("nan"),
    "word": "no",
    "words": ["a", "b"],
    "numbers": [1, 2],
    "odd list": [object()],
    "tensor": torch.ones(2, 2),
    "single tensor": torch.ones(()),
    "samba tensors": [samba.ones(2, name="x")],
    "module": nn.Linear(2, 2),
    "dict": {"a": 1},
    "odd dict": {3: object()},
    "function": print,
    "bytes": b"x",
    "options": Namespace(inference=True),
    "type": torch.float32,
    "object": object(),
}
"""What each argument is given, but for what it takes."""

FLAG = {"flag", "numpy's flag"}
WHOLE = {"number", "numpy's number"}
NUMBER = WHOLE | {"fraction", "NaN"}
FINE = {
    "bool": FLAG,
    "int": WHOLE,
    "float": NUMBER,
    "str": {"word"},
    "Iterable[str]": {"words"},
    "Sequence[str]": {"words"},
    "Iterable[str | None]": {"words"},
    "Iterable[int]": {"numbers"},
    "Sequence[int]": {"numbers"},
    "str | os.PathLike[str]": {"word"},
    "AnyPath": {"word"},
    "Path": {"word"},
    "nn.Module": {"module"},
    "nn.Module | onnx.ModelProto": {"module"},
    "_Model": {"module"},
    "Tensor": {"tensor", "single tensor"},
    "torch.Tensor": {"tensor", "single tensor"},
    "Mapping[str, object]": {"dict"},
    "Mapping[str, torch.Tensor]": {"dict"},
    "Mapping[str, Tensor]": {"dict"},
    "Mapping[str, float]": {"dict"},
    "Namespace": {"options"},
    "torch.dtype": {"type"},
    "_DataType": {"type"},
    "Type": {"type"},
    "Callable[..., object]": {"function", "type", "module"},
    "Callable[..., Tensor]": {"function", "type", "module"},
    "Callable[P, object]": {"function", "module"},
    "ParserFunction": {"function", "module"},
    "Materializer": {"function", "module"},
    "Transform": {"function", "module"},
}
"""The kinds that fit an annotation; the same with ` | None` takes nothing, too."""

LIMIT, RATE = NUMBER - {"NaN"}, NUMBER | {"single tensor"}
ELEMENT = NUMBER | {"tensor", "single tensor"}
ENDS = frozenset({"nothing", "tensor", "single tensor", "samba tensors"})
LISTS = {"words", "numbers", "odd list", "samba tensors", "dict", "odd dict", "tensor", "bytes"}
DATA = {"nothing"}
ELSEWHERE = {"object", "Inputs", "Optimizers", "LossIndices", "Optimizer | list[Optimizer]"}
"""Annotations of what `test_misuse` tries, as it takes more than a type to judge it."""

LINEAR = nn.Linear(2, 2)
TENSOR = torch.ones(2, 2)
# By name: the function, and for some of its parameters the kinds that fit; () leaves one out.
CALLS = {
    "compile": (SESSION.compile, {}),
    "trace_graph": (SESSION.trace_graph, {"pef": {"word", "nothing"}, "mapping": {"nothing"}}),
    "utils.trace_graph": (utils.trace_graph, {"pef": {"word", "nothing"}, "mapping": {"nothing"}}),
    "trace_multigraph": (SESSION.trace_multigraph, {"mapping": {"nothing"}}),
    "utils.trace_multigraph": (
        utils.trace_multigraph, {"mapping": {"nothing"}, "init_output_grads": ()}
    ),
    "compile_multigraph": (SESSION.compile_multigraph, {}),
    "init_multigraph_runtime": (SESSION.init_multigraph_runtime, {}),
    "add_graph": (SESSION.add_graph, {"graph": set()}),
    "run": (
        SESSION.run,
        {
            **dict.fromkeys(("input_tensors", "output_tensors", "hyperparam_dict"), ()),
            **dict.fromkeys(("section_ids", "section_types", "grad_of_outputs"), ()),
            "graph_name": {"word", "nothing"},
            "data_parallel_mode": {"nothing"},
        },
    ),
    "SambaSession": (samba.SambaSession, {}),
    "reset": (SESSION.reset, {}),
    "get_samba_tensor_by_name": (SESSION.get_samba_tensor_by_name, {}),
    "get_tensors": (SESSION.get_tensors, {"samba_tensors": {"samba tensors"}}),
    "get_tensors_by_name": (SESSION.get_tensors_by_name, {}),
    "update_tensor": (SESSION.update_tensor, {}),
    "to_cpu": (SESSION.to_cpu, {}),
    "to_cpu_": (SESSION.to_cpu_, {}),
    "to_rdu": (SESSION.to_rdu, {}),
    "sync_buffers_to_cpu": (SESSION.sync_buffers_to_cpu, {}),
    "sync_buffers_to_rdu": (SESSION.sync_buffers_to_rdu, {}),
    "enable_lazy_param": (SESSION.enable_lazy_param, {"fp32_to_bf16_rounding": set()}),
    "lazy_param.enable_lazy_param": (
        lazy_param.enable_lazy_param, {"fp32_to_bf16_rounding": set()}
    ),
    "add_aux_tensor": (SESSION.add_aux_tensor, {}),
    "is_valid_aux_tensor_name": (SESSION.is_valid_aux_tensor_name, {}),
    "use_legacy_names": (SESSION.use_legacy_names, {}),
    "samba_profile": (SESSION.samba_profile, {}),
    "end_samba_profile": (SESSION.end_samba_profile, {}),
    "start_runtime_profile": (SESSION.start_runtime_profile, {}),
    "end_runtime_profile": (SESSION.end_runtime_profile, {}),
    "atexit_register": (SESSION.atexit_register, {"func": {"function", "module", "type"}}),
    "use_abexit": (SESSION.use_abexit, {"func": {"function", "module", "type"}}),
    "tracing": (lambda on: setattr(SESSION, "tracing", on), {"on": FLAG}),
    "init_output_grads": (
        utils.init_output_grads, {"output_tensors": {"words", "samba tensors", "dict"}}
    ),
    "SambaTensor": (
        samba.SambaTensor,
        {"torch_tensor": {"nothing", "tensor", "single tensor"}, "shape": {"nothing", "numbers"}},
    ),
    "SambaTensor.cpu": (TENSOR.as_subclass(samba.SambaTensor).cpu, {}),
    "SambaTensor.is_fast_access": (samba.SambaTensor.is_fast_access, {}),
    "SambaTensor.new_full": (
        TENSOR.as_subclass(samba.SambaTensor).new_full, {"fill_value": (), "device": ()}
    ),
    "host_memory": (lambda on: setattr(samba.ones(2), "host_memory", on), {"on": FLAG}),
    "fast_access": (lambda on: setattr(samba.ones(2, name="x"), "fast_access", on), {"on": FLAG}),
    "sn_region_name": (lambda n: setattr(samba.ones(2), "sn_region_name", n), {"n": {"word"}}),
    "from_torch_tensor": (
        samba.from_torch_tensor, {"tensor": {"nothing", "tensor", "single tensor"}}
    ),
    "from_torch_model_": (samba.from_torch_model_, {}),
    "from_torch_model": (samba.from_torch_model, {"model": {"module"}}),
    "from_torch_": (samba.from_torch_, {}),
    "from_named_dict": (samba.from_named_dict, {}),
    "functional.addmm": (samba.functional.addmm, {}),
    "functional.triu_fill": (samba.functional.triu_fill, {}),
    **{
        f"optim.{kind.__name__}": (
            kind,
            {
                **dict.fromkeys(inspect.signature(kind).parameters, RATE),
                "params": (),
                "betas": {"numbers"},
                "max_grad_norm": NUMBER | {"nothing"},
                "argin_region_name": {"word"},
                **dict.fromkeys(("nesterov", "amsgrad", "centered", "fp32_params"), FLAG),
            },
        )
        for kind in (getattr(optim, name) for name in optim.__all__)
    },
    "parse_app_args": (parse_app_args, {"argv": {"words", "nothing"}}),
    "parse_yaml_to_args": (parse_yaml_to_args, {}),
    "SambaConfig": (SambaConfig, {"schema": set()}),
    "common_app_driver": (common.common_app_driver, {}),
    "set_seed": (utils.set_seed, {}),
    "get_file_dir": (utils.get_file_dir, {}),
    "weight_norm_": (utils.weight_norm_, {}),
    "create_mac_resource_report": (utils.create_mac_resource_report, {}),
    "assert_close": (
        utils.assert_close,
        {
            **dict.fromkeys(("actual", "expected"), ELEMENT - NUMBER),
            "threshold": LIMIT | DATA,
            "rtol": LIMIT,
        },
    ),
    "measure_performance": (
        utils.measure_performance, {"min_duration": LIMIT, "compiled_stats_json": {"word", *DATA}}
    ),
    "measure_sections": (utils.measure_sections, {"min_duration": LIMIT}),
    "get_pefmeta": (pef_utils.get_pefmeta, {}),
    "get_pefmeta_dict": (pef_utils.get_pefmeta_dict, {}),
    "get_pef_info": (pef_utils.get_pef_info, {"fields": set()}),
    "dataset_transform": (mnist.dataset_transform, {"args": {"options", "dict"}}),
    "prepare_dataloader": (
        mnist.prepare_dataloader, dict.fromkeys(("train_dataset", "eval_dataset"), DATA)
    ),
    "MNIST": (mnist.MNIST, {"transform": {"nothing", "function", "module", "type"}}),
    "AccuracyReport": (
        benchmark_acc.AccuracyReport,
        {"val_accuracy": NUMBER | DATA, "batch_size": WHOLE | DATA, "num_iterations": WHOLE | DATA},
    ),
    "AccuracyReport.save": (benchmark_acc.AccuracyReport().save, {}),
    "trainer.samba.train": (train_on_device, {"loader": LISTS, "hyperparam_dict": {"dict", *DATA}}),
    "trainer.torch.train": (train_on_host, {"loader": LISTS, "optimizer": set()}),
    "load_sharded_checkpoint": (checkpoint.load_sharded_checkpoint, {}),
    "dump_accuracy_debug_info": (
        tensorboard_debug.dump_accuracy_debug_info, {"traced_outputs": {"samba tensors"}}
    ),
    "SambaLoader": (
        SambaLoader, {"dataloader": {*LISTS, "single tensor", "word"}, "timeout": LIMIT}
    ),
    "materialize": (materialize, {}),
    "Profiler.start_event": (Profiler().start_event, {}),
    "Profiler.end_event": (Profiler().end_event, {"handle": DATA}),
    "Profiler.get_latencies": (Profiler().get_latencies, {}),
    "Profiler.get_throughputs": (Profiler().get_throughputs, {}),
    "op_fusion": (
        directives.op_fusion,
        {
            "module": {"module", "nothing"},
            "heuristic": {"word", "dict", "odd dict", "nothing"},
            "plugins": {"word", "words", "nothing"},
        },
    ),
    "sdpa_directives": (directives.sdpa_directives, {}),
    "SambaGraph": (SambaGraph, dict.fromkeys(("start", "stop"), ENDS)),
    "FwdGraph": (FwdGraph, dict.fromkeys(("start", "stop"), ENDS)),
    "consistency_test": (samba.test.consistency_test, {}),
    "TestWithGold": (TestWithGold, {}),
    "sn_zipmapreduce": (
        stir.sn_zipmapreduce,
        {"inputs": {"samba tensors"}, "reduce_dim": {"numbers", *WHOLE, *DATA}},
    ),
    "sn_iteridx": (stir.sn_iteridx, {"attrs": set()}),
    "sn_imm": (stir.sn_imm, {"input": NUMBER | FLAG}),
    "sn_select": (stir.sn_select, dict.fromkeys(("true_val", "false_val"), ELEMENT)),
    "sn_fma": (stir.sn_fma, dict.fromkeys("abc", ELEMENT)),
    "sn_reduce": (stir.sn_reduce, {"dim": {"numbers", *WHOLE}}),
    "sn_gather": (sn_private.sn_gather, {}),
    "sn_scatter": (sn_private.sn_scatter, {}),
    "sn_multinomial": (sn_private.sn_multinomial, {}),
    "QuantizedLinear": (QuantizedLinear, {}),
    "QuantizedLinear.from_float": (QuantizedLinear.from_float, {"linear": {"module"}}),
}  # fmt: skip
"""Functions, and what fits where the annotation does not say; `()` is for what others look at."""

OTHERS = {
    "SambaSession.setup": "test_misuse",
    "to_torch": "test_misuse",
    "to_torch_tensor": "to_torch",
    "from_torch": "from_torch_tensor",
    "randn_like": "torch",
    "nn.parameter.SambaParameter": "SambaTensor",
    "utils.utils.trace_graph": "utils.trace_graph",
    "utils.utils.trace_multigraph": "utils.trace_multigraph",
    "utils.pef_utils.PefInfoStruct": "any value",
    "sambaflow.logging.samba_logger.info": "any value",
    "sambaflow.logging.samba_logger.warning": "any value",
    "sambaflow.mac.metadata.ConvTilingMetadata": "decides nothing",
    **{f"SambaTensor.{name}": "torch" for name in (
        ["backward", "new_empty", "new_ones", "new_zeros", "requires_grad_", "size", "type"]
    )},
    **{f"optim.AdamW.{name}": "torch" for name in (
        ["add_param_group", "load_state_dict", "step", "zero_grad"]
    )},
}  # fmt: skip
"""Functions that look at their arguments in other ways, and where that is tried or done."""


def fitting(parameter, said):
    """Return the kinds that fit a parameter, None if others look at it."""
    if parameter.name in said:
        return None if said[parameter.name] == () else said[parameter.name]
    annotation = str(parameter.annotation)
    plain = annotation.removesuffix(" | None")
    if plain in ELSEWHERE:
        return None
    return FINE[plain] | (DATA if plain != annotation else set())


CASES = [
    pytest.param(function, parameter.name, fine, id=f"{name}({parameter.name})")
    for name, (function, said) in CALLS.items()
    for parameter in inspect.signature(
        function.__new__ if function is samba.SambaTensor else function
    ).parameters.values()
    if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    and parameter.name != "cls"
    and (fine := fitting(parameter, said)) is not None
]

VALID = {
    "model": LINEAR, "graph": LINEAR, "module": LINEAR, "linear": LINEAR, "inputs": (), "name": "x",
    "tensor": TENSOR, "actual": TENSOR, "expected": TENSOR, "torch_tensor": TENSOR,
    "input": TENSOR, "mat1": TENSOR, "mat2": TENSOR, "a": TENSOR, "b": TENSOR, "c": TENSOR,
    "cond": TENSOR, "true_val": TENSOR, "false_val": TENSOR, "operand": TENSOR, "update": TENSOR,
    "input_tensor": TENSOR, "start_indices": TENSOR, "probs": TENSOR, "fn": "SUM", "dim": 0,
    "pre_generated_randoms": TENSOR, "gather_dims": [0], "gather_lengths": [1],
    "scatter_dims": [0], "value": 1.0, "fill_value": 1.0, "size": (2,), "names": ["x"],
    "samba_tensors": (), "pef": "x.pef", "pef_path": "", "args": Namespace(inference=True),
    "yaml_path": "x", "schema": samba.schema.snconfig.SNConfig, "seed": 1, "file": "x",
    "options": {}, "fields": {}, "params": None, "folder": "x", "part": "train", "path": "x",
    "loader": [], "optimizer": None, "traced_outputs": (), "dataloader": [], "handle": None,
    "batch_size": 1, "directives": {}, "start": TENSOR, "stop": TENSOR, "func": print,
    "dtype": torch.float32, "attrs": stir.Loop((2,), torch.device("cpu")), "in_features": 2,
    "out_features": 2, "use": False, "tensors": {}, "output_tensors": (), "on": True, "n": "x",
}  # fmt: skip
"""What the other arguments are: enough to be taken where the one in question is wrong."""


def others_of(function, name):
    """Return what the parameters beside `name` have to be given."""
    found = {}
    for parameter in inspect.signature(function).parameters.values():
        needed = parameter.default is parameter.empty and parameter.name not in (name, "cls")
        if needed and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            found[parameter.name] = VALID[parameter.name]
    if found.get("params", 0) is None:
        found["params"] = {} if function is mnist.prepare_dataloader else [nn.Parameter(TENSOR)]
    if function is stir.sn_zipmapreduce and "inputs" in found:
        found["inputs"] = [TENSOR]
    return found


@pytest.mark.parametrize(("function", "name", "fine"), CASES)
def test_a_wrong_kind_is_refused_by_name(function, name, fine, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    others = others_of(function, name)
    if function is samba.SambaTensor and name not in ("shape", "dtype"):
        others = {"torch_tensor": TENSOR, **others}
    for kind, value in KINDS.items():
        if kind in fine:
            continue
        with pytest.raises((SambaError, TypeError, ValueError)) as caught:
            function(**{**others, name: value})
        assert raised_by_the_package(caught), (kind, caught.value)
        assert len(str(caught.value)) > 10
    assert not [*tmp_path.iterdir()]


def test_every_function_of_the_page_with_parameters_is_tried():
    tried = {name.rpartition(".")[2] for name, (function, _) in CALLS.items()}
    missing = [
        name
        for name, parameters in DOCUMENTED.items()
        if parameters and name not in OTHERS and name.rpartition(".")[2] not in tried
    ]
    assert missing == []
