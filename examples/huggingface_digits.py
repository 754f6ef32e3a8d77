"""The Hugging Face Trainer: a small ResNet on the digits; any classification model from the hub works.

python examples/huggingface_digits.py
"""

import tempfile

import torch
from sklearn.datasets import load_digits
from torch.utils.data import Dataset
from transformers import ResNetConfig, ResNetForImageClassification, TrainingArguments

from vista import Vista, indexed
from vista.data.holdout import holdout
from vista.integrations.huggingface import VistaTrainer
from vista.noise import symmetric

EPOCHS = 10


class Images(Dataset):
    """Items in the form that the Trainer expects."""

    def __init__(self, x, labels):
        self.x, self.labels = x.unsqueeze(1), labels

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return {"pixel_values": self.x[i], "labels": int(self.labels[i])}


def load_data():
    """A training set with 40 % wrong labels, those labels, and a clean test set."""
    digits = load_digits()
    x, y = torch.from_numpy(digits.images).float() / 16, digits.target
    given = symmetric(y[:1300], num_classes=10, rate=0.4, seed=0)
    return Images(x[:1300], given), given, Images(x[1300:], y[1300:])


def accuracy(prediction):
    return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}


def main():
    dataset, labels, test = load_data()
    train, val, labels, val_labels = holdout(dataset, labels, fraction=0.1, seed=0)
    sizes = {"embedding_size": 16, "hidden_sizes": [32, 64], "depths": [1, 1], "layer_type": "basic"}
    config = ResNetConfig(num_channels=1, num_labels=10, **sizes)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            num_train_epochs=EPOCHS,
            per_device_train_batch_size=32,
            learning_rate=2e-3,
            save_strategy="epoch",  # train(resume_from_checkpoint=True) restores VISTA's state too
            dataloader_pin_memory=torch.cuda.is_available(),
            report_to=[],
            disable_tqdm=True,
            seed=0,
        )
        trainer = VistaTrainer(
            vista=Vista(labels, num_classes=10, epochs=EPOCHS, val_labels=val_labels, tau=0.01),
            model=ResNetForImageClassification(config),
            args=arguments,
            train_dataset=indexed(train),
            eval_dataset=val,
            compute_metrics=accuracy,
        )
        trainer.train()
        result = trainer.predict(test).metrics
    print(f"test {result['test_accuracy']:.3f}, anchors {sorted(trainer.summary.anchors)}")


if __name__ == "__main__":
    main()
