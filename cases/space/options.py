"""The option space: every option of a case, its values, and the legal combinations.

A case states only the options that matter to it: ``Options.stated`` omits options that do not apply to
the strategy, method or quantisation, so two equal cases have equal options.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, get_args, get_type_hints

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Value = bool | int | str

Flow = Literal[
    "load", "train", "save_reload", "resume", "merge", "merge_reload", "generate", "portability", "script", "api"
]
Method = Literal[
    "full",
    "lora",
    "rslora",
    "dora",
    "pissa",
    "olora",
    "loftq",
    "loha",
    "lokr",
    "ia3",
    "adalora",
    "vera",
    "prompt",
    "prefix",
]
ModulesToSave = Literal["none", "lm_head"]
Quant = Literal["none", "nf4", "fp4", "int8"]
Storage = Literal["uint8", "bf16", "fp16", "fp32"]
DType = Literal["fp32", "bf16", "fp16"]
Compute = Literal["load", "fp32", "bf16", "fp16"]
Autocast = Literal["off", "bf16", "fp16"]
MixedPrecision = Literal["off", "bf16", "bf16_reduce_fp32"]
Strategy = Literal["single", "ddp", "fsdp1", "fsdp2"]
WorldSize = Literal[1, 2, 4]
Wrap = Literal["none", "transformer", "peft", "size"]
ShardingStrategy = Literal["full_shard", "shard_grad_op", "no_shard"]
Mesh = Literal["1d", "hsdp"]
StateDict = Literal["full", "full_on_device", "full_dcp", "sharded"]
Checkpointing = Literal["off", "reentrant", "non_reentrant"]
Accumulation = Literal[1, 2]
Attention = Literal["default", "eager", "sdpa", "math", "flash", "efficient", "cudnn", "flash_attention_2"]
Optimiser = Literal["sgd", "adamw", "adamw_8bit", "paged_adamw_8bit"]
Stepping = Literal["default", "foreach", "fused"]
FrontEnd = Literal["loop", "accelerate", "trainer", "sft"]
Model = Literal["llama", "qwen", "qwen3", "gemma", "mistral", "mixtral", "gpt2", "t5"]
RopeScaling = Literal["none", "linear", "dynamic", "llama3", "yarn", "longrope"]
Embeddings = Literal["untied", "tied", "resized"]
Loop = Literal["plain", "eval", "generate"]
Data = Literal["plain", "padded_right", "padded_left", "prompt_masked", "packed", "long"]

FOUR_BIT = ("nf4", "fp4")
SHARDED = ("fsdp1", "fsdp2")
TRAINING = ("train", "save_reload", "resume", "merge", "merge_reload", "generate", "portability")  # flows that train
SAVING = ("save_reload", "resume", "merge_reload", "portability")  # flows with a second process
OWN_CODE = ("api", "script")  # flows that run their own code
GLOBAL_BATCH = 4  # rows of data that all ranks train on in one step
MESH_RANKS = 4  # a mesh of 2 x 2
PROMPTS = ("prompt", "prefix")  # adapters that add tokens and do not change layers
DECOMPOSED = ("pissa", "olora", "loftq")  # LoRA variants that compute their start from the base weights and change them

ROTARY = ("llama", "qwen", "qwen3", "gemma", "mistral", "mixtral")  # models with rotary positions
OPEN = ("call",)  # options that take any text


class IllegalError(ValueError):
    """An option, value or combination outside the space; its text is a sentence for the user."""


@dataclass(frozen=True, eq=True)
class Options:
    """One point of the option space.

    Options carry the names that transformers, PEFT, bitsandbytes and torch give them, where these have one.

    Base model: ``torch_dtype`` is the dtype of everything that is not quantised. ``bnb_4bit_quant_storage`` is the one
    that packs 4-bit weights. ``bnb_4bit_compute_dtype`` is the dtype of the arithmetic in quantised layers; ``load``
    means ``torch_dtype``. ``llm_int8_skip_modules`` leaves one kind of layer unquantised. ``prequantised`` loads a
    checkpoint that was saved quantised. ``rope_scaling`` is the type of the scaling of rotary positions for contexts
    longer than the trained one.

    Adapter: ``autocast_adapter_dtype`` keeps the adapters of a half-precision base in float32, as the argument of
    ``get_peft_model``. ``modules_to_save`` trains the output head with the adapter. ``target_embeddings`` adds the
    input embeddings to ``target_modules``.

    Strategy: ``mixed_precision`` is FSDP's own policy: parameters and reduction in bfloat16, or reduction in float32.
    ``use_orig_params``, ``sharding_strategy`` and ``sync_module_states`` belong to FSDP1, ``reshard_after_forward`` to
    FSDP2. ``auto_wrap_policy`` selects the FSDP units. ``device_mesh=hsdp`` shards within pairs of ranks and replicates
    across them. ``cpu_ram_efficient_loading`` loads the weights on rank 0 only and broadcasts them. ``state_dict_type``
    selects how a sharded model is saved: ``full`` gathers it into rank 0's memory, ``full_on_device`` onto every
    rank's device, ``full_dcp`` goes through ``torch.distributed.checkpoint.state_dict`` instead of
    FSDP1's own API, ``sharded`` writes shards. ``summon_full_params`` gathers the root unit for a generation, which
    bypasses the root's forward.

    Loop: ``data`` selects rows without padding, with padding on either side, or with prompts whose labels are ignored;
    rows then differ in their number of learned tokens. ``packed`` puts several documents into a row, with
    ``position_ids`` that restart and no mask; ``long`` has rows beyond the trained length. ``autocast=fp16`` trains
    with a gradient scaler.
    ``clip_grad_norm`` clips the norm of the gradients. ``attn_implementation`` is transformers' implementation
    (``default``: the one that transformers selects) or a forced back end of scaled-dot-product attention.
    ``optim_implementation`` is torch's for-each or fused implementation. ``call`` names a use of the libraries' API
    (``flow=api``) or a command (``flow=script``).
    """

    flow: Flow = "train"
    call: str = ""
    method: Method = "lora"
    modules_to_save: ModulesToSave = "none"
    target_embeddings: bool = False
    model: Model = "llama"
    rope_scaling: RopeScaling = "none"
    embeddings: Embeddings = "untied"
    quant: Quant = "none"
    bnb_4bit_quant_storage: Storage = "uint8"
    bnb_4bit_use_double_quant: bool = False
    llm_int8_skip_modules: bool = False
    prequantised: bool = False
    torch_dtype: DType = "fp32"
    bnb_4bit_compute_dtype: Compute = "load"
    autocast: Autocast = "off"
    autocast_adapter_dtype: bool = True
    strategy: Strategy = "single"
    world_size: WorldSize = 1
    use_orig_params: bool = True
    auto_wrap_policy: Wrap = "transformer"
    sharding_strategy: ShardingStrategy = "full_shard"
    sync_module_states: bool = False
    reshard_after_forward: bool = True
    device_mesh: Mesh = "1d"
    mixed_precision: MixedPrecision = "off"
    cpu_offload: bool = False
    cpu_ram_efficient_loading: bool = False
    state_dict_type: StateDict = "full"
    summon_full_params: bool = False
    find_unused_parameters: bool = False
    static_graph: bool = False
    gradient_as_bucket_view: bool = False
    gradient_checkpointing: Checkpointing = "off"
    gradient_accumulation_steps: Accumulation = 1
    clip_grad_norm: bool = False
    attn_implementation: Attention = "default"
    optim: Optimiser = "sgd"
    optim_implementation: Stepping = "default"
    front_end: FrontEnd = "loop"
    loop: Loop = "plain"
    data: Data = "plain"
    torch_compile: bool = False

    @property
    def stated(self) -> dict[str, Value]:
        """The options that apply to this point, by name, in order of declaration."""
        return {f.name: getattr(self, f.name) for f in fields(self) if applies(f.name, self)}

    @property
    def why_illegal(self) -> str:
        """Why no such case can exist; empty for a legal one."""
        return next((rule.because for rule in EXCLUSIONS if rule.when(self)), "")

    def but(self, **changes: Any) -> Options:
        """This point with some options changed; world size follows the strategy unless it is given.

        Raises:
            IllegalError: an unknown option or value, or an illegal combination.
        """
        for name, value in changes.items():
            if value not in values(name) and not (name in OPEN and isinstance(value, str)):
                raise IllegalError(f"option {name!r} has no value {value!r}; choose from {listed(values(name))}")
        strategy = changes.get("strategy", self.strategy)
        changes.setdefault("world_size", 1 if strategy == "single" else 2)
        point = replace(self, **changes)
        if point.why_illegal:
            raise IllegalError(point.why_illegal)
        return point


@dataclass(frozen=True)
class Exclusion:
    """An illegal combination, with the reason as data, so that reports can print it."""

    when: Callable[[Options], bool]
    because: str


EXCLUSIONS = (
    Exclusion(
        lambda o: o.flow not in OWN_CODE and (o.strategy == "single") != (o.world_size == 1),
        "strategy=single has one rank, every other strategy has several: change strategy or world_size",
    ),
    Exclusion(
        lambda o: o.method == "full" and o.quant != "none" and o.flow in TRAINING,
        "quantised weights are not trainable: a quantised base needs an adapter (method=lora or dora)",
    ),
    Exclusion(
        lambda o: o.strategy == "fsdp2" and o.auto_wrap_policy in ("peft", "size"),
        "FSDP2 has no wrap policies (peft, size); it wraps modules one by one: use auto_wrap_policy=transformer",
    ),
    Exclusion(
        lambda o: o.flow == "load" and o.method != "full", "flow=load loads the base model only: use method=full"
    ),
    Exclusion(
        lambda o: o.flow == "load" and o.strategy != "single", "flow=load runs in one process: use strategy=single"
    ),
    Exclusion(
        lambda o: o.flow == "load" and bool(changed(o) & TRAINED),
        "flow=load does not train: options of the adapter, the optimiser and the loop do not apply",
    ),
    Exclusion(
        lambda o: (o.flow in OWN_CODE) != bool(o.call),
        "flow=api and flow=script require the option call, and no other flow takes it",
    ),
    Exclusion(
        lambda o: o.flow in OWN_CODE and bool(changed(o) - {"flow", "call", "world_size"}),
        "flow=api and flow=script run their own code: no other option applies",
    ),
    Exclusion(
        lambda o: o.flow in ("merge", "merge_reload") and o.method in ("full", *PROMPTS),
        "only adapters of layers can be merged: method=full, prompt and prefix cannot",
    ),
    Exclusion(
        lambda o: o.flow == "portability" and (o.method in ("full", *DECOMPOSED) or o.strategy != "single"),
        "flow=portability moves an adapter: it needs one process and a method that keeps the base weights",
    ),
    Exclusion(
        lambda o: (o.modules_to_save != "none" or o.target_embeddings) and o.method not in ("lora", "rslora", "dora"),
        "modules_to_save and target_embeddings need an adapter of layers: use method=lora, rslora or dora",
    ),
    Exclusion(
        lambda o: o.modules_to_save != "none" and o.target_embeddings,
        "a case trains the head or the embeddings, not both: use modules_to_save=none or target_embeddings=false",
    ),
    Exclusion(
        lambda o: o.method in DECOMPOSED and o.quant != "none",
        "pissa, olora and loftq start from unquantised weights: use quant=none",
    ),
    Exclusion(
        lambda o: o.device_mesh == "hsdp" and o.world_size != MESH_RANKS,
        "device_mesh=hsdp is a mesh of 2 x 2: use world_size=4",
    ),
    Exclusion(
        lambda o: o.device_mesh == "hsdp" and (o.strategy not in SHARDED or o.sharding_strategy != "full_shard"),
        "device_mesh=hsdp shards within pairs of ranks: use strategy=fsdp1 or fsdp2 and sharding_strategy=full_shard",
    ),
    Exclusion(
        lambda o: o.world_size * o.gradient_accumulation_steps > GLOBAL_BATCH,
        "the global batch has 4 rows: with world_size=4 a rank has one row and cannot accumulate",
    ),
    Exclusion(
        lambda o: o.mixed_precision != "off" and o.autocast != "off",
        "FSDP's mixed_precision and autocast exclude each other: use one",
    ),
    Exclusion(
        lambda o: (
            o.cpu_ram_efficient_loading
            and (o.strategy not in SHARDED or (o.strategy == "fsdp1" and not o.sync_module_states))
        ),
        "cpu_ram_efficient_loading must broadcast rank 0's weights: use FSDP2, or FSDP1 with sync_module_states",
    ),
    Exclusion(
        lambda o: o.cpu_ram_efficient_loading and o.quant != "none",
        "every rank must load weights that are quantised while loading: use quant=none with cpu_ram_efficient_loading",
    ),
    Exclusion(
        lambda o: o.state_dict_type == "full_dcp" and o.strategy == "fsdp2",
        "FSDP2 always gathers by torch.distributed.checkpoint.state_dict: use state_dict_type=full",
    ),
    Exclusion(
        lambda o: o.front_end != "loop" and o.flow not in ("train", "save_reload", "resume"),
        "accelerate and the trainers only train, save and resume: use front_end=loop",
    ),
    Exclusion(
        lambda o: o.front_end != "loop" and o.loop != "plain",
        "accelerate and the trainers run their own loop: use loop=plain",
    ),
    Exclusion(
        lambda o: o.data in ("padded_left", "packed", "long") and o.front_end == "sft",
        "SFTTrainer pads on the right, packs and truncates by itself: use data=padded_right or prompt_masked",
    ),
    Exclusion(
        lambda o: o.data != "plain" and o.model == "t5",
        "padded and masked rows are measured on decoders only: use data=plain with model=t5",
    ),
    Exclusion(
        lambda o: o.data == "packed" and o.method in PROMPTS,
        "PEFT ignores position_ids of a model with virtual tokens: use an adapter of layers with data=packed",
    ),
    Exclusion(
        lambda o: o.data == "long" and o.model not in ROTARY,
        "learned positions end with the trained length: use a model with rotary positions for data=long",
    ),
    Exclusion(
        lambda o: o.rope_scaling != "none" and o.model not in ROTARY,
        "only models with rotary positions scale them: use rope_scaling=none with model=gpt2 or t5",
    ),
    Exclusion(
        lambda o: o.front_end == "sft" and o.model == "t5",
        "SFTTrainer trains decoders only: model=t5 is an encoder-decoder",
    ),
    Exclusion(
        lambda o: o.model == "t5" and o.flow == "generate" and o.method in PROMPTS,
        "generation with a prompt adapter is measured on decoders only",
    ),
    Exclusion(
        lambda o: o.optim_implementation != "default" and o.optim not in ("sgd", "adamw"),
        "bitsandbytes' optimisers have one implementation: use optim_implementation=default",
    ),
)

# Options that apply to training only.
TRAINED: set[str] = {
    *(
        "autocast_adapter_dtype",
        "modules_to_save",
        "target_embeddings",
        "autocast",
        "mixed_precision",
        "gradient_checkpointing",
        "gradient_accumulation_steps",
        "clip_grad_norm",
    ),
    *("optim", "optim_implementation", "front_end", "loop", "data", "torch_compile"),
}

# The condition under which an option applies. Options that are not listed always apply.
APPLIES: Mapping[str, Callable[[Options], bool]] = {
    **dict.fromkeys(TRAINED, lambda o: o.flow in TRAINING),
    "call": lambda o: o.flow in OWN_CODE,
    **dict.fromkeys(
        ("method", "model", "embeddings", "quant", "torch_dtype", "strategy", "attn_implementation"),
        lambda o: o.flow not in OWN_CODE,
    ),
    "rope_scaling": lambda o: o.flow not in OWN_CODE and o.model in ROTARY,
    "bnb_4bit_quant_storage": lambda o: o.quant in FOUR_BIT,
    "bnb_4bit_use_double_quant": lambda o: o.quant in FOUR_BIT,
    "bnb_4bit_compute_dtype": lambda o: o.quant in FOUR_BIT,
    "llm_int8_skip_modules": lambda o: o.quant != "none",
    "prequantised": lambda o: o.quant != "none",
    **dict.fromkeys(
        ("modules_to_save", "target_embeddings"),
        lambda o: o.flow in TRAINING and o.method not in ("full", *PROMPTS),
    ),
    "autocast_adapter_dtype": lambda o: o.flow in TRAINING and o.method != "full" and o.torch_dtype != "fp32",
    "use_orig_params": lambda o: o.strategy == "fsdp1",
    "auto_wrap_policy": lambda o: o.strategy in SHARDED,
    "sharding_strategy": lambda o: o.strategy == "fsdp1",
    "sync_module_states": lambda o: o.strategy == "fsdp1",
    "reshard_after_forward": lambda o: (
        o.strategy == "fsdp2" and o.auto_wrap_policy == "transformer"
    ),  # the root unit ignores it
    "device_mesh": lambda o: o.strategy in SHARDED,
    "mixed_precision": lambda o: o.strategy in SHARDED,
    "cpu_offload": lambda o: o.strategy in SHARDED,
    "cpu_ram_efficient_loading": lambda o: o.strategy in SHARDED,
    "state_dict_type": lambda o: o.strategy in SHARDED and o.flow in ("save_reload", "resume"),
    "summon_full_params": lambda o: o.strategy in SHARDED and (o.flow == "generate" or o.loop == "generate"),
    "find_unused_parameters": lambda o: o.strategy == "ddp",
    "static_graph": lambda o: o.strategy == "ddp",
    "gradient_as_bucket_view": lambda o: o.strategy == "ddp",
}


def changed(options: Options) -> set[str]:
    """The options that have another value than their default."""
    return {f.name for f in fields(Options) if getattr(options, f.name) != f.default}


def applies(name: str, options: Options) -> bool:
    return name not in APPLIES or APPLIES[name](options)


def names() -> tuple[str, ...]:
    return tuple(f.name for f in fields(Options))


@cache  # called for every option of every row
def values(name: str) -> tuple[Value, ...]:
    """Every value of an option; none of an open one, which takes any text.

    Raises:
        IllegalError: the option is unknown.
    """
    hints = get_type_hints(Options)
    if name not in hints:
        raise IllegalError(f"unknown option {name!r}; choose from {listed(names())}")
    return (True, False) if hints[name] is bool else get_args(hints[name])  # get_args of str: none


def listed(things: tuple[Value, ...]) -> str:
    return ", ".join(str(thing) for thing in things)
