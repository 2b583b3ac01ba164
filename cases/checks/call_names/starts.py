"""The names of the checks of ``cases.behaviour.starts``, by module; see ``cases.checks.names``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

CHECKS: Mapping[str, tuple[str, ...]] = {
    "cases.behaviour.starts.adapted_layers": (
        "outputs that differ from the base's",
        "outputs off the base's",
        "applied weights off",
        "trained parameters that are not the adapter's",
        "trained numbers",
        "trained numbers, as the model reports them",
        "{name} off its distribution",
        "mean square of {name} off",
    ),
    "cases.behaviour.starts.component_starts": (
        "ranks",
        "span of lora_A off, {name}",
        "order of lora_A off, {name}",
        "numbers of lora_B that are not zero",
        "rank_pattern",
        "scalings off",
        "rank of {name}",
        "scaling off, {name}",
        "numbers of lora_A that are not zero",
    ),
    "cases.behaviour.starts.covariance_starts": (
        "layers that keep decompositions",
        "name",
        "layers whose {part} differs with {kind}",
        "shapes of lora_A",
    ),
    "cases.behaviour.starts.decomposed_starts": (
        "magnitudes off",
        "filled weights off",
        "residuals off",
        "principal parts off",
        "lora_A of its own off",
        "lora_B of its own off",
        "first columns and rows off",
        "layers",
        "residual, in units of the smallest one",
        "shapes of A and B",
        "numbers of lora_A below its diagonal",
        "error of a layer, in units of the smallest one",
        "error of a layer, in units of the one without LoftQ",
    ),
    "cases.behaviour.starts.equal_inputs": (
        "rank of {name}",
        "order of lora_A off, {name}",
        "lengths of lora_A off, {name}",
    ),
    "cases.behaviour.starts.incremental_components": (
        "samples seen, {title}",
        "mean off, {title}",
        "variances off, {title}",
        "singular values off, {title}",
        "components off, {title}",
        "explained variances off, {title}",
        "shares of variances off, {title}",
        "shape of two components",
        "two singular values off",
        "first component turned away",
        "samples seen by fit",
        "singular values of fit off",
        "coordinates off, after {seen} samples",
    ),
    "cases.behaviour.starts.initial_values": (
        "numbers of {part} that are not zero",
        "largest lora_A, in units of 1 / sqrt(in)",
        "distinct numbers of lora_A",
        "numbers of lora_B that are zero",
        "ranks",
        "numbers of {part} that are zero",
        "embeddings off",
        "logits that differ from the base's",
        "applied weights off",
    ),
    "cases.behaviour.starts.other_starts": (
        "numbers of b that are not zero",
        "numbers of d that are not d_initial",
        "shapes of A and B",
        "numbers of {side} that differ with the same key",
        "numbers of {side} that agree with another key",
        "projections in the file, save_projection={save_projection}",
        "singular values that are not zero",
        "numbers of {part} that are zero",
        "layers that the filled adapter changes",
        "trained numbers of a convolution, r={rank}",
    ),
    "cases.behaviour.starts.prompt_starts": (
        "numbers of the prompt that differ from the text's",
        "logits off those with the text",
    ),
    "cases.behaviour.starts.start_distributions": (
        "numbers that are not zero, {title}",
        "largest number over its end, {title}",
        "largest number under its end, {title}",
    ),
}
