"""Experiment trackers: :class:`Watch` reports each epoch of a training loop, :func:`publish` an existing run."""

from vista.integrations.trackers.watch import FIGURES, Tracker, Watch, publish, render_pixels

__all__ = ["FIGURES", "Tracker", "Watch", "publish", "render_pixels"]
