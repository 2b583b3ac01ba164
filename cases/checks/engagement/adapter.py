"""The evidence of the adapter's options: which parameters are trained, and in which dtype."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cases.apply import compat
from cases.model import adapters, architectures, tiny
from cases.space.options import PROMPTS
from cases.space.verdict import equal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cases.checks.engagement.recorder import EngagementRecorder
    from cases.space.verdict import Check


def method(recorder: EngagementRecorder) -> Iterator[Check]:
    if recorder.options.method == "full":
        frozen = len(recorder.dtypes) - len(recorder.trainable) - len(recorder.quantised_names)
        yield equal("frozen parameters", frozen, 0)
        return
    places = 1 if recorder.options.method in PROMPTS else architectures.spec(recorder.options).adapted
    parts = adapters.PARTS[recorder.options.method]
    embedded = {name for name in recorder.trainable if "embed_tokens" in name}
    for part in parts:
        yield equal(f"{part} trained", sum(part in name.split(".") for name in recorder.trainable - embedded), places)
    beside = {name for name in recorder.trainable - embedded if not set(name.split(".")) & set(parts)}
    yield equal("trained beside the adapter", len(beside), int(recorder.options.modules_to_save == "lm_head"))


def modules_to_save(recorder: EngagementRecorder) -> Iterator[Check]:
    heads = {name for name in recorder.trainable if name.startswith("lm_head.")}
    expected = adapters.MODULES_TO_SAVE[recorder.options.modules_to_save]
    yield equal("trained modules to save", joined_names(heads), joined_names(expected))


def target_embeddings(recorder: EngagementRecorder) -> Iterator[Check]:
    embedded = {name for name in recorder.trainable if name.startswith("model.embed_tokens.")}
    expected = set(adapters.EMBEDDING_PARAMETERS) if recorder.options.target_embeddings else set()
    if expected and recorder.options.method == "dora":
        expected.add("model.embed_tokens.lora_magnitude_vector")
    yield equal("trained embedding adapters", joined_names(embedded), joined_names(expected))


def joined_names(names: Iterable[str]) -> str:
    return "+".join(sorted(names))


def autocast_adapter_dtype(recorder: EngagementRecorder) -> Iterator[Check]:
    if not compat.has_adapter_autocast():
        return  # the version decides, so there is nothing to check
    found = {
        dtypes[name]
        for dtypes in (recorder.dtypes, recorder.dtypes_after)
        for name in dtypes
        if name in recorder.trainable and tiny.is_adapter(name)
    }
    yield equal(
        "adapter dtype",
        "+".join(sorted(found)),
        "fp32" if recorder.options.autocast_adapter_dtype else recorder.options.torch_dtype,
    )
