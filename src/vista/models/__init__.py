"""Networks by name: one file per family with a table ``NETWORKS``; `build.py` finds and builds them."""

from vista.models.backbone import Backbone, is_backbone
from vista.models.build import (
    SQUARE_ONLY,
    available,
    build,
    count_parameters,
    head_of,
    is_custom_network,
    is_third_party,
    load_pretrained,
    names,
    read_backbone,
    seed_context,
)
from vista.models.dropout import set_generator
from vista.models.huggingface import HuggingFaceNetwork
from vista.models.staged import Network, Staged

__all__ = [
    "SQUARE_ONLY", "Backbone", "HuggingFaceNetwork", "Network", "Staged", "available", "build", "count_parameters",
    "head_of", "is_backbone", "is_custom_network", "is_third_party", "load_pretrained", "names", "read_backbone",
    "seed_context", "set_generator",
]  # fmt: skip
