"""Analysis of training records: pure functions, no models, no training."""

from vista.analysis.groups import Group, grouped, read_runs
from vista.analysis.recorder import TrajectoryRecorder
from vista.analysis.runs import Run, read_run
from vista.analysis.suspects import Suspects, suspect_labels

__all__ = ["Group", "Run", "Suspects", "TrajectoryRecorder", "grouped", "read_run", "read_runs", "suspect_labels"]
