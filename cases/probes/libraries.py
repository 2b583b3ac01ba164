"""Probes of transformers, PEFT and accelerate: the models, methods and arguments that a version offers."""

from __future__ import annotations

import importlib
import inspect
from typing import TYPE_CHECKING

from cases.apply import compat
from cases.model import adapters, architectures
from cases.space.verdict import LackingError

if TYPE_CHECKING:
    from pathlib import Path

    from cases.space.place import Place


def llama4(_place: Place, _cache: Path) -> None:
    from transformers import Llama4TextConfig

    assert Llama4TextConfig  # noqa: S101 - the import is the probe


def known_model(_place: Place, _cache: Path, model: str) -> None:
    import transformers

    name = architectures.SPECS[model].named[1]
    if not hasattr(transformers, name):
        raise LackingError(f"transformers has no {name}")


def training_argument(_place: Place, _cache: Path, name: str) -> None:
    from transformers import TrainingArguments

    if name not in inspect.signature(TrainingArguments).parameters:
        raise LackingError(f"TrainingArguments has no {name}")


def sft_config(_place: Place, _cache: Path) -> None:
    from trl import SFTConfig

    assert SFTConfig  # noqa: S101 - the import is the probe


def non_padding_tokens(_place: Place, _cache: Path) -> None:
    from transformers import TrainingArguments

    if "non_padding" not in inspect.getsource(TrainingArguments):
        raise LackingError("include_num_input_tokens_seen has no non_padding")


def schedule(_place: Place, _cache: Path, name: str) -> None:
    from transformers.trainer_utils import SchedulerType

    if not hasattr(SchedulerType, name):
        raise LackingError(f"SchedulerType has no {name}")


def rope_scaling(_place: Place, _cache: Path, kind: str) -> None:
    """Create a configuration with this scaling: versions that do not know it refuse it."""
    from transformers import LlamaConfig

    LlamaConfig(**architectures.ROPE_SCALINGS[kind])


def scaled_positions(_place: Place, _cache: Path, model: str) -> None:
    """Look for the field of the model's configuration: without it, rope_scaling is kept and ignored."""
    import transformers

    class_ = getattr(transformers, architectures.SPECS[model].named[0])
    known = set(inspect.signature(class_.__init__).parameters) | set(getattr(class_, "__annotations__", {}))
    if not known & {"rope_scaling", "rope_parameters"}:
        raise LackingError(f"{class_.__name__} has no rope_scaling")


def rope_parameters(_place: Place, _cache: Path) -> None:
    """Look for the field of transformers 5, which holds rope_theta and the scaling together."""
    rotary = importlib.import_module("transformers.modeling_rope_utils")
    if not hasattr(rotary, "RopeParameters"):
        raise LackingError("configurations have no rope_parameters")


def experts_implementation(_place: Place, _cache: Path) -> None:
    from transformers import PreTrainedModel

    if not hasattr(PreTrainedModel, "set_experts_implementation"):
        raise LackingError("models have no experts_implementation")


def mean_resizing(_place: Place, _cache: Path) -> None:
    from transformers import PreTrainedModel

    if "mean_resizing" not in inspect.signature(PreTrainedModel.resize_token_embeddings).parameters:
        raise LackingError("resize_token_embeddings has no mean_resizing")


def layered_caches(_place: Place, _cache: Path) -> None:
    """Look for caches that are made of a layer's caches (4.54); before, some models had static ones of other kinds."""
    from transformers import StaticCache

    if "batch_size" in inspect.signature(StaticCache.__init__).parameters:
        raise LackingError("StaticCache is made for one kind of layer")


def packed_mask(_place: Place, _cache: Path) -> None:
    """Look for the mask that transformers makes of ``position_ids`` that restart (4.53, with torch 2.6 or newer).

    Earlier versions document packing by ``position_ids`` for FlashAttention only (``DataCollatorWithFlattening``).
    """
    try:
        masking = importlib.import_module("transformers.masking_utils")
    except ImportError as error:
        raise LackingError("transformers makes no mask of position_ids that restart") from error
    if not hasattr(masking, "find_packed_sequence_indices"):
        raise LackingError("transformers makes no mask of position_ids that restart")
    if not getattr(masking, "_is_torch_greater_or_equal_than_2_6", True):
        raise LackingError("transformers makes a mask of position_ids that restart with torch 2.6 or newer only")


def completion_mask(_place: Place, _cache: Path) -> None:
    if not compat.has_completion_mask():
        raise LackingError("SFTConfig has no completion_only_loss")


def model_with_sdpa(_place: Place, _cache: Path, model: str) -> None:
    import transformers

    known = getattr(transformers, architectures.SPECS[model].named[1])
    if not getattr(known, "_supports_sdpa", False):
        raise LackingError(f"{known.__name__} declares no support for it")


def storage_option(_place: Place, _cache: Path) -> None:
    from transformers import BitsAndBytesConfig

    if "bnb_4bit_quant_storage" not in inspect.signature(BitsAndBytesConfig.__init__).parameters:
        raise LackingError("BitsAndBytesConfig has no bnb_4bit_quant_storage")


def runtime_option(_place: Place, _cache: Path) -> None:
    from peft import LoraRuntimeConfig

    assert LoraRuntimeConfig  # noqa: S101 - the import is the probe


def lora_bias_option(_place: Place, _cache: Path) -> None:
    from peft import LoraConfig

    if "lora_bias" not in inspect.signature(LoraConfig).parameters:
        raise LackingError("LoraConfig has no lora_bias")


def method_options(_place: Place, _cache: Path, method: str) -> None:
    """Check that the method's configuration class exists and accepts the case's arguments."""
    import peft

    name, arguments = adapters.CONFIGS[method]
    if not hasattr(peft, name):
        raise LackingError(f"peft has no {name}")
    unknown = set(arguments) - set(inspect.signature(getattr(peft, name)).parameters)
    if unknown:
        raise LackingError(f"{name} has no {', '.join(sorted(unknown))}")


def peft_config(_place: Place, _cache: Path, name: str) -> None:
    import peft

    if not hasattr(peft, name):
        raise LackingError(f"peft has no {name}")


def skew_oft(_place: Place, _cache: Path) -> None:
    """Check for the OFT that trains the skew-symmetric entries alone; earlier ones train whole blocks."""
    from peft import OFTConfig

    if "use_cayley_neumann" not in inspect.signature(OFTConfig).parameters:
        raise LackingError("OFTConfig has no use_cayley_neumann")


def lora_start(_place: Place, _cache: Path, name: str) -> None:
    """Adapt one linear layer with a start that ``init_lora_weights`` names."""
    import torch
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(target_modules=["0"], init_lora_weights=name)
    get_peft_model(torch.nn.Sequential(torch.nn.Linear(64, 64, bias=False)), config)


def vera_of_two_sizes(_place: Place, _cache: Path) -> None:
    """Adapt two layers of different sizes by VeRA."""
    import torch
    from peft import VeraConfig, get_peft_model

    base = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Linear(16, 24))
    get_peft_model(base, VeraConfig(target_modules=["0", "1"], r=4))


def generation_setting(_place: Place, _cache: Path, name: str) -> None:
    from transformers import GenerationConfig

    if not hasattr(GenerationConfig(), name):
        raise LackingError(f"GenerationConfig has no {name}")


def scipy(_place: Place, _cache: Path) -> None:
    importlib.import_module("scipy")


def computed_start(_place: Place, _cache: Path, method: str) -> None:
    """Adapt one linear layer with a start that is computed from its weights."""
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


def peft_policy(_place: Place, _cache: Path) -> None:
    from peft.utils.other import fsdp_auto_wrap_policy

    assert callable(fsdp_auto_wrap_policy)  # noqa: S101 - the import is the probe


def trainer_half(place: Place, cache: Path) -> None:
    from transformers import TrainingArguments

    TrainingArguments(output_dir=str(cache / "unused"), fp16=True, use_cpu=place.kind == "cpu", report_to="none")


def all_on_disk(_place: Place, cache: Path) -> None:
    """Dispatch a layer to the disk, and the model around it with it."""
    import torch
    from accelerate import dispatch_model

    dispatch_model(torch.nn.Sequential(torch.nn.Linear(2, 2)), {"0": "disk"}, offload_dir=cache / "all-on-disk")


def prefilled_embeddings(_place: Place, _cache: Path) -> None:
    from transformers import GenerationMixin

    if not hasattr(GenerationMixin, "_prefill"):
        raise LackingError("GenerationMixin has no step that fills a cache which a script began")
