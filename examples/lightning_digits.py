"""Lightning: one callback, a training set wrapped with indexed(), and the two marked lines.

python examples/lightning_digits.py
"""

import lightning.pytorch as pl
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from vista import Vista, indexed
from vista.data.holdout import holdout
from vista.integrations.lightning import VistaCallback
from vista.noise import symmetric

EPOCHS = 15


def load_data():
    """Digits: a training set with 40 % wrong labels, and a clean test set."""
    digits = load_digits()
    x, y = torch.from_numpy(digits.data).float() / 16, digits.target
    given = symmetric(y[:1300], num_classes=10, rate=0.4, seed=0)
    return TensorDataset(x[:1300], torch.from_numpy(given)), given, x[1300:], torch.from_numpy(y[1300:])


class Digits(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, batch_idx):
        x, y, i = batch  # was: x, y = batch
        logits = self(x)
        self.log("train_acc", (logits.argmax(1) == y).float().mean(), on_step=False, on_epoch=True)
        return self.vista.loss(logits, i)  # was: F.cross_entropy(logits, y)

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.log("val_acc", (self(x).argmax(1) == y).float().mean(), prog_bar=True)

    def test_step(self, batch, batch_idx):
        x, y = batch
        self.log("test_acc", (self(x).argmax(1) == y).float().mean())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)


def main():
    pl.seed_everything(0)
    dataset, labels, test_x, test_y = load_data()
    train, val, labels, val_labels = holdout(dataset, labels, fraction=0.1, seed=0)
    vista = Vista(labels, num_classes=10, epochs=EPOCHS, val_labels=val_labels, tau=0.01)
    trainer = pl.Trainer(
        max_epochs=EPOCHS,
        callbacks=[VistaCallback(vista)],
        accelerator="auto",
        devices=1,
        logger=False,
        enable_checkpointing=False,  # checkpoints contain VISTA's state: fit(..., ckpt_path=...) resumes
        enable_progress_bar=False,
    )
    module = Digits()
    trainer.fit(module, DataLoader(indexed(train), batch_size=32, shuffle=True), DataLoader(val, batch_size=256))
    (result,) = trainer.test(module, DataLoader(TensorDataset(test_x, test_y), batch_size=256), verbose=False)
    print(f"test {result['test_acc']:.3f}, anchors {vista.state_dict()['states']}")


if __name__ == "__main__":
    main()
