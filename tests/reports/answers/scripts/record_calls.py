"""Record the calls that cases make to the stack, inside a version environment.

PYTHONPATH=. ENVIRONMENT/bin/python tests/reports/answers/scripts/record_calls.py SET FOLDER [CASE ...]

Writes FOLDER/SET.json: for each case that ended, and each that failed on the CPU, the calls of all ranks that come from
``cases/``, each once, as a user writes them. With names, it replaces only these cases in the file.
Every case runs in forked processes, so the stack is imported once.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import importlib
import inspect
import json
import os
import shutil
import socket
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

CASES = (
    "load-nf4-prequantised-single-bf16",
    "load-single-fp32-attn_implementation_flash",
    "train-full-single-fp32",
    "train-lora-single-fp32",
    "train-full-single-fp32-autocast_bf16",
    "train-full-single-fp32-autocast_fp16",
    "train-lora-single-bf16-autocast_adapter_dtype_false",
    "train-lora-single-fp32-adamw-fused",
    "train-lora-single-fp32-attn_implementation_math",
    "train-lora-single-fp32-clip_grad_norm",
    "train-lora-resized-single-bf16",
    "train-lora-single-bf16-torch_compile",
    "train-dora-nf4-bnb_4bit_use_double_quant-llm_int8_skip_modules-single-bf16",
    "train-lora-nf4-bnb_4bit_compute_dtype_fp32-single-bf16",
    "train-lora-int8-single-bf16",
    "train-full-single-fp32-paged_adamw_8bit",
    "train-adalora-single-fp32",
    "train-prompt-single-fp32",
    "train-ia3-single-fp32",
    "train-lora-ddp-find_unused_parameters-fp32-gradient_checkpointing_reentrant",
    "train-lora-ddp-static_graph-fp32-gradient_checkpointing_reentrant",
    "train-full-ddp-gradient_as_bucket_view-fp32-adamw",
    "train-lora-ddp-fp32-gradient_checkpointing_non_reentrant-gradient_accumulation_steps_2",
    "train-lora-ddp-bf16-eval_between",
    "train-full-fsdp1-fp32-autocast_fp16",
    "train-full-fsdp1-fp32-gradient_accumulation_steps_2",
    "train-lora-fsdp1-fp32",
    "train-lora-fsdp1-auto_wrap_policy_none-use_orig_params_false-fp32",
    "train-lora-fsdp1-auto_wrap_policy_peft-use_orig_params_false-shard_grad_op-bf16",
    "train-full-fsdp1-auto_wrap_policy_size-fp32",
    "train-full-fsdp1-no_shard-fp32-mixed_precision_bf16",
    "train-lora-fsdp1-fp32-mixed_precision_bf16_reduce_fp32",
    "train-full-fsdp1-cpu_offload-fp32-adamw",
    "train-full-fsdp1-sync_module_states-cpu_ram_efficient_loading-fp32",
    "train-lora-fsdp1-4ranks-hsdp-fp32",
    "train-full-fsdp2-fp32-clip_grad_norm",
    "train-lora-fsdp2-reshard_after_forward_false-fp32",
    "train-lora-fsdp2-auto_wrap_policy_none-fp32",
    "train-full-fsdp2-fp32-mixed_precision_bf16",
    "train-full-fsdp2-cpu_offload-fp32-adamw",
    "train-lora-nf4-bnb_4bit_quant_storage_bf16-fsdp2-bf16-gradient_accumulation_steps_2-clip_grad_norm-adamw",
    "save_reload-lora-single-fp32",
    "save_reload-lora-fsdp1-fp32",
    "save_reload-lora-fsdp1-fp32-state_dict_type_full_on_device",
    "save_reload-lora-fsdp1-fp32-state_dict_type_full_dcp",
    "save_reload-lora-fsdp2-fp32",
    "save_reload-lora-fsdp2-fp32-state_dict_type_sharded",
    "resume-lora-fsdp1-fp32-adamw",
    "merge-lora-single-fp32",
    "merge_reload-lora-single-fp32",
    "generate-lora-single-fp32",
    "generate-lora-fsdp1-fp32-summon_full_params",
    "generate-lora-fsdp2-fp32-summon_full_params",
    "train-full-single-fp32-autocast_bf16-accelerate",
    "train-lora-ddp-fp32-gradient_accumulation_steps_2-clip_grad_norm-accelerate",
    "train-full-fsdp1-fp32-adamw-accelerate",
    "resume-lora-ddp-fp32-adamw-accelerate",
    "train-lora-nf4-single-bf16-autocast_bf16-gradient_checkpointing_non_reentrant-adamw-trainer",
    "train-lora-ddp-fp32-clip_grad_norm-trainer",
    "save_reload-lora-ddp-fp32-trainer",
    "train-full-single-fp32-sft",
    "train-lora-single-fp32-gradient_accumulation_steps_2-clip_grad_norm-adamw-sft",
    "train-lora-single-bf16-autocast_adapter_dtype_false-sft",
    "train-dora-single-fp32-sft",
)

# Functions, and classes of which the construction is recorded.
CALLABLES = {
    "accelerate": ("Accelerator", "init_empty_weights"),
    "accelerate.utils": ("DistributedDataParallelKwargs", "GradScalerKwargs"),
    "bitsandbytes.optim": ("AdamW8bit", "PagedAdamW8bit"),
    "peft": (
        *("LoraConfig", "LoHaConfig", "LoKrConfig", "IA3Config", "AdaLoraConfig", "VeraConfig"),
        *("PromptTuningConfig", "PrefixTuningConfig", "get_peft_model"),
    ),
    "peft.utils.other": ("fsdp_auto_wrap_policy",),
    "torch": ("autocast",),
    "torch.amp": ("GradScaler",),
    "torch.distributed.checkpoint": ("save", "load"),
    "torch.distributed.checkpoint.state_dict": (
        *("StateDictOptions", "get_model_state_dict", "get_optimizer_state_dict"),
        *("set_model_state_dict", "set_optimizer_state_dict"),
    ),
    "torch.distributed.device_mesh": ("init_device_mesh",),
    "torch.distributed.fsdp": (
        *("CPUOffload", "CPUOffloadPolicy", "FullOptimStateDictConfig", "FullStateDictConfig"),
        *("FullyShardedDataParallel", "MixedPrecision", "MixedPrecisionPolicy", "fully_shard"),
    ),
    "torch.distributed._composable.fsdp": ("CPUOffloadPolicy", "MixedPrecisionPolicy", "fully_shard"),
    "torch.distributed.fsdp.sharded_grad_scaler": ("ShardedGradScaler",),
    "torch.nn.attention": ("sdpa_kernel",),
    "torch.nn.parallel": ("DistributedDataParallel",),
    "torch.nn.utils": ("clip_grad_norm_",),
    "torch.optim": ("SGD", "AdamW"),
    "transformers": ("BitsAndBytesConfig", "Trainer", "TrainingArguments"),
    "trl": ("SFTConfig", "SFTTrainer"),
}
# Methods, with the name of the variable that a user has for the instance; empty for a method of the class.
METHODS = {
    ("accelerate", "Accelerator"): (
        "accelerator",
        *("accumulate", "backward", "clip_grad_norm_", "prepare", "save_state"),
    ),
    ("peft", "AdaLoraModel"): ("model.base_model", "update_and_allocate"),
    ("peft", "LoraModel"): ("model", "merge_and_unload", "merge_adapter", "unmerge_adapter"),
    ("peft", "PeftModel"): ("model", "from_pretrained", "save_pretrained"),
    ("peft", "PeftModelForCausalLM"): ("model", "generate"),
    ("torch", "Tensor"): ("loss", "backward"),
    ("torch.amp", "GradScaler"): ("scaler", "scale", "step", "unscale_", "update"),
    ("torch.distributed.fsdp", "FullyShardedDataParallel"): (
        "model",
        *("clip_grad_norm_", "no_sync", "set_requires_gradient_sync", "unshard", "reshard"),
    ),
    ("torch.distributed.fsdp.sharded_grad_scaler", "ShardedGradScaler"): ("scaler", "scale", "unscale_", "update"),
    ("torch.nn.parallel", "DistributedDataParallel"): ("model", "no_sync", "train"),
    ("torch.nn", "Module"): ("model", "compile", "eval", "train"),
    ("transformers", "AutoModelForCausalLM"): ("", "from_pretrained", "from_config"),
    ("transformers", "AutoModelForSeq2SeqLM"): ("", "from_pretrained"),
    ("transformers", "PreTrainedModel"): (
        "model",
        *("enable_input_require_grads", "gradient_checkpointing_enable", "resize_token_embeddings", "save_pretrained"),
        *("eval", "to", "train"),
    ),
    ("transformers", "Trainer"): ("trainer", "save_model", "train"),
    ("trl", "SFTTrainer"): ("trainer", "train"),
}
STATIC = {("torch.distributed.fsdp", "FullyShardedDataParallel"): ("state_dict_type", "summon_full_params")}
ALIASES = {
    "save": "torch.distributed.checkpoint.save",
    "load": "torch.distributed.checkpoint.load",
    "autocast": "torch.autocast",
    "GradScaler": "torch.amp.GradScaler",
    "SGD": "torch.optim.SGD",
    "AdamW": "torch.optim.AdamW",
    "AdamW8bit": "bitsandbytes.optim.AdamW8bit",
    "PagedAdamW8bit": "bitsandbytes.optim.PagedAdamW8bit",
    "clip_grad_norm_": "torch.nn.utils.clip_grad_norm_",
}
ROOT = Path(__file__).parents[4]
USERS = tuple(str(ROOT / "cases" / room) for room in ("apply", "flows"))
CONFIGURATION = {"config", "resized"}  # functions of cases/model that call the stack as a user does


class Recorder:
    """The calls so far, and the objects that they returned, so that an argument is written as the call that made it."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []
        self.made: dict[int, tuple[Any, str]] = {}

    def is_user(self, frame: Any) -> bool:
        path = frame.f_code.co_filename
        if "/cases/model/" in path:
            return frame.f_code.co_name in CONFIGURATION
        return bool(path.startswith(USERS))

    def record(self, name: str, arguments: tuple[Any, ...], named: dict[str, Any], result: Any = None) -> None:
        call = {
            "callee": name,
            "arguments": [self.text(each) for each in arguments],
            "named": {key: self.text(value) for key, value in sorted(named.items())},
        }
        if call not in self.calls:  # in a loop, the first time
            self.calls.append(call)
        if result is not None:
            self.made[id(result)] = (result, f"{name}(...)")

    def text(self, value: Any) -> str:
        """A value as a user writes it: a variable, the call that made it, or a literal."""
        import torch

        if id(value) in self.made and not isinstance(value, (torch.nn.Module, torch.optim.Optimizer)):
            return self.made[id(value)][1]
        variable = variable_of(value)
        if variable:
            return variable
        if isinstance(value, functools.partial):
            named = [f"{key}={self.text(each)}" for key, each in value.keywords.items()]
            return f"functools.partial({', '.join([value.func.__name__, *named])})"
        if isinstance(value, list):
            return f"[{', '.join(map(self.text, value))}]"
        return literal(value)


def variable_of(value: Any) -> str:
    """The name that a script has for an object; empty if it has none."""
    import torch

    kinds = (
        (torch.nn.Module, "model"),
        (torch.optim.Optimizer, "optimizer"),
        (torch.Tensor, "tensor"),
        (torch.device, "device"),
        (Path, "PATH"),
    )
    for kind, name in kinds:
        if isinstance(value, kind):
            return name
    if inspect.isgenerator(value) or (isinstance(value, list) and value and isinstance(value[0], torch.Tensor)):
        return "parameters"
    if isinstance(value, str) and (value == "cpu" or value.startswith(os.sep)):
        return "device" if value == "cpu" else "PATH"
    return '{"": device}' if value == {"": "cpu"} else ""


def literal(value: Any) -> str:
    import torch

    if isinstance(value, enum.Enum) or hasattr(type(value), "__members__"):  # or an enum of torch's C++
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, type) or inspect.isfunction(value):
        return str(value.__name__)
    if isinstance(value, (set, frozenset)):
        return f"{{{', '.join(sorted(each.__name__ for each in value))}}}"
    if isinstance(value, str):
        return json.dumps(value)
    if value is None or isinstance(value, (bool, int, float, dict, tuple, torch.dtype)):
        return plain(value)
    return type(value).__name__.rpartition("_")[2]


def plain(value: Any) -> str:
    """Python's text of a value, without tensors."""
    import torch

    if isinstance(value, dict) and any(isinstance(each, (torch.Tensor, dict)) for each in value.values()):
        return "state"
    return repr(value).replace("'", '"')


def watch_callable(recorder: Recorder, module: Any, name: str) -> None:
    original = getattr(module, name, None)
    if original is None or is_watched(original):
        return
    shown = ALIASES.get(name, name)
    if inspect.isclass(original):
        watch_construction(recorder, original, shown)
        return

    @functools.wraps(original)
    def recorded(*arguments: Any, **named: Any) -> Any:
        is_user = recorder.is_user(sys._getframe(1))
        result = original(*arguments, **named)
        if is_user:
            recorder.record(shown, arguments, named, None if name == "get_peft_model" else result)
        return result

    setattr(module, name, recorded)


def watch_construction(recorder: Recorder, of_class: Any, shown: str) -> None:
    original = of_class.__init__

    @functools.wraps(original)
    def constructed(self: Any, *arguments: Any, **named: Any) -> None:
        if recorder.is_user(sys._getframe(1)):
            recorder.record(shown, arguments, named, self)
        original(self, *arguments, **named)

    of_class.__init__ = constructed
    of_class.is_watched_by = Recorder


def watch_method(recorder: Recorder, of_class: Any, name: str, shown: str, *, static: bool = False) -> None:
    original = inspect.getattr_static(of_class, name, None)
    if original is None:
        return
    if isinstance(original, (classmethod, staticmethod)) or static:
        bound = getattr(of_class, name)

        @functools.wraps(bound)
        def recorded(*arguments: Any, **named: Any) -> Any:
            if recorder.is_user(sys._getframe(1)):
                recorder.record(f"{of_class.__name__}.{name}", arguments, named)
            return bound(*arguments, **named)

        setattr(of_class, name, staticmethod(recorded))
        return

    @functools.wraps(original)
    def method(self: Any, *arguments: Any, **named: Any) -> Any:
        if recorder.is_user(sys._getframe(1)):
            recorder.record(f"{shown}.{name}", arguments, named)
        return original(self, *arguments, **named)

    setattr(of_class, name, method)


def watch(recorder: Recorder) -> None:
    for place, names in CALLABLES.items():
        with contextlib.suppress(ImportError):
            module = importlib.import_module(place)
            for name in names:
                with contextlib.suppress(ImportError, RuntimeError):  # lazy modules of transformers and trl
                    watch_callable(recorder, module, name)
    for (place, owner), (variable, *method_names) in METHODS.items():
        for name in method_names:
            watch_method(recorder, getattr(importlib.import_module(place), owner), name, variable)
    for (place, owner), static_names in STATIC.items():
        for name in static_names:
            watch_method(recorder, getattr(importlib.import_module(place), owner), name, "", static=True)
    for name in ("set_requires_gradient_sync", "unshard", "reshard"):
        for of_class in fsdp2_classes():
            watch_method(recorder, of_class, name, "model")


def fsdp2_classes() -> list[Any]:
    for place in ("torch.distributed.fsdp", "torch.distributed._composable.fsdp"):
        with contextlib.suppress(ImportError):
            found = getattr(importlib.import_module(place), "FSDPModule", None)
            if found is not None:
                return [found]
    return []


def is_watched(of_class: Any) -> bool:
    return getattr(of_class, "is_watched_by", None) is Recorder


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def run_case(name: str, recorder: Recorder, out: Path) -> int:
    """Run every stage of a case; the exit status of its worst rank."""
    from cases import suite
    from cases.flows import stages

    os.environ["FTMATRIX_OUT"] = str(out)
    worst = 0
    for stage, ranks in stages.numbered_stages(suite.CASES[name].options):
        port = free_port()
        children = [
            fork_rank(name, recorder, out, stage=stage, rank=rank, ranks=ranks, port=port) for rank in range(ranks)
        ]
        worst = max([worst, *(os.waitpid(child, 0)[1] for child in children)])
        if worst:
            break
    return worst


def fork_rank(name: str, recorder: Recorder, out: Path, *, stage: int, rank: int, ranks: int, port: int) -> int:
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        with (out / f"log-{stage}-{rank}").open("w") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        os.environ.update(RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(ranks))
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        from cases import alone
        from cases.runtime import rank_env
        from cases.space.place import Place

        os.environ.update(rank_env.variables(os.environ))
        if ranks == 1:
            for variable in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
                os.environ.pop(variable, None)
        alone.run_stage(name, stage, Place(rank, ranks, "cpu"), alone.Printer())
        status = 0
    except BaseException:  # noqa: BLE001 - the parent reads the log
        traceback.print_exc()
    finally:
        (out / f"calls-{stage}-{rank}.json").write_text(json.dumps(recorder.calls))
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def main() -> int:
    version_set, folder, *names = sys.argv[1:]
    for module in ("torch", "transformers", "peft", "accelerate", "bitsandbytes", "trl"):
        try:
            importlib.import_module(module)
        except Exception:  # noqa: BLE001 - a set may lack one
            print("not imported:", module)
    recorder = Recorder()
    watch(recorder)
    path = Path(folder, f"{version_set}.json")
    known = json.loads(path.read_text()) if names and path.exists() else {"ended": {}, "failed": {}}
    found: dict[str, dict[str, Any]] = {
        end: {name: calls for name, calls in cases.items() if name not in names} for end, cases in known.items()
    }
    for name in names or CASES:
        out = Path(tempfile.mkdtemp())
        status = run_case(name, recorder, out)
        print(name, "ok" if status == 0 else f"failed: {max(out.glob('log-*-0')).read_text()[-300:]}", flush=True)
        calls = [call for path in sorted(out.glob("calls-*.json")) for call in json.loads(path.read_text())]
        unique = [call for number, call in enumerate(calls) if call not in calls[:number]]
        found["failed" if status else "ended"][name] = unique
        shutil.rmtree(out, ignore_errors=True)
    path.write_text(document(found))
    return 0


def document(found: dict[str, dict[str, Any]]) -> str:
    """JSON with one call a line."""
    parts = []
    for end, cases in found.items():
        rows = (
            f"{json.dumps(name)}: [\n" + ",\n".join(map(json.dumps, calls)) + "\n]" for name, calls in cases.items()
        )
        parts.append(f"{json.dumps(end)}: {{\n" + ",\n".join(rows) + "\n}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


if __name__ == "__main__":
    sys.exit(main())
