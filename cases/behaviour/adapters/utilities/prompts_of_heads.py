"""Prompts before models with heads: classifiers of rows and tokens, spans, and features of the rows.

Prompt tuning (https://arxiv.org/abs/2104.08691) puts embeddings before those of the tokens, prefix tuning
(https://arxiv.org/abs/2101.00190) keys and values before those of each layer.
"""

from __future__ import annotations

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
VIRTUAL, WIDTH, HEADS, LAYERS, LENGTH, CLASSES = 3, 16, 2, 2, 6, 4
OUT = -100
TASKS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "SEQ_CLS": ("LlamaForSequenceClassification", ("logits",)),
    "TOKEN_CLS": ("LlamaForTokenClassification", ("logits",)),
    "QUESTION_ANS": ("LlamaForQuestionAnswering", ("start_logits", "end_logits")),
    "FEATURE_EXTRACTION": ("LlamaModel", ("last_hidden_state",)),
}


def plain(task: str) -> Any:
    import transformers

    sizes = {"hidden_size": WIDTH, "intermediate_size": 24, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS}
    config = transformers.LlamaConfig(vocab_size=40, pad_token_id=0, num_labels=CLASSES, **sizes)
    made = getattr(transformers, TASKS[task][0])(config).eval()
    tiny.fill(made)
    return made


def prompted(task: str, kind: str) -> Any:
    import peft
    import torch

    made = peft.get_peft_model(plain(task), getattr(peft, kind)(task_type=task, num_virtual_tokens=VIRTUAL)).eval()
    with torch.no_grad():
        for name, parameter in made.prompt_encoder.named_parameters():
            parameter.copy_(4 * tiny.values(name, tuple(parameter.shape)))
    return made


def ids() -> Any:
    import torch

    return torch.arange(2 * LENGTH).view(2, LENGTH) * 7 % 39 + 1


def masked() -> Any:
    """Ones, without the first tokens of one row."""
    import torch

    return torch.tensor([[0, 0, *[1] * (LENGTH - 2)], [1] * LENGTH])


def behind(model: Any, mask: Any) -> Any:
    """The outputs of the base behind the prompt's embeddings, or behind its keys and values."""
    import torch
    from transformers import DynamicCache

    table = next(iter(model.prompt_encoder.parameters())).detach()
    base = model.get_base_model()
    ones = torch.ones(2, VIRTUAL, dtype=torch.int64)
    more = {"attention_mask": torch.cat([ones, mask], 1)} if mask is not None else {}
    if model.active_peft_config.peft_type == "PREFIX_TUNING":
        cache = DynamicCache()
        stacked = table.view(VIRTUAL, 2 * LAYERS, HEADS, WIDTH // HEADS).permute(1, 2, 0, 3)
        for layer in range(LAYERS):
            pair = (stacked[2 * layer + part].expand(2, HEADS, VIRTUAL, WIDTH // HEADS) for part in (0, 1))
            cache.update(*pair, layer)
        return base(input_ids=ids(), past_key_values=cache, **more)
    words = base.get_input_embeddings()(ids())
    return base(inputs_embeds=torch.cat([table.expand(2, VIRTUAL, WIDTH), words], 1), **more)


@call(GROUP, phase=Phase.FORWARD, requires=("layered_caches",))
def prompts_of_heads(_ctx: Context) -> Iterator[Check]:
    """Models with heads give the outputs of the base behind the prompt, which is seen by every token, masked or not."""
    import torch

    for task, (_, fields) in TASKS.items():
        for kind in ("PromptTuningConfig", "PrefixTuningConfig"):
            model = prompted(task, kind)
            for mask in (None, masked()):
                given = {"attention_mask": mask} if mask is not None else {}
                with torch.no_grad():
                    found = model(input_ids=ids(), **given)
                    wanted = behind(model, mask)
                    alone = model.get_base_model()(input_ids=ids(), **given)
                title = f"{task}, {kind}, masked={mask is not None}"
                for name in fields:
                    yield at_most(f"{name} off, {title}", relative(found[name], wanted[name]), SAME)
                    last = (slice(None), slice(-LENGTH, None)) if task != "SEQ_CLS" else (slice(None),)
                    changed = relative(found[name][last][1], alone[name][last][1])
                    yield at_least(f"{name} that the prompt changes, {title}", changed, 100 * SAME)


def trained(task: str, kind: str, labels: Any) -> Iterator[Check]:
    """Compare the loss of a step with the cross entropy of the tokens with labels; see what a gradient reaches."""
    import torch

    model = prompted(task, kind)
    found = model(input_ids=ids(), attention_mask=masked(), labels=labels)
    with torch.no_grad():
        logits = behind(model, masked()).logits
    logits = logits[:, -LENGTH:] if task == "TOKEN_CLS" else logits
    wanted = torch.nn.functional.cross_entropy(logits.reshape(-1, CLASSES).double(), labels.view(-1))
    title = f"{task}, {kind}"
    yield at_most(f"loss off, {title}", abs(float(found.loss.detach()) - float(wanted)), SAME)
    found.loss.backward()
    reached = {
        name.split(".")[0] if "prompt" in name else "head"
        for name, p in model.named_parameters()
        if p.requires_grad and p.grad is not None and bool(p.grad.any())
    }
    yield equal(f"parts with a gradient, {title}", " ".join(sorted(reached)), "head prompt_encoder")


def labels_of_tokens() -> Any:
    import torch

    return torch.tensor([[1, OUT, 3, 0, 2, 1], [0, 2, OUT, OUT, 1, 3]])


@call(GROUP, phase=Phase.BACKWARD, requires=("layered_caches",))
def prompts_of_heads_in_training(_ctx: Context) -> Iterator[Check]:
    """Losses of heads behind prompts are cross entropies of the rows or tokens, and train the prompt and the head."""
    import torch

    for kind in ("PromptTuningConfig", "PrefixTuningConfig"):
        yield from trained("SEQ_CLS", kind, torch.tensor([3, 1]))
    yield from trained("TOKEN_CLS", "PrefixTuningConfig", labels_of_tokens())


@call(GROUP, phase=Phase.BACKWARD)
def prompts_of_labelled_tokens(_ctx: Context) -> Iterator[Check]:
    """A classifier of tokens is trained behind a prompt, whose virtual tokens have no labels."""
    yield from trained("TOKEN_CLS", "PromptTuningConfig", labels_of_tokens())


def spans(kind: str) -> Check:
    """Compare the loss of spans with that of the tokens' logits: positions count the tokens of the input."""
    import torch

    model, places = prompted("QUESTION_ANS", kind), (torch.tensor([3, 0]), torch.tensor([5, 4]))
    more = {"start_positions": places[0], "end_positions": places[1]}
    with torch.no_grad():
        found = model(input_ids=ids(), attention_mask=masked(), **more).loss
        outputs = behind(model, masked())
    logits = (outputs.start_logits[:, -LENGTH:].double(), outputs.end_logits[:, -LENGTH:].double())
    wanted = sum(torch.nn.functional.cross_entropy(*pair) for pair in zip(logits, places, strict=True)) / 2
    return at_most(f"loss off, QUESTION_ANS, {kind}", abs(float(found) - float(wanted)), SAME)


@call(GROUP, phase=Phase.FORWARD, requires=("layered_caches",))
def prefixes_of_spans(_ctx: Context) -> Iterator[Check]:
    """The positions of a span count the tokens of the input behind a prefix."""
    yield spans("PrefixTuningConfig")


@call(GROUP, phase=Phase.FORWARD)
def prompts_of_spans(_ctx: Context) -> Iterator[Check]:
    """The positions of a span count the tokens of the input behind a prompt, without its virtual tokens."""
    yield spans("PromptTuningConfig")
