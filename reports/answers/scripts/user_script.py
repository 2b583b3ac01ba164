"""The script that does what a case does, as a user writes it: the lines that options have a say in, in their order.

It is whole and valid but for what is the user's own: the model, the tokenizer, the batches and the imports.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from packaging.version import Version

from cases.model import adapters, architectures
from cases.space.options import FOUR_BIT, SHARDED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from cases.space.options import Options

TORCH: Final = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16", "uint8": "uint8"}
SHARDING: Final = {"full_shard": "FULL_SHARD", "shard_grad_op": "SHARD_GRAD_OP", "no_shard": "NO_SHARD"}
BACK_ENDS: Final = {
    "math": "MATH",
    "flash": "FLASH_ATTENTION",
    "efficient": "EFFICIENT_ATTENTION",
    "cudnn": "CUDNN_ATTENTION",
}

# What ``cases/apply/compat.py`` finds by looking: since which version of what.
SINCE: Final = {
    "dtype": ("transformers", "4.56"),  # torch_dtype before, which went on working
    "autocast_adapter_dtype": ("peft", "0.12"),
    "processing_class of Trainer": ("transformers", "4.46"),  # tokenizer before
    "processing_class of SFTTrainer": ("trl", "0.12"),
    "SFTConfig": ("trl", "0.9"),
}


@dataclass(frozen=True)
class Api:
    """What the libraries have at some versions. ``beside``: those of a script that this one is compared with."""

    pins: Mapping[str, str]
    beside: Mapping[str, str]

    def has(self, name: str) -> bool:
        return since(name, self.pins)

    @property
    def dtype(self) -> str:
        """What ``from_pretrained`` calls it; a new name that both sides need not use is no edit."""
        return "dtype" if self.has("dtype") and since("dtype", self.beside) else "torch_dtype"


def since(name: str, pins: Mapping[str, str]) -> bool:
    package, version = SINCE[name]
    return package not in pins or Version(pins[package]) >= Version(version)


def lines(options: Options, api: Api) -> list[str]:
    """From loading to what is done with the trained model."""
    parts = (loading(options, api), adapting(options, api), training(options, api), afterwards(options))
    return [line for part in parts for line in part]


def loading(options: Options, api: Api) -> list[str]:
    """The base model; of a quantised checkpoint, how that was made comes first."""
    asked = {"default": "", **dict.fromkeys(BACK_ENDS, "sdpa")}.get(
        options.attn_implementation, options.attn_implementation
    )
    how = {
        api.dtype: f"torch.{TORCH[options.torch_dtype]}",
        "attn_implementation": f'"{asked}"' if asked else "",
        "tie_word_embeddings": "True" if architectures.is_tied(options) else "",
        "device_map": '{"": device}' if options.quant != "none" else "",
    }
    quantised = {**how, "quantization_config": "quantization"}
    of_class = "AutoModelForSeq2SeqLM" if architectures.spec(options).encoder_decoder else "AutoModelForCausalLM"
    load = f"model = {of_class}.from_pretrained"
    if options.quant == "none":
        lines = called(load, ["MODEL"], how)
    elif options.prequantised:
        lines = [*quantisation(options), *called(load, ["MODEL"], quantised), 'model.save_pretrained("quantised")']
        lines += called(load, ['"quantised"'], how)
    else:
        lines = [*quantisation(options), *called(load, ["MODEL"], quantised)]
    if options.cpu_ram_efficient_loading:
        empty = ["    with init_empty_weights(include_buffers=False):"]
        empty += [f"        model = {of_class}.from_config(AutoConfig.from_pretrained(MODEL))"]
        lines = ["if rank == 0:", *indented(lines), "else:", *empty]
    return [*lines, *(["model.resize_token_embeddings(len(tokenizer))"] if options.embeddings == "resized" else [])]


def quantisation(options: Options) -> list[str]:
    skipped = '["lm_head", "v_proj"]' if options.llm_int8_skip_modules else ""
    if options.quant not in FOUR_BIT:
        return called(
            "quantization = BitsAndBytesConfig", [], {"load_in_8bit": "True", "llm_int8_skip_modules": skipped}
        )
    compute = options.torch_dtype if options.bnb_4bit_compute_dtype == "load" else options.bnb_4bit_compute_dtype
    arguments = {
        "load_in_4bit": "True",
        "bnb_4bit_quant_type": f'"{options.quant}"',
        "bnb_4bit_use_double_quant": str(options.bnb_4bit_use_double_quant),
        "bnb_4bit_compute_dtype": f"torch.{TORCH[compute]}",
        "bnb_4bit_quant_storage": f"torch.{TORCH[options.bnb_4bit_quant_storage]}",
        "llm_int8_skip_modules": skipped,
    }
    return called("quantization = BitsAndBytesConfig", [], arguments)


def adapting(options: Options, api: Api) -> list[str]:
    """Gradient checkpointing and the adapter; a trainer is told of both by its arguments."""
    by_trainer = options.front_end in ("trainer", "sft")
    said: list[str] = []
    if options.gradient_checkpointing != "off":
        kwargs = {"gradient_checkpointing_kwargs": reentrant(options)}
        said += [] if by_trainer else called("model.gradient_checkpointing_enable", [], kwargs)
        said += [] if options.method == "full" else ["model.enable_input_require_grads()"]
    if options.method == "full":
        return said
    name, arguments = adapters.CONFIGS[options.method]
    stated = {**architectures.adapter_arguments(options), **arguments, **adapters.placed(options)}
    if options.method in ("prompt", "prefix"):
        stated = {"task_type": stated["task_type"], **arguments}
    said += called(f"adapter = {name}", [], {key: quoted(value) for key, value in stated.items()})
    if trainer_adapts(options):
        return said
    chosen = "autocast_adapter_dtype" in options.stated and api.has("autocast_adapter_dtype")
    autocast = str(options.autocast_adapter_dtype) if chosen else ""
    return [*said, *called("model = get_peft_model", ["model", "adapter"], {"autocast_adapter_dtype": autocast})]


def trainer_adapts(options: Options) -> bool:
    """SFTTrainer takes the adapter's configuration, but for what only ``get_peft_model`` can be told."""
    asks = options.torch_dtype != "fp32" and not options.autocast_adapter_dtype
    return options.front_end == "sft" and options.method != "full" and not asks


def training(options: Options, api: Api) -> list[str]:
    if "optim" not in options.stated:
        return []
    if options.front_end in ("trainer", "sft"):
        return trained(options, api)
    return loop(options) if options.front_end == "loop" else accelerated(options)


def loop(options: Options) -> list[str]:
    return [*wrapping(options), *compiled(options), *optimiser(options), *steps(options)]


def wrapping(options: Options) -> list[str]:
    ways: Mapping[str, Callable[[Options], list[str]]] = {"ddp": ddp, "fsdp1": fsdp1, "fsdp2": fsdp2}
    return ways[options.strategy](options) if options.strategy in ways else ["model.to(device)"]


def ddp(options: Options) -> list[str]:
    flags = ("find_unused_parameters", "static_graph", "gradient_as_bucket_view")
    return called("model = DistributedDataParallel", ["model"], {flag: str(getattr(options, flag)) for flag in flags})


def fsdp1(options: Options) -> list[str]:
    policies = {
        "none": "None",
        "transformer": f"ModuleWrapPolicy({{{', '.join(architectures.spec(options).block)}}})",
        "peft": "fsdp_auto_wrap_policy(model)",
        "size": "functools.partial(size_based_auto_wrap_policy, min_num_params=20_000)",
    }
    sharding = "HYBRID_SHARD" if options.device_mesh == "hsdp" else SHARDING[options.sharding_strategy]
    arguments = {
        "auto_wrap_policy": policies[options.auto_wrap_policy],
        "sharding_strategy": f"ShardingStrategy.{sharding}",
        "device_mesh": two_by_two(options),
        "use_orig_params": str(options.use_orig_params),
        "sync_module_states": str(options.sync_module_states),
        "mixed_precision": precision("MixedPrecision", options),
        "cpu_offload": "CPUOffload(offload_params=True)" if options.cpu_offload else "",
        "param_init_fn": "lambda module: module.to_empty(device=device, recurse=False)"
        if options.cpu_ram_efficient_loading
        else "",
        "device_id": "device",
    }
    found = called("model = FullyShardedDataParallel", ["model"], arguments)
    return (
        ["from peft.utils.other import fsdp_auto_wrap_policy", *found] if options.auto_wrap_policy == "peft" else found
    )


def fsdp2(options: Options) -> list[str]:
    arguments = {
        "mesh": two_by_two(options),
        "reshard_after_forward": str(options.reshard_after_forward),
        "mp_policy": precision("MixedPrecisionPolicy", options),
        "offload_policy": "CPUOffloadPolicy()" if options.cpu_offload else "",
    }
    given = ", ".join(f"{name}={value}" for name, value in arguments.items() if value)
    of_layers = [
        "for layer in model.modules():",
        f"    if type(layer).__name__ in {architectures.spec(options).block!r}:",
        f"        fully_shard(layer, {given})",
    ]
    return [*(of_layers if options.auto_wrap_policy == "transformer" else []), f"fully_shard(model, {given})"]


def two_by_two(options: Options) -> str:
    names = '("replicate", "shard")'
    return f"init_device_mesh(device.type, (2, 2), mesh_dim_names={names})" if options.device_mesh == "hsdp" else ""


def precision(of_class: str, options: Options) -> str:
    reduction = {"bf16": "torch.bfloat16", "bf16_reduce_fp32": "torch.float32"}.get(options.mixed_precision)
    # As accelerate translates bf16; FSDP2's policy knows no buffers.
    buffers = options.strategy == "fsdp1" and options.mixed_precision == "bf16"
    more = ", buffer_dtype=torch.bfloat16" if buffers else ""
    return f"{of_class}(param_dtype=torch.bfloat16, reduce_dtype={reduction}{more})" if reduction else ""


def compiled(options: Options) -> list[str]:
    return ["model.compile()"] if options.torch_compile else []


def optimiser(options: Options) -> list[str]:
    of_class = {
        "sgd": "torch.optim.SGD",
        "adamw": "torch.optim.AdamW",
        "adamw_8bit": "bitsandbytes.optim.AdamW8bit",
        "paged_adamw_8bit": "bitsandbytes.optim.PagedAdamW8bit",
    }[options.optim]
    stepping: dict[str, str] = (
        {} if options.optim_implementation == "default" else {options.optim_implementation: "True"}
    )
    return called(f"optimizer = {of_class}", ["[p for p in model.parameters() if p.requires_grad]"], stepping)


def steps(options: Options) -> list[str]:
    """The loop, with what each of the options does in it."""
    steps = options.gradient_accumulation_steps
    whole = f"model(**batch).loss{f' / {steps}' if steps > 1 else ''}"
    autocast = (
        f"torch.autocast(device.type, dtype=torch.{TORCH[options.autocast]})" if options.autocast != "off" else ""
    )
    forward = inside([autocast, *kernels(options)], [f"loss = {whole}"])
    scaled = options.autocast == "fp16"
    scaler = (
        "ShardedGradScaler(device=device.type)" if options.strategy == "fsdp1" else "torch.amp.GradScaler(device.type)"
    )
    step = [
        *(["scaler.unscale_(optimizer)"] if scaled and options.clip_grad_norm else []),
        *(["torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"] if options.clip_grad_norm else []),
        *(["scaler.step(optimizer)", "scaler.update()"] if scaled else ["optimizer.step()"]),
        "optimizer.zero_grad()",
    ]
    if options.gradient_accumulation_steps > 1:
        step = [f"if number % {options.gradient_accumulation_steps} == 0:", *indented(step)]
    body = [*forward, f"{'scaler.scale(loss)' if scaled else 'loss'}.backward()", *step, *between(options)]
    return [
        *([f"scaler = {scaler}"] if scaled else []),
        "for number, batch in enumerate(batches, start=1):",
        *indented(body),
    ]


def inside(contexts: Iterable[str], lines: list[str]) -> list[str]:
    given = ", ".join(context for context in contexts if context)
    return [f"with {given}:", *indented(lines)] if given else lines


def kernels(options: Options) -> list[str]:
    """Where attention has one back end to choose from."""
    forced = BACK_ENDS.get(options.attn_implementation)
    return [f"sdpa_kernel([SDPBackend.{forced}])"] if forced else []


def between(options: Options) -> list[str]:
    """What is done with the model between two steps."""
    if options.loop == "eval":
        return ["model.eval()", "with torch.no_grad():", "    model(**evaluated)", "model.train()"]
    if options.loop == "generate":
        return [*generation(options), "model.train()"]
    return []


def generation(options: Options) -> list[str]:
    unwrapped = "model.module" if options.strategy in ("ddp", "fsdp1") else "model"
    line = f"tokens = {unwrapped}.generate(**prompt)"
    if not options.summon_full_params:
        return [line]
    if options.strategy == "fsdp1":
        return [
            "with FullyShardedDataParallel.summon_full_params(model, writeback=False, recurse=False):",
            f"    {line}",
        ]
    return ["model.unshard()", line, "model.reshard()"]


def accelerated(options: Options) -> list[str]:
    flags = ("find_unused_parameters", "static_graph", "gradient_as_bucket_view")
    given = ", ".join(f"{flag}={getattr(options, flag)}" for flag in flags)
    arguments = {
        "mixed_precision": '"no"' if options.autocast == "off" else f'"{options.autocast}"',
        "gradient_accumulation_steps": str(options.gradient_accumulation_steps),
        "kwargs_handlers": f"[DistributedDataParallelKwargs({given})]" if options.strategy == "ddp" else "",
    }
    clipping = ["if accelerator.sync_gradients:", "    accelerator.clip_grad_norm_(model.parameters(), 1.0)"]
    step = [
        *inside(kernels(options), ["loss = model(**batch).loss"]),
        "accelerator.backward(loss)",
        *(clipping if options.clip_grad_norm else []),
        "optimizer.step()",
        "optimizer.zero_grad()",
    ]
    return [
        *called("accelerator = Accelerator", [], arguments),
        *optimiser(options),
        "model, optimizer, batches = accelerator.prepare(model, optimizer, batches)",
        "for batch in batches:",
        *indented(inside(["accelerator.accumulate(model)"], step)),
    ]


def trained(options: Options, api: Api) -> list[str]:
    """By transformers' Trainer, or TRL's."""
    sft = options.front_end == "sft"
    arguments = {
        "per_device_train_batch_size": str(4 // options.world_size // options.gradient_accumulation_steps),
        "gradient_accumulation_steps": str(options.gradient_accumulation_steps),
        "max_grad_norm": "1.0" if options.clip_grad_norm else "0.0",
        "bf16": str(options.autocast == "bf16"),
        "fp16": str(options.autocast == "fp16"),
        "gradient_checkpointing": str(options.gradient_checkpointing != "off"),
        "gradient_checkpointing_kwargs": reentrant(options) if options.gradient_checkpointing != "off" else "",
        "ddp_find_unused_parameters": str(options.find_unused_parameters),
        "save_strategy": '"steps"' if options.flow == "resume" else '"no"',
    }
    trainer, config = ("SFTTrainer", "SFTConfig") if sft else ("Trainer", "TrainingArguments")
    old = sft and not api.has("SFTConfig")  # which takes no rows that are tokenised
    tokenizer = "processing_class" if api.has(f"processing_class of {trainer}") else "tokenizer"
    given = {
        "args": "arguments",
        "train_dataset": "dataset",
        "dataset_text_field": '"text"' if old else "",
        "packing": "False" if old else "",
        tokenizer: "tokenizer",
        "peft_config": "adapter" if trainer_adapts(options) else "",
    }
    return [
        *called(f"arguments = {'TrainingArguments' if old else config}", ['"output"'], arguments),
        *called(f"trainer = {trainer}", ["model"], given),
        *optimiser(options),
        "trainer.create_optimizer = lambda *_: optimizer",
        *inside(kernels(options), ["trainer.train()"]),
    ]


def reentrant(options: Options) -> str:
    return f'{{"use_reentrant": {options.gradient_checkpointing == "reentrant"}}}'


def afterwards(options: Options) -> list[str]:
    """What is done with the trained model."""
    return {
        "save_reload": saving,
        "resume": saving,
        "merge": merging,
        "merge_reload": merging,
        "generate": generation,
        "load": inferring,
        "portability": saving,
    }.get(options.flow, lambda _: [])(options)


def inferring(options: Options) -> list[str]:
    return inside(kernels(options), ["logits = model(**batch).logits"])


def merging(options: Options) -> list[str]:
    merged = ["merged = model.merge_and_unload()"]
    return [*merged, 'merged.save_pretrained("merged")'] if options.flow == "merge_reload" else merged


def saving(options: Options) -> list[str]:
    if options.front_end in ("trainer", "sft"):
        return ['trainer.save_model("output")']
    if options.front_end == "accelerate":
        return ['accelerator.save_state("output")'] if options.flow == "resume" else ['model.save_pretrained("output")']
    if options.strategy not in SHARDED:
        return ['model.save_pretrained("output")']
    return {"sharded": sharded, "full": whole, "full_on_device": whole, "full_dcp": by_dcp}[options.state_dict_type](
        options
    )


def sharded(_options: Options) -> list[str]:
    return [
        "state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=False))",
        'torch.distributed.checkpoint.save({"model": state}, checkpoint_id="output")',
    ]


def whole(options: Options) -> list[str]:
    offload = options.state_dict_type != "full_on_device"
    if options.strategy == "fsdp2":
        return by_dcp(options)
    where = f"FullStateDictConfig(offload_to_cpu={offload}, rank0_only={offload})"
    return [
        "with FullyShardedDataParallel.state_dict_type(",
        f"    model, StateDictType.FULL_STATE_DICT, {where}",
        "):",
        "    state = model.state_dict()",
        'model.module.save_pretrained("output", state_dict=state)',
    ]


def by_dcp(options: Options) -> list[str]:
    offload = options.state_dict_type != "full_on_device"
    asked = f"StateDictOptions(full_state_dict=True, cpu_offload={offload})"
    unwrapped = "model.module" if options.strategy == "fsdp1" else "model"
    return [
        f"state = get_model_state_dict(model, options={asked})",
        f'{unwrapped}.save_pretrained("output", state_dict=state)',
    ]


# How lines of Python are written.


def called(what: str, positional: Iterable[str], named: Mapping[str, str]) -> list[str]:
    """A call, an argument a line; named arguments without a value are left out."""
    given = [*positional, *(f"{name}={value}" for name, value in named.items() if value)]
    return [f"{what}(", *(f"    {argument}," for argument in given), ")"] if given else [f"{what}()"]


def indented(lines: Iterable[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def quoted(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value).replace("'", '"')
