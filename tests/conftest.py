"""Settings of all tests: one thread, so that results do not depend on the machine, and no deadline for examples.

Examples are the same every time: what is judged is the change, not the draw. To look for one that fails among others:
``pytest --hypothesis-profile=search``.
"""

from __future__ import annotations

import torch
from hypothesis import HealthCheck, settings

settings.register_profile("search", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("vista", settings.get_profile("search"), derandomize=True)
settings.load_profile("vista")
torch.set_num_threads(1)
