"""The masks that transformers makes for a model's layers, and the pairs of positions that the definitions allow.

https://huggingface.co/docs/transformers/internal/modeling_utils#attention-mask-creation
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.space.verdict import Phase, equal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from cases.apply.context import Context
    from cases.space.verdict import Check

    Rule = Callable[[int, int, int], bool]  # row, query, key: positions in the whole row

GROUP = "Models"
NEEDS = ("masks_of_embeddings",)
WINDOW, CHUNK, LENGTH = 3, 4, 9
ATTENTIONS = ("eager", "sdpa")
PADDINGS: dict[str, Sequence[Sequence[int]]] = {
    "left": ((0, 0, 0, 1, 1, 1, 1, 1, 1), (1,) * LENGTH),
    "right": ((1, 1, 1, 1, 1, 1, 1, 0, 0), (1,) * LENGTH),
    "inside": ((0, 1, 1, 0, 1, 1, 1, 1, 0), (1, 1, 1, 1, 1, 0, 0, 1, 1)),
}


@dataclass(frozen=True)
class MaskKind:
    """A function of masking_utils, with the rule of its documentation; ``skip`` lets it return no mask."""

    name: str
    rule: Rule
    skip: str


def chunks(padding: Sequence[Sequence[int]] | None) -> Rule:
    """A causal rule within chunks that begin after the padding on the left."""
    first = [row.index(1) for row in padding] if padding else [0, 0]

    def rule(row: int, query: int, key: int) -> bool:
        return key <= query and (key - first[row]) // CHUNK == (query - first[row]) // CHUNK

    return rule


def kinds(padding: Sequence[Sequence[int]] | None = None) -> tuple[MaskKind, ...]:
    causal, both = "allow_is_causal_skip", "allow_is_bidirectional_skip"
    return (
        MaskKind("create_causal_mask", lambda _row, query, key: key <= query, causal),
        MaskKind("create_sliding_window_causal_mask", lambda _row, query, key: query - WINDOW < key <= query, causal),
        MaskKind("create_chunked_causal_mask", chunks(padding), causal),
        MaskKind("create_bidirectional_mask", lambda _row, _query, _key: True, both),
        MaskKind("create_bidirectional_sliding_window_mask", lambda _row, query, key: abs(query - key) <= WINDOW, both),
    )


def config(attention: str, **more: Any) -> Any:
    from transformers import LlamaConfig

    made = LlamaConfig(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, **more)
    made.sliding_window, made.attention_chunk_size = WINDOW, CHUNK
    made._attn_implementation = attention  # noqa: SLF001 - a model sets it so
    return made


def embeddings(length: int, dtype: Any = None, rows: int = 2) -> Any:
    import torch

    return torch.zeros(rows, length, 16, dtype=dtype)


def mask(kind: MaskKind, attention: str, length: int = LENGTH, padding: Any = None, **more: Any) -> Any:
    """The mask of a function, of the settings above."""
    import torch
    from transformers import masking_utils

    rows = None if padding is None else torch.tensor(padding)
    if "bidirectional" not in kind.name:
        more.setdefault("past_key_values", None)
    chosen = more.pop("config", None) or config(attention)
    return getattr(masking_utils, kind.name)(chosen, embeddings(length), rows, **more)


def pairs(found: Any) -> str:
    """The pairs that a mask allows: one line of 0 and 1 for each query. Eager attention adds the least number."""
    import torch

    if found is None:
        return "none"
    allowed = found if found.dtype == torch.bool else found == 0
    return " | ".join(
        " ".join("".join(str(int(each)) for each in query) for query in row) for row in allowed[:, 0].tolist()
    )


def wanted(rule: Rule, queries: Sequence[int], keys: Sequence[int], seen: Sequence[Sequence[int]] | None = None) -> str:
    """The pairs of a rule; keys of padding are left out."""

    def allows(row: int, query: int, key: int) -> bool:
        return rule(row, query, key) and (seen is None or (key < len(seen[row]) and seen[row][key] == 1))

    return " | ".join(
        " ".join("".join(str(int(allows(row, query, key))) for key in keys) for query in queries) for row in range(2)
    )


@call(GROUP, phase=Phase.FORWARD, requires=NEEDS)
def masks_of_padded_rows(_ctx: Context) -> Iterator[Check]:
    """Each kind of mask allows the pairs of its definition, without keys of padding, wherever the padding is."""
    places = range(LENGTH)
    for attention, (title, padding) in itertools.product(ATTENTIONS, PADDINGS.items()):
        for kind in kinds(padding):
            found = mask(kind, attention, padding=padding, **{kind.skip: False})
            yield equal(
                f"pairs, {kind.name}, {attention}, {title}", pairs(found), wanted(kind.rule, places, places, padding)
            )


@call(GROUP, phase=Phase.FORWARD, requires=NEEDS)
def masks_of_full_rows(_ctx: Context) -> Iterator[Check]:
    """Each kind of mask allows the pairs of its definition without padding, and sdpa has none if it needs none.

    A window or chunk that holds the whole row needs no mask either. Eager attention needs none if nothing is hidden.
    """
    places = range(LENGTH)
    for attention, kind in itertools.product(ATTENTIONS, kinds()):
        for padding in (None, ((1,) * LENGTH,) * 2):
            found = mask(kind, attention, padding=padding, **{kind.skip: False})
            yield equal(f"pairs, {kind.name}, {attention}, {padding}", pairs(found), wanted(kind.rule, places, places))
    for kind, length in itertools.product(kinds(), (2, LENGTH)):
        plain = kind.name in ("create_causal_mask", "create_bidirectional_mask") or length == 2  # noqa: PLR2004 - below
        found = mask(kind, "sdpa", length)
        expected = "none" if plain else wanted(kind.rule, range(length), range(length))
        yield equal(f"pairs, {kind.name} of {length}, which may be left out", pairs(found), expected)
        found, both = mask(kind, "eager", length), "bidirectional" in kind.name
        expected = "none" if both and plain else wanted(kind.rule, range(length), range(length))
        yield equal(f"pairs, {kind.name} of {length}, eager", pairs(found), expected)


@call(GROUP, phase=Phase.FORWARD, requires=NEEDS)
def masks_of_joined_rules(_ctx: Context) -> Iterator[Check]:
    """or_mask_function adds pairs to a mask, and_mask_function takes pairs away; padding stays out."""
    padding, places = PADDINGS["right"], range(LENGTH)

    def early(_row: Any, _head: Any, query: Any, key: Any) -> Any:
        return (query < 4) & (key < 4)  # noqa: PLR2004 - the first four positions see each other

    def odd(_row: Any, _head: Any, query: Any, key: Any) -> Any:
        return (query + key) % 2 == 1

    for attention, kind in itertools.product(ATTENTIONS, kinds(padding)):
        rule = kind.rule
        more = mask(kind, attention, padding=padding, or_mask_function=early)
        added = wanted(lambda r, q, k, rule=rule: rule(r, q, k) or (q < 4 and k < 4), places, places, padding)  # type: ignore[misc] # noqa: PLR2004 - as above
        yield equal(f"pairs, {kind.name}, {attention}, added", pairs(more), added)
        fewer = mask(kind, attention, padding=padding, and_mask_function=odd)
        kept = wanted(lambda r, q, k, rule=rule: rule(r, q, k) and (q + k) % 2 == 1, places, places, padding)  # type: ignore[misc] # as above
        yield equal(f"pairs, {kind.name}, {attention}, taken away", pairs(fewer), kept)


@call(GROUP, phase=Phase.FORWARD, requires=NEEDS)
def masks_of_blocks(_ctx: Context) -> Iterator[Check]:
    """Tokens of one block see each other in a causal mask; tokens of no block stay causal."""
    import torch

    blocks = ((-1, 0, 0, 0, -1, -1, 1, 1, 1), (0, 0, -1, -1, 1, 1, -1, 2, 2))
    padding, places = PADDINGS["right"], range(LENGTH)
    for attention, kind in itertools.product(ATTENTIONS, kinds(padding)[:3]):
        rule = kind.rule

        def joined(row: int, query: int, key: int, rule: Rule = rule) -> bool:
            return rule(row, query, key) or blocks[row][query] == blocks[row][key] >= 0

        found = mask(kind, attention, padding=padding, block_sequence_ids=torch.tensor(blocks))
        yield equal(f"pairs, {kind.name}, {attention}", pairs(found), wanted(joined, places, places, padding))


@call(GROUP, phase=Phase.FORWARD, requires=NEEDS)
def masks_of_packed_rows(_ctx: Context) -> Iterator[Check]:
    """Documents of a packed row do not see each other, and windows and chunks begin with each document."""
    import torch

    documents = ((0, 0, 0, 0, 0, 1, 1, 1, 1), (0, 0, 1, 1, 1, 1, 1, 1, 1))
    positions = ((0, 1, 2, 3, 4, 0, 1, 2, 3), (0, 1, 0, 1, 2, 3, 4, 5, 6))
    places = range(LENGTH)
    for attention, kind in itertools.product(ATTENTIONS, kinds()[:3]):
        rule = kind.rule

        def apart(row: int, query: int, key: int, rule: Rule = rule) -> bool:
            own = positions[row]
            return documents[row][query] == documents[row][key] and rule(row, own[query], own[key])

        found = mask(kind, attention, position_ids=torch.tensor(positions))
        yield equal(f"pairs, {kind.name}, {attention}", pairs(found), wanted(apart, places, places))


@call(GROUP, phase=Phase.FORWARD, requires=NEEDS)
def masks_of_encoders(_ctx: Context) -> Iterator[Check]:
    """Decoders see the encoder's tokens by the encoder's mask; is_causal=False makes a causal mask look both ways."""
    import torch
    from transformers import masking_utils

    padding, queries = PADDINGS["inside"], range(4)
    for attention in ATTENTIONS:
        found = masking_utils.create_bidirectional_mask(
            config(attention),
            embeddings(len(queries)),
            torch.tensor(padding),
            encoder_hidden_states=embeddings(LENGTH),
        )
        rule = kinds()[3].rule
        yield equal(f"pairs, of the encoder, {attention}", pairs(found), wanted(rule, queries, range(LENGTH), padding))
        both = config(attention)
        both.is_causal = False
        for kind, other in ((kinds()[0], kinds()[3]), (kinds()[1], kinds()[4])):
            found = mask(kind, attention, padding=padding, config=both)
            expected = wanted(other.rule, range(LENGTH), range(LENGTH), padding)
            yield equal(f"pairs, {kind.name} of both ways, {attention}", pairs(found), expected)


@call(GROUP, phase=Phase.FORWARD, requires=NEEDS)
def masks_of_dtypes(_ctx: Context) -> Iterator[Check]:
    """Masks that eager attention adds have the dtype of the inputs and its least number; sdpa's are of booleans.

    A mask of four dimensions is used as it is.
    """
    import torch
    from transformers import masking_utils

    rows = torch.tensor(PADDINGS["right"])
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        found = masking_utils.create_causal_mask(config("eager"), embeddings(LENGTH, dtype), rows, None)
        yield equal(f"dtype, {dtype}", str(found.dtype), str(dtype))
        numbers = sorted(float(each) for each in found.unique())
        yield equal(f"numbers, {dtype}", str(numbers), str([torch.finfo(dtype).min, 0.0]))
    found = masking_utils.create_causal_mask(config("sdpa"), embeddings(LENGTH), rows, None)
    yield equal("dtype, sdpa", str(found.dtype), "torch.bool")
    own = torch.arange(2 * 81).view(2, 1, 9, 9) % 3 == 0
    for attention, kind in itertools.product(ATTENTIONS, kinds()):
        more = {} if "bidirectional" in kind.name else {"past_key_values": None}
        found = getattr(masking_utils, kind.name)(config(attention), embeddings(LENGTH), own, **more)
        yield equal(f"pairs, {kind.name}, {attention}, a mask of four dimensions", pairs(found), pairs(own))


def stored(kind: MaskKind, attention: str, seen: int, *, fixed: bool) -> tuple[Any, Sequence[int]]:
    """A cache of a layer of this kind that holds some tokens, and the positions that its keys have with three more."""
    import torch
    from transformers import DynamicCache, StaticCache

    windows = {"create_causal_mask": None, "create_sliding_window_causal_mask": WINDOW}
    window, chosen = windows[kind.name], config(attention)
    chosen.sliding_window, chosen.attention_chunk_size = window, None
    made = StaticCache(config=chosen, max_cache_len=LENGTH) if fixed else DynamicCache(config=chosen)
    if seen:
        states = torch.zeros(2, 2, seen, 8)
        for layer in range(2):
            made.update(states, states, layer)
    if fixed and window is None:
        return made, range(LENGTH)
    first = 0 if window is None else max(0, seen - window + 1)
    return made, range(first, max(seen + 3, window if fixed and window else 0))


@call(GROUP, phase=Phase.FORWARD, requires=NEEDS)
def masks_behind_caches(_ctx: Context) -> Iterator[Check]:
    """Queries behind a cache see the keys that it holds, by their positions in the whole row, and not its free places.

    Caches of windows hold one token less than the window.
    """
    padding = PADDINGS["left"]
    for attention, fixed, seen in itertools.product(ATTENTIONS, (False, True), (0, 1, 2, 4, 5)):
        for kind in kinds()[:2]:
            queries = range(seen, seen + 3)
            for rows in (None, [row[: seen + 3] for row in padding]):
                cache, keys = stored(kind, attention, seen, fixed=fixed)
                found = mask(kind, attention, 3, rows, past_key_values=cache, allow_is_causal_skip=False)
                title = f"{kind.name}, {attention}, {seen} before, static={fixed}, {rows is not None}"
                yield equal(f"pairs, {title}", pairs(found), wanted(kind.rule, queries, keys, rows))
