"""``from_pretrained`` and ``save_pretrained`` in user scripts: keywords, quantisation, several processes."""

from __future__ import annotations

import inspect
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cases.api import call, ingredients
from cases.model import architectures, tiny
from cases.space.verdict import Check, Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context

GROUP = "Loading and saving in a user's script"
EXPERTS = 4
SAME = 1e-5  # the same arithmetic in float32, on logits of about 1


def mixtral(ctx: Context) -> Path:
    """A checkpoint with experts."""
    from transformers import MixtralConfig, MixtralForCausalLM

    sizes = {name: value for name, value in architectures.plain_config().to_dict().items() if name in SIZES}
    model = MixtralForCausalLM(MixtralConfig(**sizes, num_local_experts=EXPERTS, num_experts_per_tok=2))
    tiny.fill(model)
    model.save_pretrained(ingredients.folder(ctx, "mixtral"))
    return ctx.kept / "mixtral"


SIZES = (
    *("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads"),
    *("vocab_size", "max_position_embeddings", "bos_token_id", "eos_token_id", "pad_token_id"),
)


def four_bit() -> Any:
    import torch
    from transformers import BitsAndBytesConfig

    return BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16)


def four_bit_layers(model: Any) -> int:
    from bitsandbytes.nn import Linear4bit

    return sum(isinstance(module, Linear4bit) for module in model.modules())


@call(GROUP, phase=Phase.LOAD, requires=("4bit_loading",))
def load_in_4bit_keyword(ctx: Context) -> Iterator[Check]:
    """from_pretrained accepts load_in_4bit=True, as older scripts pass it."""
    from transformers import AutoModelForCausalLM

    device = {"": ctx.place.device}
    model = AutoModelForCausalLM.from_pretrained(
        architectures.plain_checkpoint(ctx.cache), load_in_4bit=True, device_map=device
    )
    yield equal("4-bit layers", four_bit_layers(model), len(tiny.LINEARS) * tiny.LAYERS)


@call(GROUP, phase=Phase.LOAD, requires=("4bit_loading",))
def experts_in_4bit(ctx: Context) -> Iterator[Check]:
    """Loading in 4 bits quantises the experts of a mixture too: half a byte for each weight."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(
        mixtral(ctx), quantization_config=four_bit(), device_map={"": ctx.place.device}
    )
    held = sum(weight.nbytes for name, weight in model.named_parameters() if ".experts." in name)
    weights = tiny.LAYERS * EXPERTS * 3 * tiny.HIDDEN * 2 * tiny.HIDDEN
    yield at_most("bytes for a weight of an expert", held / weights, 0.5)


def loaded_in_4bit(ctx: Context) -> Any:
    from transformers import AutoModelForCausalLM

    device = {"": ctx.place.device}
    return AutoModelForCausalLM.from_pretrained(
        architectures.plain_checkpoint(ctx.cache), quantization_config=four_bit(), device_map=device
    )


@call(GROUP, phase=Phase.LOAD, requires=("4bit_loading",))
def dispatch_quantised(ctx: Context) -> Iterator[Check]:
    """accelerate.dispatch_model accepts a 4-bit model that is already on its device."""
    from accelerate import dispatch_model

    model = dispatch_model(loaded_in_4bit(ctx), {"": ctx.place.device})
    expected = ingredients.logits(loaded_in_4bit(ctx), ctx)
    yield at_most("logits off", ingredients.largest_difference(ingredients.logits(model, ctx), expected), 0.0)


@call(GROUP, phase=Phase.LOAD, requires=("4bit_loading",))
def dispatch_quantised_after_use(ctx: Context) -> Iterator[Check]:
    """accelerate.dispatch_model keeps the logits of a 4-bit model that has already run."""
    from accelerate import dispatch_model

    model = loaded_in_4bit(ctx)
    before = ingredients.logits(model, ctx)
    model = dispatch_model(model, {"": ctx.place.device})
    yield at_most("logits off", ingredients.largest_difference(ingredients.logits(model, ctx), before), 0.0)


@call(GROUP, phase=Phase.SAVE)
def save_safe_serialization(ctx: Context) -> Iterator[Check]:
    """save_pretrained and push_to_hub accept safe_serialization=True, as merge scripts pass it."""
    model = ingredients.base(ctx)
    model.save_pretrained(ctx.kept / "out", safe_serialization=True)
    yield equal("safetensors written", (ctx.kept / "out" / "model.safetensors").exists(), bound=True)
    inspect.signature(model.push_to_hub).bind("someone/model", safe_serialization=True)  # all but the network


@call(GROUP, phase=Phase.SAVE)
def save_not_safe(ctx: Context) -> Iterator[Check]:
    """save_pretrained(safe_serialization=False) writes pytorch_model.bin."""
    ingredients.base(ctx).save_pretrained(ctx.kept / "out", safe_serialization=False)
    yield equal("pytorch_model.bin written", (ctx.kept / "out" / "pytorch_model.bin").exists(), bound=True)


@call(GROUP, phase=Phase.WRAP, ranks=2)
def device_map_auto_under_ddp(ctx: Context) -> Iterator[Check]:
    """device_map="auto" under a launcher loads the whole model on each rank, which DDP then wraps."""
    from torch.nn.parallel import DistributedDataParallel
    from transformers import AutoModelForCausalLM

    launched(ctx)
    model = AutoModelForCausalLM.from_pretrained(architectures.plain_checkpoint(ctx.cache), device_map="auto")
    kinds = {type(weight.data).__name__ for weight in model.parameters()}
    yield equal("kinds of tensors", ", ".join(sorted(kinds)), "Tensor")
    ids = tiny.batch(0).to(model.device)
    DistributedDataParallel(model)(input_ids=ids, labels=ids).loss.backward()


def launched(ctx: Context) -> None:
    """The environment as torchrun leaves it.

    Several ranks have met, so the port is unused. A single rank that makes a group takes a free port: a fixed one is
    busy while another cell does the same.
    """
    world = {"RANK": ctx.place.rank, "LOCAL_RANK": ctx.place.rank, "WORLD_SIZE": ctx.place.world_size}
    os.environ |= {name: str(number) for name, number in world.items()}
    os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": "0"}


@call(GROUP, phase=Phase.LOAD, ranks=2)
def load_without_tp_plan(ctx: Context) -> Iterator[Check]:
    """A model whose class has no tensor-parallel plan loads on its device in a distributed job."""
    from transformers import AutoModel, EsmConfig, EsmModel

    launched(ctx)
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    if ctx.place.rank == 0:
        EsmModel(EsmConfig(vocab_size=33, pad_token_id=1, **sizes)).save_pretrained(ctx.kept / "esm")
    import torch.distributed as dist

    dist.barrier()
    model = AutoModel.from_pretrained(ctx.kept / "esm", device_map={"": ctx.place.device})
    yield equal("layers", len(model.encoder.layer), 1)


@call(GROUP, phase=Phase.LOAD)
def bitsandbytes_library(ctx: Context) -> Iterator[Check]:
    """``bitsandbytes`` ships a native library for the CUDA that torch is built for."""
    import bitsandbytes
    import torch

    del ctx
    build = (torch.version.cuda or "").replace(".", "")
    library = f"libbitsandbytes_cuda{build}.so"
    there = {path.name for path in Path(bitsandbytes.__file__).parent.glob("libbitsandbytes_*.so")}
    yield equal(library, library if library in there else "not shipped", library)
