"""OFT's Cayley-Neumann series with each number of terms, in float64.

https://arxiv.org/abs/2506.19847, section 4.2: the rotation (I + Q) (I - Q)^-1 is approximated by (I + Q) times the
first powers of Q. Both signs of Q are accepted here; ``oft_series`` compares the direction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.reference.tolerance import relative
from cases.space.verdict import Phase, at_least, at_most

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context
    from cases.space.verdict import Check

GROUP = "Settings of methods"
WIDTH, BLOCK, EXACT = 24, 8, 1e-12
SIZE = 0.05  # of the entries


def rotation(terms: int) -> tuple[Any, list[Any]]:
    """The matrix that a layer of ones applies with OFT, and the skew-symmetric blocks."""
    import peft
    import torch

    base = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH, bias=False)).double()
    with torch.no_grad():
        base[0].weight.copy_(torch.eye(WIDTH))
    config = peft.OFTConfig(
        target_modules=["0"], r=0, oft_block_size=BLOCK, use_cayley_neumann=True, num_cayley_neumann_terms=terms
    )
    model = peft.get_peft_model(base, config, autocast_adapter_dtype=False)
    part = next(each for name, each in model.named_parameters() if "oft_R" in name)
    with torch.no_grad():
        values = SIZE * torch.randn(part.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        part.data = values
        return model(torch.eye(WIDTH, dtype=torch.float64)), [skew(each) for each in values]


def skew(entries: Any) -> Any:
    """The skew-symmetric matrix with these entries above its diagonal."""
    import torch

    upper = torch.zeros(BLOCK, BLOCK, dtype=torch.float64)
    upper[tuple(torch.triu_indices(BLOCK, BLOCK, 1))] = entries
    return upper - upper.T


def series(blocks: list[Any], terms: int, last: int) -> Any:
    """I + 2 Q + 2 Q^2 + ... with ``terms`` powers of Q, from 0 on, and ``last`` times the highest one.

    With 1, this is (I + Q) (I + Q + Q^2 + ...). peft 0.17 has 2.
    """
    import torch

    factors = [1, *[2] * (terms - 2), last]
    return torch.block_diag(
        *(sum(f * torch.linalg.matrix_power(each, power) for power, f in enumerate(factors)) for each in blocks)
    )


def exact(blocks: list[Any]) -> Any:
    """(I + Q) (I - Q)^-1."""
    import torch

    one = torch.eye(BLOCK, dtype=torch.float64)
    return torch.block_diag(*((one + each) @ torch.linalg.inv(one - each) for each in blocks))


def furthest(found: Any, wanted: Any) -> float:
    """The distance of a matrix from another one or its transpose."""
    import torch

    change = torch.eye(WIDTH, dtype=torch.float64)
    return min(relative(found - change, each - change) for each in (wanted, wanted.T))


@call(GROUP, phase=Phase.ADAPT, requires=("skew_oft",))
def oft_terms(_ctx: Context) -> Iterator[Check]:
    """OFT with num_cayley_neumann_terms applies the series with as many powers."""
    for terms in (4, 5, 6, 7):
        found, blocks = rotation(terms)
        forms = [
            furthest(found, series([sign * each for each in blocks], terms, last))
            for sign in (1, -1)
            for last in (1, 2)
        ]
        yield at_most(f"rotation off, {terms} terms", min(forms), EXACT)


@call(GROUP, phase=Phase.ADAPT, requires=("skew_oft",))
def oft_more_terms(_ctx: Context) -> Iterator[Check]:
    """Each further term of OFT's series brings the matrix nearer to the exact rotation.

    The documentation of ``OFTConfig``: "Higher number results in more accurate approximation". In peft
    0.21, three terms give the matrix that four terms give: (I + Q) (I + Q + Q^2).
    """
    distances = []
    for terms in range(2, 8):
        found, blocks = rotation(terms)
        distances.append(min(furthest(found, exact([sign * each for each in blocks])) for sign in (1, -1)))
    for terms, (more, fewer) in enumerate(zip(distances[1:], distances, strict=False), start=3):
        yield at_least(f"distance with a term less over that with {terms} terms", fewer / more, 1.5)
