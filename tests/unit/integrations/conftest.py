"""A small task and a plain PyTorch loop on it, the reference for the targets that every framework must use."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from vista import Posterior, Vista, indexed
from vista.integrations import FITTED
from vista.noise import symmetric

EPOCHS, BATCH, CLASSES, LR = 4, 32, 10, 0.5


class Traced:
    """Stores the targets that the loss used, by epoch and sample."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.seen: dict[tuple[int, int], Tensor] = {}

    def loss(self, logits, index, **kwargs):
        for i, target in zip(index.tolist(), self.targets(index), strict=True):
            self.seen[self.epoch + 1, i] = target.clone()
        return super().loss(logits, index, **kwargs)


class TracedVista(Traced, Vista):
    pass


class TracedPosterior(Traced, Posterior):
    pass


@dataclass
class Task:
    x: Tensor
    labels: Tensor
    val_x: Tensor
    val_labels: Tensor

    def model(self) -> nn.Module:
        generator = torch.Generator().manual_seed(7)
        model = nn.Sequential(nn.Linear(64, 24), nn.ReLU(), nn.Linear(24, CLASSES))
        with torch.no_grad():
            for p in model.parameters():
                p.copy_(torch.empty_like(p).uniform_(-0.3, 0.3, generator=generator))
        return model

    def vista(self, kind: type[Vista] = TracedVista, **options) -> Any:
        return kind(self.labels, num_classes=CLASSES, epochs=EPOCHS, val_labels=self.val_labels, **options)

    def posterior(self, **options) -> TracedPosterior:
        return self.vista(TracedPosterior, **options)

    def train_set(self):
        return indexed(TensorDataset(self.x, self.labels))

    def val_set(self):
        return TensorDataset(self.val_x, self.val_labels)

    def train_loader(self, **options) -> DataLoader:
        return DataLoader(self.train_set(), batch_size=BATCH, **options)

    def plain(self, vista: Vista | None = None) -> tuple[Any, nn.Module]:
        """Train with the plain loop."""
        vista, model = vista or self.vista(), self.model()
        optimizer = torch.optim.SGD(model.parameters(), lr=LR)
        for _ in vista.epochs():
            for x, _, i in self.train_loader():
                loss = vista.loss(model(x), i)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            with torch.no_grad():
                vista.end_epoch(model(self.val_x))
        return vista, model


def make_task() -> Task:
    digits = load_digits()
    x = torch.from_numpy(digits.data).float()[:400] / 16
    given = torch.from_numpy(symmetric(digits.target[:400], CLASSES, 0.3, 0))
    return Task(x[:300], given[:300], x[300:], given[300:])


@pytest.fixture(scope="session")
def task() -> Task:
    return make_task()


@pytest.fixture(scope="session")
def plain(task) -> TracedVista:
    """The Vista of a completed plain loop."""
    return task.plain()[0]


@pytest.fixture(scope="session")
def posterior(task) -> TracedPosterior:
    """The Posterior of a completed plain loop."""
    return task.plain(task.posterior())[0]


@pytest.fixture(params=["vista", "posterior"])
def targets(request, task):
    """A function that makes a ``Vista`` or a ``Posterior``, and the one of a completed plain loop."""
    completed = {"vista": "plain", "posterior": "posterior"}[request.param]
    return getattr(task, request.param), request.getfixturevalue(completed)


@pytest.fixture(scope="session")
def assert_same():
    """Check for the same targets in every traced epoch, and the same anchors at the end."""

    def check(vista, plain, epochs=range(1, EPOCHS + 1)):
        expected = {key: target for key, target in plain.seen.items() if key[0] in epochs}
        assert vista.seen.keys() == expected.keys()
        for key, target in expected.items():
            assert torch.equal(vista.seen[key], target), f"epoch {key[0]}, sample {key[1]}"
        assert vista.state_dict()["states"] == plain.state_dict()["states"]
        assert vista.state_dict()["counts"] == plain.state_dict()["counts"]
        assert torch.equal(vista.teacher(), plain.teacher())
        if isinstance(plain, Posterior):
            assert torch.equal(vista.posterior(), plain.posterior())
            assert [vista.state_dict()[name] for name in FITTED] == [plain.state_dict()[name] for name in FITTED]

    return check
