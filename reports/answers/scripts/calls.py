"""The calls that load, adapt and train a model, from a case's options: the one place where options become code.

``cases/`` makes the same calls; a test compares them with calls that were recorded while cases ran.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from packaging.version import Version

from cases.apply import attention
from cases.model import adapters, architectures, tiny
from cases.reference.quantisation import MAX_NORM
from cases.reference.twin import ADAM_EPS, LEARNING_RATE
from cases.space.options import FOUR_BIT, PROMPTS
from reports.answers.scripts.python_text import Code, CodeCall

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cases.space.options import Options

TORCH: Final[Mapping[str, Code]] = {
    name: Code(f"torch.{long}")
    for name, long in (("fp32", "float32"), ("bf16", "bfloat16"), ("fp16", "float16"), ("uint8", "uint8"))
}
TRAINED: Final = "[p for p in model.parameters() if p.requires_grad]"
OPTIMIZERS: Final = {
    "sgd": "torch.optim.SGD",
    "adamw": "torch.optim.AdamW",
    "adamw_8bit": "bitsandbytes.optim.AdamW8bit",
    "paged_adamw_8bit": "bitsandbytes.optim.PagedAdamW8bit",
}
# Arguments of optimisers whose values suit the tiny model and its few steps, whatever the options are.
TINY: Final = ("lr", "eps", "min_8bit_size")

# Since which version of a package an argument or a class has its present name. ``cases/apply/compat.py`` looks.
SINCE: Final = {
    "dtype": ("transformers", "4.56"),  # torch_dtype before, which went on working
    "autocast_adapter_dtype": ("peft", "0.12"),
    "processing_class of Trainer": ("transformers", "4.46"),  # tokenizer before
    "processing_class of SFTTrainer": ("trl", "0.12"),
    "SFTConfig": ("trl", "0.9"),
    "fully_shard in torch.distributed.fsdp": ("torch", "2.6"),
}


@dataclass(frozen=True)
class ApiVersions:
    """The versions that a script is written for, and those of a script that it is compared with, if there is one."""

    pins: Mapping[str, str]
    compared: Mapping[str, str] | None = None

    def has(self, name: str) -> bool:
        return since(name, self.pins)

    @property
    def dtype(self) -> str:
        """The argument of ``from_pretrained``; the new name only if both scripts can use it, as it is no edit."""
        both = self.has("dtype") and (self.compared is None or since("dtype", self.compared))
        return "dtype" if both else "torch_dtype"


def since(name: str, pins: Mapping[str, str]) -> bool:
    package, version = SINCE[name]
    return package not in pins or Version(pins[package]) >= Version(version)


def quantization(options: Options) -> CodeCall:
    """The configuration of bitsandbytes; only for options with ``quant``."""
    skipped = {"llm_int8_skip_modules": ["lm_head", tiny.SKIPPED]} if options.llm_int8_skip_modules else {}
    if options.quant not in FOUR_BIT:
        return CodeCall("BitsAndBytesConfig", named={"load_in_8bit": True, **skipped})
    compute = options.torch_dtype if options.bnb_4bit_compute_dtype == "load" else options.bnb_4bit_compute_dtype
    four_bit = {
        "load_in_4bit": True,
        "bnb_4bit_quant_type": options.quant,
        "bnb_4bit_use_double_quant": options.bnb_4bit_use_double_quant,
        "bnb_4bit_compute_dtype": TORCH[compute],
        "bnb_4bit_quant_storage": TORCH[options.bnb_4bit_quant_storage],
    }
    return CodeCall("BitsAndBytesConfig", named={**four_bit, **skipped})


def load(
    options: Options, api: ApiVersions, folder: str, *, quantization_config: CodeCall | Code | None = None
) -> CodeCall:
    """``from_pretrained``; without ``quantization_config``, the checkpoint is unquantised or brings its own."""
    arguments: dict[str, Any] = {api.dtype: TORCH[options.torch_dtype]}
    if attention.implementation(options):
        arguments["attn_implementation"] = attention.implementation(options)
    if quantization_config is not None:
        arguments["quantization_config"] = quantization_config
    if options.quant != "none":
        arguments["device_map"] = Code('{"": device}')
    return CodeCall(f"{auto_class(options)}.from_pretrained", (folder,), arguments)


def load_empty(options: Options, api: ApiVersions, folder: str) -> CodeCall:
    """A model from its configuration alone, for ranks that receive their weights."""
    configuration = CodeCall("AutoConfig.from_pretrained", (folder,))
    return CodeCall(
        f"{auto_class(options)}.from_config", (repr(configuration),), {api.dtype: TORCH[options.torch_dtype]}
    )


def auto_class(options: Options) -> str:
    return "AutoModelForSeq2SeqLM" if architectures.spec(options).encoder_decoder else "AutoModelForCausalLM"


def checkpointing(options: Options) -> CodeCall:
    arguments = {"gradient_checkpointing_kwargs": reentrant(options)}
    return CodeCall("model.gradient_checkpointing_enable", named=arguments)


def reentrant(options: Options) -> dict[str, bool]:
    return {"use_reentrant": options.gradient_checkpointing == "reentrant"}


def adapter(options: Options) -> CodeCall:
    """PEFT's configuration; not for ``method=full``."""
    name, arguments = adapters.CONFIGS[options.method]
    of_model = architectures.adapter_arguments(options)
    if options.method in PROMPTS:
        return CodeCall(name, named={"task_type": of_model["task_type"], **arguments})
    return CodeCall(name, named={**of_model, **arguments, **adapters.placed(options)})


def adapted(options: Options, api: ApiVersions, configuration: CodeCall | str = "adapter") -> CodeCall:
    """``get_peft_model``."""
    known = api.has("autocast_adapter_dtype")
    arguments = {"autocast_adapter_dtype": options.autocast_adapter_dtype} if known else {}
    return CodeCall("get_peft_model", ("model", str(configuration)), arguments)


def optimizer(options: Options) -> CodeCall:
    arguments: dict[str, Any] = {"lr": LEARNING_RATE[options.optim]}
    if options.optim != "sgd":
        arguments["eps"] = ADAM_EPS
    if options.optim.endswith("8bit"):
        arguments["min_8bit_size"] = 1
    if options.optim_implementation != "default":
        arguments[options.optim_implementation] = True
    return CodeCall(OPTIMIZERS[options.optim], (TRAINED,), arguments)


def scaler(options: Options) -> CodeCall:
    """The gradient scaler of ``autocast=fp16``; FSDP1 has one that agrees on overflows across ranks."""
    if options.strategy == "fsdp1":
        return CodeCall("ShardedGradScaler", named={"device": Code("device.type")})
    return CodeCall("torch.amp.GradScaler", ("device.type",))


def clipping(options: Options) -> CodeCall:
    """FSDP1's own method, which knows the gradients of all ranks; torch's function for all other models."""
    if options.strategy == "fsdp1":
        return CodeCall("model.clip_grad_norm_", (str(MAX_NORM),))
    return CodeCall("torch.nn.utils.clip_grad_norm_", (TRAINED, str(MAX_NORM)))


def autocast(options: Options) -> CodeCall:
    return CodeCall("torch.autocast", ("device.type",), {"dtype": TORCH[options.autocast]})


def kernels(options: Options) -> CodeCall:
    """The context in which attention has one back end to choose from."""
    return CodeCall("sdpa_kernel", (f"[SDPBackend.{attention.BACK_ENDS[options.attn_implementation][0]}]",))


def accelerator(options: Options) -> CodeCall:
    arguments: dict[str, Any] = {
        "mixed_precision": "no" if options.autocast == "off" else options.autocast,
        "gradient_accumulation_steps": options.gradient_accumulation_steps,
    }
    if options.strategy == "ddp":
        arguments["kwargs_handlers"] = [CodeCall("DistributedDataParallelKwargs", named=ddp_flags(options))]
    return CodeCall("Accelerator", named=arguments)


def ddp_flags(options: Options) -> dict[str, bool]:
    flags = ("find_unused_parameters", "static_graph", "gradient_as_bucket_view")
    return {flag: getattr(options, flag) for flag in flags}


def accelerator_clipping() -> CodeCall:
    return CodeCall("accelerator.clip_grad_norm_", ("model.parameters()", str(MAX_NORM)))


def training_arguments(options: Options, api: ApiVersions) -> CodeCall:
    """``TrainingArguments``, or TRL's own where it has them."""
    own = options.front_end == "sft" and api.has("SFTConfig")
    arguments: dict[str, Any] = {
        "output_dir": "output",
        "per_device_train_batch_size": tiny.rows_at_once(options.world_size, options.gradient_accumulation_steps),
        "gradient_accumulation_steps": options.gradient_accumulation_steps,
        "max_grad_norm": MAX_NORM if options.clip_grad_norm else 0.0,
        "bf16": options.autocast == "bf16",
        "fp16": options.autocast == "fp16",
        "gradient_checkpointing": options.gradient_checkpointing != "off",
        "ddp_find_unused_parameters": options.find_unused_parameters,
        "save_strategy": "steps" if options.flow == "resume" else "no",
    }
    if options.gradient_checkpointing != "off":
        arguments["gradient_checkpointing_kwargs"] = reentrant(options)
    return CodeCall("SFTConfig" if own else "TrainingArguments", named=arguments)


def trainer(options: Options, api: ApiVersions) -> CodeCall:
    of_class = "SFTTrainer" if options.front_end == "sft" else "Trainer"
    tokenizer = "processing_class" if api.has(f"processing_class of {of_class}") else "tokenizer"
    arguments: dict[str, Any] = {"model": Code("model"), "args": Code("arguments"), "train_dataset": Code("dataset")}
    arguments[tokenizer] = Code("tokenizer")
    if of_class == "Trainer":
        arguments["data_collator"] = Code("default_data_collator")
    elif not api.has("SFTConfig"):  # which takes no rows that are tokenised
        arguments |= {"dataset_text_field": "text", "packing": False}
    if trainer_adapts(options):
        arguments["peft_config"] = Code("adapter")
    return CodeCall(of_class, named=arguments)


def trainer_adapts(options: Options) -> bool:
    """SFTTrainer adds the adapter, unless an argument of ``get_peft_model`` is needed."""
    needs_argument = options.torch_dtype != "fp32" and not options.autocast_adapter_dtype
    return options.front_end == "sft" and options.method != "full" and not needs_argument
