"""accelerate's functions of nested tensors, against the same tensors one by one.

https://huggingface.co/docs/accelerate/package_reference/utilities#data-modifications-and-enhancements
"""

from __future__ import annotations

from collections import namedtuple
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.parallel.clipping import accelerator
from cases.space.verdict import Check, Phase, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context

GROUP = "accelerate: nested tensors"
Pair = namedtuple("Pair", ("left", "right"))  # noqa: PYI024 - as scripts write them; fields hold whatever is nested


def numbers(*shape: int, start: int = 0) -> Any:
    import torch

    return torch.arange(start, start + int(torch.tensor(shape).prod())).reshape(shape).float()


def nested(start: int = 0) -> dict[str, Any]:
    """Tensors of four rows in a dictionary, a list, a tuple and a named tuple."""
    return {
        "first": numbers(4, 3, start=start),
        "inner": [numbers(4, 2, start=start + 100), (numbers(4, 5, start=start + 200).long(),)],
        "pair": Pair(numbers(4, 1, start=start + 300).half(), {"last": numbers(4, 2, start=start + 400).double()}),
    }


def changed(function: Any, *parts: Any) -> Any:
    """The same nesting, with a function of the tensors at each place."""
    first = parts[0]
    if isinstance(first, dict):
        return {key: changed(function, *(part[key] for part in parts)) for key in first}
    if isinstance(first, Pair):
        return Pair(*(changed(function, *each) for each in zip(*parts, strict=True)))
    if isinstance(first, (list, tuple)):
        return type(first)(changed(function, *each) for each in zip(*parts, strict=True))
    return function(*parts)


def alike(found: Any, wanted: Any) -> bool:
    """Return whether types, shapes, dtypes, devices and values agree; of tensors without memory, all but the values."""
    import torch

    if type(found) is not type(wanted):
        return False
    if isinstance(wanted, torch.Tensor):
        same = (found.shape, found.dtype, found.device) == (wanted.shape, wanted.dtype, wanted.device)
        return same and (wanted.device.type == "meta" or torch.equal(found, wanted))
    if isinstance(wanted, dict):
        return list(found) == list(wanted) and all(alike(found[key], wanted[key]) for key in wanted)
    if isinstance(wanted, (list, tuple)):
        return len(found) == len(wanted) and all(alike(*each) for each in zip(found, wanted, strict=True))
    return bool(found == wanted)


def refusal(function: Any, *arguments: Any, **named: Any) -> str:
    """The name of the exception that a function raises."""
    try:
        function(*arguments, **named)
    except Exception as error:  # noqa: BLE001 - its class is what is compared
        return type(error).__name__
    return "none"


@call(GROUP, phase=Phase.LOAD)
def accelerate_joins_nested(_ctx: Context) -> Iterator[Check]:
    """Concatenate joins nested tensors along any dimension, and slice_tensors takes a slice of each."""
    import torch
    from accelerate.utils import concatenate, slice_tensors

    parts = [nested(), nested(1000), nested(2000)]
    for dim in (0, 1, -1):
        wanted = changed(lambda *each, dim=dim: torch.cat(each, dim=dim), *parts)
        yield equal(f"joined along {dim}", alike(concatenate(parts, dim=dim), wanted), bound=True)
    by_default = alike(concatenate(parts), changed(lambda *each: torch.cat(each), *parts))
    yield equal("joined by default", by_default, bound=True)
    yield equal("refused, joined texts", refusal(concatenate, ["a", "b"]), "TypeError")
    for part in (slice(1, 3), slice(0, 1), slice(2, None)):
        wanted = changed(lambda each, part=part: each[part], nested())
        title = f"{part.start} to {part.stop}"
        yield equal(f"sliced, {title}", alike(slice_tensors(nested(), part), wanted), bound=True)


@call(GROUP, phase=Phase.LOAD)
def accelerate_reads_nested(_ctx: Context) -> Iterator[Check]:
    """find_batch_size, find_device, get_data_structure and listify read nested tensors; without one, there is no size.

    initialize_tensors makes empty ones of the structure.
    """
    import torch
    from accelerate.utils import find_batch_size, find_device, get_data_structure, initialize_tensors, listify

    yield equal("rows of nested tensors", find_batch_size(nested()), 4)
    yield equal("rows of a list", find_batch_size([numbers(7, 2), numbers(5)]), 7)
    for name, each in {"no tensor": {"text": "abc"}, "nothing": []}.items():
        kind = refusal(find_batch_size, each)
        yield equal(f"refused, rows of {name}", kind in ("TypeError", "ValueError"), bound=True)
    yield equal("device of nested tensors", str(find_device({"text": "a", "rows": [numbers(1)]})), "cpu")
    yield equal("device of none", str(find_device({"text": "a", "rows": []})), "None")
    empty = initialize_tensors(get_data_structure(nested()))
    shapes = changed(lambda each: (tuple(each.shape), each.dtype), nested())
    found = changed(lambda each: (tuple(each.shape), each.dtype), empty)
    yield equal("shapes and dtypes of empty tensors", str(found), str(shapes))
    yield equal("lists", str(listify(nested())), str(changed(lambda each: each.tolist(), nested())))
    yield equal("list of bfloat16", str(listify(torch.tensor([1.5, 2.0], dtype=torch.bfloat16))), "[1.5, 2.0]")


@call(GROUP, phase=Phase.LOAD)
def accelerate_changes_nested(_ctx: Context) -> Iterator[Check]:
    """recursively_apply changes what passes its test, convert_to_fp32 what is in 16 bits, and nothing else.

    send_to_device leaves what skip_keys names where it is. "If `False`, the function will leave such objects
    unchanged": error_on_other_type.
    """
    import torch
    from accelerate.utils import convert_outputs_to_fp32, convert_to_fp32, recursively_apply, send_to_device

    mixed = {**nested(), "text": "abc", "count": 3}
    wanted = {**changed(lambda each: each + 1, nested()), "text": "abc", "count": 3}
    yield equal("values added to", alike(recursively_apply(lambda each: each + 1, mixed), wanted), bound=True)
    found = recursively_apply(lambda each, by, plus=0: each * by + plus, nested(), 2, plus=1)
    yield equal("arguments passed", alike(found, changed(lambda each: 2 * each + 1, nested())), bound=True)
    yield equal(
        "refused, other types", refusal(recursively_apply, torch.abs, mixed, error_on_other_type=True), "TypeError"
    )
    counts = recursively_apply(lambda each: each + 1, mixed, test_type=lambda each: isinstance(each, int))
    yield equal("counts that pass a test", alike(counts, {**mixed, "count": 4}), bound=True)

    halves = {**mixed, "bfloat16": numbers(2).bfloat16()}

    def widened(each: Any) -> Any:
        return each.float() if each.dtype in (torch.float16, torch.bfloat16) else each

    wide = {**changed(widened, nested()), "text": "abc", "count": 3, "bfloat16": numbers(2)}
    yield equal("in float32", alike(convert_to_fp32(halves), wide), bound=True)
    yield equal("outputs in float32", alike(convert_outputs_to_fp32(lambda: halves)(), wide), bound=True)

    def moved(each: Any) -> Any:
        return each.to("meta")

    elsewhere = {**changed(moved, nested()), "text": "abc", "count": 3}
    yield equal("moved", alike(send_to_device(mixed, "meta"), elsewhere), bound=True)
    for skipped in ("first", ["first", "inner"]):
        kept = {**elsewhere, **{key: mixed[key] for key in ([skipped] if isinstance(skipped, str) else skipped)}}
        found = send_to_device(mixed, torch.device("meta"), skip_keys=skipped)
        yield equal(f"moved but for {skipped}", alike(found, kept), bound=True)


SHAPES = ((4,), (2, 3), (3, 2, 2))


@call(GROUP, phase=Phase.FORWARD, ranks=2)
def accelerate_pads_every_dimension(ctx: Context) -> Iterator[Check]:
    """pad_across_processes pads one dimension, counted from either end, to the longest of all ranks.

    A dimension that a tensor lacks leaves it as it is.
    """
    import torch

    made = accelerator(ctx)
    for shape in SHAPES:
        for dim in range(-len(shape) - 1, len(shape) + 1):
            known = -len(shape) <= dim < len(shape)
            size = list(shape)
            if known:
                size[dim] += 2 * made.process_index
            own = numbers(*size)
            for first in (False, True):
                wanted = own
                if known:
                    longest = list(shape)
                    longest[dim] += 2
                    wanted = torch.full(longest, 7.0)
                    place = longest[dim] - size[dim] if first else 0
                    wanted.narrow(dim, place, size[dim]).copy_(own)
                found = made.pad_across_processes([own, {"text": own}], dim=dim, pad_index=7, pad_first=first)
                title = f"{len(shape)} dimensions, {dim}, first={first}"
                yield equal(f"padded, {title}", alike(found, [wanted, {"text": wanted}]), bound=True)


@call(GROUP, phase=Phase.FORWARD, ranks=2)
def accelerate_shares_random_state(ctx: Context) -> Iterator[Check]:
    """synchronize_rng_states gives every rank the state of rank 0, of each kind of generator that is named, once."""
    import random

    import numpy as np
    import torch
    from accelerate.utils import set_seed, synchronize_rng_states

    made = accelerator(ctx)
    own = torch.Generator()

    def seeded(rank: int) -> None:
        set_seed(11 + rank)
        own.manual_seed(31 + rank)

    def drawn() -> dict[str, str]:
        return {
            "torch": str(torch.rand(2).tolist()),
            "generator": str(torch.rand(2, generator=own).tolist()),
            "numpy": str(np.random.rand(2).tolist()),  # noqa: NPY002 - set_seed seeds this generator
            "python": str(random.random()),  # noqa: S311 - no secret
        }

    of_rank = {}
    for rank in (made.process_index, 0):  # the state of rank 0 comes last
        seeded(rank)
        of_rank[rank] = drawn()
    mine, first = of_rank[made.process_index], of_rank[0]
    for kinds in (["torch"], ["generator"], ["torch", "generator"]):
        seeded(made.process_index)
        synchronize_rng_states(kinds, generator=own)
        wanted = {name: (first if name in kinds else mine)[name] for name in mine}
        yield equal(f"numbers after sharing {', '.join(kinds)}", str(drawn()), str(wanted))
    for specific in (False, True):
        set_seed(5, device_specific=specific)
        found = drawn()
        set_seed(5 + (made.process_index if specific else 0))
        own.manual_seed(own.initial_seed())
        again = drawn()
        for name in ("torch", "numpy", "python"):
            yield equal(f"{name} after set_seed, device_specific={specific}", found[name], again[name])
