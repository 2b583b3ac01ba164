"""What a case needs of a version or of a machine, found by looking: a probe runs, what it raises is the reason.

A version that lacks an option, or a machine that cannot run a strategy at all, makes a ``skip``. A probe exercises the
bare thing (one linear layer), never the combination that a case is about, so it cannot hide what a case would find.
"""

from __future__ import annotations

import importlib
import inspect
import re
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from cases import api
from cases.apply import compat
from cases.apply.attention import BACK_ENDS, forced, implementation
from cases.model import adapters, architectures
from cases.space.options import FOUR_BIT
from cases.space.verdict import LackingError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cases.space.options import Options
    from cases.space.place import Place

    Probe = Callable[[Place, Path], None]


@dataclass(frozen=True)
class Need:
    """``because`` begins the sentence of the skip.

    ``cpu_only`` for what only a machine without GPUs can lack, ``cuda_only`` for what only one with GPUs can.
    """

    name: str
    when: Callable[[Options], bool]
    probe: Probe
    because: str
    ranks: int = 1
    cpu_only: bool = False
    cuda_only: bool = False


def applicable(options: Options, device: str) -> list[Need]:
    named = api.needs(options.call)
    meant = [need for need in NEEDS if need.when(options) or need.name in named]
    return [need for need in meant if not (need.cuda_only if device == "cpu" else need.cpu_only)]


def on_bitsandbytes(options: Options) -> bool:
    named = api.needs(options.call)
    return options.quant != "none" or "8bit" in options.optim or any(name in BITSANDBYTES for name in named)


def bitsandbytes_binary(_place: Place, _cache: Path) -> None:
    """By bitsandbytes' own rule, which knows of its environment variable and, in later versions, of near versions."""
    import torch

    try:
        from bitsandbytes.cextension import get_cuda_bnb_library_path
        from bitsandbytes.cuda_specs import get_cuda_specs
    except ImportError:  # before 0.43, or it cannot be imported at all: the case has to show that
        return
    specs = get_cuda_specs()
    path = specs and get_cuda_bnb_library_path(specs)
    if path and not path.exists():
        known = {found.groups() for each in path.parent.iterdir() if (found := BINARY.match(each.name))}
        there = ", ".join(".".join(each) for each in sorted(known)) or "none for any"
        raise LackingError(f"{version('bitsandbytes')} has none for {torch.version.cuda}, it has {there}")


def four_bit_class(_place: Place, _cache: Path) -> None:
    from bitsandbytes.nn import Linear4bit

    assert Linear4bit  # noqa: S101 - the import is the probe


def llama4(_place: Place, _cache: Path) -> None:
    from transformers import Llama4TextConfig

    assert Llama4TextConfig  # noqa: S101 - the import is the probe


def runtime_option(_place: Place, _cache: Path) -> None:
    from peft import LoraRuntimeConfig

    assert LoraRuntimeConfig  # noqa: S101 - the import is the probe


def cpu_scaler(_place: Place, _cache: Path) -> None:
    from torch.amp import GradScaler

    if not GradScaler("cpu").is_enabled():
        raise LackingError("the scaler is off")


def lora_bias_option(_place: Place, _cache: Path) -> None:
    from peft import LoraConfig

    if "lora_bias" not in inspect.signature(LoraConfig).parameters:
        raise LackingError("LoraConfig has no lora_bias")


def adapts_by(method: str) -> Callable[[Options], bool]:
    return lambda options: options.method == method


def method_options(_place: Place, _cache: Path, method: str) -> None:
    """The method's configuration exists and has what the case writes into it."""
    import peft

    name, arguments = adapters.CONFIGS[method]
    if not hasattr(peft, name):
        raise LackingError(f"peft has no {name}")
    unknown = set(arguments) - set(inspect.signature(getattr(peft, name)).parameters)
    if unknown:
        raise LackingError(f"{name} has no {', '.join(sorted(unknown))}")


def scipy(_place: Place, _cache: Path) -> None:
    importlib.import_module("scipy")


def computed_start(_place: Place, _cache: Path, method: str) -> None:
    """One linear layer, and a start that is computed from its weights."""
    import torch
    from peft import get_peft_model

    name, arguments = adapters.CONFIGS[method]
    config = getattr(importlib.import_module("peft"), name)(target_modules=["0"], **arguments)
    get_peft_model(torch.nn.Sequential(torch.nn.Linear(64, 64, bias=False)), config)


def adapter_dtype_option(_place: Place, _cache: Path) -> None:
    if not compat.has_adapter_autocast():
        raise LackingError("get_peft_model has no autocast_adapter_dtype")


def activated_lora_option(_place: Place, _cache: Path) -> None:
    from peft import LoraConfig

    if "alora_invocation_tokens" not in inspect.signature(LoraConfig).parameters:
        raise LackingError("LoraConfig has no alora_invocation_tokens")


def target_parameters_option(_place: Place, _cache: Path) -> None:
    from peft import LoraConfig
    from transformers import GptOssForCausalLM

    assert GptOssForCausalLM  # noqa: S101 - the import is half of the probe
    if "target_parameters" not in inspect.signature(LoraConfig).parameters:
        raise LackingError("LoraConfig has no target_parameters")


def adamw_8bit_step(place: Place, _cache: Path) -> None:
    import torch
    from bitsandbytes.optim import AdamW8bit

    weight = torch.nn.Parameter(torch.ones(64, 64, device=place.device))
    weight.sum().backward()
    AdamW8bit([weight], min_8bit_size=16).step()


def storage_option(_place: Place, _cache: Path) -> None:
    from transformers import BitsAndBytesConfig

    if "bnb_4bit_quant_storage" not in inspect.signature(BitsAndBytesConfig.__init__).parameters:
        raise LackingError("BitsAndBytesConfig has no bnb_4bit_quant_storage")


def peft_policy(_place: Place, _cache: Path) -> None:
    from peft.utils.other import fsdp_auto_wrap_policy

    assert callable(fsdp_auto_wrap_policy)  # noqa: S101 - the import is the probe


def four_bit(place: Place, _cache: Path) -> None:
    import torch
    from bitsandbytes.nn import Linear4bit

    layer = Linear4bit(64, 64, bias=False, quant_type="nf4", compute_dtype=torch.bfloat16).to(place.device)
    differentiate(layer, torch.bfloat16, place)


def eight_bit(place: Place, _cache: Path) -> None:
    import torch
    from bitsandbytes.nn import Linear8bitLt

    layer = Linear8bitLt(64, 64, bias=False, has_fp16_weights=False).to(place.device)
    differentiate(layer, torch.bfloat16, place)


def differentiate(layer: Any, dtype: Any, place: Place) -> None:
    """One forward and backward through a layer with frozen weights."""
    import torch

    inputs = torch.ones(2, 64, dtype=dtype, device=place.device, requires_grad=True)
    layer(inputs).float().sum().backward()


def quantised_loading(place: Place, cache: Path, quant: str) -> None:
    """Transformers of some years refuses to quantise without a GPU, whatever bitsandbytes could do."""
    from cases.apply import build
    from cases.space.options import Options

    try:
        build.load(Options().but(flow="load", method="full", quant=quant, torch_dtype="bf16"), place, cache)
    except Exception as error:
        if any(word in str(error) for word in ("GPU", "CUDA", "cuda")):
            raise
        # anything else is a finding, and the case's to show


def half_arithmetic(place: Place, _cache: Path) -> None:
    import torch

    layer = torch.nn.Linear(64, 64, dtype=torch.float16, device=place.device)
    differentiate(layer, torch.float16, place)
    torch.nn.functional.silu(layer.weight).softmax(-1).mean().backward()


def half_autocast(place: Place, _cache: Path) -> None:
    import torch

    layer = torch.nn.Linear(64, 64, device=place.device)
    with torch.autocast(place.kind, dtype=torch.float16):
        found = layer(torch.ones(2, 64, device=place.device)).dtype
    if found is not torch.float16:
        raise LackingError(f"torch {torch.__version__} leaves {found} under float16 autocast on the CPU")


def gradient_scaler(place: Place, _cache: Path) -> None:
    """One step of one layer. FSDP1's own scaler comes with FSDP1."""
    import torch
    from torch.amp import GradScaler

    layer = torch.nn.Linear(64, 64, device=place.device)
    optimiser = torch.optim.SGD(layer.parameters(), lr=0.1)
    scaler = GradScaler(place.kind)
    scaler.scale(layer(torch.ones(2, 64, device=place.device)).sum()).backward()
    scaler.step(optimiser)


def step_once(place: Place, make: Callable[[list[Any]], Any], size: int = 64) -> None:
    import torch

    layer = torch.nn.Linear(size, size, device=place.device)
    optimiser = make(list(layer.parameters()))
    layer(torch.ones(2, size, device=place.device)).sum().backward()
    optimiser.step()


def eight_bit_state(place: Place, _cache: Path) -> None:
    import bitsandbytes

    step_once(place, lambda trained: bitsandbytes.optim.AdamW8bit(trained, lr=0.1, min_8bit_size=1))


def paged_state(place: Place, _cache: Path) -> None:
    """A weight of 262,144 numbers: bitsandbytes pages no state of less than 100,000."""
    import bitsandbytes

    if place.kind == "cpu":
        raise LackingError("pages lie in memory that a GPU and its host share")
    step_once(place, lambda trained: bitsandbytes.optim.PagedAdamW8bit(trained, lr=0.1, min_8bit_size=1), 512)


def fused_step(place: Place, _cache: Path, rule: str) -> None:
    import torch

    step_once(place, lambda trained: getattr(torch.optim, rule)(trained, lr=0.1, fused=True))


def compiling(place: Place, _cache: Path) -> None:
    """With an activation, for which Triton compiles a launcher in C; a linear layer alone is a call of a library."""
    import torch

    layer = torch.nn.Sequential(torch.nn.Linear(64, 64, device=place.device), torch.nn.GELU())
    layer.compile(backend="aot_eager" if place.kind == "cpu" else "inductor")
    differentiate(layer, torch.float32, place)


def bare_fsdp1(place: Place, _cache: Path, **arguments: Any) -> None:
    import torch
    from torch.distributed.fsdp import FullyShardedDataParallel

    device = torch.device("cpu") if place.kind == "cpu" else place.device
    layer = torch.nn.Linear(64, 64, device=place.device)
    differentiate(FullyShardedDataParallel(layer, device_id=device, **arguments), torch.float32, place)


def synced_fsdp1(place: Place, cache: Path) -> None:
    bare_fsdp1(place, cache, sync_module_states=True)


def bare_fsdp2(place: Place, _cache: Path, **arguments: Any) -> None:
    import torch
    from torch.distributed.device_mesh import init_device_mesh

    fully_shard = compat.fully_shard()
    layer = torch.nn.Linear(64, 64, device=place.device)
    fully_shard(layer, **{"mesh": init_device_mesh(place.kind, (place.world_size,)), **arguments})
    differentiate(layer, torch.float32, place)


def known_model(_place: Place, _cache: Path, model: str) -> None:
    import transformers

    name = architectures.SPECS[model].named[1]
    if not hasattr(transformers, name):
        raise LackingError(f"transformers has no {name}")


def model_with_sdpa(_place: Place, _cache: Path, model: str) -> None:
    import transformers

    known = getattr(transformers, architectures.SPECS[model].named[1])
    if not getattr(known, "_supports_sdpa", False):
        raise LackingError(f"{known.__name__} says that it does not support it")


def forced_attention(place: Place, _cache: Path, attention: str) -> None:
    """The bare function with one back end, on what that back end is for."""
    import torch

    from cases.space.options import Options

    dtype = torch.float32 if place.kind == "cpu" else torch.bfloat16
    one = torch.ones(1, 4, 16, 16, dtype=dtype, device=place.device, requires_grad=True)
    with forced(Options().but(attn_implementation=attention)):
        torch.nn.functional.scaled_dot_product_attention(one, one, one, is_causal=True).float().sum().backward()


def flash_attention_package(place: Place, _cache: Path) -> None:
    if place.kind == "cpu":
        raise LackingError("flash-attn runs on GPUs")
    import flash_attn

    assert flash_attn  # noqa: S101 - the import is the probe


def mixed_fsdp1(place: Place, cache: Path) -> None:
    import torch
    from torch.distributed.fsdp import MixedPrecision

    half = torch.bfloat16
    bare_fsdp1(place, cache, mixed_precision=MixedPrecision(param_dtype=half, reduce_dtype=half))


def hybrid_fsdp1(place: Place, cache: Path) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import ShardingStrategy

    mesh = init_device_mesh(place.kind, (2, 2), mesh_dim_names=("replicate", "shard"))
    bare_fsdp1(place, cache, sharding_strategy=ShardingStrategy.HYBRID_SHARD, device_mesh=mesh)


def whole_fsdp1(place: Place, _cache: Path) -> None:
    """Before some version the "copy" in the CPU's memory was the shared memory itself, which is then freed."""
    import torch
    from torch.distributed.fsdp import FullStateDictConfig, FullyShardedDataParallel, StateDictType

    device = torch.device("cpu") if place.kind == "cpu" else place.device
    model = FullyShardedDataParallel(torch.nn.Linear(64, 64, device=place.device), device_id=device)
    config = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
    with FullyShardedDataParallel.state_dict_type(model, StateDictType.FULL_STATE_DICT, config):
        state = model.state_dict()
    if any(each.untyped_storage().nbytes() < each.numel() * each.element_size() for each in state.values()):
        raise LackingError("the tensors that FSDP1 gathered have no memory")


def mixed_fsdp2(place: Place, cache: Path) -> None:
    import torch

    half = torch.bfloat16
    bare_fsdp2(place, cache, mp_policy=compat.fsdp2().MixedPrecisionPolicy(param_dtype=half, reduce_dtype=half))


def hybrid_fsdp2(place: Place, cache: Path) -> None:
    from torch.distributed.device_mesh import init_device_mesh

    bare_fsdp2(place, cache, device_mesh=init_device_mesh(place.kind, (2, 2), mesh_dim_names=("replicate", "shard")))


def another_device(place: Place, _cache: Path) -> None:
    if place.kind == "cpu":
        raise LackingError("the cells run on the CPU, and there is no other device")


def offload(_place: Place, _cache: Path) -> None:
    raise LackingError("without a GPU all weights lie in the CPU's memory, and nothing would be moved")


def broadcast_option(_place: Place, _cache: Path) -> None:
    from torch.distributed.checkpoint.state_dict import StateDictOptions

    if "broadcast_from_rank0" not in inspect.signature(StateDictOptions).parameters:
        raise LackingError("StateDictOptions has no broadcast_from_rank0")


def unsharding_method(_place: Place, _cache: Path) -> None:
    if not hasattr(compat.fsdp2_class(), "unshard"):
        raise LackingError("FSDP2's modules have no unshard")


def accelerate_half(place: Place, _cache: Path) -> None:
    from accelerate import Accelerator

    Accelerator(cpu=place.kind == "cpu", mixed_precision="fp16")


def trainer_half(place: Place, cache: Path) -> None:
    from transformers import TrainingArguments

    TrainingArguments(output_dir=str(cache / "unused"), fp16=True, use_cpu=place.kind == "cpu", report_to="none")


def accelerate_sharded(place: Place, version: int) -> None:
    """Shard one layer by accelerate, as its launcher would have it."""
    import os

    import torch
    from accelerate import Accelerator

    from cases.apply import front_ends

    os.environ.update(front_ends.launched(place))
    os.environ.update({"ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": str(version)})
    layer = torch.nn.Linear(64, 64, device=place.device)
    optimiser = torch.optim.SGD(layer.parameters(), lr=0.1)
    layer, _ = Accelerator(cpu=place.kind == "cpu").prepare(layer, optimiser)
    differentiate(layer, torch.float32, place)


def accelerate_fsdp2_option(_place: Place, _cache: Path) -> None:
    from accelerate import FullyShardedDataParallelPlugin

    if "fsdp_version" not in inspect.signature(FullyShardedDataParallelPlugin).parameters:
        raise LackingError("FullyShardedDataParallelPlugin has no fsdp_version")


def only_calls(_options: Options) -> bool:
    """For what no option of a case needs."""
    return False


def fsdp2_exists(_place: Place, _cache: Path) -> None:
    compat.fully_shard()


BINARY = re.compile(r"libbitsandbytes_cuda(\d+)(\d)")
BITSANDBYTES = (  # needs of calls that use it
    *("4bit", "8bit", "4bit_loading", "8bit_loading", "bitsandbytes_4bit", "8bit_state", "adamw_8bit_step"),
)
NEEDS = (
    Need(
        "bitsandbytes_binary",
        on_bitsandbytes,
        bitsandbytes_binary,
        "bitsandbytes has no binary for this CUDA",
        cuda_only=True,
    ),
    Need("activated_lora", only_calls, activated_lora_option, "this peft has no activated LoRA"),
    Need("target_parameters", only_calls, target_parameters_option, "this stack has no LoRA on fused experts"),
    Need(
        "adamw_8bit_step",
        only_calls,
        adamw_8bit_step,
        "8-bit optimisers need a GPU in this bitsandbytes",
        cpu_only=True,
    ),
    *(
        Need(
            f"model_{name}",
            lambda o, name=name: o.model == name,  # type: ignore[misc]  # a default is how a loop's value is kept
            partial(known_model, model=name),
            "this transformers does not have the model",
        )
        for name in architectures.SPECS
        if name != "llama"
    ),
    *(
        Need(
            f"sdpa_{name}",
            lambda o, name=name: o.model == name and implementation(o) == "sdpa",  # type: ignore[misc]  # as above
            partial(model_with_sdpa, model=name),
            "this transformers has no scaled-dot-product attention for the model",
        )
        for name in ("gemma", "mistral", "gpt2", "t5")  # whose support came late, or went
    ),
    *(
        Need(
            f"attention_{name}",
            lambda o, name=name: o.attn_implementation == name,  # type: ignore[misc]  # as above
            partial(forced_attention, attention=name),
            f"scaled-dot-product attention cannot be forced to {name} here",
        )
        for name in BACK_ENDS
    ),
    Need(
        "flash_attn",
        lambda o: o.attn_implementation == "flash_attention_2",
        flash_attention_package,
        "flash_attention_2 needs its package",
    ),
    *(
        Need(method, adapts_by(method), partial(method_options, method=method), because)
        for method, because in (
            ("rslora", "this peft has no rsLoRA"),
            ("dora", "this peft has no DoRA"),
            ("vera", "this peft has no VeRA"),
        )
    ),
    *(
        Need(
            f"{method}_start",
            adapts_by(method),
            partial(computed_start, method=method),
            because,
        )
        for method, because in (("pissa", "this peft has no PiSSA"), ("olora", "this peft has no OLoRA"))
    ),
    Need("loftq_scipy", adapts_by("loftq"), scipy, "PEFT's LoftQ needs scipy, which it does not install"),
    Need(
        "loftq_start",
        adapts_by("loftq"),
        partial(computed_start, method="loftq"),
        "LoftQ's start needs a GPU in this peft",
        cpu_only=True,
    ),
    Need(
        "adapter_dtype",
        lambda o: "autocast_adapter_dtype" in o.stated and not o.autocast_adapter_dtype,
        adapter_dtype_option,
        "this peft does not let the adapters' dtype be chosen",
    ),
    Need(
        "storage",
        lambda o: o.bnb_4bit_quant_storage != "uint8",
        storage_option,
        "this transformers cannot choose the storage",
    ),
    Need("peft_policy", lambda o: o.auto_wrap_policy == "peft", peft_policy, "this peft has no wrap policy"),
    Need("another_device", only_calls, another_device, "two devices take a GPU", cpu_only=True),
    Need("bitsandbytes_4bit", only_calls, four_bit_class, "this bitsandbytes has no 4-bit layers"),
    Need("llama4", only_calls, llama4, "this transformers has no Llama 4"),
    Need("runtime_config", only_calls, runtime_option, "this peft has no runtime_config"),
    Need("cpu_scaler", only_calls, cpu_scaler, "this torch scales gradients on GPUs only", cpu_only=True),
    Need("lora_bias", only_calls, lora_bias_option, "this peft has no biases in adapters"),
    Need(
        "accelerate_has_fsdp2",
        lambda o: o.front_end != "loop" and o.strategy == "fsdp2",
        accelerate_fsdp2_option,
        "this accelerate has no FSDP2",
    ),
    Need("fsdp2_exists", lambda o: o.strategy == "fsdp2", fsdp2_exists, "this torch has no FSDP2"),
    Need(
        "4bit", lambda o: o.quant in FOUR_BIT, four_bit, "4-bit layers need a GPU in this bitsandbytes", cpu_only=True
    ),
    Need("8bit", lambda o: o.quant == "int8", eight_bit, "8-bit layers need a GPU in this bitsandbytes", cpu_only=True),
    Need(
        "4bit_loading",
        lambda o: o.quant in FOUR_BIT,
        lambda place, cache: quantised_loading(place, cache, "nf4"),
        "4-bit loading needs a GPU in this transformers",
        cpu_only=True,
    ),
    Need(
        "8bit_loading",
        lambda o: o.quant == "int8",
        lambda place, cache: quantised_loading(place, cache, "int8"),
        "8-bit loading needs a GPU in this transformers",
        cpu_only=True,
    ),
    Need(
        "half_arithmetic",
        lambda o: o.torch_dtype == "fp16",
        half_arithmetic,
        "this torch has no float16 arithmetic on the CPU",
        cpu_only=True,
    ),
    Need(
        "half_autocast",
        lambda o: o.autocast == "fp16",
        half_autocast,
        "this torch has no float16 autocast on the CPU",
        cpu_only=True,
    ),
    Need(
        "gradient_scaler",
        lambda o: o.autocast == "fp16",
        gradient_scaler,
        "this torch has no gradient scaler for the device",
    ),
    Need(
        "8bit_state",
        lambda o: o.optim == "adamw_8bit",
        eight_bit_state,
        "8-bit optimisers need a GPU in this bitsandbytes",
        cpu_only=True,
    ),
    Need("paged_state", lambda o: o.optim == "paged_adamw_8bit", paged_state, "paged optimisers need a GPU"),
    Need(
        "fused_sgd",
        lambda o: o.optim_implementation == "fused" and o.optim == "sgd",
        lambda place, cache: fused_step(place, cache, "SGD"),
        "this torch has no fused SGD for the device",
    ),
    Need(
        "fused_adamw",
        lambda o: o.optim_implementation == "fused" and o.optim == "adamw",
        lambda place, cache: fused_step(place, cache, "AdamW"),
        "this torch has no fused AdamW for the device",
    ),
    Need("compile", lambda o: o.torch_compile, compiling, "this torch compiles nothing on this machine and Python"),
    Need("fsdp1", lambda o: o.strategy == "fsdp1", bare_fsdp1, "FSDP1 needs a GPU in this torch", 2, cpu_only=True),
    Need(
        "fsdp1_sync",
        lambda o: o.strategy == "fsdp1" and o.sync_module_states,
        synced_fsdp1,
        "sync_module_states needs a GPU in this torch",
        2,
        cpu_only=True,
    ),
    Need("fsdp2", lambda o: o.strategy == "fsdp2", bare_fsdp2, "FSDP2 needs a GPU in this torch", 2, cpu_only=True),
    Need(
        "fsdp1_mixed",
        lambda o: o.strategy == "fsdp1" and o.mixed_precision == "bf16",
        mixed_fsdp1,
        "FSDP1's reduction in bfloat16 needs a GPU in this torch",
        2,
        cpu_only=True,
    ),
    Need(
        "accelerate_half",
        lambda o: o.front_end != "loop" and o.autocast == "fp16",
        accelerate_half,
        "accelerate scales float16's losses on a GPU only",
        cpu_only=True,
    ),
    Need(
        "trainer_half",
        lambda o: o.front_end in ("trainer", "sft") and o.autocast == "fp16",
        trainer_half,
        "the Trainer trains in float16 on a GPU only",
        cpu_only=True,
    ),
    Need(
        "accelerate_fsdp1",
        lambda o: o.front_end != "loop" and o.strategy == "fsdp1",
        lambda place, _: accelerate_sharded(place, 1),
        "accelerate shards on a GPU only",
        2,
        cpu_only=True,
    ),
    Need(
        "fsdp2_mixed",
        lambda o: o.strategy == "fsdp2" and o.mixed_precision == "bf16",
        mixed_fsdp2,
        "FSDP2's reduction in bfloat16 needs a GPU in this torch",
        2,
        cpu_only=True,
    ),
    Need(
        "fsdp1_hybrid",
        lambda o: o.strategy == "fsdp1" and o.device_mesh == "hsdp",
        hybrid_fsdp1,
        "hybrid sharding by FSDP1 needs GPUs in this torch",
        4,
        cpu_only=True,
    ),
    Need(
        "fsdp2_hybrid",
        lambda o: o.strategy == "fsdp2" and o.device_mesh == "hsdp",
        hybrid_fsdp2,
        "hybrid sharding by FSDP2 needs GPUs in this torch",
        4,
        cpu_only=True,
    ),
    Need(
        "fsdp1_whole",
        lambda o: o.strategy == "fsdp1" and o.stated.get("state_dict_type") in ("full", "full_dcp"),
        whole_fsdp1,
        "a whole state of FSDP1 in the CPU's memory needs a GPU in this torch",
        2,
        cpu_only=True,
    ),
    Need("offload", lambda o: o.cpu_offload, offload, "offloading shows on a GPU only", cpu_only=True),
    Need(
        "broadcast",
        lambda o: o.strategy == "fsdp2" and o.cpu_ram_efficient_loading,
        broadcast_option,
        "this torch cannot send rank 0's state to FSDP2's shards",
    ),
    Need(
        "unshard",
        lambda o: o.strategy == "fsdp2" and o.summon_full_params,
        unsharding_method,
        "this torch has no way to gather FSDP2's root",
    ),
    Need(
        "accelerate_fsdp2",
        lambda o: o.front_end != "loop" and o.strategy == "fsdp2",
        lambda place, _: accelerate_sharded(place, 2),
        "accelerate shards on a GPU only",
        2,
        cpu_only=True,
    ),
)
PROBES: dict[str, Probe] = {need.name: need.probe for need in NEEDS}
