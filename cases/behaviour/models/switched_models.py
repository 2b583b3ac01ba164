"""What a script asks of a model that it has, and changes in it: counts, attention, checkpointing, gradients of inputs.

https://huggingface.co/docs/transformers/main_classes/model
"""

from __future__ import annotations

import contextlib
import warnings
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.space.verdict import Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cases.apply.context import Context
    from cases.space.verdict import Check

GROUP = "Models"
LAYERS, VOCABULARY, WIDTH = 5, 40, 16
SIZES = {"hidden_size": WIDTH, "intermediate_size": 24, "num_hidden_layers": LAYERS, "num_attention_heads": 2}
TABLE = VOCABULARY * WIDTH
SAME = 1e-5


def llama(**more: Any) -> Any:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(vocab_size=VOCABULARY, **SIZES, **more))


def ids() -> Any:
    import torch

    return torch.arange(2 * 6).view(2, 6) * 7 % VOCABULARY


def counted() -> int:
    """The weights of such a Llama by its formula, without its embeddings and its head."""
    heads, feed = 4 * WIDTH * WIDTH, 3 * WIDTH * SIZES["intermediate_size"]
    return LAYERS * (heads + feed + 2 * WIDTH) + WIDTH


@call(GROUP, phase=Phase.LOAD)
def counted_weights_of_models(_ctx: Context) -> Iterator[Check]:
    """num_parameters counts all weights, trained ones, or those outside of embeddings; tied weights count once.

    get_memory_footprint has the bytes of weights, and of buffers too unless they are left out.
    """
    import torch

    for tied in (False, True):
        model = llama(tie_word_embeddings=tied)
        tables = TABLE if tied else 2 * TABLE
        whole = counted() + tables
        yield equal(f"weights, tied={tied}", model.num_parameters(), whole)
        without = model.num_parameters(exclude_embeddings=True)
        yield equal(f"weights without embeddings, tied={tied}", without, whole - TABLE)
        model.model.layers[1].requires_grad_(requires_grad=False)
        model.get_input_embeddings().requires_grad_(requires_grad=False)
        frozen = (counted() - WIDTH) // LAYERS
        trained = whole - frozen - TABLE
        yield equal(f"trained weights, tied={tied}", model.num_parameters(only_trainable=True), trained)
        found = model.num_parameters(only_trainable=True, exclude_embeddings=True)
        yield equal(f"trained weights without embeddings, tied={tied}", found, trained)
        yield equal(f"bytes of weights, tied={tied}", model.get_memory_footprint(return_buffers=False), 4 * whole)
        model.register_buffer("extra", torch.zeros(10, dtype=torch.int64))
        buffers = sum(each.numel() * each.element_size() for each in model.buffers())
        yield equal(f"bytes, tied={tied}", model.get_memory_footprint(), 4 * whole + buffers)
        half = model.to(torch.bfloat16).get_memory_footprint(return_buffers=False)
        yield equal(f"bytes of weights in bfloat16, tied={tied}", half, 2 * whole)


@contextlib.contextmanager
def counting(calls: list[str]) -> Iterator[None]:
    """Register two attention functions that count their calls, for this block."""
    from transformers import AttentionInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

    def counted_by(name: str) -> Any:
        def attend(*args: Any, **kwargs: Any) -> Any:
            calls.append(name)
            return sdpa_attention_forward(*args, **kwargs)

        return attend

    for name in ("first_own", "second_own"):
        AttentionInterface.register(name, counted_by(name))
        AttentionMaskInterface.register(name, sdpa_mask)
    try:
        yield
    finally:
        for name in ("first_own", "second_own"):
            AttentionInterface._global_mapping.pop(name)  # noqa: SLF001 - nothing else takes it back
            AttentionMaskInterface._global_mapping.pop(name)  # noqa: SLF001 - as above


@call(GROUP, phase=Phase.FORWARD, requires=("set_attention",))
def attention_set_later(_ctx: Context) -> Iterator[Check]:
    """set_attn_implementation changes the attention of every layer at once, as often as a script likes.

    The logits are those of a model that was made with it; unknown names are refused, and change nothing.
    """
    import torch

    calls: list[str] = []
    with torch.no_grad(), counting(calls):
        wanted = {name: llama(attn_implementation=name).eval()(ids()).logits for name in ("eager", "sdpa")}
        model = llama(attn_implementation="eager").eval()
        for name in ("sdpa", "eager", "first_own", "second_own", "sdpa", "first_own"):
            model.set_attn_implementation(name)
            calls.clear()
            found = model(ids()).logits
            own = name if name in wanted else "sdpa"
            yield at_most(f"logits off, {name}", float((found - wanted[own]).abs().max()), 0.0)
            expected = [name] * LAYERS if name not in wanted else []
            yield equal(f"calls, {name}", " ".join(calls), " ".join(expected))
            yield equal(f"configured attention, {name}", model.config._attn_implementation, name)  # noqa: SLF001 - it has no other name
        refused = "no"
        try:
            model.set_attn_implementation("none_of_these")
        except ValueError:
            refused = "yes"
        yield equal("refuses an unknown attention", refused, "yes")
        calls.clear()
        model(ids())
        yield equal("calls, after the refusal", " ".join(calls), " ".join(["first_own"] * LAYERS))


@call(GROUP, phase=Phase.FORWARD, requires=("set_attention",))
def attention_of_parts_set_later(_ctx: Context) -> Iterator[Check]:
    """set_attn_implementation gives an encoder-decoder or a model of images and text the attention of each part.

    A name counts for all parts, a dictionary for those that it names.
    """
    for made in (llava,):
        for title, chosen, text, vision in (
            ("a name", "eager", "eager", "eager"),
            ("the text", {"text_config": "eager"}, "eager", "sdpa"),
            ("the images", {"vision_config": "eager"}, "sdpa", "eager"),
            ("both", {"text_config": "sdpa", "vision_config": "eager", "": "sdpa"}, "sdpa", "eager"),
        ):
            model = made()
            model.set_attn_implementation(chosen)
            found = (model.config.text_config, model.config.vision_config)
            names = " ".join(each._attn_implementation for each in found)  # noqa: SLF001 - as above
            yield equal(f"configured attention of text and images, {title}", names, f"{text} {vision}")


def llava() -> Any:
    from transformers import CLIPVisionConfig, LlamaConfig, LlavaConfig, LlavaForConditionalGeneration

    vision = CLIPVisionConfig(
        hidden_size=WIDTH, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2, image_size=8, patch_size=4
    )
    text = LlamaConfig(vocab_size=VOCABULARY, **SIZES)
    config = LlavaConfig(vision_config=vision, text_config=text, image_token_id=1, attn_implementation="sdpa")
    return LlavaForConditionalGeneration(config)


def gradients(model: Any) -> dict[str, Any]:
    model.zero_grad()
    model(ids(), labels=ids()).loss.backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def passes(model: Any) -> tuple[list[int], dict[str, Any]]:
    """How often each layer runs in a step, and the gradients of the step."""
    counts = [0] * LAYERS
    handles = [
        layer.self_attn.register_forward_hook(lambda *_args, n=n: counts.__setitem__(n, counts[n] + 1))
        for n, layer in enumerate(model.model.layers)
    ]
    found = gradients(model)
    for handle in handles:
        handle.remove()
    return counts, found


def off(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> float:
    if found.keys() != wanted.keys():
        return float("inf")
    return max(float((found[name] - wanted[name]).abs().max()) for name in wanted)


@call(GROUP, phase=Phase.BACKWARD)
def checkpointing_on_and_off(_ctx: Context) -> Iterator[Check]:
    """Checkpointing runs each layer twice in a step while it is on, once after it is off, in training alone.

    The gradients are those without it, bit by bit.
    """
    model = llama().train()
    once, plain = passes(model)
    yield equal("passes of layers, never on", str(once), str([1] * LAYERS))
    for title, arguments in (
        ("as it is", {}),
        ("not reentrant", {"gradient_checkpointing_kwargs": {"use_reentrant": False}}),
        ("reentrant", {"gradient_checkpointing_kwargs": {"use_reentrant": True}}),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # later versions have a newer name
            model.gradient_checkpointing_enable(**arguments)
            yield equal(f"checkpointing is on, {title}", model.is_gradient_checkpointing, bound=True)
            twice, found = passes(model)
            yield equal(f"passes of layers, {title}", str(twice), str([2] * LAYERS))
            yield at_most(f"gradients off, {title}", off(found, plain), 0.0)
            counts, found = passes(model.eval())
            yield equal(f"passes of layers, {title}, in evaluation", str(counts), str([1] * LAYERS))
            model.train().gradient_checkpointing_disable()
            yield equal(f"checkpointing is on, after {title}", model.is_gradient_checkpointing, bound=False)
            counts, found = passes(model)
            yield equal(f"passes of layers, after {title}", str(counts), str([1] * LAYERS))
            yield at_most(f"gradients off, after {title}", off(found, plain), 0.0)


@call(GROUP, phase=Phase.BACKWARD, requires=("activation_checkpointing",))
def checkpointing_of_some_layers(_ctx: Context) -> Iterator[Check]:
    """activation_checkpointing_enable runs every layer twice, or every second or third one, offloaded or not.

    The first layer is among them; the gradients are those without it.
    """
    model = llama().train()
    _, plain = passes(model)
    for every in (1, 2, 3, LAYERS + 1):
        for offload in (False, True):
            model.activation_checkpointing_enable(every_n_layers=every, offload=offload)
            counts, found = passes(model)
            wanted = [2 if n % every == 0 else 1 for n in range(LAYERS)]
            title = f"every {every}, offload={offload}"
            yield equal(f"passes of layers, {title}", str(counts), str(wanted))
            yield at_most(f"gradients off, {title}", off(found, plain), 0.0)
            yield equal(f"checkpointing is on, {title}", model.is_activation_checkpointing, bound=True)
    model.activation_checkpointing_disable()
    counts, _ = passes(model)
    yield equal("passes of layers, after all", str(counts), str([1] * LAYERS))


@call(GROUP, phase=Phase.BACKWARD)
def gradients_of_inputs_on_and_off(_ctx: Context) -> Iterator[Check]:
    """enable_input_require_grads lets gradients reach the outputs of frozen embeddings, until it is disabled."""
    model = llama().train()
    model.requires_grad_(requires_grad=False)
    seen: list[bool] = []

    def look(_module: Any, given: tuple[Any, ...], _output: Any) -> None:
        seen.append(bool(given[0].requires_grad))

    model.model.layers[0].mlp.register_forward_hook(look)
    for title, change, wanted in (
        ("never on", None, False),
        ("on", model.enable_input_require_grads, True),
        ("off", model.disable_input_require_grads, False),
        ("off twice", model.disable_input_require_grads, False),
        ("on again", model.enable_input_require_grads, True),
    ):
        if change is not None:
            change()
        seen.clear()
        loss = model(ids(), labels=ids()).loss
        yield equal(f"inputs of layers need gradients, {title}", str(seen), str([wanted]))
        yield equal(f"the loss needs gradients, {title}", bool(loss.requires_grad), wanted)


@call(GROUP, phase=Phase.LOAD)
def parts_of_models_replaced(_ctx: Context) -> Iterator[Check]:
    """A model takes and gives its embeddings, head and decoder, and computes with those that it was given."""
    import torch

    for tied in (False, True):
        model = llama(tie_word_embeddings=tied).eval()
        table, head = torch.nn.Embedding(VOCABULARY, WIDTH), torch.nn.Linear(WIDTH, VOCABULARY, bias=False)
        model.set_input_embeddings(table)
        model.set_output_embeddings(head)
        yield equal(f"embeddings are the new ones, tied={tied}", model.get_input_embeddings() is table, bound=True)
        yield equal(f"head is the new one, tied={tied}", model.get_output_embeddings() is head, bound=True)
        yield equal(f"decoder, tied={tied}", model.get_decoder() is model.model, bound=True)
        with torch.no_grad():
            hidden = model.get_decoder()(inputs_embeds=table(ids())).last_hidden_state
            found = model(ids()).logits
        yield at_most(f"logits off, tied={tied}", float((found - hidden @ head.weight.T).detach().abs().max()), SAME)
        model.tie_weights()
        yield equal(f"head shares the table's weight, tied={tied}", head.weight is table.weight, tied)
