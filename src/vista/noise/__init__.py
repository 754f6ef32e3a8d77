"""Label noise: noise models, human labels and label files."""

from vista.noise.models import (
    FORMAT,
    VERSION,
    Noise,
    NoisyLabels,
    asymmetric,
    cycle_mapping,
    make,
    parse,
    symmetric,
)

__all__ = ["FORMAT", "VERSION", "Noise", "NoisyLabels", "asymmetric", "cycle_mapping", "make", "parse", "symmetric"]
