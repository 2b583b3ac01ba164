"""The evidence of the base model's options: its class, embeddings, quantisation and dtype."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cases.apply import compat
from cases.model import architectures, prequantised, tiny
from cases.space.options import FOUR_BIT
from cases.space.verdict import equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.checks.engagement.recorder import EngagementRecorder
    from cases.space.verdict import Check


def model(recorder: EngagementRecorder) -> Iterator[Check]:
    yield equal("class of the model", recorder.model_class, architectures.spec(recorder.options).named[1])


def rope_scaling(recorder: EngagementRecorder) -> Iterator[Check]:
    if recorder.options.rope_scaling != "none":
        yield equal("scaling of rotary positions", recorder.rope_type, recorder.options.rope_scaling)


def embeddings(recorder: EngagementRecorder) -> Iterator[Check]:
    tied, rows = architectures.is_tied(recorder.options), architectures.vocabulary(recorder.options)
    found = "+".join(sorted({str(shared) for shared in recorder.shared}))
    yield equal("head shares the embeddings", found, str(tied))
    yield equal("rows of embeddings, head and config", recorder.rows, f"{rows}+{rows}+{rows}")


def quant(recorder: EngagementRecorder) -> Iterator[Check]:
    options = recorder.options
    skipped = tiny.LAYERS if options.llm_int8_skip_modules else 0
    expected = 0 if options.quant == "none" else architectures.spec(options).quantised - skipped
    yield equal("quantised layers", recorder.counted, expected)
    if options.quant in FOUR_BIT:
        yield equal("4-bit kind", "+".join(sorted({kind.split(",")[0] for kind in recorder.kinds})), options.quant)


def bnb_4bit_quant_storage(recorder: EngagementRecorder) -> Iterator[Check]:
    yield equal("storage dtype", packed_dtype(recorder), recorder.options.bnb_4bit_quant_storage)


def packed_dtype(recorder: EngagementRecorder) -> str:
    return recorder.dtypes[f"{architectures.spec(recorder.options).plain}.weight"]


def bnb_4bit_use_double_quant(recorder: EngagementRecorder) -> Iterator[Check]:
    nested = "+".join(sorted({kind.split(", ")[1] for kind in recorder.kinds}))
    yield equal("absmaxes", nested, f"nested {recorder.options.bnb_4bit_use_double_quant}")


def llm_int8_skip_modules(recorder: EngagementRecorder) -> Iterator[Check]:
    if not recorder.options.llm_int8_skip_modules:
        return  # the number of quantised layers already shows it
    yield equal(f"quantised {tiny.SKIPPED}", sum(tiny.SKIPPED in name for name in recorder.quantised_names), 0)
    dtypes = {kept for name, kept in recorder.dtypes.items() if name.endswith(f"{tiny.SKIPPED}.weight")}
    yield equal(f"dtype of {tiny.SKIPPED}", "+".join(sorted(dtypes)), recorder.options.torch_dtype)


def prequantised_checkpoint(recorder: EngagementRecorder) -> Iterator[Check]:
    found = prequantised.packed_on_disk(recorder.loaded_from)
    yield equal(
        "weights quantised on disk", found, len(recorder.quantised_names) if recorder.options.prequantised else 0
    )


def torch_dtype(recorder: EngagementRecorder) -> Iterator[Check]:
    yield equal(
        "embedding dtype", recorder.dtypes[architectures.spec(recorder.options).embedding], recorder.options.torch_dtype
    )


def bnb_4bit_compute_dtype(recorder: EngagementRecorder) -> Iterator[Check]:
    kinds = "+".join(sorted({kind.split(", ")[2] for kind in recorder.kinds}))
    yield equal("arithmetic of 4-bit layers", kinds, f"compute {compat.compute_dtype(recorder.options)}")
    if recorder.multiplied_in:
        found = "+".join(sorted(recorder.multiplied_in))
        yield equal("dtype of 4-bit products", found, compat.compute_dtype(recorder.options))
