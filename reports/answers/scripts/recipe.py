"""A case's options as the calls that a user's script would make, in the spelling of the versions of its set.

The calls are the ones that ``cases`` makes: what a reproducer shows has to be what the cell measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from packaging.version import Version

from cases.apply import attention
from cases.apply.wrapping import MIN_NUM_PARAMS
from cases.model import adapters, architectures, tiny
from cases.space.options import PROMPTS
from reports.answers.scripts.python_text import Code, call

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cases.space.options import Options

TORCH: Final[Mapping[str, Code]] = {
    name: Code(f"torch.{long}")
    for name, long in (("fp32", "float32"), ("bf16", "bfloat16"), ("fp16", "float16"), ("uint8", "uint8"))
}
FOLDERS: Final[Mapping[str, str]] = {"qwen": "qwen2", "gemma": "gemma2"}  # of transformers' models, where not our name
SHARDINGS: Final[Mapping[str, str]] = {"shard_grad_op": "SHARD_GRAD_OP", "no_shard": "NO_SHARD"}
NOTHING: Final = ("loha", "lokr", "ia3", "adalora", "vera")  # adapters that PEFT starts such that they change nothing
RATES: Final[Mapping[str, float]] = {"sgd": 0.1}  # other optimisers: 0.01
EIGHT_BIT: Final[Mapping[str, str]] = {"adamw_8bit": "AdamW8bit", "paged_adamw_8bit": "PagedAdamW8bit"}


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """``versions`` are those of the lock, by distribution."""

    options: Options
    versions: Mapping[str, str]

    def has(self, package: str, since: str) -> bool:
        return Version(self.versions[package]) >= Version(since)

    @property
    def spec(self) -> architectures.Spec:
        return architectures.SPECS[self.options.model]

    @property
    def places(self) -> Mapping[str, str]:
        """Modules of the names whose place depends on the model or on a version."""
        folder = FOLDERS.get(self.options.model, self.options.model)
        fsdp2 = "torch.distributed.fsdp" if self.has("torch", "2.6") else "torch.distributed._composable.fsdp"
        return {
            **dict.fromkeys(self.spec.named, "transformers"),
            **dict.fromkeys(self.spec.block, f"transformers.models.{folder}.modeling_{folder}"),
            **dict.fromkeys(("fully_shard", "MixedPrecisionPolicy", "CPUOffloadPolicy"), fsdp2),
        }

    @property
    def config(self) -> str:
        settings = {**architectures.TOKENS, "use_cache": False, **self.spec.settings}
        return call(self.spec.named[0], **settings, tie_word_embeddings=architectures.is_tied(self.options))

    @property
    def model_class(self) -> str:
        return self.spec.named[1]

    @property
    def load(self) -> str:
        """The base model, on its device."""
        o = self.options
        named: dict[str, Any] = {"dtype" if self.has("transformers", "4.56") else "torch_dtype": TORCH[o.torch_dtype]}
        if attention.implementation(o):
            named["attn_implementation"] = attention.implementation(o)
        auto = "AutoModelForSeq2SeqLM" if self.spec.encoder_decoder else "AutoModelForCausalLM"
        if o.quant == "none":
            return f"{call(f'{auto}.from_pretrained', 'folder', **named)}.to(device)"
        named |= {"quantization_config": Code(self.quantisation), "device_map": Code('{"": device}')}
        return call(f"{auto}.from_pretrained", "folder", **named)

    @property
    def quantisation(self) -> str:
        o = self.options
        skipped = {"llm_int8_skip_modules": ["lm_head", tiny.SKIPPED]} if o.llm_int8_skip_modules else {}
        if o.quant == "int8":
            return call("BitsAndBytesConfig", load_in_8bit=True, **skipped)
        compute = o.torch_dtype if o.bnb_4bit_compute_dtype == "load" else o.bnb_4bit_compute_dtype
        return call(
            "BitsAndBytesConfig",
            load_in_4bit=True,
            bnb_4bit_quant_type=o.quant,
            **({"bnb_4bit_use_double_quant": True} if o.bnb_4bit_use_double_quant else {}),
            bnb_4bit_compute_dtype=TORCH[compute],
            **(
                {"bnb_4bit_quant_storage": TORCH[o.bnb_4bit_quant_storage]}
                if o.bnb_4bit_quant_storage != "uint8"
                else {}
            ),
            **skipped,
        )

    @property
    def checkpointing(self) -> str:
        reentrant = self.options.gradient_checkpointing == "reentrant"
        return call("model.gradient_checkpointing_enable", gradient_checkpointing_kwargs={"use_reentrant": reentrant})

    @property
    def adapter_config(self) -> str:
        name, given = adapters.CONFIGS[self.options.method]
        of_model = architectures.adapter_arguments(self.options)
        if self.options.method in PROMPTS:
            return call(name, task_type=of_model["task_type"], **given)
        named = {**of_model, **given, **adapters.placed(self.options)}
        if self.options.method in ("lora", "rslora", "dora"):
            named["init_lora_weights"] = False  # as a trained adapter: its lora_B is not zero
        return call(name, **{key: value for key, value in named.items() if key != "lora_dropout"})

    @property
    def adapted(self) -> str:
        chosen = {}
        if "autocast_adapter_dtype" in self.options.stated and self.has("peft", "0.12"):
            chosen["autocast_adapter_dtype"] = self.options.autocast_adapter_dtype
        return call("get_peft_model", "model", self.adapter_config, **chosen)

    @property
    def wrapped(self) -> str:
        """Lines that wrap ``model`` and give it back."""
        return {"ddp": self.ddp, "fsdp1": self.fsdp1, "fsdp2": self.fsdp2}[self.options.strategy]()

    def ddp(self) -> str:
        o = self.options
        flags = ("find_unused_parameters", "static_graph", "gradient_as_bucket_view")
        chosen = {name: True for name in flags if getattr(o, name)}
        devices = 'None if DEVICE == "cpu" else [device]'
        return f"return {call('DistributedDataParallel', 'model', device_ids=Code(devices), **chosen)}"

    def fsdp1(self) -> str:
        o = self.options
        named: dict[str, Any] = {}
        if o.auto_wrap_policy != "none":
            named["auto_wrap_policy"] = Code(self.policy())
        named["use_orig_params"] = o.use_orig_params
        if o.sync_module_states:
            named["sync_module_states"] = True
        named["device_id"] = Code("torch.device(device)")
        if o.sharding_strategy != "full_shard":
            named["sharding_strategy"] = Code(f"ShardingStrategy.{SHARDINGS[o.sharding_strategy]}")
        if o.device_mesh == "hsdp":
            named |= {"sharding_strategy": Code("ShardingStrategy.HYBRID_SHARD"), "device_mesh": Code(self.mesh())}
        if o.mixed_precision != "off":
            named["mixed_precision"] = Code(self.mixed_precision())
        if o.cpu_offload:
            named["cpu_offload"] = Code("CPUOffload(offload_params=True)")
        return f"return {call('FullyShardedDataParallel', 'model', **named)}"

    def mixed_precision(self) -> str:
        half = TORCH["bf16"]
        if self.options.mixed_precision == "bf16":
            return call("MixedPrecision", param_dtype=half, reduce_dtype=half, buffer_dtype=half)
        return call("MixedPrecision", param_dtype=half, reduce_dtype=TORCH["fp32"])

    def policy(self) -> str:
        if self.options.auto_wrap_policy == "peft":
            return "fsdp_auto_wrap_policy(model)"
        if self.options.auto_wrap_policy == "size":
            return call("functools.partial", "size_based_auto_wrap_policy", min_num_params=MIN_NUM_PARAMS)
        classes = Code(f"{{{', '.join(self.spec.block)}}}")
        return call("functools.partial", "transformer_auto_wrap_policy", transformer_layer_cls=classes)

    def mesh(self) -> str:
        if self.options.device_mesh == "hsdp":
            return call("init_device_mesh", "DEVICE", "(RANKS // 2, 2)", mesh_dim_names=("replicate", "shard"))
        return "init_device_mesh(DEVICE, (RANKS,))"

    def fsdp2(self) -> str:
        o = self.options
        named: dict[str, Any] = {"mesh": Code(self.mesh())}
        if not o.reshard_after_forward:
            named["reshard_after_forward"] = False
        if o.mixed_precision != "off":
            reduction = TORCH["bf16" if o.mixed_precision == "bf16" else "fp32"]
            policy = call("MixedPrecisionPolicy", param_dtype=TORCH["bf16"], reduce_dtype=reduction)
            named["mp_policy"] = Code(policy)
        if o.cpu_offload:
            named["offload_policy"] = Code("CPUOffloadPolicy()")
        if o.auto_wrap_policy == "none":
            return f"{call('fully_shard', 'model', **named)}\nreturn model"
        return (
            f"how = {call('dict', **named)}\n"
            "for layer in model.modules():\n"
            f"    if isinstance(layer, {' | '.join(self.spec.block)}):\n"
            "        fully_shard(layer, **how)\n"
            "fully_shard(model, **how)\n"
            "return model"
        )

    @property
    def optimiser(self) -> str:
        o = self.options
        trained = "[p for p in model.parameters() if p.requires_grad]"
        stepping = {} if o.optim_implementation == "default" else {o.optim_implementation: True}
        rate = RATES.get(o.optim, 0.01)
        if o.optim in EIGHT_BIT:
            return call(EIGHT_BIT[o.optim], trained, lr=rate, min_8bit_size=1)
        return call(f"torch.optim.{'SGD' if o.optim == 'sgd' else 'AdamW'}", trained, lr=rate, **stepping)
