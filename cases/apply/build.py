"""Applies options as a user would: loads the checkpoint, adapts the model, wraps it, creates the optimiser."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from cases.apply import attention, compat, compiling, wrapping
from cases.model import adapter_start, adapters, architectures, prequantised, tiny
from cases.reference.twin import ADAM_EPS, LEARNING_RATE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cases.apply.context import Context
    from cases.space.options import Options
    from cases.space.place import Place
ALL = 1  # min_8bit_size: by default, tensors of fewer than 4096 numbers keep their state in float32


def load(options: Options, place: Place, cache: Path, *, filled: bool = True) -> Any:
    """Load the base model and add rows for new tokens, ``filled`` with our values or the library's.

    With ``cpu_ram_efficient_loading`` only rank 0's model has weights.
    """
    folder = prequantised.folder(cache, options) if options.prequantised else architectures.checkpoint(options, cache)
    empty = options.cpu_ram_efficient_loading and place.rank > 0
    model = load_empty(folder, options, place) if empty else load_from(folder, options, place)
    return architectures.resized(model, options, filled=filled)


def load_empty(folder: Path, options: Options, place: Place) -> Any:
    """Create a model whose parameters have no memory; its buffers, which no checkpoint holds, are real."""
    from accelerate import init_empty_weights
    from transformers import AutoConfig, AutoModelForCausalLM

    with init_empty_weights(include_buffers=False):
        return AutoModelForCausalLM.from_config(
            AutoConfig.from_pretrained(folder), **compat.load_arguments(options, place.device)
        )


def load_from(folder: Path, options: Options, place: Place) -> Any:
    """Load a model through ``from_pretrained``."""
    asked = attention.implementation(options)
    arguments = {"attn_implementation": asked} if asked else {}
    arguments.update(compat.load_arguments(options, place.device))
    model = architectures.auto_class(options).from_pretrained(folder, **arguments)
    return model if options.quant != "none" else model.to(place.device)


def adapt(model: Any, options: Options) -> Any:
    """Return the trainable model: enable gradient checkpointing, add the adapter, set its start values."""
    if options.gradient_checkpointing != "off":
        reentrant = options.gradient_checkpointing == "reentrant"
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": reentrant})
    if options.method == "full":
        return model
    if options.gradient_checkpointing != "off":
        model.enable_input_require_grads()  # otherwise nothing before the first adapter requires a gradient
    model = compat.adapted(model, adapters.config(options), autocast_adapter_dtype=options.autocast_adapter_dtype)
    adapter_start.start(model, options)
    return model


def wrap(model: Any, options: Options, place: Place) -> Any:
    wrapped = wrapping.wrap(model, options, place)
    if options.torch_compile:
        compile_in_place(wrapped, place)
    return wrapped


def compile_in_place(wrapped: Any, place: Place) -> None:
    """Compile like ``torch.compile``, but keep names and class.

    On a CPU, the backend ``aot_eager`` captures and differentiates graphs without generating C++, which would take ten
    times as long for this small model.
    """
    wrapped.compile(backend=compiling.counting_backend("aot_eager" if place.kind == "cpu" else "inductor"))


def optimiser(model: Any, options: Options) -> Any:
    import torch

    trained = [p for p in model.parameters() if p.requires_grad]
    rate = LEARNING_RATE[options.optim]
    stepping = {} if options.optim_implementation == "default" else {options.optim_implementation: True}
    if options.optim == "sgd":
        return torch.optim.SGD(trained, lr=rate, **stepping)
    if options.optim == "adamw":
        return torch.optim.AdamW(trained, lr=rate, eps=ADAM_EPS, **stepping)
    import bitsandbytes

    kind = {"adamw_8bit": "AdamW8bit", "paged_adamw_8bit": "PagedAdamW8bit"}[options.optim]
    return getattr(bitsandbytes.optim, kind)(trained, lr=rate, eps=ADAM_EPS, min_8bit_size=ALL)


def scheduler(optimiser: Any) -> Any:
    import torch

    return torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: tiny.SCHEDULE[min(step, tiny.STEPS - 1)])


def generate(model: Any, ctx: Context) -> Any:
    """New tokens of a greedy generation, int64, shape (batch, new tokens); the end token is never chosen."""
    import torch

    ids = tiny.prompt(architectures.vocabulary(ctx.options)).to(ctx.place.device)
    with torch.no_grad():
        # DDP and FSDP1 have no generate: users call it on the wrapped module.
        found = (
            getattr(model, "module", model)
            .eval()
            .generate(
                input_ids=ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=tiny.NEW_TOKENS,
                min_new_tokens=tiny.NEW_TOKENS,
                do_sample=False,
                use_cache=True,  # as by default; the tiny model's configuration has it off, for training
            )
        )
    return found[:, -tiny.NEW_TOKENS :].cpu()


@contextlib.contextmanager
def gathered(model: Any, options: Options) -> Iterator[None]:
    """A context in which the root unit's weights are whole, as ``generate`` bypasses the root's forward.

    Inner units gather their own weights as usual. https://github.com/pytorch/pytorch/issues/100069 for FSDP1.
    """
    if not options.summon_full_params:
        yield
    elif options.strategy == "fsdp1":
        from torch.distributed.fsdp import FullyShardedDataParallel

        with FullyShardedDataParallel.summon_full_params(model, writeback=False, recurse=False):
            yield
    else:
        model.unshard()
        yield
        model.reshard()
