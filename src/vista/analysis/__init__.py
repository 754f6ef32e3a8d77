"""Analysis of training records: pure functions, no models, no training."""

from vista.analysis.groups import Group, group_runs, read_runs
from vista.analysis.recorder import TrajectoryRecorder
from vista.analysis.runs import Run, read_run
from vista.analysis.suspects import LabelIssues, find_label_issues

__all__ = [
    "Group",
    "LabelIssues",
    "Run",
    "TrajectoryRecorder",
    "find_label_issues",
    "group_runs",
    "read_run",
    "read_runs",
]
