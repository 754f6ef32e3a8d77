"""Networks by name: one file per family with a table ``NETWORKS``; `build.py` finds and builds them."""

from vista.models.build import (
    SQUARE_ONLY,
    available,
    build,
    count_parameters,
    head_of,
    is_custom_network,
    names,
    seeded,
)
from vista.models.dropout import set_generator
from vista.models.staged import Network, Staged

__all__ = [
    "SQUARE_ONLY", "Network", "Staged", "available", "build", "count_parameters", "head_of", "is_custom_network",
    "names", "seeded", "set_generator",
]  # fmt: skip
