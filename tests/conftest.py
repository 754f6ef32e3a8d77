"""What all tests share: one thread, so that bits do not depend on the machine, and no deadline for examples."""

from __future__ import annotations

import torch
from hypothesis import HealthCheck, settings

settings.register_profile("vista", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("vista")
torch.set_num_threads(1)
