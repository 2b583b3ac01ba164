"""Helpers of the Trainer: nested arrays of an evaluation, smoothed labels, samplers by length, and counts.

Each does what its documentation says, computed again with plain torch and numpy.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.accelerating.nested_tensors import alike
from cases.space.verdict import Check, Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context

GROUP = "Trainer: helpers"
IGNORED = -100


def matrix(rows: int, width: int, start: float = 0.0) -> Any:
    import torch

    return torch.arange(start, start + rows * width).reshape(rows, width)


def joined(parts: list[Any], filler: int) -> Any:
    """Matrices above each other, padded on the right."""
    import torch

    width = max(each.shape[1] for each in parts)
    padded = [torch.nn.functional.pad(each, (0, width - each.shape[1]), value=filler) for each in parts]
    return torch.cat(padded)


@call(GROUP, phase=Phase.INFER)
def helper_nested_arrays(_ctx: Context) -> Iterator[Check]:
    """nested_concat pads and joins nested tensors and arrays; others cut, detach, convert and count them.

    EvalLoopContainer joins what an evaluation adds, or keeps it in a list.
    """
    import numpy as np
    import torch
    from transformers.trainer_pt_utils import (
        EvalLoopContainer,
        find_batch_size,
        nested_concat,
        nested_detach,
        nested_numpify,
        nested_truncate,
    )

    one, other = matrix(2, 3), matrix(3, 5, 50.0)
    first = [one, {"inner": (one + 1, matrix(2, 2))}]
    second = [other, {"inner": (other + 1, matrix(3, 2, 90.0))}]
    for filler in (IGNORED, 7):
        wanted = [
            joined([one, other], filler),
            {"inner": (joined([one + 1, other + 1], filler), torch.cat([matrix(2, 2), matrix(3, 2, 90.0)]))},
        ]
        found = nested_concat(first, second, padding_index=filler)
        yield equal(f"joined tensors, {filler}", alike(found, wanted), bound=True)
        arrays = nested_concat(nested_numpify(first), nested_numpify(second), padding_index=filler)
        same = np.array_equal(arrays[0], wanted[0].numpy()) and np.array_equal(
            arrays[1]["inner"][0], wanted[1]["inner"][0].numpy()
        )
        yield equal(f"joined arrays, {filler}", bool(same), bound=True)
        for nests in (True, False):
            held = EvalLoopContainer(do_nested_concat=nests, padding_index=filler)
            held.add(one)
            held.to_cpu_and_numpy()
            held.add(other)
            held.add(one)
            found = held.get_arrays()
            exact = (
                [joined([one, other, one], filler).tolist()] if nests else [one.tolist(), other.tolist(), one.tolist()]
            )
            yield equal(
                f"kept, joined={nests}, {filler}",
                str([found.tolist()] if nests else [each.tolist() for each in found]),
                str(exact),
            )
    yield equal(
        "joined numbers", str(nested_concat(torch.tensor(1.0), torch.tensor([2.0, 3.0])).tolist()), "[1.0, 2.0, 3.0]"
    )
    yield equal("numbers in bfloat16", str(nested_numpify(torch.tensor([1.5]).bfloat16()).dtype), "float32")
    learned = (one.clone().requires_grad_() * 2,)
    yield equal("gradients, detached", nested_detach(learned)[0].requires_grad, bound=False)
    yield equal(
        "first rows", alike(nested_truncate(first, 1), [one[:1], {"inner": ((one + 1)[:1], matrix(1, 2))}]), bound=True
    )
    for name, nest in {
        "list": [{"text": "a"}, (other,)],
        "dictionary": {"text": "a", "more": [other]},
        "tensor": other,
    }.items():
        yield equal(f"rows of a {name}", find_batch_size(nest), 3)


@call(GROUP, phase=Phase.FORWARD)
def helper_smoothed_labels(_ctx: Context) -> Iterator[Check]:
    """LabelSmoother mixes the loss of the labels with that of all classes, over the labels that are not ignored."""
    import torch
    from transformers.trainer_pt_utils import LabelSmoother

    logits = (matrix(10, 5).reshape(2, 5, 5) * 0.37).sin()
    labels = torch.tensor([[0, 4, 2, IGNORED, 1], [3, IGNORED, 0, 2, 4]])
    for epsilon in (0.0, 0.1, 0.4):
        for shifted in (False, True):
            for ignored in (IGNORED, 2):
                scores, wanted = (logits[:, :-1], labels[:, 1:]) if shifted else (logits, labels)
                kept = (wanted != ignored) & (wanted >= 0)
                chances = scores.double().log_softmax(-1)[kept]
                exact = -chances.gather(-1, wanted[kept][:, None]).mean()
                value = (1 - epsilon) * exact - epsilon * chances.mean()
                given = labels.masked_fill(labels == IGNORED, ignored)
                for form in ({"logits": logits}, (logits,)):
                    found = LabelSmoother(epsilon, ignored)(form, given.clone(), shift_labels=shifted)
                    title = f"{epsilon}, shifted={shifted}, {ignored}, {type(form).__name__}"
                    yield at_most(f"smoothed loss off, {title}", abs(float(found) - float(value)), 1e-6)


def grouped(lengths: list[int], size: int, several: int, generator: Any) -> list[int]:
    """A permutation, sorted by length within groups of batches; the longest of all takes the first place."""
    import torch

    order = torch.randperm(len(lengths), generator=generator).tolist()
    groups = [order[begin : begin + several * size] for begin in range(0, len(order), several * size)]
    groups = [sorted(group, key=lambda place: -lengths[place]) for group in groups]
    longest = max(range(len(groups)), key=lambda number: lengths[groups[number][0]])
    groups[0][0], groups[longest][0] = groups[longest][0], groups[0][0]
    return [place for group in groups for place in group]


@call(GROUP, phase=Phase.LOAD)
def helper_lengths(_ctx: Context) -> Iterator[Check]:
    """LengthGroupedSampler permutes, sorts within groups of batches, and puts the longest row first.

    On ranks, each takes every so many of the same order, filled up by its first rows or cut.
    """
    import torch
    from transformers.trainer_pt_utils import (
        DistributedLengthGroupedSampler,
        LengthGroupedSampler,
        ShardSampler,
        get_length_grouped_indices,
    )

    for count, size in ((9, 2), (50, 3), (90, 2), (5, 8)):
        lengths = torch.randint(1, 400, (count,), generator=torch.Generator().manual_seed(count)).tolist()
        several = max(1, min(count // (4 * size), 50))
        for seed in (0, 5):
            wanted = grouped(lengths, size, several, torch.Generator().manual_seed(seed))
            title = f"{count} rows by {size}, seed {seed}"
            found = get_length_grouped_indices(lengths, size, generator=torch.Generator().manual_seed(seed))
            yield equal(f"order, {title}", str(found), str(wanted))
            by_two = grouped(lengths, size, 2, torch.Generator().manual_seed(seed))
            found = get_length_grouped_indices(lengths, size, 2, torch.Generator().manual_seed(seed))
            yield equal(f"order of two batches, {title}", str(found), str(by_two))
            data = [{"own": [0] * length} for length in lengths]
            sampler = LengthGroupedSampler(
                size, dataset=data, model_input_name="own", generator=torch.Generator().manual_seed(seed)
            )
            yield equal(f"order of a sampler, {title}", str(list(sampler)), str(wanted))
            yield equal(f"length of a sampler, {title}", len(sampler), count)
        for drop in (False, True):
            for epoch in (0, 2):
                order = grouped(lengths, size, several, torch.Generator().manual_seed(11 + epoch))
                whole = (len(order) // 2) * 2 if drop else -(-len(order) // 2) * 2
                dealt = (order + order)[:whole]
                for rank in (0, 1):
                    sampler = DistributedLengthGroupedSampler(
                        size, lengths=lengths, num_replicas=2, rank=rank, seed=11, drop_last=drop
                    )
                    sampler.set_epoch(epoch)
                    title = f"{count} rows by {size}, rank {rank}, epoch {epoch}, drop_last={drop}"
                    yield equal(f"order of ranks, {title}", str(list(sampler)), str(dealt[rank::2]))
                    yield equal(f"length of ranks, {title}", len(sampler), whole // 2)
    for count, size in ((11, 2), (3, 2), (8, 2), (10, 3)):
        for drop in (False, True):
            whole = count - count % (2 * size) if drop else -(-count // (2 * size)) * 2 * size
            order = [*range(count)] * (1 + whole // count)
            for rank in (0, 1):
                found = list(
                    ShardSampler(range(count), batch_size=size, num_processes=2, process_index=rank, drop_last=drop)
                )
                wanted = [each for begin in range(rank * size, whole, 2 * size) for each in order[begin : begin + size]]
                yield equal(
                    f"batches in turn, {count} by {size}, rank {rank}, drop_last={drop}", str(found), str(wanted)
                )


SKEWED = (400, 20, 30, 25, 390, 15, 10, 12, 300, 22, 18, 16, 11, 14, 350, 9)


@call(GROUP, phase=Phase.LOAD, requires=("sampling_strategy",))
def helper_balanced_batches(_ctx: Context) -> Iterator[Check]:
    """BatchRebalanceSampler deals each row of a step once, in groups of neighbours by length, the dearest ones first.

    Its cost is rows times the longest, and a thousandth of its square; groups cost less than those of equal sizes.
    """
    from transformers.trainer_pt_utils import BatchRebalanceSampler

    def cost(group: list[int]) -> float:
        longest = max(SKEWED[each] for each in group)
        return len(group) * (longest + 0.001 * longest**2)

    for ranks, batches in ((2, 2), (2, 1), (1, 3), (4, 1)):
        samplers = [
            BatchRebalanceSampler(list(SKEWED), len(SKEWED), ranks, batches, shuffle=False, rank=rank)
            for rank in range(ranks)
        ]
        found = [list(sampler) for sampler in samplers]
        title = f"{ranks} ranks, {batches} batches"
        yield equal(f"batches of a rank, {title}", str([len(each) for each in found]), str([batches] * ranks))
        every = [group for of_rank in found for group in of_rank]
        yield equal(
            f"rows, {title}", str(sorted(each for group in every for each in group)), str([*range(len(SKEWED))])
        )
        order = sorted(range(len(SKEWED)), key=lambda each: -SKEWED[each])
        groups = sorted(every, key=lambda group: order.index(group[0]))
        yield equal(f"neighbours by length, {title}", str([each for group in groups for each in group]), str(order))
        slots = [[cost(found[rank][slot]) for rank in range(ranks)] for slot in range(batches)]
        falling = all(min(one) >= max(other) for one, other in itertools.pairwise(slots))
        yield equal(f"dearest first, {title}", falling, bound=True)
        number = ranks * batches
        base, more = divmod(len(SKEWED), number)
        sizes = [base + (place < more) for place in range(number)]
        equals = [order[sum(sizes[:place]) : sum(sizes[: place + 1])] for place in range(number)]
        costs, before = [cost(group) for group in every], [cost(group) for group in equals]
        spread, unbalanced = max(costs) - min(costs), max(before) - min(before)
        yield at_most(f"spread of costs over that of equal sizes, {title}", spread / unbalanced, 0.5)


@call(GROUP, phase=Phase.LOAD)
def helper_counts(_ctx: Context) -> Iterator[Check]:
    """Counts of parameters, names without layers of a kind, and metrics as people read them."""
    import inspect

    import torch
    from transformers.trainer_pt_utils import (
        get_model_param_count,
        get_module_class_from_name,
        get_parameter_names,
        metrics_format,
    )

    made = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.LayerNorm(4), torch.nn.Sequential(torch.nn.Linear(4, 2)))
    made.register_parameter("own", torch.nn.Parameter(torch.zeros(5)))
    made[0].weight.requires_grad_(False)  # noqa: FBT003 - torch's argument
    yield equal("parameters", get_model_param_count(made), 12 + 4 + 4 + 4 + 8 + 2 + 5)
    yield equal("trained parameters", get_model_param_count(made, trainable_only=True), 4 + 4 + 4 + 8 + 2 + 5)
    names = sorted(get_parameter_names(made, [torch.nn.LayerNorm]))
    yield equal("names without norms", ", ".join(names), "0.bias, 0.weight, 2.0.bias, 2.0.weight, own")
    yield equal("class by name", str(get_module_class_from_name(made, "LayerNorm")), str(torch.nn.LayerNorm))
    yield equal("class of no name", str(get_module_class_from_name(made, "Other")), "None")
    metrics = {
        "train_runtime": 3723.4567,
        "cpu_mem_used": 5 << 20,
        "total_flos": float(7 << 30),
        "train_loss": 0.123456,
        "rows": 12,
    }
    named = {"self": None} if "self" in inspect.signature(metrics_format).parameters else {}
    found = metrics_format(*named.values(), dict(metrics))
    wanted = {
        "train_runtime": "1:02:03.45",
        "cpu_mem_used": "5MB",
        "total_flos": "7GF",
        "train_loss": 0.1235,
        "rows": 12,
    }
    yield equal("metrics to read", str(found), str(wanted))
