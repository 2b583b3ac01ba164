"""The training script that does what a case does: the calls of its options, in order, in the loop around them.

The script is complete except for what belongs to the user: the imports, the device, the tokenizer and the batches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cases.apply.attention import BACK_ENDS
from cases.model import architectures
from cases.space.options import SHARDED
from reports.answers.scripts import calls, strategy_calls
from reports.answers.scripts.python_text import Code

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cases.space.options import Options
    from reports.answers.scripts.calls import ApiVersions
    from reports.answers.scripts.python_text import CodeCall

TRAINERS: Final = ("trainer", "sft")
NO_GRAD: Final = "torch.no_grad()"
# Parameters lose their memory before FSDP2 shards them. Buffers stay, because checkpoints do not hold all of them.
EMPTIED: Final = (
    "weights = model.state_dict() if rank == 0 else {}",
    "for module in model.modules():",
    "    for name, p in list(module.named_parameters(recurse=False)):",
    '        setattr(module, name, torch.nn.Parameter(p.detach().to("meta"), requires_grad=p.requires_grad))',
)


def lines(options: Options, api: ApiVersions) -> list[str]:
    """The lines of the script, from loading to the use of the trained model."""
    first = calls.accelerator(options).lines("accelerator") if options.front_end == "accelerate" else []
    parts = (loading(options, api), adapting(options, api), training(options, api), afterwards(options))
    return [*first, *(line for part in parts for line in part)]


def loading(options: Options, api: ApiVersions) -> list[str]:
    """Load the base model on its device. A checkpoint that is loaded quantised is saved first."""
    lines: list[str] = []
    configuration = None
    if options.quant != "none":
        lines += calls.quantization(options).lines("quantization")
        configuration = Code("quantization")
    load = calls.load(options, api, "MODEL", quantization_config=configuration)
    lines += (load.but(tie_word_embeddings=True) if architectures.is_tied(options) else load).lines("model")
    if options.prequantised:
        lines += ['model.save_pretrained("quantised")', *calls.load(options, api, '"quantised"').lines("model")]
    if options.quant == "none":
        lines.append("model.to(device)")
    if options.cpu_ram_efficient_loading:
        empty = calls.load_empty(options, api, "MODEL").lines("model")
        empty = inside(["init_empty_weights(include_buffers=False)"], empty)
        lines = ["if rank == 0:", *indented(lines), "else:", *indented(empty)]
    return [*lines, *(["model.resize_token_embeddings(len(tokenizer))"] if options.embeddings == "resized" else [])]


def adapting(options: Options, api: ApiVersions) -> list[str]:
    """Enable gradient checkpointing and add the adapter. A trainer does both from its arguments."""
    checkpoints, by_trainer = options.gradient_checkpointing != "off", options.front_end in TRAINERS
    checkpointing = calls.checkpointing(options).lines() if checkpoints and not by_trainer else []
    if options.method == "full":
        return checkpointing
    adapter, adapted = calls.adapter(options).lines("adapter"), calls.adapted(options, api).lines("model")
    if calls.trainer_adapts(options):
        return adapter
    inputs = ["model.enable_input_require_grads()"] if checkpoints else []
    return [*adapter, *adapted, *inputs] if by_trainer else [*checkpointing, *inputs, *adapter, *adapted]


def training(options: Options, api: ApiVersions) -> list[str]:
    if "optim" not in options.stated:
        return []
    if options.front_end in TRAINERS:
        return trainer(options, api)
    return accelerate_loop(options) if options.front_end == "accelerate" else loop(options)


def loop(options: Options) -> list[str]:
    compiling = ["model.compile()"] if options.torch_compile else []
    return [*wrapping(options), *compiling, *optimizer(options), *steps(options)]


def wrapping(options: Options) -> list[str]:
    if options.strategy == "fsdp2":
        return fully_sharding(options)
    if options.strategy == "fsdp1":
        return strategy_calls.fsdp1(options).lines("model")
    return strategy_calls.ddp(options).lines("model") if options.strategy == "ddp" else []


def fully_sharding(options: Options) -> list[str]:
    """FSDP2: shard each layer, then the model."""
    lines = [*EMPTIED] if options.cpu_ram_efficient_loading else []
    if options.auto_wrap_policy == "transformer":
        lines += [
            "for layer in model.modules():",
            f"    if type(layer).__name__ in {architectures.spec(options).block!r}:",
            f"        {strategy_calls.fully_shard('layer', options)!r}",
        ]
    lines.append(repr(strategy_calls.fully_shard("model", options)))
    return [*lines, *(strategy_calls.receive_weights().lines() if options.cpu_ram_efficient_loading else [])]


def optimizer(options: Options, target: str = "optimizer") -> list[str]:
    return calls.optimizer(options).without(calls.TINY).lines(target)


def steps(options: Options) -> list[str]:
    """The training loop, with what each option does in it."""
    several, scaled = options.gradient_accumulation_steps, options.autocast == "fp16"
    contexts = [calls.autocast(options)] if options.autocast != "off" else []
    share = f" / {several}" if several > 1 else ""
    forward = inside([*contexts, *kernels(options)], [f"loss = model(**batch).loss{share}"])
    body = [*forward, "scaler.scale(loss).backward()" if scaled else "loss.backward()"]
    step = [
        *(["scaler.unscale_(optimizer)"] if scaled else []),
        *([repr(calls.clipping(options))] if options.clip_grad_norm else []),
        *(["scaler.step(optimizer)", "scaler.update()"] if scaled else ["optimizer.step()"]),
        *(["model.base_model.update_and_allocate(number)"] if options.method == "adalora" else []),
        "optimizer.zero_grad()",
        *between(options),
    ]
    if several > 1:
        body = [f"last = number % {several} == 0", *synchronised_last(options, body), "if last:", *indented(step)]
    else:
        body += step
    return [
        *(calls.scaler(options).lines("scaler") if scaled else []),
        "model.train()",
        "for number, batch in enumerate(batches, start=1):",
        *indented(body),
    ]


def synchronised_last(options: Options, body: list[str]) -> list[str]:
    """Exchange gradients between ranks for a step's last batch only."""
    if options.strategy == "single":
        return body
    if options.strategy == "fsdp2":
        return ["model.set_requires_gradient_sync(last)", *body]
    return inside(["contextlib.nullcontext() if last else model.no_sync()"], body)


def kernels(options: Options) -> list[CodeCall]:
    return [calls.kernels(options)] if options.attn_implementation in BACK_ENDS else []


def between(options: Options) -> list[str]:
    """The use of the model between two steps."""
    if options.loop == "eval":
        return ["model.eval()", *inside([NO_GRAD], ["model(**evaluated)"]), "model.train()"]
    return [*generation(options), "model.train()"] if options.loop == "generate" else []


def generation(options: Options) -> list[str]:
    unwrapped = "model.module" if options.strategy in ("ddp", "fsdp1") else "model"
    line = f"tokens = {unwrapped}.generate(**prompt)"
    if options.summon_full_params and options.strategy == "fsdp2":
        return ["model.eval()", "model.unshard()", line, "model.reshard()"]
    contexts = [strategy_calls.summon_full_params()] if options.summon_full_params else []
    return ["model.eval()", *inside(contexts, [line])]


def accelerate_loop(options: Options) -> list[str]:
    clipping = ["if accelerator.sync_gradients:", f"    {calls.accelerator_clipping()!r}"]
    step = [
        *inside(kernels(options), ["loss = model(**batch).loss"]),
        "accelerator.backward(loss)",
        *(clipping if options.clip_grad_norm else []),
        "optimizer.step()",
        "optimizer.zero_grad()",
    ]
    return [
        *optimizer(options),
        "model, optimizer, batches = accelerator.prepare(model, optimizer, batches)",
        "model.train()",
        "for batch in batches:",
        *indented(inside(["accelerator.accumulate(model)"], step)),
    ]


def trainer(options: Options, api: ApiVersions) -> list[str]:
    """A trainer with the user's optimiser, which it creates after it wrapped the model."""
    create = ["model = trainer.model", *optimizer(options, "trainer.optimizer"), "return trainer.optimizer"]
    return [
        *calls.training_arguments(options, api).lines("arguments"),
        *calls.trainer(options, api).lines("trainer"),
        "def create_optimizer(*_):",
        *indented(create),
        "trainer.create_optimizer = create_optimizer",
        *inside(kernels(options), ["trainer.train()"]),
    ]


def afterwards(options: Options) -> list[str]:
    """The use of the trained model."""
    if options.flow == "load":
        return inside([NO_GRAD, *kernels(options)], ["logits = model.eval()(**batch).logits"])
    if options.flow in ("save_reload", "resume", "portability"):
        return saving(options)
    if options.flow in ("merge", "merge_reload"):
        return merging(options)
    return generation(options) if options.flow == "generate" else []


def merging(options: Options) -> list[str]:
    """Merge the adapter; a sharded model is gathered into ``whole`` first, an adapted model of rank 0 without FSDP."""
    saved = ['merged.save_pretrained("merged")'] if options.flow == "merge_reload" else []
    if options.strategy not in SHARDED:
        unwrapped = "model.module" if options.strategy == "ddp" else "model"
        return [f"merged = {unwrapped}.merge_and_unload()", *saved]
    merged = ["whole.load_state_dict(state, strict=False)", "merged = whole.merge_and_unload()", *saved]
    return [*gathering(options), "if rank == 0:", *indented(merged)]


def saving(options: Options) -> list[str]:
    if options.front_end in TRAINERS:
        return ['trainer.save_model("output")'] if options.flow != "resume" else []
    if options.front_end == "accelerate":
        return accelerate_saving(options)
    if options.strategy in SHARDED:
        return sharded_saving(options)
    if options.flow == "resume":
        unwrapped = "model.module" if options.strategy == "ddp" else "model"
        state = f'{{"model": {unwrapped}.state_dict(), "optimizer": optimizer.state_dict()}}'
        return [f'torch.save({state}, "training.pt")']
    return ['model.save_pretrained("output")']


def accelerate_saving(options: Options) -> list[str]:
    if options.flow == "resume":
        return ['accelerator.save_state("output")']
    state = "state_dict=accelerator.get_state_dict(model)"
    return [f'accelerator.unwrap_model(model).save_pretrained("output", {state})']


def sharded_saving(options: Options) -> list[str]:
    """Gather the state of a sharded model, or save its shards."""
    resumes = options.flow == "resume"
    gathering_lines = gathering(options)
    content = '{"model": state, "optimizer": optimizer_state}' if resumes else '{"model": state}'
    if options.state_dict_type == "sharded":
        return [*gathering_lines, f'torch.distributed.checkpoint.save({content}, checkpoint_id="output")']
    unwrapped = "model.module" if options.strategy == "fsdp1" else "model"
    save = f'torch.save({content}, "training.pt")'
    save = save if resumes else f'{unwrapped}.save_pretrained("output", state_dict=state)'
    return [*gathering_lines, "if rank == 0:", f"    {save}"]


def gathering(options: Options) -> list[str]:
    """Gather the model's state, and to resume a training the optimiser's."""
    by_fsdp1 = strategy_calls.is_gathered_by_fsdp1(options)
    model = "model.state_dict()" if by_fsdp1 else repr(strategy_calls.model_state(options))
    lines = [f"state = {model}"]
    if options.flow == "resume":
        lines.append(f"optimizer_state = {strategy_calls.optimizer_state(options)!r}")
    return inside([strategy_calls.whole_state(options)], lines) if by_fsdp1 else lines


def inside(contexts: Iterable[CodeCall | str], lines: list[str]) -> list[str]:
    """The lines in a ``with`` statement, an argument a line if it would be long."""
    several = list(contexts)
    if not several:
        return lines
    line = f"with {', '.join(map(str, several))}:"
    return [*line.splitlines(), *indented(lines)]


def indented(lines: Iterable[str]) -> list[str]:
    return [f"    {line}" for line in lines]
