"""TRL's functions on rows of tensors: padding, shifting, log probabilities, entropies, statistics without NaN."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.model import tiny
from cases.reference.tolerance import UNIT_ROUNDOFF, relative
from cases.space.verdict import Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context
    from cases.space.verdict import Check

GROUP = "Tensors of TRL"
ROWS, LENGTH, WORDS = 3, 5, 37
SINGLE = 16 * UNIT_ROUNDOFF["fp32"]
HALF = UNIT_ROUNDOFF["fp32"] / 2  # of a deviation below 1/2: the correction of its divisor is float32


def padded(rows: list[list[int]], value: int, *, left: bool, multiple: int = 1) -> list[list[int]]:
    """Rows of one length, a multiple of a number."""
    longest = math.ceil(max(map(len, rows)) / multiple) * multiple
    return [[value] * (longest - len(row)) * left + row + [value] * (longest - len(row)) * (not left) for row in rows]


@call(GROUP, phase=Phase.LOAD)
def padded_tensors(ctx: Context) -> Iterator[Check]:
    """TRL's pad fills rows on either side, keeps their dtype, and pads further dimensions at their ends."""
    import torch
    from trl.trainer.utils import pad

    del ctx
    rows = [[1, 2, 3], [4], [5, 6], [7, 8, 9]]
    for side in ("left", "right"):
        found = pad([torch.tensor(row) for row in rows], padding_value=-1, padding_side=side)
        yield equal(f"rows, {side}", str(found.tolist()), str(padded(rows, -1, left=side == "left")))
        found = pad([torch.tensor(row, dtype=torch.bool) for row in ([1, 0], [1])], padding_value=0, padding_side=side)
        yield equal(f"dtype, {side}", str(found.dtype), "torch.bool")
    blocks = [tiny.values("block", (2, 3)), tiny.values("other block", (4, 2))]
    found, wanted = pad(blocks, padding_value=7), torch.full((2, 4, 3), 7.0)
    for place, block in enumerate(blocks):
        wanted[place, : block.shape[0], : block.shape[1]] = block
    yield equal("numbers of blocks that differ", int((found != wanted).sum()), 0)


@call(GROUP, phase=Phase.LOAD, requires=("padded_to_multiples",))
def padded_to_multiples(ctx: Context) -> Iterator[Check]:
    """TRL's pad makes the length of rows a multiple of a number."""
    import torch
    from trl.trainer.utils import pad

    del ctx
    rows = [[1, 2, 3], [4], [5, 6]]
    for multiple in (1, 2, 3, 4, 8):
        for side in ("left", "right"):
            given = [torch.tensor(row) for row in rows]
            found = pad(given, padding_value=0, padding_side=side, pad_to_multiple_of=multiple)
            wanted = padded(rows, 0, left=side == "left", multiple=multiple)
            yield equal(f"rows, {side}, {multiple}", str(found.tolist()), str(wanted))


@call(GROUP, phase=Phase.LOAD, requires=("flushed_rows",))
def flushed_rows(ctx: Context) -> Iterator[Check]:
    """flush_left moves each row's tokens to the start, keeps gaps inside, and drops columns that no row uses."""
    import torch
    from trl.trainer.utils import flush_left

    del ctx
    mask = torch.tensor([[0, 0, 1, 1, 1, 0], [0, 1, 0, 1, 0, 0], [0, 0, 0, 0, 1, 0]])
    ids = torch.arange(1, 19).view(3, 6) * mask
    rows = [[3, 4, 5], [8, 0, 10], [17, 0, 0]]
    found_mask, found_ids, twice = flush_left(mask, ids, 2 * ids)
    yield equal("ids", str(found_ids.tolist()), str(rows))
    yield equal("twice the ids", str(twice.tolist()), str([[2 * each for each in row] for row in rows]))
    yield equal("mask", str(found_mask.tolist()), str([[int(each > 0) for each in row] for row in rows]))
    yield equal("mask alone", str(flush_left(mask).tolist()), str(found_mask.tolist()))
    whole = torch.ones(2, 3, dtype=torch.long)
    yield equal("a full mask", str(flush_left(whole).tolist()), str(whole.tolist()))


def scores(name: str) -> Any:
    return 8 * tiny.values(name, (ROWS, LENGTH, WORDS))


@call(GROUP, phase=Phase.FORWARD, requires=("selective_log_softmax",))
def selected_log_probabilities(ctx: Context) -> Iterator[Check]:
    """selective_log_softmax gives the log probabilities of chosen tokens, and their gradients."""
    import torch
    from trl.trainer.utils import selective_log_softmax

    del ctx
    exact = scores("scores").double().log_softmax(-1)
    one = torch.randint(0, WORDS, (ROWS, LENGTH), generator=torch.Generator().manual_seed(1))
    dtypes = {"fp64": torch.float64, "fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
    wanted = exact.gather(-1, one[..., None])[..., 0]
    for name, dtype in dtypes.items():
        found = selective_log_softmax(scores("scores").to(dtype), one)
        unit = UNIT_ROUNDOFF["fp32" if name == "fp64" else name]
        yield equal(f"dtype and shape, {name}", f"{found.dtype} {tuple(found.shape)}", f"{dtype} {(ROWS, LENGTH)}")
        yield at_most(f"log probabilities off, {name}", relative(found.double(), wanted), 16 * unit)
    given = scores("scores").requires_grad_()
    above = tiny.values("above", (ROWS, LENGTH))
    (selective_log_softmax(given, one) * above).sum().backward()
    gradient = above.double()[..., None] * (torch.nn.functional.one_hot(one, WORDS) - exact.exp())
    yield at_most("gradients off", relative(given.grad, gradient), SINGLE)


@call(GROUP, phase=Phase.FORWARD, requires=("entropy_from_logits",))
def entropies_of_scores(ctx: Context) -> Iterator[Check]:
    """entropy_from_logits gives each row's entropy in nats, whatever the size of its chunks, and gradients."""
    from trl.trainer.utils import entropy_from_logits

    del ctx
    exact = scores("scores").double().log_softmax(-1)
    wanted = -(exact.exp() * exact).sum(-1)
    for size in (1, 4, 15, 128):
        found = entropy_from_logits(scores("scores"), chunk_size=size)
        yield equal(f"shape, {size}", str(tuple(found.shape)), str((ROWS, LENGTH)))
        yield at_most(f"entropies off, {size}", relative(found.double(), wanted), SINGLE)


@call(GROUP, phase=Phase.FORWARD, requires=("row_statistics",))
def statistics_without_nan(ctx: Context) -> Iterator[Check]:
    """nanstd, nanmin and nanmax leave NaN out; the deviation divides by one less than the number of values."""
    import torch
    from trl.trainer.utils import nanmax, nanmin, nanstd

    del ctx
    values = tiny.values("values", (4, 6)).double()
    values[0, 2] = values[1, :5] = values[3] = float("nan")
    rows = [[each for each in row if not math.isnan(each)] for row in values.tolist()]

    def deviation(numbers: list[float]) -> float:
        if len(numbers) <= 1:
            return float("nan")
        mean = sum(numbers) / len(numbers)
        return math.sqrt(sum((each - mean) ** 2 for each in numbers) / (len(numbers) - 1))

    wanted = torch.tensor([deviation(row) for row in rows], dtype=torch.float64)
    for keep in (False, True):
        found = nanstd(values, dim=1, keepdim=keep)
        yield equal(f"shape, keepdim={keep}", str(tuple(found.shape)), str((4, 1) if keep else (4,)))
        off = (found.flatten() - wanted).abs()
        yield at_most(f"deviations off, keepdim={keep}", float(off[~wanted.isnan()].max()), HALF)
        without = str(found.flatten().isnan().tolist())
        yield equal(f"rows without a deviation, keepdim={keep}", without, str(wanted.isnan().tolist()))
    flat = [each for row in rows for each in row]
    yield at_most("deviation of all off", abs(float(nanstd(values)) - deviation(flat)), HALF)
    for row, numbers in zip(values, rows, strict=True):
        found = [float(function(row)) for function in (nanmin, nanmax)]
        bounds = [min(numbers), max(numbers)] if numbers else [float("nan")] * 2
        yield equal("least and largest", str(found), str(bounds))
