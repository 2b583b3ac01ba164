"""Other ways to quantise than the first rows have."""

from __future__ import annotations

from cases.grid.shared import AS_DOCUMENTED, DOUBLE, FP4, INT8, QLORA, SHARDABLE
from cases.space.case import Case, case

QUANTISED_LOADING = "Loading quantised in other ways"
QUANTISED_TRAINING = "Training on a base quantised in other ways"
QUANTISED_TRIPS = "Saving, resuming and merging with a quantised base"

QUANTISATION: tuple[Case, ...] = (
    case(QUANTISED_LOADING, "FP4", flow="load", method="full", **FP4),
    case(QUANTISED_LOADING, "FP4 with double quantisation", flow="load", method="full", double_quant=True, **FP4),
    case(QUANTISED_LOADING, "double quantisation, as in the QLoRA paper", flow="load", method="full", **DOUBLE),
    case(QUANTISED_LOADING, "one kind of layer left as it was", flow="load", method="full", skip_modules=True, **QLORA),
    case(QUANTISED_LOADING, "one kind of layer left as it was", flow="load", method="full", skip_modules=True, **INT8),
    case(QUANTISED_LOADING, "saved quantised before", flow="load", method="full", prequantised=True, **QLORA),
    case(QUANTISED_LOADING, "saved quantised before", flow="load", method="full", prequantised=True, **DOUBLE),
    case(QUANTISED_LOADING, "saved quantised before", flow="load", method="full", prequantised=True, **INT8),
    case(
        QUANTISED_LOADING,
        "saved quantised before, in storage that FSDP can shard",
        flow="load",
        method="full",
        prequantised=True,
        **SHARDABLE,
        **QLORA,
    ),
    case(
        QUANTISED_LOADING,
        "saved quantised before, one kind of layer left out",
        flow="load",
        method="full",
        prequantised=True,
        skip_modules=True,
        **QLORA,
    ),
    case(QUANTISED_LOADING, "float32 arithmetic", flow="load", method="full", compute_dtype="fp32", **QLORA),
    case(QUANTISED_TRAINING, "FP4", **FP4),
    case(QUANTISED_TRAINING, "FP4", strategy="ddp", **FP4),
    case(QUANTISED_TRAINING, "FP4", **FP4, **AS_DOCUMENTED),
    case(QUANTISED_TRAINING, "FP4", strategy="fsdp2", **FP4, **SHARDABLE),
    case(QUANTISED_TRAINING, "QLoRA as in its paper", optimiser="adamw", **DOUBLE),
    case(QUANTISED_TRAINING, "QLoRA as in its paper", strategy="ddp", **DOUBLE),
    case(QUANTISED_TRAINING, "QLoRA as in its paper", **DOUBLE, **AS_DOCUMENTED),
    case(QUANTISED_TRAINING, "QLoRA as in its paper", strategy="fsdp2", **DOUBLE, **SHARDABLE),
    case(QUANTISED_TRAINING, "adapters on quantised layers and on others", skip_modules=True, **QLORA),
    case(QUANTISED_TRAINING, "the same, decomposed", skip_modules=True, method="dora", **DOUBLE),
    case(QUANTISED_TRAINING, "adapters on quantised layers and on others", skip_modules=True, **QLORA, **AS_DOCUMENTED),
    case(QUANTISED_TRAINING, "an 8-bit base with layers left out", skip_modules=True, strategy="ddp", **INT8),
    case(QUANTISED_TRAINING, "a base that was saved quantised", prequantised=True, strategy="ddp", **DOUBLE),
    case(QUANTISED_TRAINING, "a base that was saved quantised", prequantised=True, **DOUBLE, **AS_DOCUMENTED),
    case(
        QUANTISED_TRAINING,
        "a base that was saved quantised",
        prequantised=True,
        strategy="fsdp2",
        **DOUBLE,
        **SHARDABLE,
    ),
    case(QUANTISED_TRAINING, "float32 arithmetic under a bfloat16 model", compute_dtype="fp32", **QLORA),
    case(QUANTISED_TRAINING, "float16 arithmetic under a bfloat16 model", compute_dtype="fp16", **QLORA),
    case(QUANTISED_TRAINING, "bfloat16 arithmetic under a float32 model", compute_dtype="bf16", quant="nf4"),
    case(
        QUANTISED_TRAINING,
        "float32 arithmetic under a bfloat16 model",
        compute_dtype="fp32",
        strategy="fsdp2",
        **QLORA,
        **SHARDABLE,
    ),
    case(QUANTISED_TRAINING, "an evaluation between the steps of QLoRA", loop="eval", **QLORA),
    case(QUANTISED_TRAINING, "an evaluation between the steps of QLoRA", loop="eval", strategy="ddp", **DOUBLE),
    case(QUANTISED_TRAINING, "an evaluation between the steps on an 8-bit base", loop="eval", **INT8),
    case(QUANTISED_TRIPS, "a base that was saved quantised", flow="save_reload", prequantised=True, **DOUBLE),
    case(QUANTISED_TRIPS, "a base that was saved quantised", flow="save_reload", prequantised=True, **INT8),
    case(QUANTISED_TRIPS, "QLoRA as documented for FSDP", flow="save_reload", **DOUBLE, **AS_DOCUMENTED),
    case(
        QUANTISED_TRIPS,
        "QLoRA as in its paper",
        flow="resume",
        strategy="fsdp2",
        optimiser="adamw",
        **DOUBLE,
        **SHARDABLE,
    ),
    case(QUANTISED_TRIPS, "merging into FP4", flow="merge", **FP4),
    case(QUANTISED_TRIPS, "merging into doubly quantised weights", flow="merge", **DOUBLE),
    case(QUANTISED_TRIPS, "merging into quantised layers and others", flow="merge", skip_modules=True, **INT8),
    case(QUANTISED_TRIPS, "merging DoRA into 4-bit weights", flow="merge", method="dora", **QLORA),
    case(QUANTISED_TRIPS, "a merged model on disk, doubly quantised", flow="merge_reload", **DOUBLE),
    case(QUANTISED_TRIPS, "a merged model on disk, 8-bit", flow="merge_reload", **INT8),
    case(QUANTISED_TRIPS, "a merged model on disk, layers left out", flow="merge_reload", skip_modules=True, **INT8),
    case(
        QUANTISED_TRIPS, "merging into a base that was saved quantised", flow="merge_reload", prequantised=True, **INT8
    ),
)
