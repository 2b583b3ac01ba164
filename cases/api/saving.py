"""Saves adapters and merged models to files, and loads them again."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from cases.api import call, models
from cases.apply import compat
from cases.model import architectures, tiny
from cases.reference.tolerance import UNIT_ROUNDOFF, relative
from cases.space.verdict import Phase, at_least, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cases.apply.context import Context
    from cases.space.verdict import Check

LOADING = "Loading adapters"
SAVING = "Saving merged models"
CONTINUING = "Continuing to train a saved adapter"
FP32 = 1e-5  # the same logits in float32, through kernels that add in another order
ADDED = 5  # tokens
MEMORY = 450_000  # bytes, for about half of a model of four layers


def renamed(folder: Path) -> None:
    """The keys of an adapter as another version of transformers would have called its modules."""
    from safetensors.torch import load_file, save_file

    file = folder / "adapter_model.safetensors"
    moved = {name.replace(".layers.", ".language_model.layers."): tensor for name, tensor in load_file(file).items()}
    save_file(moved, file)


@call(LOADING, phase=Phase.RELOAD)
def mismatched_keys(ctx: Context) -> Iterator[Check]:
    """Loading an adapter warns if none of its weights match the model."""
    from peft import PeftModel

    folder = models.saved_adapter(ctx)
    renamed(folder)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        PeftModel.from_pretrained(models.loaded(ctx, dtype="fp32"), folder)
    told = sum("missing adapter keys" in str(each.message) for each in heard)
    yield at_least("warnings of missing adapter weights", told, 1)


@call(LOADING, phase=Phase.RELOAD)
def mismatched_keys_merged(ctx: Context) -> Iterator[Check]:
    """An adapter whose weight names differ from the model's module names has an effect when it is merged."""
    from peft import PeftModel

    folder = models.saved_adapter(ctx)
    renamed(folder)
    base = models.logits(models.loaded(ctx, dtype="fp32"))
    merged = PeftModel.from_pretrained(models.loaded(ctx, dtype="fp32"), folder).merge_and_unload()
    yield at_least("what the merged adapter changed", relative(models.logits(merged), base), 0.01)


@call(LOADING, phase=Phase.RELOAD)
def matching_keys_merged(ctx: Context) -> Iterator[Check]:
    """An adapter has an effect when it is loaded and merged."""
    from peft import PeftModel

    folder = models.saved_adapter(ctx)
    base = models.logits(models.loaded(ctx, dtype="fp32"))
    merged = PeftModel.from_pretrained(models.loaded(ctx, dtype="fp32"), folder).merge_and_unload()
    yield at_least("what the merged adapter changed", relative(models.logits(merged), base), 0.01)


def resized(model: Any) -> Any:
    model.resize_token_embeddings(tiny.VOCABULARY + ADDED)
    return model


def with_added_tokens(ctx: Context) -> tuple[Path, Any]:
    """An adapter trained after tokens were added, and what it infers."""
    model = models.adapted(resized(models.loaded(ctx, dtype="fp32")), modules_to_save=["embed_tokens", "lm_head"])
    model.save_pretrained(ctx.kept / "adapter")
    return ctx.kept / "adapter", models.logits(model)


@call(LOADING, phase=Phase.RELOAD)
def added_tokens(ctx: Context) -> Iterator[Check]:
    """An adapter trained after tokens were added loads on the published base."""
    from peft import PeftModel

    folder, expected = with_added_tokens(ctx)
    model = PeftModel.from_pretrained(models.loaded(ctx, dtype="fp32"), folder)
    yield at_most("reloaded logits", relative(models.logits(model), expected), FP32)


@call(LOADING, phase=Phase.RELOAD)
def added_tokens_resized_first(ctx: Context) -> Iterator[Check]:
    """An adapter trained after tokens were added loads on a base resized to the same number of tokens."""
    from peft import PeftModel

    folder, expected = with_added_tokens(ctx)
    model = PeftModel.from_pretrained(resized(models.loaded(ctx, dtype="fp32")), folder)
    yield at_most("reloaded logits", relative(models.logits(model), expected), FP32)


def tokeniser(size: int) -> Any:
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    first, *others = (f"w{number}" for number in range(size))
    words = {word: number for number, word in enumerate([first, *others])}
    known = Tokenizer(models.WordLevel(words, unk_token=first))
    return PreTrainedTokenizerFast(tokenizer_object=known, unk_token=first, pad_token=first, eos_token=first)


def spare_embeddings(ctx: Context, *, auto: bool) -> Iterator[Check]:
    from peft import AutoPeftModelForCausalLM, PeftModel

    model = models.adapted(models.loaded(ctx, dtype="fp32"), modules_to_save=["lm_head"])
    expected, folder = models.logits(model), ctx.kept / "adapter"
    model.save_pretrained(folder)
    tokeniser(tiny.VOCABULARY - 28).save_pretrained(folder)
    if auto:
        again = AutoPeftModelForCausalLM.from_pretrained(folder)
    else:
        again = PeftModel.from_pretrained(models.loaded(ctx, dtype="fp32"), folder)
    yield at_most("reloaded logits", relative(models.logits(again), expected), FP32)


@call(LOADING, phase=Phase.RELOAD)
def spare_embeddings_auto(ctx: Context) -> Iterator[Check]:
    """AutoPeftModel loads an adapter of a model with more embeddings than its tokeniser has tokens."""
    yield from spare_embeddings(ctx, auto=True)


@call(LOADING, phase=Phase.RELOAD)
def spare_embeddings_by_hand(ctx: Context) -> Iterator[Check]:
    """PeftModel on the base loads an adapter of a model with more embeddings than its tokeniser has tokens."""
    yield from spare_embeddings(ctx, auto=False)


def half_adapter(ctx: Context) -> Path:
    """An adapter whose weights are bfloat16, for a base in bfloat16."""
    from peft import get_peft_model

    model = get_peft_model(models.loaded(ctx), models.config(), **narrow(get_peft_model))
    folder = ctx.kept / "adapter"
    model.save_pretrained(folder)
    return folder


def narrow(function: Any) -> dict[str, Any]:
    """The argument that keeps adapters in the dtype of the base; peft before 0.12 always did."""
    return {"autocast_adapter_dtype": False} if compat.has_adapter_autocast() or not function else {}


def widened(model: Any) -> int:
    import torch

    return sum(p.dtype is torch.float32 for name, p in model.named_parameters() if tiny.is_adapter(name))


@call(LOADING, phase=Phase.RELOAD)
def half_adapter_by_default(ctx: Context) -> Iterator[Check]:
    """An adapter saved in bfloat16 loads in bfloat16 by default."""
    from peft import PeftModel

    model = PeftModel.from_pretrained(models.loaded(ctx), half_adapter(ctx))
    yield equal("adapter weights in float32", widened(model), 0)


@call(LOADING, phase=Phase.RELOAD, requires=("adapter_dtype",))
def half_adapter_asked_for(ctx: Context) -> Iterator[Check]:
    """An adapter saved in bfloat16 loads in bfloat16 with autocast_adapter_dtype=False."""
    from peft import PeftModel

    model = PeftModel.from_pretrained(models.loaded(ctx), half_adapter(ctx), autocast_adapter_dtype=False)
    yield equal("adapter weights in float32", widened(model), 0)


@call(LOADING, phase=Phase.RELOAD, requires=("adapter_dtype",))
def half_adapter_auto(ctx: Context) -> Iterator[Check]:
    """AutoPeftModel respects autocast_adapter_dtype=False."""
    from peft import AutoPeftModelForCausalLM

    arguments = compat.load_arguments(models.chosen(), ctx.place.device)
    folder = half_adapter(ctx)
    model = AutoPeftModelForCausalLM.from_pretrained(folder, autocast_adapter_dtype=False, **arguments)
    yield equal("adapter weights in float32", widened(model), 0)


def dtypes(folder: Path) -> str:
    """The dtypes of the weights in a checkpoint, e.g. ``bf16``."""
    from safetensors import safe_open

    found = set()
    for file in folder.glob("model*.safetensors"):
        with safe_open(file, "pt") as weights:
            found |= {compat.dtype_name(weights.get_tensor(name).dtype) for name in weights.keys()}  # noqa: SIM118
    return "+".join(sorted(found))


@call(SAVING, phase=Phase.SAVE)
def merged_dtype_by_default(ctx: Context) -> Iterator[Check]:
    """A bfloat16 model, loaded without naming a dtype and merged, is saved in bfloat16."""
    from transformers import AutoModelForCausalLM

    model = models.adapted(AutoModelForCausalLM.from_pretrained(models.published(ctx, architectures.plain_config())))
    model.merge_and_unload().save_pretrained(ctx.kept / "merged")
    yield equal("dtype of the merged checkpoint", dtypes(ctx.kept / "merged"), "bf16")


@call(SAVING, phase=Phase.SAVE)
def merged_dtype_named(ctx: Context) -> Iterator[Check]:
    """A bfloat16 model, loaded as such and merged, is saved in bfloat16."""
    model = models.adapted(models.loaded(ctx, folder=models.published(ctx, architectures.plain_config())))
    model.merge_and_unload().save_pretrained(ctx.kept / "merged")
    yield equal("dtype of the merged checkpoint", dtypes(ctx.kept / "merged"), "bf16")


def left_over(folder: Path) -> Iterator[Check]:
    yield equal("adapter files beside the merged model", len(list(folder.glob("adapter_*"))), 0)
    yield at_least("files of the merged model", len(list(folder.glob("model*.safetensors"))), 1)


@call(SAVING, phase=Phase.SAVE)
def merged_without_adapter_files(ctx: Context) -> Iterator[Check]:
    """save_pretrained of a merged model writes no adapter files."""
    from peft import PeftModel

    model = PeftModel.from_pretrained(models.loaded(ctx, dtype="fp32"), models.saved_adapter(ctx))
    model.merge_and_unload().save_pretrained(ctx.kept / "merged")
    yield from left_over(ctx.kept / "merged")


@call(SAVING, phase=Phase.SAVE)
def merged_from_adapter_folder(ctx: Context) -> Iterator[Check]:
    """A model loaded from the adapter's folder is saved without adapter files after a merge."""
    from peft import PeftModel

    folder = models.saved_adapter(ctx)
    model = PeftModel.from_pretrained(models.loaded(ctx, dtype="fp32", folder=folder), folder)
    model.merge_and_unload().save_pretrained(ctx.kept / "merged")
    yield from left_over(ctx.kept / "merged")


@call(CONTINUING, phase=Phase.OPTIMIZER, requires=("cpu_scaler",))
def go_on_without_is_trainable(ctx: Context) -> Iterator[Check]:
    """An adapter that is loaded without is_trainable=True changes in training."""
    yield from go_on(ctx)


@call(CONTINUING, phase=Phase.OPTIMIZER, requires=("cpu_scaler",))
def go_on_with_is_trainable(ctx: Context) -> Iterator[Check]:
    """An adapter that is loaded with is_trainable=True changes in training."""
    yield from go_on(ctx, is_trainable=True)


def go_on(ctx: Context, **arguments: Any) -> Iterator[Check]:
    """One step with a gradient scaler, as float16 training does it."""
    import torch
    from peft import PeftModel

    model = PeftModel.from_pretrained(models.loaded(ctx, dtype="fp32"), models.saved_adapter(ctx), **arguments)
    model.enable_input_require_grads()
    before = models.projection(model).lora_B["default"].weight.detach().clone()
    optimiser, scaler = torch.optim.AdamW(model.parameters()), torch.amp.GradScaler(ctx.place.kind)
    scaler.scale(model(models.ids(model), labels=models.ids(model)).loss).backward()
    scaler.step(optimiser)
    scaler.update()
    moved = relative(models.projection(model).lora_B["default"].weight.detach(), before)
    yield at_least("how far an adapter's weight moved", moved, UNIT_ROUNDOFF["fp32"])


@call(LOADING, phase=Phase.RELOAD)
def offload_dir(ctx: Context) -> Iterator[Check]:
    """An adapter loads on a model with a layer on disk if offload_dir names the folder."""
    yield from on_disk(ctx, offload_dir=str(ctx.kept / "again"))


@call(LOADING, phase=Phase.RELOAD)
def offload_folder(ctx: Context) -> Iterator[Check]:
    """An adapter loads on a model with a layer on disk if offload_folder names the folder."""
    yield from on_disk(ctx, offload_folder=str(ctx.kept / "again"))


def on_disk(ctx: Context, **where: str) -> Iterator[Check]:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    folder = models.published(ctx, models.variant(num_hidden_layers=2 * tiny.LAYERS), "fp32")
    model = models.adapted(models.loaded(ctx, dtype="fp32", folder=folder))
    expected = models.logits(model)
    model.save_pretrained(ctx.kept / "adapter")
    short: dict[str, Any] = {"device_map": "auto", "max_memory": {"cpu": MEMORY}}
    base = AutoModelForCausalLM.from_pretrained(folder, offload_folder=str(ctx.kept / "offload"), **short)
    yield at_least("modules on disk", sum(each == "disk" for each in base.hf_device_map.values()), 1)
    model = PeftModel.from_pretrained(base, ctx.kept / "adapter", **short, **where)
    yield at_most("logits", relative(models.logits(model), expected), FP32)


@call(LOADING, phase=Phase.RELOAD)
def classifier_head(ctx: Context) -> Iterator[Check]:
    """The trained head of a classifier is restored with its adapter."""
    yield from head_restored(ctx, "none", "fp32")


@call(LOADING, phase=Phase.RELOAD, requires=("4bit", "4bit_loading"))
def classifier_head_nf4(ctx: Context) -> Iterator[Check]:
    """The trained head of a classifier on a 4-bit base is restored with its adapter."""
    yield from head_restored(ctx, "nf4", "bf16")


def head_restored(ctx: Context, quant: str, dtype: str) -> Iterator[Check]:
    import torch
    from peft import PeftModel, get_peft_model

    model = get_peft_model(classifier(ctx, quant, dtype), models.config(task_type="SEQ_CLS"))
    trained = [p for p in model.parameters() if p.requires_grad]
    head = {n: p.detach().clone() for n, p in model.named_parameters() if "score" in n}
    optimiser = torch.optim.SGD(trained, lr=1.0)
    labels = torch.tensor([0, 1, 0, 1], device=models.ids(model).device)
    model(input_ids=models.ids(model), labels=labels).loss.backward()
    optimiser.step()
    moved = {n for n, p in model.named_parameters() if "score" in n and not torch.equal(p, head[n])}
    yield equal("weights of the head that moved", "+".join(sorted(n.split("score.")[1] for n in moved)), HEAD)
    expected = models.logits(model)
    model.save_pretrained(ctx.kept / "adapter")
    again = PeftModel.from_pretrained(classifier(ctx, quant, dtype), ctx.kept / "adapter")
    yield at_most("reloaded logits", relative(models.logits(again), expected), UNIT_ROUNDOFF[dtype])


HEAD = "modules_to_save.default.weight"


def classifier(ctx: Context, quant: str, dtype: str) -> Any:
    import torch
    from transformers import AutoModelForSequenceClassification

    torch.manual_seed(0)  # the head is new, each time the same
    arguments = compat.load_arguments(models.chosen(quant, dtype), ctx.place.device)
    return AutoModelForSequenceClassification.from_pretrained(architectures.plain_checkpoint(ctx.cache), **arguments)
