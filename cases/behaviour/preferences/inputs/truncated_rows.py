"""How KTOTrainer, CPOTrainer and ORPOTrainer cut long rows, and how the latter two join batches of pairs.

"First we truncate the prompt; if we're still too long, we truncate the completion."
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from cases.api import call, ingredients
from cases.behaviour.preferences import alignment, policies
from cases.behaviour.preferences.inputs import batches
from cases.behaviour.preferences.inputs.row_forms import known, made
from cases.model import tiny
from cases.space.verdict import Check, Phase, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context

GROUP = "Rows of TRL"
LONGEST, PROMPT = 12, 4  # max_length and max_prompt_length
# Tokens of the prompt behind its start, and of both answers: within the limit, at it, and beyond it by either part.
LENGTHS = (
    (5, 3, 4),
    (2, 8, 5),
    (2, 9, 3),
    (7, 4, 3),
    (7, 5, 6),
    (3, 7, 7),
    (9, 9, 2),
    (1, 12, 3),
    (6, 4, 4),
    (6, 5, 2),
)
OWN = -7  # a label of padding
LONG = ((150, 480, 3), (200, 100, 90), (600, 2, 5))  # for the lengths that a version takes by itself
DEFAULT_LONGEST, DEFAULT_PROMPT = 512, 128


def cut(
    prompt: list[int], answer: list[int], longer: int, longest: int, kept: int, mode: str
) -> tuple[list[int], list[int]]:
    """A prompt and an answer, both with their special tokens, within ``longest`` tokens; ``longer`` is what counts."""
    if len(prompt) + longer > longest:
        prompt = prompt[:kept] if mode == "keep_start" else prompt[-kept:]
    if len(prompt) + longer > longest:
        answer = answer[: longest - kept]
    return prompt, answer


def of_pair(prompt: list[int], answers: list[list[int]], longest: int, kept: int, mode: str) -> list[Any]:
    """What ORPOTrainer and CPOTrainer learn: the longer answer decides for both, ends count as tokens of answers."""
    ended = [[*answer, tiny.END] for answer in answers]
    longer = max(map(len, ended))
    return [cut([tiny.START, *prompt], answer, longer, longest, kept, mode) for answer in ended]


def of_row(prompt: list[int], answer: list[int], longest: int, kept: int, mode: str) -> tuple[list[int], list[int]]:
    """What KTOTrainer learns: an end behind whatever is left, and a start before it."""
    begun, left = cut([tiny.START, *prompt], answer, len(answer), longest - 1, kept, mode)
    if len(begun) + len(answer) > longest - 1:
        left = answer[: longest - 1 - kept]
    return begun if begun[:1] == [tiny.START] else [tiny.START, *begun], [*left, tiny.END]


def compared(
    ctx: Context, kind: str, lengths: Any, longest: int, kept: int, mode: str, **chosen: Any
) -> Iterator[Check]:
    texts = policies.texts(lengths)
    prompts = [policies.text([tiny.START, *row[0]]).strip() for row in texts]
    answers = [[policies.text(row[place]) for row in texts] for place in (1, 2)]
    if kind == "KTO":
        data = ingredients.dataset(
            prompt=prompts, completion=answers[0], label=[place % 2 == 0 for place in range(len(texts))]
        )
        wanted = [of_row(prompt, answer, longest, kept, mode) for prompt, answer, _ in texts]
    else:
        data = ingredients.dataset(prompt=prompts, chosen=answers[0], rejected=answers[1])
        each = [of_pair(prompt, [one, other], longest, kept, mode) for prompt, one, other in texts]
        wanted = [pair[place] for place in (0, 1) for pair in each]
    found = batches.sequences(made(ctx, kind, data, truncation_mode=mode, **chosen))
    title = f"{kind}, {mode}, {longest} tokens"
    yield equal(f"sequences, {title}", len(found), len(wanted))
    for place, (sequence, (prompt, answer)) in enumerate(zip(found, wanted, strict=False)):
        yield equal(f"ids of sequence {place}, {title}", str(list(sequence.ids)), str([*prompt, *answer]))
        yield equal(f"learned of sequence {place}, {title}", str(list(sequence.learned)), str(answer))


@call(GROUP, phase=Phase.FORWARD, requires=("kto_max_prompt_length",))
def trl_cuts_rows(ctx: Context) -> Iterator[Check]:
    """KTOTrainer, CPOTrainer and ORPOTrainer cut prompts to max_prompt_length in rows longer than max_length alone.

    Then they cut the answer; rows of exactly max_length stay whole.
    """
    for kind in known(("KTO", "CPO", "ORPO")):
        for mode in ("keep_start", "keep_end"):
            limits = {"max_length": LONGEST, "max_prompt_length": PROMPT}
            yield from compared(ctx, kind, LENGTHS, LONGEST, PROMPT, mode, **limits)


@call(GROUP, phase=Phase.FORWARD, requires=("kto_max_prompt_length",))
def trl_cuts_rows_by_default(ctx: Context) -> Iterator[Check]:
    """Without limits, KTOTrainer, CPOTrainer and ORPOTrainer warn that they take 512 tokens, and 128 of a prompt."""
    for kind in known(("KTO", "CPO", "ORPO")):
        limits = {"max_length": None, "max_prompt_length": None}
        yield from compared(ctx, kind, LONG, DEFAULT_LONGEST, DEFAULT_PROMPT, "keep_end", **limits)


@call(GROUP, phase=Phase.FORWARD, requires=("kto_rows_of_max_length",))
def kto_cuts_rows_at_the_end(ctx: Context) -> Iterator[Check]:
    """KTOTrainer's max_length cuts rows at their end, and leaves out rows whose prompt alone is as long.

    "Maximum length of the tokenized sequence. Sequences longer than max_length are truncated from the right."
    """
    texts = [*policies.texts(LENGTHS), *policies.texts(((11, 2, 1), (12, 2, 1)), seed=3)]
    data = ingredients.dataset(
        prompt=[policies.text([tiny.START, *row[0]]).strip() for row in texts],
        completion=[policies.text(row[1]) for row in texts],
        label=[place % 2 == 0 for place in range(len(texts))],
    )
    wanted = [
        ([tiny.START, *prompt, *answer, tiny.END][:LONGEST], [*answer, tiny.END][: LONGEST - len(prompt) - 1])
        for prompt, answer, _ in texts
        if len(prompt) + 1 < LONGEST
    ]
    found = batches.sequences(made(ctx, "KTO", data, max_length=LONGEST))
    yield equal("sequences", len(found), len(wanted))
    for place, (sequence, (ids, answer)) in enumerate(zip(found, wanted, strict=False)):
        yield equal(f"ids of sequence {place}", str(list(sequence.ids)), str(ids))
        yield equal(f"learned of sequence {place}", str(list(sequence.learned)), str(answer))


def pair_of(role: str, rows: list[list[int]], prompts: list[int]) -> dict[str, Any]:
    """The tensors of one answer of each pair, padded by 0 to the longest, with labels of -100 on the prompt."""
    import torch

    width = max(map(len, rows))
    ids = torch.zeros(len(rows), width, dtype=torch.long)
    mask, labels = torch.zeros_like(ids), torch.full_like(ids, ingredients.IGNORED)
    for place, row in enumerate(rows):
        ids[place, : len(row)] = torch.tensor(row)
        mask[place, : len(row)] = 1
        labels[place, prompts[place] : len(row)] = torch.tensor(row)[prompts[place] :]
    return {f"{role}_input_ids": ids, f"{role}_attention_mask": mask, f"{role}_labels": labels}


@call(GROUP, phase=Phase.FORWARD, requires=("orpo", "cpo"))
def concatenated_pairs(_ctx: Context) -> Iterator[Check]:
    """concatenated_inputs of CPOTrainer and ORPOTrainer puts chosen above rejected rows and pads each tensor its way.

    Ids are padded by padding_value, masks by 0, labels by label_pad_token_id; encoder-decoders repeat their prompts.
    """
    import torch

    short, long = [[7, 8, 9], [10, 11]], [[12, 13, 14, 15, 16], [17, 18, 19]]
    for kind in ("CPO", "ORPO"):
        join = alignment.named(f"{kind}Trainer").concatenated_inputs
        for name, (chosen, rejected) in {"longer rejected": (short, long), "longer chosen": (long, short)}.items():
            batch = {**pair_of("chosen", chosen, [1, 1]), **pair_of("rejected", rejected, [1, 2]), "prompt": ["a", "b"]}
            own = {"label_pad_token_id": OWN} if "label_pad_token_id" in inspect.signature(join).parameters else {}
            found = join(batch, padding_value=5, **own)
            width = max(each.shape[1] for each in batch.values() if isinstance(each, torch.Tensor))
            for part, filler in {
                "input_ids": 5,
                "attention_mask": 0,
                "labels": own.get("label_pad_token_id", ingredients.IGNORED),
            }.items():
                both = [batch[f"{role}_{part}"] for role in ("chosen", "rejected")]
                rows = [[*row, *[filler] * (width - len(row))] for each in both for row in each.tolist()]
                yield equal(f"{part}, {kind}, {name}", str(found[f"concatenated_{part}"].tolist()), str(rows))
            yield equal(f"parts, {kind}, {name}", len(found), 3)
        prompts = torch.tensor([[21, 22], [23, 0]])
        batch = {
            "chosen_labels": torch.tensor([[7, 8, 9], [10, -100, -100]]),
            "rejected_labels": torch.tensor([[11], [12]]),
            "prompt_input_ids": prompts,
            "prompt_attention_mask": (prompts > 0).long(),
        }
        found = join(batch, is_encoder_decoder=True, padding_value=5)
        labels = "[[7, 8, 9], [10, -100, -100], [11, -100, -100], [12, -100, -100]]"
        yield equal(f"labels, {kind}, encoder-decoder", str(found["concatenated_labels"].tolist()), labels)
        ids = str(found["concatenated_input_ids"].tolist())
        yield equal(f"ids, {kind}, encoder-decoder", ids, str([*prompts.tolist(), *prompts.tolist()]))
        mask = str(found["concatenated_attention_mask"].tolist())
        yield equal(f"mask, {kind}, encoder-decoder", mask, "[[1, 1], [1, 0], [1, 1], [1, 0]]")
