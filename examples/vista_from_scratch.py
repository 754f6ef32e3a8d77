"""VISTA from scratch: the whole method in plain PyTorch, without vista. Digits, 40 % of the labels wrong.

python examples/vista_from_scratch.py
"""

import math

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

EPOCHS, CLASSES = 15, 10


def data():
    """Training and validation samples with symmetric noise at 40 %, and test samples with their true labels."""
    digits, random = load_digits(), np.random.default_rng(0)
    x, true = torch.from_numpy(digits.data).float() / 16, torch.from_numpy(digits.target)
    given, wrong = true.clone(), torch.from_numpy(random.permutation(1300)[: int(0.4 * 1300)])
    given[wrong] = (true[wrong] + torch.from_numpy(random.integers(1, CLASSES, len(wrong)))) % CLASSES
    return (x[:1170], given[:1170]), (x[1170:1300], given[1170:1300]), (x[1300:], true[1300:])


def marginal_coverage(covers):
    """Delta_s = |C_s minus the union of all C_j ranked before it|, from bool arrays C_s [m] given oldest first."""
    union, delta = np.bool_(False), {}
    for s in sorted(covers, key=lambda s: -int(covers[s].sum())):  # by accuracy, high to low; ties: the older first
        delta[s] = int((covers[s] & ~union).sum())
        union = union | covers[s]
    return delta


def train(model, train_set, val_set, tau, epochs=EPOCHS):
    """Train `model`; yields after each epoch t: t, the anchors' weights {s: weight}, beta_t, the targets of t + 1."""
    (x, y), (val_x, val_y) = train_set, val_set
    optimizer, shuffle = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9), torch.Generator().manual_seed(0)
    targets = labels = torch.eye(CLASSES)[y]  # one-hot; epoch 1 has no teacher
    predictions, covers = {}, {}  # p_s(x) and C_s of the kept states s
    for t in range(1, epochs + 1):
        predictions[t] = torch.empty(len(x), CLASSES, dtype=torch.float16)
        for i in torch.randperm(len(x), generator=shuffle).split(32):
            log_p = model(x[i]).log_softmax(dim=1)
            predictions[t][i] = log_p.detach().exp().half()  # p_t(x): the training pass itself, before the step
            loss = -(targets[i] * log_p).sum(dim=1).mean()  # L_t = CE(p_t(x), y~_t(x))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            covers[t] = (model(val_x).argmax(dim=1) == val_y).numpy()  # C_t: the validation samples it gets right

        # Algorithm 2 (Light VISTA) at the end of epoch t; with tau = 0 it equals Algorithm 1 (Basic VISTA).
        delta = marginal_coverage(covers)  # lines 1 and 2: order and sweep A_{t-1} and t
        anchors = [s for s in covers if delta[s] > tau * len(val_y)]  # line 3: A_t; a pruned state never returns
        predictions, covers = ({s: kept[s] for s in anchors} for kept in (predictions, covers))
        weights = {s: delta[s] / sum(delta[j] for j in anchors) for s in anchors}  # line 4
        teacher = torch.zeros_like(labels)
        for s in anchors:
            teacher.add_(predictions[s].float(), alpha=weights[s])  # line 5: Q_t(x), summed in float32
        u = (t - 1) / (epochs - 1)
        beta = math.expm1(-2 * u) / math.expm1(-2)  # (1 - e^{-2u}) / (1 - e^{-2}): rises from 0 to 1
        targets = labels  # without an anchor the next epoch trains on the labels alone
        if anchors:
            teacher /= teacher.sum(dim=1, keepdim=True)  # float16 rows sum to 1 only roughly
            targets = (1 - beta) * labels + beta * teacher  # line 6: y~_{t+1}(x)
        yield t, weights, beta, targets


def main():
    torch.manual_seed(0)
    train_set, val_set, (test_x, test_y) = data()
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, CLASSES))
    for t, weights, beta, _ in train(model, train_set, val_set, tau=0.01):
        accuracy = (model(test_x).argmax(dim=1) == test_y).float().mean()
        print(f"epoch {t:2}  test {accuracy:.3f}  beta {beta:.2f}  anchors {list(weights)}")


if __name__ == "__main__":
    main()
