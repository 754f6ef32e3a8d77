"""MLflow: ``Watch(MLflow("digits"), val_labels)``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from vista.integrations import require_extra

with require_extra("mlflow"):
    from mlflow import MlflowClient

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class MLflow:
    """Logs to a new run of an MLflow experiment.

    Args:
        experiment: Name of the experiment; it is created if it does not exist.
        name: Name of the run; by default MLflow chooses one.
        uri: Tracking server or store; by default MLflow's own setting.

    >>> tracker = MLflow("digits", uri="sqlite:///logs.db")    # doctest: +SKIP
    """

    def __init__(self, experiment: str, *, name: str | None = None, uri: str | None = None) -> None:
        self._client = MlflowClient(tracking_uri=uri)
        existing = self._client.get_experiment_by_name(experiment)
        experiment_id = existing.experiment_id if existing else self._client.create_experiment(experiment)
        self._run = self._client.create_run(experiment_id, run_name=name).info.run_id

    def log(self, epoch: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._client.log_metric(self._run, name, value, step=epoch)

    def figure(self, name: str, figure: Figure) -> None:
        self._client.log_figure(self._run, figure, f"{name}.png")

    def close(self) -> None:
        self._client.set_terminated(self._run)
