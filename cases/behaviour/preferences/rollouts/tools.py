"""GRPOTrainer with tools: a model that calls them, results that it reads on, and tokens that are not its own.

https://huggingface.co/docs/trl/grpo_trainer#agent-training. The model's generation is replaced, and the tokeniser has a
chat template and a parser of its own: a message begins with a word for its role, and a call has a word before it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cases.api import call, ingredients
from cases.behaviour.preferences import grpo, policies
from cases.behaviour.preferences.grpo import Definition, by_row, by_token
from cases.model import tiny
from cases.space.options import Options
from cases.space.verdict import Check, Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cases.apply.context import Context

    Part = tuple[list[int], bool]  # token ids, and whether the model wrote them

USER, ASSISTANT, TOOL, CALL, LATER = range(20, 25)  # the words of roles, and of calls of either tool
UNKNOWN = ingredients.SPECIAL.index("<unk>")
LIMIT = 14  # tokens of a completion with all results
TEMPLATE = """{%- for m in messages -%}
{%- if m.role == 'user' %} w20 {{ m.content }}
{%- elif m.role == 'tool' %} w22 {{ m.content }}
{%- else %} w21 {{ m.content }}
{%- for c in m.tool_calls or [] %} w23 {{ c.function.name }}
{%- for name, value in c.function.arguments.items() %} {{ name }} {{ value }}{% endfor %}{% endfor %} </s>
{%- endif %}{% endfor %}{% if add_generation_prompt %} w21{% endif %}"""
FAILS, LONG = 41, 42  # numbers for which the tool raises, and for which it has more to say than fits


def next_word(number: int) -> str:
    """Name the word after a word.

    Args:
        number: the number of a word

    Returns:
        The word after it.
    """
    if number == FAILS:
        raise ValueError(f"no word follows {number}")
    return " ".join([f"w{number + 1}"] * (LIMIT if number == LONG else 1))


async def next_word_later(number: int) -> str:
    """Name the word after a word, as a server would.

    Args:
        number: the number of a word

    Returns:
        The word after it.
    """
    return next_word(number)


def result(number: int) -> list[int]:
    """The token ids of what a tool answers; those of an error are no words."""
    if number == FAILS:
        return [UNKNOWN] * len(str({"error": f"no word follows {number}"}).split())
    return [number + 1] * (LIMIT if number == LONG else 1)


def tokenizer() -> Any:
    """A tokeniser that renders and parses calls."""
    plain = type(ingredients.tokenizer())

    class CallingTokenizer(plain):  # type: ignore[misc, valid-type]
        response_schema = {"type": "object"}  # noqa: RUF012 - an attribute that TRL asks for

        def parse_response(self, ids: list[int], *_: Any, **__: Any) -> dict[str, Any]:
            if ids[0] not in (CALL, LATER):
                return {"role": "assistant", "content": self.decode(ids, skip_special_tokens=True)}
            tool = {CALL: next_word, LATER: next_word_later}[ids[0]].__name__
            function = {"name": tool, "arguments": {"number": ids[1]}}
            return {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": function}]}

    made = ingredients.tokenizer()
    made.__class__ = CallingTokenizer
    made.chat_template = TEMPLATE
    return made


def turns(place: int, seed: int) -> list[list[int]]:
    """What the model writes in each turn, at a place of a batch: calls first, and then words."""
    words = [*policies.tokens(2 + place % 3, seed), tiny.END]
    first, second = (30 + each % 10 for each in policies.tokens(2, seed + 1))
    by_place: list[list[list[int]]] = [
        [words],
        [[CALL, first, tiny.END], words],
        [[CALL, first, tiny.END], [LATER, second, tiny.END], words],
        [[CALL, FAILS, tiny.END], words],
        [[CALL, LONG, tiny.END], words],
        [[CALL, first, tiny.END], policies.tokens(LIMIT, seed)],
        [[LATER, first, tiny.END], words],
        [policies.tokens(LIMIT, seed)],
    ]
    return by_place[place % len(by_place)]


def parts(place: int, seed: int, rounds: int) -> list[Part]:
    """What the model writes, with the results of its calls between. A result that does not fit ends the completion.

    ``rounds`` is the largest number of calls that are answered.
    """
    written = turns(place, seed)
    found: list[Part] = [(written[0], True)]
    for after in written[1 : rounds + 1]:
        answer = [TOOL, *result(found[-1][0][1]), ASSISTANT]
        if len(joined([*found, (answer, False)])) > LIMIT:
            break
        found += [(answer, False), (after, True)]
    return found


def joined(found: Sequence[Part]) -> list[int]:
    return [each for ids, _ in found for each in ids]


def calls_in(place: int, rounds: int) -> int:
    """The calls that a row of a batch makes, also if their result does not fit."""
    return min(len(turns(place, 0)) - 1, rounds)


@dataclass
class ToolRollouts(grpo.Rollouts):
    """Completions with their parts. ``unexpected`` counts prompts of later turns that are not what tools answered."""

    rounds: int = LIMIT
    parts: dict[tuple[int, ...], list[Part]] = field(default_factory=dict)
    waiting: list[tuple[list[int], list[Part], int]] = field(default_factory=list)  # prompt, parts, those that are done
    unexpected: int = 0

    def generate(self, input_ids: Any, attention_mask: Any = None, **_: Any) -> Any:
        """Replace ``model.generate``: the first turn of every row, or the next one of those that called a tool."""
        import torch

        prompts = [row[mask.bool()].tolist() for row, mask in zip(input_ids, attention_mask, strict=True)]
        if self.waiting:
            wanted = [[*prompt, *joined(found[:done])] for prompt, found, done in self.waiting]
            self.unexpected += sum(one != other for one, other in zip(prompts, wanted, strict=True))
        else:
            self.waiting = [(prompt, self.begun(prompt, place), 0) for place, prompt in enumerate(prompts)]
            self.calls.append([(prompt, joined(found)[:LIMIT]) for prompt, found, _ in self.waiting])
        written = [found[done][0] for _, found, done in self.waiting]
        self.waiting = [(prompt, found, done + 2) for prompt, found, done in self.waiting if done + 2 < len(found)]
        longest = max(map(len, written))
        padded = [[*ids, *[tiny.PADDING] * (longest - len(ids))] for ids in written]
        return torch.cat([input_ids, torch.tensor(padded).to(input_ids)], dim=1)

    def begun(self, prompt: list[int], place: int) -> list[Part]:
        found = parts(place, sum(prompt) + 100 * place + 10_000 * len(self.calls), self.rounds)
        self.parts[tuple(joined(found)[:LIMIT])] = found
        return found


@dataclass(frozen=True)
class WithTools(Definition):
    """The tokens of results count for nothing, and the reward is that of the last message."""

    rollouts: ToolRollouts = field(default_factory=lambda: ToolRollouts(0))

    def places(self, completion: list[int]) -> list[int]:
        own = [wrote for ids, wrote in self.rollouts.parts[tuple(completion)] for _ in ids]
        return [place for place, wrote in enumerate(own[:LIMIT]) if wrote]

    def rewards(self, completions: list[list[int]]) -> list[float]:
        return [self.reward(completion) for completion in completions]

    def reward(self, completion: list[int]) -> float:
        last = completion[len(joined(self.rollouts.parts[tuple(completion)][:-1])) :]
        return 0.0 if last[0] in (CALL, LATER) else grpo.score(last)


def last_words(completions: list[list[dict[str, Any]]], **_: Any) -> list[float]:
    """The reward of the last message, which is none of a tool."""
    return grpo.word_score([messages[-1]["content"] for messages in completions])


def conversations() -> list[list[dict[str, str]]]:
    return [[{"role": "user", "content": each.strip()}] for each in grpo.prompts()]


def with_tools(ctx: Context, name: str, rounds: int, **chosen: Any) -> Iterator[Check]:
    rollouts = ToolRollouts(ctx.place.rank, rounds=rounds)
    definition = WithTools(by_token if chosen["loss_type"] == "bnpo" else by_row, grpo.BETA, rollouts=rollouts)
    given: dict[str, Any] = {
        "temperature": 1.0,
        "beta": grpo.BETA,
        "use_bias_correction_kl": False,
        "max_completion_length": LIMIT,
    }
    given |= {"reward_funcs": last_words, "columns": {"prompt": conversations()}, **chosen}
    made, _ = grpo.trainer(ctx, given, tools=[next_word, next_word_later], tokenizer=tokenizer())
    made.model.generate = rollouts.generate
    both = policies.policies(ctx.cache, Options())
    yield from grpo.followed(made, rollouts, definition, both, ("reward",))
    yield equal(f"prompts of later turns that differ, {name}", rollouts.unexpected, 0)
    rows = 2 * grpo.GENERATIONS
    calls = [calls_in(place, rounds) for place in range(rows)]
    for entry in (entry for entry in made.state.log_history if "loss" in entry):
        yield at_most(f"calls of a row off, {name}", abs(entry["tools/call_frequency"] - sum(calls) / rows), 1e-6)
        yield at_most(
            f"share of calls that fail off, {name}", abs(entry["tools/failure_frequency"] - 1 / sum(calls)), 1e-6
        )


@call("Preference losses", phase=Phase.FORWARD, requires=("grpo", "grpo_tools"))
def grpo_tools(ctx: Context) -> Iterator[Check]:
    """GRPOTrainer runs the tools that completions call, goes on behind their results, and learns its own tokens alone.

    A tool may be asynchronous, and may raise; a result that does not fit into max_completion_length ends the row.
    """
    yield from with_tools(ctx, "mean of rows", LIMIT, loss_type="grpo")
    yield from with_tools(ctx, "mean of tokens", LIMIT, loss_type="bnpo")


@call("Preference losses", phase=Phase.FORWARD, requires=("grpo", "grpo_tools"))
def grpo_tools_of_one_round(ctx: Context) -> Iterator[Check]:
    """GRPOTrainer's max_tool_calling_iterations=1 answers the first call of a completion, and leaves the next open."""
    yield from with_tools(ctx, "one round", 1, loss_type="grpo", max_tool_calling_iterations=1)
