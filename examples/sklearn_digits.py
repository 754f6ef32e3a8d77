"""scikit-learn: VISTA as the last step of a Pipeline, with tau chosen by GridSearchCV.

python examples/sklearn_digits.py
"""

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler
from torch import nn
from torch.utils.data import TensorDataset

from vista.integrations.skorch import VistaClassifier
from vista.noise import symmetric


def load_data():
    """Digits: a training set with 40 % wrong labels, and a clean test set."""
    digits = load_digits()
    x, y = torch.from_numpy(digits.data).float() / 16, digits.target
    given = symmetric(y[:1300], num_classes=10, rate=0.4, seed=0)
    return TensorDataset(x[:1300], torch.from_numpy(given)), given, x[1300:], torch.from_numpy(y[1300:])


class Perceptron(nn.Sequential):
    def __init__(self, width=64):
        super().__init__(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))


def main():
    torch.manual_seed(0)
    dataset, given, test_x, test_y = load_data()
    names = np.array(["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"])
    classifier = VistaClassifier(
        Perceptron,
        epochs=10,
        validation_fraction=0.1,
        lr=0.1,
        optimizer__momentum=0.9,
        batch_size=32,
        iterator_train__shuffle=True,
        verbose=0,
    )
    search = GridSearchCV(
        make_pipeline(MinMaxScaler(), classifier),
        {"vistaclassifier__tau": [0.0, 0.02], "vistaclassifier__module__width": [64, 128]},
        cv=2,
    )
    search.fit(dataset.tensors[0].numpy(), names[given])
    print("chosen by cross-validation on the given labels:", search.best_params_)
    print(f"test {search.score(test_x.numpy(), names[test_y.numpy()]):.3f}")


if __name__ == "__main__":
    main()
