"""Chat templates: texts, prompts and masks of the assistant's tokens, and what SFTTrainer learns of a conversation.

https://huggingface.co/docs/transformers/chat_templating and https://huggingface.co/docs/trl/sft_trainer
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call, ingredients, trl_trainers
from cases.behaviour.data import seen
from cases.model import tiny
from cases.space.verdict import Check, Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    Turn = tuple[str, Sequence[int]]

    from cases.apply.context import Context

GROUP = "Chat templates"
SAME = 1e-5  # relative: a loss in float32
END, OUT = 2, ingredients.IGNORED
ROLES = {"system": 100, "user": 101, "assistant": 102}  # the ids of the words that begin a turn
TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] == 'assistant' %}w102 {% generation %}{{ message['content'] }}</s>{% endgeneration %} "
    "{% elif message['role'] == 'user' %}w101 {{ message['content'] }}</s> "
    "{% else %}w100 {{ message['content'] }}</s> {% endif %}"
    "{% endfor %}{% if add_generation_prompt %}w102 {% endif %}"
)
# Versions without a mask of the assistant do not know its marks.
UNMARKED = TEMPLATE.replace("{% generation %}", "").replace("{% endgeneration %}", "")
CHATML = ("<|im_start|>", "<|im_end|>", "\n")
TALK: Sequence[Turn] = (
    ("system", (5,)),
    ("user", (6, 7)),
    ("assistant", (8, 9, 10)),
    ("user", (11,)),
    ("assistant", (12, 13)),
)
SHORT: Sequence[Turn] = (("user", (20, 21)), ("assistant", (22,)))


def tokenizer(template: str = TEMPLATE) -> Any:
    made = ingredients.tokenizer()
    made.chat_template = template
    return made


def messages(talk: Sequence[Turn]) -> list[dict[str, str]]:
    return [{"role": role, "content": " ".join(f"w{word}" for word in words)} for role, words in talk]


def ids_of(talk: Sequence[Turn]) -> list[int]:
    """The ids of a conversation by hand: a word for the role, the words, the end token."""
    return [token for role, words in talk for token in (ROLES[role], *words, END)]


def mask_of(talk: Sequence[Turn]) -> list[int]:
    """1 for what the assistant says, with its end token, by hand."""
    return [int(role == "assistant" and place > 0) for role, words in talk for place in range(len(words) + 2)]


def learned(talk: Sequence[Turn]) -> list[int]:
    """Labels of the assistant's tokens only."""
    return [token if said else OUT for token, said in zip(ids_of(talk), mask_of(talk), strict=True)]


def plain_ids(found: Any) -> str:
    """Ids as text; transformers 5 returns a dictionary with them by default."""
    return str(list(found["input_ids"] if hasattr(found, "keys") else found))


@call(GROUP, phase=Phase.FORWARD)
def chat_template_text(_ctx: Context) -> Iterator[Check]:
    """apply_chat_template renders the turns, and add_generation_prompt adds the beginning of an answer."""
    words = tokenizer(UNMARKED)
    text = "w100 w5</s> w101 w6 w7</s> "
    asked = messages(TALK[:2])
    yield equal("text", words.apply_chat_template(asked, tokenize=False), text)
    prompted = words.apply_chat_template(asked, tokenize=False, add_generation_prompt=True)
    yield equal("text with the prompt", prompted, text + "w102 ")
    found = words.apply_chat_template(asked, tokenize=True, add_generation_prompt=True)
    yield equal("ids", plain_ids(found), str([*ids_of(TALK[:2]), ROLES["assistant"]]))


@call(GROUP, phase=Phase.FORWARD, requires=("continue_final_message",))
def chat_template_continues(_ctx: Context) -> Iterator[Check]:
    """continue_final_message=True leaves the last turn open, without an end token, so that a model goes on with it."""
    found = tokenizer().apply_chat_template(messages(TALK[:3]), tokenize=True, continue_final_message=True)
    yield equal("ids", plain_ids(found), str(ids_of(TALK[:3])[:-1]))


@call(GROUP, phase=Phase.FORWARD, requires=("assistant_mask",))
def chat_template_assistant_mask(_ctx: Context) -> Iterator[Check]:
    """return_assistant_tokens_mask=True marks exactly what is between generation and endgeneration."""
    found = tokenizer().apply_chat_template(
        messages(TALK), tokenize=True, return_dict=True, return_assistant_tokens_mask=True
    )
    yield equal("ids", str(list(found["input_ids"])), str(ids_of(TALK)))
    yield equal("mask of the assistant", str([int(bit) for bit in found["assistant_masks"]]), str(mask_of(TALK)))


@call(GROUP, phase=Phase.FORWARD, requires=("assistant_mask",))
def chat_template_assistant_mask_of_batch(_ctx: Context) -> Iterator[Check]:
    """The assistant's mask of a padded batch stays beside its tokens."""
    words = tokenizer()
    words.padding_side = "left"
    found = words.apply_chat_template(
        [messages(TALK), messages(SHORT)],
        tokenize=True,
        padding=True,
        return_dict=True,
        return_assistant_tokens_mask=True,
    )
    missing = [0] * (len(ids_of(TALK)) - len(ids_of(SHORT)))
    yield seen.same_rows("ids", found["input_ids"], [ids_of(TALK), [*missing, *ids_of(SHORT)]])
    yield seen.same_rows(
        "mask of the assistant", found["assistant_masks"], [mask_of(TALK), [*missing, *mask_of(SHORT)]]
    )


def supervised(ctx: Context, rows: dict[str, Any], words: Any = None, **more: Any) -> Any:
    """SFTTrainer with the chat template, or that of ``words``, in the order of the rows."""
    from trl import SFTTrainer

    from cases.api.trainers import in_order

    config = trl_trainers.sft_config(ctx, per_device_train_batch_size=2, max_steps=1, **more)
    how = next(iter(ingredients.tokenizer_argument(SFTTrainer)))
    return in_order(SFTTrainer)(
        model=ingredients.base(ctx),
        args=config,
        train_dataset=ingredients.dataset(**rows),
        **{how: words or tokenizer()},
    )


def trained(ctx: Context, trainer: Any, ids: list[list[int]], labels: list[list[int]]) -> Iterator[Check]:
    """Train one step; compare ids and labels with rows by hand, and the loss with the reference's.

    Versions differ in whether they count a first label, which nothing predicts (see ``trainer_mean_loss``), so the
    loss is compared only if it is masked.
    """
    batches = seen.batches(trainer.model)
    trainer.train()
    width = max(map(len, ids))
    yield seen.same_rows("ids", batches[0]["input_ids"], [[*row, *[tiny.PADDING] * (width - len(row))] for row in ids])
    yield seen.same_rows("labels", batches[0]["labels"], [[*row, *[OUT] * (width - len(row))] for row in labels])
    if any(row[0] != OUT for row in labels):
        return
    expected = seen.documents_loss(ctx, list(zip(ids, labels, strict=True)))
    yield at_most("loss off", abs(seen.first_loss(trainer) / expected - 1), SAME)


@call(GROUP, phase=Phase.FORWARD, requires=("assistant_only_loss",))
def sft_assistant_only(ctx: Context) -> Iterator[Check]:
    """SFTTrainer with assistant_only_loss=True learns every answer, end token included, and no other role's tokens."""
    talks = [TALK, SHORT]
    trainer = supervised(ctx, {"messages": [messages(talk) for talk in talks]}, assistant_only_loss=True)
    yield from trained(ctx, trainer, [ids_of(talk) for talk in talks], [learned(talk) for talk in talks])


def chatml() -> Any:
    """A tokeniser whose last words are ChatML's tokens and the line's end, with the unmarked template of Qwen 2.5."""
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast
    from trl.chat_template_utils import qwen2_5_chat_template

    words = (*ingredients.SPECIAL, *ingredients.WORDS[: -len(CHATML)], *CHATML)
    ids = {word: place for place, word in enumerate(words)}
    made = Tokenizer(models.WordLevel(ids, unk_token="<unk>"))  # noqa: S106 - a token of a tokeniser
    lines, spaces = pre_tokenizers.Split(Regex("\n"), "isolated"), pre_tokenizers.Split(" ", "removed")
    made.pre_tokenizer = pre_tokenizers.Sequence([lines, spaces])
    names = {"pad_token": "<pad>", "unk_token": "<unk>", "eos_token": CHATML[1]}
    found = PreTrainedTokenizerFast(tokenizer_object=made, additional_special_tokens=[CHATML[0]], **names)
    found.chat_template = qwen2_5_chat_template
    return found


@call(GROUP, phase=Phase.FORWARD, requires=("assistant_only_loss", "training_templates"))
def sft_marks_answers_of_known_templates(ctx: Context) -> Iterator[Check]:
    """With assistant_only_loss=True, SFTTrainer finds the answers of a known template that does not mark them.

    https://huggingface.co/docs/trl/chat_templates#training-templates: that of Qwen 2.5 marks an answer from the line
    behind its role to the line behind its end token. The names of roles are unknown words here.
    """
    begin, end, line = range(tiny.VOCABULARY - len(CHATML), tiny.VOCABULARY)
    unknown = ingredients.SPECIAL.index("<unk>")
    talks: list[Sequence[Turn]] = [TALK, [TALK[0], *SHORT]]
    ids, labels = [], []
    for talk in talks:
        turns = [(role, [line, *words, end, line]) for role, words in talk]
        ids.append([token for _, turn in turns for token in (begin, unknown, *turn)])
        said = [turn if role == "assistant" else [OUT] * len(turn) for role, turn in turns]
        labels.append([token for turn in said for token in (OUT, OUT, *turn)])
    rows = {"messages": [messages(talk) for talk in talks]}
    yield from trained(ctx, supervised(ctx, rows, chatml(), assistant_only_loss=True), ids, labels)


@call(GROUP, phase=Phase.FORWARD, requires=("rendered_conversations",))
def pairs_with_tools(_ctx: Context) -> Iterator[Check]:
    """TRL's apply_chat_template renders the tools of a preference row in front of its prompt, and in neither answer."""
    from trl.data_utils import apply_chat_template

    words = tokenizer("{% for tool in tools or [] %}w99 {{ tool['function']['name'] }} {% endfor %}" + UNMARKED)
    tools = [{"type": "function", "function": {"name": name, "parameters": {}}} for name in ("w30", "w31")]
    row = {"prompt": messages(TALK[:2]), "chosen": messages(TALK[2:3]), "rejected": messages(SHORT[1:])}
    wanted = {"prompt": "w100 w5</s> w101 w6 w7</s> w102 ", "chosen": "w8 w9 w10</s> ", "rejected": "w22</s> "}
    for given, before in ((None, ""), (tools[:1], "w99 w30 "), (tools, "w99 w30 w99 w31 ")):
        found = apply_chat_template(row, words, tools=given)
        for name, text in wanted.items():
            yield equal(f"{name}, {len(given or ())} tools", found[name], (before if name == "prompt" else "") + text)


@call(GROUP, phase=Phase.FORWARD, requires=("completion_only_loss",))
def sft_conversational_completion(ctx: Context) -> Iterator[Check]:
    """SFTTrainer learns the completion of a conversational prompt and completion, not earlier answers in the prompt."""
    talks = [TALK, SHORT]
    rows = {
        "prompt": [messages(talk[:-1]) for talk in talks],
        "completion": [messages(talk[-1:]) for talk in talks],
    }
    labels = []
    for talk in talks:
        ids, answered = ids_of(talk), len(talk[-1][1]) + 1
        labels.append([*[OUT] * (len(ids) - answered), *ids[-answered:]])
    yield from trained(ctx, supervised(ctx, rows), [ids_of(talk) for talk in talks], labels)


@call(GROUP, phase=Phase.FORWARD, requires=("completion_only_loss",))
def sft_adds_end_token(ctx: Context) -> Iterator[Check]:
    """SFTTrainer ends each text with the end token and learns it, once if the text has it already."""
    ids = [[5, 6, 7, END], [8, 9, END]]
    trainer = supervised(ctx, {"text": ["w5 w6 w7", "w8 w9</s>"]})
    yield from trained(ctx, trainer, ids, ids)


@call(GROUP, phase=Phase.FORWARD, requires=("sft_max_length",))
def sft_truncates_end(ctx: Context) -> Iterator[Check]:
    """SFTTrainer cuts rows that are longer than max_length at their end, by default."""
    ids = [[5, 6, 7, 8], [9, 10, END]]
    trainer = supervised(ctx, {"text": ["w5 w6 w7 w8 w9 w10", "w9 w10"]}, max_length=4)
    yield from trained(ctx, trainer, ids, ids)


@call(GROUP, phase=Phase.FORWARD, requires=("truncation_mode",))
def sft_truncates_start(ctx: Context) -> Iterator[Check]:
    """SFTTrainer with truncation_mode="keep_end" cuts long rows at their beginning."""
    ids = [[8, 9, 10, END], [9, 10, END]]
    trainer = supervised(ctx, {"text": ["w5 w6 w7 w8 w9 w10", "w9 w10"]}, max_length=4, truncation_mode="keep_end")
    yield from trained(ctx, trainer, ids, ids)


@call(GROUP, phase=Phase.ADAPT, requires=("setup_chat_format",))
def chat_format_added(ctx: Context) -> Iterator[Check]:
    """TRL's setup_chat_format adds ChatML's tokens, its template and rows of embeddings for them.

    ChatML: https://github.com/openai/openai-python/blob/release-v0.28.0/chatml.md
    """
    from trl import setup_chat_format

    model, words = setup_chat_format(ingredients.base(ctx), ingredients.tokenizer())
    text = "<|im_start|>user\nw6 w7<|im_end|>\n<|im_start|>assistant\n"
    asked = messages(TALK[1:2])
    yield equal("text", words.apply_chat_template(asked, tokenize=False, add_generation_prompt=True), text)
    new = [words.convert_tokens_to_ids(token) for token in ("<|im_start|>", "<|im_end|>")]
    yield equal("ids of the new tokens", str(sorted(new)), str([tiny.VOCABULARY, tiny.VOCABULARY + 1]))
    yield equal("rows of embeddings", model.get_input_embeddings().weight.shape[0], tiny.VOCABULARY + 2)
    yield equal("rows of the head", model.get_output_embeddings().weight.shape[0], tiny.VOCABULARY + 2)
    yield equal("end token", words.eos_token, "<|im_end|>")
    yield equal("end token of the config", model.config.eos_token_id, words.eos_token_id)
