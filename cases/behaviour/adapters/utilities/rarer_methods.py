"""Methods whose adapters read tasks or prompts: Poly, multitask prompts, LLaMA-Adapter, CPT, and what all must keep."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.model import tiny
from cases.reference.tolerance import relative
from cases.space.verdict import Phase, at_least, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cases.apply.context import Context
    from cases.space.verdict import Check

GROUP = "Rarer methods"
SAME = 1e-5
VOCABULARY, WIDTH, HEADS, LENGTH = 40, 16, 4, 6
TASK = {"task_type": "CAUSAL_LM"}
LAYERS = {"target_modules": ["q_proj", "down_proj"]}
SKILLS = {
    "poly_type": "poly",
    "r": 4,
    "n_tasks": 3,
    "n_skills": 2,
    "n_splits": 2,
    "target_modules": ["q_proj", "o_proj"],
}
TYPES = [1, 2, 3, 4]  # of CPT's tokens: input template, input, output template, output
TASKS = (2, 0)  # of the rows of a batch
# By method: its configuration's class and arguments, and whether it changes nothing at first.
KINDS: Mapping[str, tuple[str, Mapping[str, Any], bool]] = {
    "adaption_prompt": ("AdaptionPromptConfig", {"adapter_len": 3, "adapter_layers": 2}, True),
    "poly": ("PolyConfig", SKILLS, True),
    "multitask": ("MultitaskPromptTuningConfig", {"num_virtual_tokens": 3, "num_tasks": 3, "num_ranks": 2}, False),
    "cpt": ("CPTConfig", {"cpt_token_ids": [3, 5, 7, 9], "cpt_mask": [1] * 4, "cpt_tokens_type_mask": TYPES}, False),
    "frod": ("FrodConfig", LAYERS, True),
    "shadow": ("ShadowConfig", {}, True),
    "cartridge": ("CartridgeConfig", {"num_virtual_tokens": 3}, False),
}
ASKS = ("poly", "multitask")  # for a task
SUMS = ("cpt", "cartridge")  # whose files have the prompt that the trained tensors make
# What no gradient reaches: the shadow after the last layer, and CPT's tokens, which earlier versions mark as trained.
UNREACHED = ("layers.1.shadow_", ".embedding.")
LOOSE = ("adaption_prompt", "multitask", "cpt", "shadow")  # see loose_methods_load_frozen


def llama() -> Any:
    """A Llama with fewer heads of keys, whose weights are large enough that everything shows in the logits."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": WIDTH, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": HEADS}
    made = LlamaForCausalLM(LlamaConfig(vocab_size=VOCABULARY, num_key_value_heads=2, **sizes)).eval()
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            parameter.copy_(tiny.values(name, tuple(parameter.shape)) * 4 + (parameter.dim() == 1))
    return made


def ids() -> Any:
    import torch

    return torch.arange(2 * LENGTH).view(2, LENGTH) * 7 % VOCABULARY


def given(key: str) -> dict[str, Any]:
    import torch

    return {"input_ids": ids(), **({"task_ids": torch.tensor(TASKS)} if key in ASKS else {})}


def logits(model: Any, key: str) -> Any:
    """The logits of the tokens, without those of virtual ones."""
    import torch

    with torch.no_grad():
        return model(**given(key)).logits[:, -LENGTH:]


def adapted(key: str) -> Any:
    import peft
    import torch

    torch.manual_seed(0)
    kind, arguments, _ = KINDS[key]
    return peft.get_peft_model(llama(), getattr(peft, kind)(**TASK, **arguments)).eval()


def fill(model: Any) -> Any:
    import torch

    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                parameter.add_(tiny.values(name, tuple(parameter.shape)))
    return model


def kept_apart(ctx: Context, key: str) -> Iterator[Check]:
    """What an adapter of any method keeps: the base while disabled, its tensors in a file, its logits after loading."""
    import peft
    import torch
    from safetensors.torch import load_file

    plain, model, folder = logits(llama(), ""), adapted(key), ctx.kept / key
    if KINDS[key][2]:
        yield at_most(f"logits that a new {key} changes", relative(logits(model, key), plain), SAME)
    found = logits(fill(model), key)
    yield at_least(f"logits that a trained {key} changes", relative(found, plain), 100 * SAME)
    with model.disable_adapter():
        yield at_most(f"logits off while {key} is disabled", relative(logits(model, key), plain), 0.0)
    yield at_most(f"logits off after {key} was disabled", relative(logits(model, key), found), 0.0)
    model.save_pretrained(folder)
    if key not in SUMS:
        stored = [*load_file(folder / "adapter_model.safetensors").values()]
        trained = [p.detach() for p in model.parameters() if p.requires_grad]
        lacking = sum(not any(p.shape == each.shape and p.equal(each) for each in stored) for p in trained)
        yield equal(f"trained tensors of {key} that the file lacks", lacking, 0)
    torch.manual_seed(5)
    again = peft.PeftModel.from_pretrained(llama(), folder).eval()
    yield at_most(f"logits off after loading {key}", relative(logits(again, key), found), 0.0)
    model.train()(**given(key), labels=ids()).loss.backward()
    still = [n for n, p in model.named_parameters() if p.requires_grad and (p.grad is None or not p.grad.any())]
    still = [name for name in still if not any(mark in name for mark in UNREACHED)]
    yield equal(f"trained tensors of {key} without a gradient", " ".join(still) or "none", "none")


@call(GROUP, phase=Phase.ADAPT)
def rarer_methods_keep_apart(ctx: Context) -> Iterator[Check]:
    """Adapters that read tasks or prompts are disabled, saved and loaded like any other, and train all their parts."""
    import peft

    told = 0
    for key, (kind, _, _) in KINDS.items():
        if hasattr(peft, kind):
            told += 1
            yield from kept_apart(ctx, key)
    yield at_least("methods", told, 3)


def loaded(ctx: Context, key: str) -> Iterator[Check]:
    """Load an adapter as it is, and to train, which prompts refuse."""
    import peft

    model, folder = adapted(key), ctx.kept / key
    model.save_pretrained(folder)
    again = peft.PeftModel.from_pretrained(llama(), folder)
    yield equal(f"trained tensors of {key} after loading", sum(p.requires_grad for p in again.parameters()), 0)
    if not model.active_peft_config.is_prompt_learning:
        more = peft.PeftModel.from_pretrained(llama(), folder, is_trainable=True)
        trained = (sum(p.requires_grad for p in each.parameters()) for each in (more, model))
        yield equal(f"trained tensors of {key}, loaded to train", *trained)


@call(GROUP, phase=Phase.RELOAD)
def rarer_methods_load_frozen(ctx: Context) -> Iterator[Check]:
    """Adapters that read tasks or prompts are loaded frozen, or trained as before with is_trainable=True."""
    import peft

    for key, (kind, _, _) in KINDS.items():
        if key not in LOOSE and hasattr(peft, kind):
            yield from loaded(ctx, key)


@call(GROUP, phase=Phase.RELOAD)
def loose_methods_load_frozen(ctx: Context) -> Iterator[Check]:
    """As rarer_methods_load_frozen, of LLaMA-Adapter, multitask prompts, CPT and shadows."""
    import peft

    for key in LOOSE:
        if hasattr(peft, KINDS[key][0]):
            yield from loaded(ctx, key)


@call(GROUP, phase=Phase.FORWARD)
def poly_mixes_skills(_ctx: Context) -> Iterator[Check]:
    """Each split of a Poly layer adds a mean of its skills' factors, weighted by the row's task, divided by the rank.

    https://arxiv.org/abs/2211.03831, multi-head routing.
    """
    import torch

    model = fill(adapted("poly"))
    inner = model.base_model.model.model.layers[1].self_attn
    rows = tiny.values("rows", (2, 5, WIDTH))
    for name in ("q_proj", "o_proj"):
        layer = getattr(inner, name)
        first, second = layer.poly_lora_A["default"].double(), layer.poly_lora_B["default"].double()
        routes = layer.poly_router["default"].module_logits.double().sigmoid()
        with torch.no_grad():
            found = layer(rows, task_ids=torch.tensor(TASKS)).double()
            base = layer.base_layer(rows).double()
            for row, task in enumerate(TASKS):
                weights = routes[task].view(2, 2)
                weights = weights / weights.sum(-1, keepdim=True)
                down = torch.cat([(weights[split, :, None, None] * first[split]).sum(0) for split in range(2)])
                up = torch.cat([(weights[split, :, None, None] * second[split]).sum(0) for split in range(2)], 1)
                wanted = rows[row].double() @ down @ up / SKILLS["r"]
                yield at_most(f"update off, {name}, task {task}", relative(found[row] - base[row], wanted), SAME)


@call(GROUP, phase=Phase.FORWARD)
def multitask_prompts(_ctx: Context) -> Iterator[Check]:
    """The prompt of a task is the shared prompt, times the product of the task's columns and rows, for each row's task.

    https://arxiv.org/abs/2303.02861, equation 1.
    """
    import torch

    model, plain = fill(adapted("multitask")), llama()
    encoder = model.prompt_encoder["default"]
    found = logits(model, "multitask")
    for row, task in enumerate(TASKS):
        own = encoder.prefix_task_cols[task] @ encoder.prefix_task_rows[task]
        prompt = (encoder.embedding.weight * own).detach()
        with torch.no_grad():
            whole = torch.cat([prompt, plain.get_input_embeddings()(ids()[row])])
            wanted = plain(inputs_embeds=whole[None]).logits[0, -LENGTH:]
        yield at_most(f"logits off, row {row}", relative(found[row], wanted), SAME)


@call(GROUP, phase=Phase.FORWARD)
def adaption_prompts(_ctx: Context) -> Iterator[Check]:
    """LLaMA-Adapter adds a gate times the attention of each query over the layer's own prompt, in the last layers.

    https://arxiv.org/abs/2303.16199, section 3.2: the prompt has keys and values by the layer's projections, and no
    positions. Keys and values are shared by as many heads as the model's.
    """
    import torch

    model = fill(adapted("adaption_prompt"))
    base = model.get_base_model()
    angles = base.model.rotary_emb(torch.zeros(1), torch.arange(LENGTH)[None])
    for number, layer in enumerate(base.model.layers):
        seen: list[Any] = []
        handles = [
            layer.self_attn.register_forward_hook(lambda *given, seen=seen: seen.append(given), with_kwargs=True),
            layer.self_attn.model.register_forward_hook(lambda *given, seen=seen: seen.append(given), with_kwargs=True),
        ]
        with torch.no_grad():
            base(ids())
        for handle in handles:
            handle.remove()
        (_, _, asked, plain), (_, _, _, whole) = seen
        own = layer.self_attn
        added = attention_over(own, asked["hidden_states"], angles)
        yield at_most(f"update off, layer {number}", relative((whole[0] - plain[0]).double(), added), 10 * SAME)


def attention_over(own: Any, hidden: Any, angles: tuple[Any, Any]) -> Any:
    """What the prompt of a layer adds, in float64."""
    import torch

    size = WIDTH // HEADS
    attention, prompt = own.model, own.adaption_prompt.detach().double()[0]
    query, key, value, out = (
        getattr(attention, f"{name}_proj").weight.detach().double() for name in ("q", "k", "v", "o")
    )
    cosines, sines = (each.double()[:, None] for each in angles)
    queries = (hidden.double() @ query.T).view(2, LENGTH, HEADS, size).transpose(1, 2)
    turned = torch.cat([-queries[..., size // 2 :], queries[..., : size // 2]], -1)
    queries = queries * cosines + turned * sines
    heads = []
    for head in range(HEADS):
        part = slice(head // 2 * size, head // 2 * size + size)
        keys, values = prompt @ key[part].T, prompt @ value[part].T
        shares = (queries[:, head] @ keys.T / math.sqrt(size)).softmax(-1)
        heads.append(float(own.adaption_gate.detach()) * shares @ values)
    return torch.cat(heads, -1) @ out.T


@call(GROUP, phase=Phase.BACKWARD, requires=("peft_CPTConfig",))
def context_prompts(_ctx: Context) -> Iterator[Check]:
    """CPT moves each token of its context by at most epsilon, by the token's kind, and trains no output tokens.

    https://arxiv.org/abs/2410.17222: the bound is the configured one for vectors of 2048 numbers, in proportion to the
    square root of their number.
    """
    import torch

    model, plain = adapted("cpt"), llama()
    config, encoder = model.peft_config["default"], model.prompt_encoder["default"]
    moves = tiny.values("moves", (4, WIDTH)) * 10
    with torch.no_grad():
        encoder.delta_embedding.weight.copy_(moves)
    root = math.sqrt(WIDTH / 2048)
    near, other = config.opt_projection_format_epsilon * root, config.opt_projection_epsilon * root
    bounds = torch.tensor([near, other, near, 1e-10])
    table = plain.get_input_embeddings()
    with torch.no_grad():
        prompt = table(torch.tensor([3, 5, 7, 9])) + moves / moves.norm(dim=1, keepdim=True) * bounds[:, None]
        inputs = torch.cat([prompt.expand(2, 4, WIDTH), table(ids())], 1)
        wanted = plain(inputs_embeds=inputs).logits
        yield at_most("logits off", relative(logits(model, "cpt"), wanted[:, -LENGTH:]), SAME)
    model.train()(input_ids=ids(), labels=ids()).loss.backward()
    grads = encoder.delta_embedding.weight.grad
    yield equal("tokens with a gradient", str([bool(row.any()) for row in grads]), str([True, True, True, False]))
