"""Models of released sizes with random weights, and how far results of such models are off.

The scripts in the folders run from this one: ``PYTHONPATH=. python models/packed-documents-share-a-cache.py``.
"""

import json
import os
import pathlib
import sys
import tempfile

import torch
import torch.multiprocessing as mp
import transformers

STACK = ("torch", "transformers", "peft", "accelerate", "trl", "bitsandbytes")
# huggingface.co/HuggingFaceTB/SmolLM-135M, config.json
SMOLLM_135M = {
    "vocab_size": 49152,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "max_position_embeddings": 2048,
    "initializer_range": 0.02,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
}
# huggingface.co/google/gemma-2-2b, config.json, with 4 of its 26 layers and 32,000 of its 256,000 tokens: 0.39 billion
GEMMA_2_2B_OF_4_LAYERS = {
    "vocab_size": 32000,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "query_pre_attn_scalar": 256,
    "attn_logit_softcapping": 50.0,
    "final_logit_softcapping": 30.0,
    "initializer_range": 0.02,
}


def smollm(*, seed=0, **changes):
    """SmolLM-135M, with the random weights of its initializer_range."""
    torch.manual_seed(seed)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**{**SMOLLM_135M, **changes})).eval()


def tokens(count, vocabulary=SMOLLM_135M["vocab_size"]):
    """A row of random tokens."""
    return torch.randint(vocabulary, (1, count), generator=torch.Generator().manual_seed(1))


def train(model, row, steps, rate):
    """Train what is not frozen on one row by AdamW, without decay."""
    model.train()
    optimiser = torch.optim.AdamW([each for each in model.parameters() if each.requires_grad], rate, weight_decay=0.0)
    for _ in range(steps):
        model(input_ids=row, labels=row, use_cache=False).loss.backward()
        optimiser.step()
        optimiser.zero_grad()
    return model.eval()


def on_ranks(work, count=2):
    """Run ``work(rank, folder, results)`` in processes that gloo connects; return what it puts into ``results``."""
    with tempfile.TemporaryDirectory() as folder:
        results = mp.get_context("fork").SimpleQueue()
        mp.start_processes(rank, (work, count, folder, results), nprocs=count, start_method="fork")
        return results.get()


def rank(number, work, count, folder, results):
    """One rank, with the variables of torchrun."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/ranks", rank=number, world_size=count)
    os.environ |= {"RANK": str(number), "LOCAL_RANK": str(number), "WORLD_SIZE": str(count)}
    os.environ |= {"LOCAL_WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}  # not used
    os.environ |= {"ACCELERATE_USE_CPU": "true"}
    work(number, folder, results)
    torch.distributed.destroy_process_group()


def off(found, expected):
    """The distance of results from the expected ones, as a share of their norm."""
    return float((found.double() - expected.double()).norm() / expected.double().norm())


def changed_tokens(found, expected):
    """The share of positions at which another token is the most likely one."""
    return float((found.argmax(-1) != expected.argmax(-1)).double().mean())


def report(setting, **results):
    """Print the setting and the versions of the imported libraries, and each result with three digits."""
    versions = ", ".join(f"{name} {sys.modules[name].__version__}" for name in STACK if name in sys.modules)
    print(f"{setting}; {versions}: " + ", ".join(f"{name} {value:.3g}" for name, value in results.items()))


def words(folder):
    """A tokeniser with the vocabulary of SmolLM-135M: the end, the start, padding, and the words w3, w4, ..."""
    special = {"eos_token": "<end>", "bos_token": "<start>", "pad_token": "<padding>"}
    vocabulary = [*special.values(), *(f"w{number}" for number in range(3, SMOLLM_135M["vocab_size"]))]
    numbers = {word: number for number, word in enumerate(vocabulary)}
    model = {"type": "WordLevel", "unk_token": special["bos_token"], "vocab": numbers}
    file = pathlib.Path(folder, "tokenizer.json")
    file.write_text(json.dumps({"version": "1.0", "model": model, "pre_tokenizer": {"type": "WhitespaceSplit"}}))
    return transformers.PreTrainedTokenizerFast(tokenizer_file=str(file), **special)


def text(count, seed):
    """Random words of that tokeniser."""
    numbers = torch.randint(3, SMOLLM_135M["vocab_size"], (count,), generator=torch.Generator().manual_seed(seed))
    return " ".join(f"w{int(number)}" for number in numbers)
