"""scikit-learn by way of skorch: the loss sees what it sees in the plain loop, and it is a classifier like others."""

import pickle
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

pytest.importorskip("skorch", reason="needs vista-distill[skorch]")
from skorch.callbacks import Callback, Checkpoint, EpochScoring, LoadInitState, TrainEndCheckpoint
from torch import nn
from torch.utils.data import RandomSampler

from vista.integrations.skorch import VistaClassifier

EPOCHS = 4


class Net(nn.Sequential):
    """As the task's model, to be made by skorch."""

    def __init__(self, width=24):
        super().__init__(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))
        generator = torch.Generator().manual_seed(7)
        with torch.no_grad():
            for p in self.parameters():
                p.copy_(torch.empty_like(p).uniform_(-0.3, 0.3, generator=generator))


class Trace(Callback):
    """Notes the targets of every batch before its step."""

    def on_train_begin(self, net, **kwargs):
        self.seen = {}

    def on_batch_begin(self, net, batch=None, training=False, **kwargs):
        if training:
            assert batch[1].dtype == torch.int64
            for i, target in zip(net.index_.tolist(), net.vista_.targets(net.index_), strict=True):
                self.seen[net.vista_.epoch + 1, i] = target.clone()


def classifier(**options):
    settings = {"epochs": EPOCHS, "lr": 0.5, "batch_size": 32, "verbose": 0, "train_split": None}
    return VistaClassifier(Net, **{**settings, **options})


def arrays(task):
    return task.x.numpy(), task.labels.numpy(), task.val_x.numpy(), task.val_labels.numpy()


def begun(task, **options):
    """A net with two of its four epochs behind it."""
    net = classifier(**options)
    x, y, *net.validation_ = arrays(task)
    net.initialize().notify("on_train_begin", X=x, y=y)
    return net.fit_loop(x, y, epochs=2)


def check(net, trace, plain, epochs):
    expected = {key: target for key, target in plain.seen.items() if key[0] in epochs}
    assert trace.seen.keys() == expected.keys()
    assert all(torch.equal(trace.seen[key], target) for key, target in expected.items())
    assert net.vista_.state_dict()["states"] == plain.state_dict()["states"]
    assert torch.equal(net.vista_.teacher(), plain.teacher())


def test_loss_sees_the_targets_of_the_plain_loop_and_scores_see_hard_labels(task, plain):
    trace = Trace()
    scores = EpochScoring("accuracy", on_train=True, name="train_acc")
    net = classifier(callbacks=[trace, scores]).fit(*arrays(task))
    check(net, trace, plain, range(1, EPOCHS + 1))
    right = net.predict(task.val_x.numpy()) == task.val_labels.numpy()
    assert net.history[-1, "valid_acc"] == pytest.approx(right.mean())
    assert 0 < net.history[-1, "train_acc"] < 1


def test_resume_from_a_pickled_checkpoint(task, plain, tmp_path):
    saver = Checkpoint(monitor=None, f_params=None, f_optimizer=None, f_criterion=None, f_history=None,
                       f_pickle=str(tmp_path / "net.pkl"))  # fmt: skip
    begun(task, callbacks=[Trace(), saver])
    x, y, *_ = arrays(task)
    again = pickle.loads((tmp_path / "net.pkl").read_bytes())  # noqa: S301
    again.partial_fit(x, y)
    check(again, dict(again.callbacks_)["Trace"], plain, (3, 4))


def files(path, *names):
    return {f"f_{name}": str(path / name) for name in names}


def test_resume_from_saved_parameters(task, plain, tmp_path):
    saved = files(tmp_path, "params", "optimizer", "history", "vista")
    begun(task).save_params(**saved)
    again = classifier(callbacks=[Trace()]).initialize()
    again.load_params(**saved)
    x, y, x_val, y_val = arrays(task)
    again.partial_fit(x, y, X_val=x_val, y_val=y_val)
    check(again, dict(again.callbacks_)["Trace"], plain, (3, 4))
    assert len(again.history) == EPOCHS


def test_a_second_run_of_a_script_goes_on_from_its_checkpoint(task, plain, tmp_path):
    """The second ``fit`` loads what the first one left when it ended."""
    for epochs in (2, None):
        saver = TrainEndCheckpoint(dirname=str(tmp_path), f_vista="vista.pt")
        net = classifier(callbacks=[Trace(), saver, LoadInitState(saver)])
        net.fit(*arrays(task), epochs=epochs)
    check(net, dict(net.callbacks_)["Trace"], plain, (3, 4))


@pytest.mark.parametrize("fit", ["fit", "partial_fit"])
def test_a_history_without_vistas_state_is_refused(task, tmp_path, fit):
    saver = Checkpoint(monitor=None, dirname=str(tmp_path))
    begun(task, callbacks=[saver])
    net = classifier(callbacks=[LoadInitState(Checkpoint(dirname=str(tmp_path)))])
    with pytest.raises(ValueError, match=r"^the history has 2 epochs of which the net has no VISTA state: .*f_vista"):
        getattr(net, fit)(*arrays(task)[:2])
    assert net.vista_ is None
    assert len(net.history) == 2


def test_weights_alone_and_a_warm_start_begin_a_new_training(task, tmp_path):
    saved = files(tmp_path, "params", "optimizer")
    begun(task).save_params(**saved)
    net = classifier(epochs=2, warm_start=True).initialize()
    net.load_params(**saved)
    assert net.partial_fit(*arrays(task)[:2]).vista_.epoch == 2
    assert net.fit(*arrays(task)).vista_.epoch == 2
    assert len(net.history) == 4


def test_a_net_that_has_had_all_its_epochs_says_that_nothing_is_trained(task):
    x, y, *_ = arrays(task)
    net = classifier().fit(*arrays(task))
    weights = net.module_[0].weight.clone()
    with pytest.warns(UserWarning, match="^all 4 epochs that VISTA plans with have ended, so nothing is trained"):
        net.partial_fit(x, y)
    with pytest.raises(ValueError, match=r"^epochs is 2, but 4 of the 4 that VISTA plans with have ended"):
        net.partial_fit(x, y, epochs=2)
    assert len(net.history) == EPOCHS
    assert torch.equal(net.module_[0].weight, weights)


def test_predictions_of_loaded_parameters_need_the_classes(task, tmp_path):
    x, y, *_ = arrays(task)
    names = np.array([f"digit {label}" for label in range(10)])
    fitted = classifier(epochs=2).fit(x, names[y])
    fitted.save_params(**files(tmp_path, "params"))
    for classes, ends in ((None, pytest.raises(AttributeError, match=r"give it classes=")), (names, nullcontext())):
        net = classifier(classes=classes).initialize()
        net.load_params(**files(tmp_path, "params"))
        with ends:
            assert net.predict(x).tolist() == fitted.predict(x).tolist()


def test_it_is_a_scikit_learn_classifier(task):
    x, y, *_ = arrays(task)
    names = np.array([f"digit {label}" for label in range(10)])
    search = GridSearchCV(
        make_pipeline(StandardScaler(), classifier(epochs=2, validation_fraction=0.2)),
        {"vistaclassifier__tau": [0.0, 0.05], "vistaclassifier__epochs": [2, 3]},
        cv=2,
        error_score="raise",
    )
    search.fit(x.astype(np.float32), names[y])
    assert set(search.predict(x)) <= set(names)
    probs = search.predict_proba(x)
    assert probs.shape == (len(x), 10)
    np.testing.assert_allclose(probs.sum(axis=1), 1, atol=1e-5)
    best = search.best_estimator_[-1]
    assert best.vista_.num_epochs == search.best_params_["vistaclassifier__epochs"]
    assert list(best.classes_) == list(names)


def test_parameters_are_cloned_and_reach_vista(task):
    net = classifier(tau=0.02, validation_fraction=0.25, vista__schedule="linear")
    copy = clone(net)
    own = [name for name in net.get_params() if not name.startswith("callbacks")]
    assert {name: copy.get_params()[name] for name in own} == {name: net.get_params()[name] for name in own}
    assert {"epochs", "tau", "validation_fraction", "vista__schedule"} <= set(own)
    copy.set_params(epochs=2, vista__schedule="cosine")
    x, y, *_ = arrays(task)
    copy.fit(x, y)
    identity = copy.vista_.state_dict()["identity"]
    assert (identity["schedule"], identity["tau"], identity["epochs"]) == ("cosine", 0.02, 2)
    assert identity["validation_samples"] == 75


def test_parameters_of_a_fitted_net_are_those_of_its_next_fit(task):
    net = classifier().fit(*arrays(task))
    assert net.set_params(vista__schedule="linear", iterator_train__shuffle=True, tau=0.02) is net
    assert net.get_params()["vista__schedule"] == "linear"
    first = net.vista_
    net.fit(*arrays(task))
    identity = net.vista_.state_dict()["identity"]
    assert (identity["schedule"], identity["tau"]) == ("linear", 0.02)
    assert net.vista_ is not first
    assert net.get_iterator(net.get_dataset(*arrays(task)[:2]), training=True).loader.sampler.__class__ is RandomSampler


@pytest.mark.parametrize("fitted", [False, True], ids=["new", "fitted"])
@pytest.mark.parametrize("name", ["vista__shedule", "vista__tau", "vista_schedule", "tauu"])
def test_a_parameter_that_is_not_there_is_refused_by_name_and_not_kept(task, fitted, name):
    net = classifier(epochs=2)
    if fitted:
        net.fit(*arrays(task))
    before = net.get_params(deep=False)
    said = f"{name} is no parameter.* tau and, for Vista, .*vista__schedule" if "vista" in name else "Invalid parameter"
    with pytest.raises(ValueError, match=said):
        net.set_params(**{name: 0.1})
    assert net.get_params(deep=False) == before
    net.fit(*arrays(task))


def test_a_misspelt_parameter_of_the_constructor_is_refused_by_fit(task):
    with pytest.raises(ValueError, match=r"vista__shedule is no parameter.*vista__schedule"):
        classifier(vista__shedule="linear").fit(*arrays(task))
    with pytest.raises(ValueError, match="moduel__width"):
        classifier(moduel__width=8).fit(*arrays(task))


def test_going_on_with_other_options_or_labels_is_refused(task):
    x, y, *_ = arrays(task)
    net = begun(task)
    with pytest.raises(ValueError, match=r"made with tau=0\.0, but this Vista has tau=0\.1"):
        net.set_params(tau=0.1).partial_fit(x, y)
    with pytest.raises(ValueError, match="made with labels="):
        net.set_params(tau=0.0).partial_fit(x, y[::-1].copy())
    assert net.vista_.epoch == 2
    assert net.partial_fit(x, y).vista_.epoch == EPOCHS


@pytest.mark.filterwarnings("ignore:You set iterator_valid__shuffle")
def test_validation_in_another_order_is_refused(task):
    with pytest.raises(ValueError, match="RandomSampler, but its samples must come in order"):
        classifier(iterator_valid__shuffle=True).fit(*arrays(task))


@pytest.mark.parametrize(("batch", "dropped"), [(256, 100), (64, 36)])
def test_validation_samples_that_would_be_dropped_are_refused_before_training(task, batch, dropped):
    net = classifier(iterator_valid__drop_last=True, batch_size=batch)
    message = f"^iterator_valid__drop_last is True, which drops {dropped} of the 100 validation samples"
    with pytest.raises(ValueError, match=message):
        net.fit(*arrays(task))
    assert len(net.history) == 0
    assert net.set_params(batch_size=50).fit(*arrays(task)).vista_.epoch == EPOCHS


@pytest.mark.parametrize("kind", [float, object])
@pytest.mark.parametrize(("missing", "called"), [(np.nan, "NaN"), (None, "None|NaN")])
def test_missing_labels_are_refused(task, kind, missing, called):
    x, y, x_val, y_val = arrays(task)
    gaps, val_gaps = y.astype(kind), y_val.astype(kind)
    gaps[3] = val_gaps[7] = missing
    for fit in (classifier().fit, classifier().partial_fit):
        with pytest.raises(
            ValueError, match=rf"^y contains ({called}), first at y\[3\], but every sample needs a label"
        ):
            fit(x, gaps)
    with pytest.raises(ValueError, match=rf"^y_val contains ({called}), first at y_val\[7\]"):
        classifier().fit(x, y, x_val, val_gaps)


def test_an_unknown_validation_label_is_refused(task):
    x, y, x_val, _ = arrays(task)
    with pytest.raises(ValueError, match="unseen labels"):
        classifier().fit(x, y, x_val, np.full(len(x_val), 99))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"max_epochs": 5}, "max_epochs is 5, but it is called epochs here"),
        ({"train_split": lambda *_: None}, "train_split is .*, but VISTA must know the labels it validates on"),
    ],
)
def test_what_would_not_be_heeded_is_refused(given, message):
    with pytest.raises(ValueError, match=message):
        VistaClassifier(Net, **given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"criterion": nn.NLLLoss}, "criterion is NLLLoss, but VISTA .* of logits: use CrossEntropyLoss"),
        ({"criterion": nn.NLLLoss()}, "criterion is NLLLoss"),
        ({"criterion__label_smoothing": 0.5}, r"criterion__label_smoothing is 0\.5, but VISTA heeds criterion__weight"),
        ({"criterion": nn.CrossEntropyLoss(label_smoothing=0.5)}, "criterion__label_smoothing is 0"),
        ({"criterion__ignore_index": 3}, "criterion__ignore_index is 3"),
        ({"criterion__reduction": "sum"}, "criterion__reduction is 'sum'"),
    ],
)
def test_a_criterion_that_would_not_be_heeded_is_refused(task, given, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        classifier(**given).fit(*arrays(task))


def test_a_criterion_that_would_not_be_heeded_is_refused_by_the_next_fit_of_a_fitted_net(task):
    net = classifier(epochs=2).fit(*arrays(task)).set_params(criterion__label_smoothing=0.5)
    for fit in (net.fit, net.partial_fit):
        with pytest.raises(ValueError, match=r"^criterion__label_smoothing is 0\.5"):
            fit(*arrays(task)[:2])


def test_a_criterion_at_its_defaults_changes_nothing(task):
    plain = classifier(epochs=2).fit(*arrays(task))
    for given in ({"criterion": nn.CrossEntropyLoss()}, {"criterion__label_smoothing": 0.0}):
        same = classifier(epochs=2, **given).fit(*arrays(task))
        pairs = zip(plain.module_.parameters(), same.module_.parameters(), strict=True)
        assert all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("names", [np.arange(10), np.array([f"digit {label}" for label in range(10)])])
def test_labels_may_be_a_list(task, names):
    x, y, val_x, val_y = arrays(task)
    net = classifier(epochs=2).fit(x, list(names[y]), val_x, list(names[val_y]))
    assert net.classes_.tolist() == names.tolist()
    assert torch.equal(net.vista_.teacher(), classifier(epochs=2).fit(x, y, val_x, val_y).vista_.teacher())
    assert set(net.predict(val_x)) <= set(names)
    assert classifier(epochs=2).partial_fit(x, list(names[y])).vista_.epoch == 2


def test_a_fit_without_labels_is_refused(task):
    x, y, val_x, _ = arrays(task)
    for arguments, name in (((x, None), "y"), ((x, y, val_x), "X_val or y_val")):
        with pytest.raises(ValueError, match=f"{name} is None"):
            classifier().fit(*arguments)


def test_the_weights_of_classes_reach_the_loss(task):
    x, y, *validation = arrays(task)
    plain = classifier(epochs=2).fit(x, y, *validation)
    weighted = classifier(epochs=2, criterion__weight=torch.linspace(0.1, 2, 10)).fit(x, y, *validation)
    pairs = zip(plain.module_.parameters(), weighted.module_.parameters(), strict=True)
    assert any(not torch.equal(a, b) for a, b in pairs)
