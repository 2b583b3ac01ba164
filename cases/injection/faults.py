"""All faults that ``ftmatrix selfcheck`` injects into a working stack to measure what the checks catch.

A fault is injected into a rank before its case runs. It has the effect of a realistic bug and ends with the rank.
"""

from __future__ import annotations

from cases.injection import (
    adapter_faults,
    distributed_faults,
    model_faults,
    module_faults,
    published_faults,
    training_faults,
)
from cases.injection.patching import Fault

MODULES = (distributed_faults, training_faults, adapter_faults, model_faults, module_faults, published_faults)
FAULTS: dict[str, Fault] = {
    each.name: each for module in MODULES for each in vars(module).values() if isinstance(each, Fault)
}
