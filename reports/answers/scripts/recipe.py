"""The calls of a reproducer: those of a case's options, short, with the names and the device of a script."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from cases.model import architectures
from reports.answers.scripts import calls, strategy_calls
from reports.answers.scripts.calls import TORCH, ApiVersions
from reports.answers.scripts.python_text import Code, CodeCall
from reports.answers.scripts.strategy_calls import DeviceNames

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cases.space.options import Options

NOTHING: Final = ("loha", "lokr", "ia3", "adalora", "vera")  # adapters that PEFT starts such that they change nothing
NAMES: Final = DeviceNames(
    kind="DEVICE", device="torch.device(device)", device_ids='None if DEVICE == "cpu" else [device]', ranks="RANKS"
)
# Values that the libraries have by default, by callee and argument: a short script leaves them out.
DEFAULTS: Final[Mapping[tuple[str, str], Any]] = {
    ("BitsAndBytesConfig", "bnb_4bit_use_double_quant"): False,
    ("BitsAndBytesConfig", "bnb_4bit_quant_storage"): TORCH["uint8"],
    ("LoraConfig", "lora_dropout"): 0.0,
    ("get_peft_model", "autocast_adapter_dtype"): True,
    ("DistributedDataParallel", "find_unused_parameters"): False,
    ("DistributedDataParallel", "static_graph"): False,
    ("DistributedDataParallel", "gradient_as_bucket_view"): False,
    ("FullyShardedDataParallel", "auto_wrap_policy"): None,
    ("FullyShardedDataParallel", "sharding_strategy"): Code("ShardingStrategy.FULL_SHARD"),
    ("FullyShardedDataParallel", "sync_module_states"): False,
    ("fully_shard", "reshard_after_forward"): True,
}
# Fields of a published configuration that a short script leaves to transformers: no symptom depends on them.
LEFT_TO_CONFIG: Final = frozenset(
    {
        *("hidden_act", "hidden_activation", "activation_function"),
        *("rms_norm_eps", "layer_norm_epsilon", "rope_theta"),
    }
)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """``versions`` are those of the lock, by distribution."""

    options: Options
    versions: Mapping[str, str]

    @property
    def api(self) -> ApiVersions:
        return ApiVersions(self.versions)

    @property
    def spec(self) -> architectures.Spec:
        return architectures.SPECS[self.options.model]

    @property
    def modules(self) -> Mapping[str, str]:
        """The modules of names that move with the model or a version."""
        folder = self.spec.model_type  # of the model in transformers
        public = self.api.has("fully_shard in torch.distributed.fsdp")
        fsdp2 = "torch.distributed.fsdp" if public else "torch.distributed._composable.fsdp"
        return {
            **dict.fromkeys(self.spec.named, "transformers"),
            **dict.fromkeys(self.spec.block, f"transformers.models.{folder}.modeling_{folder}"),
            **dict.fromkeys(("fully_shard", "MixedPrecisionPolicy", "CPUOffloadPolicy"), fsdp2),
        }

    @property
    def config(self) -> str:
        published = {name: value for name, value in self.spec.settings.items() if name not in LEFT_TO_CONFIG}
        settings = {**architectures.TOKENS, "use_cache": False, **published}
        settings["tie_word_embeddings"] = architectures.is_tied(self.options)
        return str(CodeCall(self.spec.named[0], named=settings))

    @property
    def model_class(self) -> str:
        return self.spec.named[1]

    @property
    def load(self) -> str:
        """The base model, on its device."""
        o = self.options
        if o.quant == "none":
            return f"{short(calls.load(o, self.api, 'folder'))}.to(device)"
        return short(calls.load(o, self.api, "folder", quantization_config=calls.quantization(o)))

    @property
    def checkpointing(self) -> str:
        return short(calls.checkpointing(self.options))

    @property
    def adapter_config(self) -> str:
        """The adapter as if it was trained: a LoRA of which no part is zero."""
        config = calls.adapter(self.options)
        lora = self.options.method in ("lora", "rslora", "dora")
        return short(config.but(init_lora_weights=False) if lora else config)

    @property
    def adapted(self) -> str:
        return short(calls.adapted(self.options, self.api, Code(self.adapter_config)))

    @property
    def wrapped(self) -> str:
        """The lines that wrap ``model`` and return it."""
        if self.options.strategy == "ddp":
            return f"return {short(strategy_calls.ddp(self.options, NAMES))}"
        if self.options.strategy == "fsdp1":
            return f"return {short(strategy_calls.fsdp1(self.options, NAMES))}"
        whole = strategy_calls.fully_shard("model", self.options, NAMES)
        if self.options.auto_wrap_policy == "none":
            return f"{short(whole)}\nreturn model"
        return (
            f"how = {CodeCall('dict', named=whole.differing(DEFAULTS).named)}\n"
            "for layer in model.modules():\n"
            f"    if isinstance(layer, {' | '.join(self.spec.block)}):\n"
            "        fully_shard(layer, **how)\n"
            "fully_shard(model, **how)\n"
            "return model"
        )

    @property
    def state_options(self) -> str:
        """The options of ``get_model_state_dict`` and ``get_optimizer_state_dict`` that gather whole states."""
        return repr(strategy_calls.state_options(self.options))

    def whole_state(self, *, everywhere: bool) -> str:
        """The context in which FSDP1 gathers the whole states of ``sharded``."""
        return str(strategy_calls.whole_state(self.options, "sharded", everywhere=everywhere))

    @property
    def whole_state_everywhere(self) -> str:
        """The arguments of that context for a script that saves and loads."""
        return ", ".join(strategy_calls.whole_state(self.options, everywhere=True).arguments[1:])

    @property
    def optimizer(self) -> str:
        return short(calls.optimizer(self.options))


def short(call: CodeCall) -> str:
    return str(call.differing(DEFAULTS))
