"""Pipelines of transformers whose models write on a device, beside transformers on the host."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

import pybuda
from pybuda.transformers.pipeline import pipeline
from sambahost.errors import HostError
from sambahost.writing import WholeText, write_with

_SPECIAL = {"pad_token": "<p>", "bos_token": "<b>", "eos_token": "<e>"}
_IDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_SIZES = {"vocab_size": 259, **_IDS}


def letters() -> transformers.PreTrainedTokenizerFast:
    """Return a tokenizer whose tokens are bytes, and which fills texts of a batch on the left."""
    words = [*_SPECIAL.values(), *sorted(pre_tokenizers.ByteLevel.alphabet())]
    found = Tokenizer(models.BPE({word: index for index, word in enumerate(words)}, []))
    found.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    found.decoder = decoders.ByteLevel()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=found, padding_side="left", **_SPECIAL
    )


def gpt2() -> torch.nn.Module:
    """A model that takes the places of words."""
    size = {"n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 32}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**size, **_SIZES))


def opt() -> torch.nn.Module:
    """A model that finds places from the mask."""
    size = {"hidden_size": 16, "ffn_dim": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    more = {"word_embed_proj_dim": 16, "max_position_embeddings": 32}
    return transformers.OPTForCausalLM(transformers.OPTConfig(**size, **more, **_SIZES))


def t5() -> torch.nn.Module:
    """A model with an encoder."""
    size = {"d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2}
    start = {"decoder_start_token_id": 0}
    return transformers.T5ForConditionalGeneration(transformers.T5Config(**size, **start, **_SIZES))


@pytest.mark.parametrize(
    ("make", "length", "asked", "texts"),
    [
        (gpt2, 8, {"max_new_tokens": 5}, [(1, 8), (1, 16)]),
        (opt, 16, {"max_new_tokens": 3, "num_beams": 2, "num_return_sequences": 2}, [(1, 16)]),
    ],
)
def test_a_pipeline_writes_as_transformers_does(
    make: Callable[[], torch.nn.Module],
    length: int,
    asked: dict[str, int],
    texts: list[tuple[int, int]],
    programs: list,
) -> None:
    torch.manual_seed(0)
    model, tokens = make().eval(), letters()
    peer = transformers.pipeline("text-generation", copy.deepcopy(model), tokenizer=tokens)
    ours = pipeline("text-generation", model=model, tokenizer=tokens, pybuda_max_length=length)
    for begun in (["ab", "hello w"], ["abcdef", "x"]):  # the second is written by what there is
        wanted = peer(begun, batch_size=2, do_sample=False, **asked)
        assert ours(begun, batch_size=2, do_sample=False, **asked) == wanted
    first = [program.symbols[program.graphs[0].inputs[0].symbol] for program in programs]
    assert [symbol.shape for symbol in first] == texts


def test_an_encoder_stays_on_the_host() -> None:
    torch.manual_seed(0)
    model = t5().eval()
    ids, mask, ran = torch.tensor([[5, 6, 7], [8, 9, 0]]), torch.tensor([[1, 1, 1], [1, 1, 0]]), []

    def run(whole: WholeText, inputs: tuple[torch.Tensor, ...]) -> torch.Tensor:
        ran.append((whole.names, inputs[0].shape))
        return whole(*inputs)

    asked = {"max_new_tokens": 6, "do_sample": False, "attention_mask": mask}
    wanted = model.generate(ids, **asked)
    write_with(model, run, 4, transformers.modeling_outputs.Seq2SeqLMOutput)
    assert torch.equal(model.generate(ids, **asked), wanted)
    names = ("decoder_input_ids", "encoder_outputs", "attention_mask")
    assert {*ran} == {(names, (2, 4)), (names, (2, 8))}


def test_what_pipelines_refuse() -> None:
    config = transformers.BertConfig(
        hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8
    )
    reader = transformers.BertForSequenceClassification(config)
    says = "a pipeline of text-classification: a BertForSequence.* came, which does not write text"
    with pytest.raises(pybuda.PyBudaError, match=says):
        pipeline("text-classification", model=reader, tokenizer=letters())
    config = transformers.XLNetConfig(vocab_size=259, d_model=16, n_layer=1, n_head=2, d_inner=16)
    permuting, output = transformers.XLNetLMHeadModel(config), transformers.utils.ModelOutput
    with pytest.raises(HostError, match="XLNetLMHeadModel came, which writes by permuted texts"):
        write_with(permuting, lambda module, given: module(*given), 8, output)
    with pytest.raises(pybuda.PyBudaError, match="pybuda_max_length is 0; a whole number from 1"):
        pipeline("text-generation", model=gpt2(), tokenizer=letters(), pybuda_max_length=0)
    ours = pipeline("text-generation", model=gpt2(), tokenizer=letters())
    ids = torch.tensor([[5]])
    with pytest.raises(HostError, match="labels came; a device takes input_ids, attention_mask"):
        ours.model(input_ids=ids, labels=ids)
    with pytest.raises(ValueError, match="pybuda_length"):
        pipeline("text-generation", model=gpt2(), tokenizer=letters(), pybuda_length=1)("a")
