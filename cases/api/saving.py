"""Adapters and merged models as files: what is written, and what comes back from it."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from cases.api import call, made
from cases.apply import compat
from cases.model import architectures, tiny
from cases.reference.tolerance import UNIT_ROUNDOFF, relative
from cases.space.verdict import Phase, at_least, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cases.apply.context import Setting
    from cases.space.verdict import Check

LOADING = "Loading adapters"
SAVING = "Saving merged models"
CONTINUING = "Going on with an adapter"
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
def mismatched_keys(here: Setting) -> Iterator[Check]:
    """An adapter none of whose weights has a place in the model does not load in silence."""
    from peft import PeftModel

    folder = made.saved_adapter(here)
    renamed(folder)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        PeftModel.from_pretrained(made.loaded(here, dtype="fp32"), folder)
    told = sum("missing adapter keys" in str(each.message) for each in heard)
    yield at_least("warnings of missing adapter weights", told, 1)


@call(LOADING, phase=Phase.RELOAD)
def mismatched_keys_merged(here: Setting) -> Iterator[Check]:
    """An adapter whose weights are called otherwise than the model's modules has an effect when it is merged."""
    from peft import PeftModel

    folder = made.saved_adapter(here)
    renamed(folder)
    base = made.logits(made.loaded(here, dtype="fp32"))
    merged = PeftModel.from_pretrained(made.loaded(here, dtype="fp32"), folder).merge_and_unload()
    yield at_least("what the merged adapter changed", relative(made.logits(merged), base), 0.01)


@call(LOADING, phase=Phase.RELOAD)
def matching_keys_merged(here: Setting) -> Iterator[Check]:
    """An adapter has an effect when it is loaded and merged."""
    from peft import PeftModel

    folder = made.saved_adapter(here)
    base = made.logits(made.loaded(here, dtype="fp32"))
    merged = PeftModel.from_pretrained(made.loaded(here, dtype="fp32"), folder).merge_and_unload()
    yield at_least("what the merged adapter changed", relative(made.logits(merged), base), 0.01)


def resized(model: Any) -> Any:
    model.resize_token_embeddings(tiny.VOCABULARY + ADDED)
    return model


def with_added_tokens(here: Setting) -> tuple[Path, Any]:
    """An adapter trained after tokens were added, and what it infers."""
    model = made.adapted(resized(made.loaded(here, dtype="fp32")), modules_to_save=["embed_tokens", "lm_head"])
    model.save_pretrained(here.kept / "adapter")
    return here.kept / "adapter", made.logits(model)


@call(LOADING, phase=Phase.RELOAD)
def added_tokens(here: Setting) -> Iterator[Check]:
    """An adapter trained after tokens were added loads on the published base."""
    from peft import PeftModel

    folder, expected = with_added_tokens(here)
    model = PeftModel.from_pretrained(made.loaded(here, dtype="fp32"), folder)
    yield at_most("reloaded logits", relative(made.logits(model), expected), FP32)


@call(LOADING, phase=Phase.RELOAD)
def added_tokens_resized_first(here: Setting) -> Iterator[Check]:
    """An adapter trained after tokens were added loads on a base with as many."""
    from peft import PeftModel

    folder, expected = with_added_tokens(here)
    model = PeftModel.from_pretrained(resized(made.loaded(here, dtype="fp32")), folder)
    yield at_most("reloaded logits", relative(made.logits(model), expected), FP32)


def tokeniser(size: int) -> Any:
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    first, *others = (f"w{number}" for number in range(size))
    words = {word: number for number, word in enumerate([first, *others])}
    known = Tokenizer(models.WordLevel(words, unk_token=first))
    return PreTrainedTokenizerFast(tokenizer_object=known, unk_token=first, pad_token=first, eos_token=first)


def spare_embeddings(here: Setting, *, auto: bool) -> Iterator[Check]:
    from peft import AutoPeftModelForCausalLM, PeftModel

    model = made.adapted(made.loaded(here, dtype="fp32"), modules_to_save=["lm_head"])
    expected, folder = made.logits(model), here.kept / "adapter"
    model.save_pretrained(folder)
    tokeniser(tiny.VOCABULARY - 28).save_pretrained(folder)
    if auto:
        again = AutoPeftModelForCausalLM.from_pretrained(folder)
    else:
        again = PeftModel.from_pretrained(made.loaded(here, dtype="fp32"), folder)
    yield at_most("reloaded logits", relative(made.logits(again), expected), FP32)


@call(LOADING, phase=Phase.RELOAD)
def spare_embeddings_auto(here: Setting) -> Iterator[Check]:
    """AutoPeftModel loads an adapter of a model with more embeddings than its tokeniser has tokens."""
    yield from spare_embeddings(here, auto=True)


@call(LOADING, phase=Phase.RELOAD)
def spare_embeddings_by_hand(here: Setting) -> Iterator[Check]:
    """PeftModel on the base loads an adapter of a model with more embeddings than its tokeniser has tokens."""
    yield from spare_embeddings(here, auto=False)


def half_adapter(here: Setting) -> Path:
    """An adapter whose weights are bfloat16, for a base in bfloat16."""
    from peft import get_peft_model

    model = get_peft_model(made.loaded(here), made.config(), **narrow(get_peft_model))
    folder = here.kept / "adapter"
    model.save_pretrained(folder)
    return folder


def narrow(function: Any) -> dict[str, Any]:
    """What keeps adapters in the dtype of the base; before peft 0.12 nothing else was done."""
    return {"autocast_adapter_dtype": False} if compat.has_adapter_autocast() or not function else {}


def widened(model: Any) -> int:
    import torch

    return sum(p.dtype is torch.float32 for name, p in model.named_parameters() if tiny.is_adapter(name))


@call(LOADING, phase=Phase.RELOAD)
def half_adapter_by_default(here: Setting) -> Iterator[Check]:
    """An adapter saved in bfloat16 loads in bfloat16 by default."""
    from peft import PeftModel

    model = PeftModel.from_pretrained(made.loaded(here), half_adapter(here))
    yield equal("adapter weights in float32", widened(model), 0)


@call(LOADING, phase=Phase.RELOAD, needs=("adapter_dtype",))
def half_adapter_asked_for(here: Setting) -> Iterator[Check]:
    """An adapter saved in bfloat16 loads in bfloat16 with autocast_adapter_dtype=False."""
    from peft import PeftModel

    model = PeftModel.from_pretrained(made.loaded(here), half_adapter(here), autocast_adapter_dtype=False)
    yield equal("adapter weights in float32", widened(model), 0)


@call(LOADING, phase=Phase.RELOAD, needs=("adapter_dtype",))
def half_adapter_auto(here: Setting) -> Iterator[Check]:
    """AutoPeftModel does as it is told with autocast_adapter_dtype=False."""
    from peft import AutoPeftModelForCausalLM

    arguments = compat.load_arguments(made.chosen(), here.place.device)
    folder = half_adapter(here)
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
def merged_dtype_by_default(here: Setting) -> Iterator[Check]:
    """A bfloat16 model, loaded without naming a dtype and merged, is saved in bfloat16."""
    from transformers import AutoModelForCausalLM

    model = made.adapted(AutoModelForCausalLM.from_pretrained(made.published(here, architectures.plain_config())))
    model.merge_and_unload().save_pretrained(here.kept / "merged")
    yield equal("dtype of the merged checkpoint", dtypes(here.kept / "merged"), "bf16")


@call(SAVING, phase=Phase.SAVE)
def merged_dtype_named(here: Setting) -> Iterator[Check]:
    """A bfloat16 model, loaded as such and merged, is saved in bfloat16."""
    model = made.adapted(made.loaded(here, folder=made.published(here, architectures.plain_config())))
    model.merge_and_unload().save_pretrained(here.kept / "merged")
    yield equal("dtype of the merged checkpoint", dtypes(here.kept / "merged"), "bf16")


def left_over(folder: Path) -> Iterator[Check]:
    yield equal("adapter files beside the merged model", len(list(folder.glob("adapter_*"))), 0)
    yield at_least("files of the merged model", len(list(folder.glob("model*.safetensors"))), 1)


@call(SAVING, phase=Phase.SAVE)
def merged_without_adapter_files(here: Setting) -> Iterator[Check]:
    """A merged model is saved without adapter files."""
    from peft import PeftModel

    model = PeftModel.from_pretrained(made.loaded(here, dtype="fp32"), made.saved_adapter(here))
    model.merge_and_unload().save_pretrained(here.kept / "merged")
    yield from left_over(here.kept / "merged")


@call(SAVING, phase=Phase.SAVE)
def merged_from_adapter_folder(here: Setting) -> Iterator[Check]:
    """A model whose base was loaded by the adapter's folder is saved without adapter files once it is merged."""
    from peft import PeftModel

    folder = made.saved_adapter(here)
    model = PeftModel.from_pretrained(made.loaded(here, dtype="fp32", folder=folder), folder)
    model.merge_and_unload().save_pretrained(here.kept / "merged")
    yield from left_over(here.kept / "merged")


@call(CONTINUING, phase=Phase.OPTIMIZER, needs=("cpu_scaler",))
def go_on_without_is_trainable(here: Setting) -> Iterator[Check]:
    """An adapter loaded to be trained further is trained."""
    yield from go_on(here)


@call(CONTINUING, phase=Phase.OPTIMIZER, needs=("cpu_scaler",))
def go_on_with_is_trainable(here: Setting) -> Iterator[Check]:
    """An adapter loaded with is_trainable=True is trained further."""
    yield from go_on(here, is_trainable=True)


def go_on(here: Setting, **arguments: Any) -> Iterator[Check]:
    """One step with a gradient scaler, as float16 training does it."""
    import torch
    from peft import PeftModel

    model = PeftModel.from_pretrained(made.loaded(here, dtype="fp32"), made.saved_adapter(here), **arguments)
    model.enable_input_require_grads()
    before = made.projection(model).lora_B["default"].weight.detach().clone()
    optimiser, scaler = torch.optim.AdamW(model.parameters()), torch.amp.GradScaler(here.place.kind)
    scaler.scale(model(made.ids(model), labels=made.ids(model)).loss).backward()
    scaler.step(optimiser)
    scaler.update()
    moved = relative(made.projection(model).lora_B["default"].weight.detach(), before)
    yield at_least("how far an adapter's weight moved", moved, UNIT_ROUNDOFF["fp32"])


@call(LOADING, phase=Phase.RELOAD)
def offload_dir(here: Setting) -> Iterator[Check]:
    """An adapter loads on a model with a layer on disk when offload_dir says where."""
    yield from on_disk(here, offload_dir=str(here.kept / "again"))


@call(LOADING, phase=Phase.RELOAD)
def offload_folder(here: Setting) -> Iterator[Check]:
    """An adapter loads on a model with a layer on disk when offload_folder says where."""
    yield from on_disk(here, offload_folder=str(here.kept / "again"))


def on_disk(here: Setting, **where: str) -> Iterator[Check]:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    folder = made.published(here, made.variant(num_hidden_layers=2 * tiny.LAYERS), "fp32")
    model = made.adapted(made.loaded(here, dtype="fp32", folder=folder))
    expected = made.logits(model)
    model.save_pretrained(here.kept / "adapter")
    short: dict[str, Any] = {"device_map": "auto", "max_memory": {"cpu": MEMORY}}
    base = AutoModelForCausalLM.from_pretrained(folder, offload_folder=str(here.kept / "offload"), **short)
    yield at_least("modules on disk", sum(each == "disk" for each in base.hf_device_map.values()), 1)
    model = PeftModel.from_pretrained(base, here.kept / "adapter", **short, **where)
    yield at_most("logits", relative(made.logits(model), expected), FP32)


@call(LOADING, phase=Phase.RELOAD)
def classifier_head(here: Setting) -> Iterator[Check]:
    """The trained head of a classifier comes back with its adapter."""
    yield from head_restored(here, "none", "fp32")


@call(LOADING, phase=Phase.RELOAD, needs=("4bit", "4bit_loading"))
def classifier_head_nf4(here: Setting) -> Iterator[Check]:
    """The trained head of a classifier on a 4-bit base comes back with its adapter."""
    yield from head_restored(here, "nf4", "bf16")


def head_restored(here: Setting, quant: str, dtype: str) -> Iterator[Check]:
    import torch
    from peft import PeftModel, get_peft_model

    model = get_peft_model(classifier(here, quant, dtype), made.config(task_type="SEQ_CLS"))
    trained = [p for p in model.parameters() if p.requires_grad]
    head = {n: p.detach().clone() for n, p in model.named_parameters() if "score" in n}
    optimiser = torch.optim.SGD(trained, lr=1.0)
    labels = torch.tensor([0, 1, 0, 1], device=made.ids(model).device)
    model(input_ids=made.ids(model), labels=labels).loss.backward()
    optimiser.step()
    moved = {n for n, p in model.named_parameters() if "score" in n and not torch.equal(p, head[n])}
    yield equal("weights of the head that moved", "+".join(sorted(n.split("score.")[1] for n in moved)), HEAD)
    expected = made.logits(model)
    model.save_pretrained(here.kept / "adapter")
    again = PeftModel.from_pretrained(classifier(here, quant, dtype), here.kept / "adapter")
    yield at_most("reloaded logits", relative(made.logits(again), expected), UNIT_ROUNDOFF[dtype])


HEAD = "modules_to_save.default.weight"


def classifier(here: Setting, quant: str, dtype: str) -> Any:
    import torch
    from transformers import AutoModelForSequenceClassification

    torch.manual_seed(0)  # the head is new, each time the same
    arguments = compat.load_arguments(made.chosen(quant, dtype), here.place.device)
    return AutoModelForSequenceClassification.from_pretrained(architectures.plain_checkpoint(here.cache), **arguments)
