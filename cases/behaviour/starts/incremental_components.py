"""Principal components in batches, from which EVA starts: as of all samples at once.

https://arxiv.org/abs/2410.07170; the incremental decomposition is that of Ross et al. (2008), which is exact while no
component is dropped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.reference.tolerance import relative
from cases.space.verdict import Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context
    from cases.space.verdict import Check

GROUP = "Start values computed from data"
FEATURES = 6
BATCHES = (8, 11, 7)
SAME = 1e-5  # relative: decompositions in float32, of samples with distinct singular values


def samples() -> Any:
    """Samples with a mean, and with another spread in each direction: float32, (samples, features)."""
    import torch

    generator = torch.Generator().manual_seed(5)
    spread = torch.tensor([9.0, 6.0, 4.0, 2.5, 1.5, 1.0])
    turned = torch.linalg.qr(torch.randn(FEATURES, FEATURES, generator=generator)).Q
    mean = torch.arange(1.0, FEATURES + 1)
    return torch.randn(sum(BATCHES), FEATURES, generator=generator) * spread @ turned + mean


def by_sign(components: Any) -> Any:
    """Components whose largest entry is positive: a decomposition leaves the signs open."""
    largest = components.abs().argmax(dim=1, keepdim=True)
    return components * components.gather(1, largest).sign()


@call(GROUP, phase=Phase.ADAPT, requires=("eva",))
def incremental_components(_ctx: Context) -> Iterator[Check]:
    """After batches of any sizes, IncrementalPCA has the components, variances and mean of all samples together.

    Fewer components than features leave the first ones near.
    """
    import torch
    from peft.utils.incremental_pca import IncrementalPCA

    everything = samples()
    seen = 0
    made = IncrementalPCA(n_components=FEATURES)
    for size in BATCHES:
        batch = everything[seen : seen + size]
        seen += size
        made.partial_fit(batch.clone())
        so_far = everything[:seen].double()
        centred = so_far - so_far.mean(0)
        _, values, right = torch.linalg.svd(centred, full_matrices=False)
        title = f"after {seen} samples"
        yield equal(f"samples seen, {title}", int(made.n_samples_seen_), seen)
        yield at_most(f"mean off, {title}", relative(made.mean_, so_far.mean(0)), SAME)
        yield at_most(f"variances off, {title}", relative(made.var_, so_far.var(0, unbiased=False)), SAME)
        yield at_most(f"singular values off, {title}", relative(made.singular_values_, values), SAME)
        yield at_most(f"components off, {title}", relative(by_sign(made.components_), by_sign(right)), 100 * SAME)
        variance = values**2 / (seen - 1)
        yield at_most(f"explained variances off, {title}", relative(made.explained_variance_, variance), SAME)
        shares = values**2 / centred.square().sum()
        yield at_most(f"shares of variances off, {title}", relative(made.explained_variance_ratio_, shares), SAME)
    fewer = IncrementalPCA(n_components=2)
    for batch in everything.split(9):
        fewer.partial_fit(batch.clone())
    centred = everything.double() - everything.double().mean(0)
    _, values, right = torch.linalg.svd(centred, full_matrices=False)
    yield equal("shape of two components", str(tuple(fewer.components_.shape)), str((2, FEATURES)))
    yield at_most("two singular values off", relative(fewer.singular_values_, values[:2]), 0.1)
    angles = (by_sign(fewer.components_).double() * by_sign(right[:2])).sum(1)
    yield at_most("first component turned away", 1 - float(angles[0]), 0.05)
    whole = IncrementalPCA(n_components=FEATURES, batch_size=9)
    whole.fit(everything.clone())
    _, values, _ = torch.linalg.svd(centred, full_matrices=False)
    yield equal("samples seen by fit", int(whole.n_samples_seen_), sum(BATCHES))
    yield at_most("singular values of fit off", relative(whole.singular_values_, values), SAME)


@call(GROUP, phase=Phase.ADAPT, requires=("eva",))
def incremental_coordinates(_ctx: Context) -> Iterator[Check]:
    """IncrementalPCA.transform gives the coordinates of samples in its components, after one batch as after several.

    PEFT 0.14 to 0.21 keeps components in float32 until the second batch, and multiplies them with samples in float64.
    """
    from peft.utils.incremental_pca import IncrementalPCA

    everything = samples()
    made = IncrementalPCA(n_components=FEATURES)
    seen = 0
    for size in BATCHES:
        made.partial_fit(everything[seen : seen + size].clone())
        seen += size
        given = everything[:3]
        wanted = (given.double() - everything[:seen].double().mean(0)) @ made.components_.double().T
        yield at_most(f"coordinates off, after {seen} samples", relative(made.transform(given), wanted), SAME)


@call(GROUP, phase=Phase.ADAPT, requires=("eva",))
def incremental_components_refusals(_ctx: Context) -> Iterator[Check]:
    """IncrementalPCA refuses more components than features or samples, and batches of another width."""
    import torch
    from peft.utils.incremental_pca import IncrementalPCA

    fitted = IncrementalPCA(n_components=2)
    fitted.partial_fit(samples()[:9].clone())
    stories: dict[str, tuple[Any, str]] = {
        "more components than features": (lambda: IncrementalPCA(n_components=9).partial_fit(samples()), "n_features"),
        "more components than samples": (
            lambda: IncrementalPCA(n_components=5).partial_fit(samples()[:3]),
            "batch",
        ),
        "another width": (lambda: fitted.partial_fit(torch.ones(9, FEATURES + 1)), "features"),
    }
    for title, (action, word) in stories.items():
        try:
            action()
            said = "accepted"
        except ValueError as error:
            said = word if word in str(error) else str(error)
        yield equal(title, said, word)
