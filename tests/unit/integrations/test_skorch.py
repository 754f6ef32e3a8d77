"""VistaClassifier uses the targets of the plain loop and is a scikit-learn classifier."""

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

from vista import Posterior, Vista
from vista.integrations.skorch import VistaClassifier

EPOCHS = 4


class Net(nn.Sequential):
    """The task's model, as a class for skorch."""

    def __init__(self, width=24):
        super().__init__(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))
        generator = torch.Generator().manual_seed(7)
        with torch.no_grad():
            for p in self.parameters():
                p.copy_(torch.empty_like(p).uniform_(-0.3, 0.3, generator=generator))


class Trace(Callback):
    """Stores the targets of every batch before its step."""

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


def half_trained(task, **options):
    """A net after two of its four epochs."""
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
    rows = torch.arange(300)
    assert torch.equal(net.vista_.targets(rows), plain.targets(rows))


def test_loss_uses_the_targets_of_the_plain_loop_and_scores_use_hard_labels(task, plain):
    trace = Trace()
    scores = EpochScoring("accuracy", on_train=True, name="train_acc")
    net = classifier(callbacks=[trace, scores]).fit(*arrays(task))
    check(net, trace, plain, range(1, EPOCHS + 1))
    right = net.predict(task.val_x.numpy()) == task.val_labels.numpy()
    assert net.history[-1, "valid_acc"] == pytest.approx(right.mean())
    assert 0 < net.history[-1, "train_acc"] < 1


def test_posterior_targets_are_those_of_the_plain_loop(task, posterior):
    net = classifier(vista=Posterior, callbacks=[Trace()]).fit(*arrays(task))
    check(net, dict(net.callbacks_)["Trace"], posterior, range(1, EPOCHS + 1))
    state = posterior.state_dict()
    for name in ("temperature", "noise_rate"):
        assert net.history[-1, name] == state[name]
    assert net.vista_.tau == 0.01, "the default of Posterior"
    assert classifier(epochs=2).fit(*arrays(task)).vista_.tau == 0.0


def test_posterior_targets_resume(task, posterior, tmp_path):
    x, y, x_val, y_val = arrays(task)
    half = half_trained(task, vista=Posterior, callbacks=[Trace()])
    unpickled = pickle.loads(pickle.dumps(half))  # noqa: S301
    saved = files(tmp_path, "params", "optimizer", "history", "vista")
    half.save_params(**saved)
    loaded = classifier(vista=Posterior, callbacks=[Trace()]).initialize()
    loaded.load_params(**saved)
    with pytest.raises(ValueError, match="made with targets='posterior', but this Vista has targets=None"):
        half.set_params(vista=Vista, tau=0.01).partial_fit(x, y)
    for net in (unpickled.partial_fit(x, y), loaded.partial_fit(x, y, X_val=x_val, y_val=y_val)):
        check(net, dict(net.callbacks_)["Trace"], posterior, (3, 4))


def test_options_are_those_of_the_chosen_class(task):
    net = classifier(vista=Posterior, tau=0.02, vista__noise_model="structured", vista__ramp=0.5)
    copy = clone(net)
    assert copy.get_params()["vista"] is Posterior
    identity = copy.fit(*arrays(task)).vista_.state_dict()["identity"]
    assert [identity[name] for name in ("targets", "tau", "noise_model", "ramp")] == [
        "posterior", 0.02, "structured", 0.5,
    ]  # fmt: skip
    with pytest.raises(ValueError, match=r"^vista__ramp is not a parameter with vista=Vista; .*vista__schedule"):
        classifier(vista__ramp=0.5).fit(*arrays(task))
    with pytest.raises(ValueError, match=r"^vista__schedule is not a parameter with vista=Posterior; .*vista__ramp"):
        copy.set_params(vista__schedule="linear")
    assert copy.set_params(vista__ramp=0.1).fit(*arrays(task)).vista_.state_dict()["identity"]["ramp"] == 0.1
    changed = classifier(epochs=2).fit(*arrays(task)).set_params(vista=Posterior, vista__ramp=0.1)
    assert isinstance(changed.fit(*arrays(task)).vista_, Posterior)


@pytest.mark.parametrize("given", ["posterior", None, nn.Linear])
def test_another_class_than_vistas_is_rejected(task, given):
    with pytest.raises(ValueError, match=r"^vista must be the class Vista or Posterior, with its options as vista__"):
        classifier(vista=given).fit(*arrays(task))
    net = classifier()
    with pytest.raises(ValueError, match=r"^vista must be the class Vista or Posterior, .*, got "):
        net.set_params(vista=given)
    assert net.vista is Vista


def test_a_search_may_compare_the_targets(task):
    x, y, *_ = arrays(task)
    search = GridSearchCV(classifier(epochs=2), {"vista": [Vista, Posterior]}, cv=2, error_score="raise").fit(x, y)
    assert type(search.best_estimator_.vista_) is search.best_params_["vista"]


def test_resume_from_a_pickled_checkpoint(task, plain, tmp_path):
    saver = Checkpoint(monitor=None, f_params=None, f_optimizer=None, f_criterion=None, f_history=None,
                       f_pickle=str(tmp_path / "net.pkl"))  # fmt: skip
    half_trained(task, callbacks=[Trace(), saver])
    x, y, *_ = arrays(task)
    again = pickle.loads((tmp_path / "net.pkl").read_bytes())  # noqa: S301
    again.partial_fit(x, y)
    check(again, dict(again.callbacks_)["Trace"], plain, (3, 4))


def files(path, *names):
    return {f"f_{name}": str(path / name) for name in names}


def test_resume_from_saved_parameters(task, plain, tmp_path):
    saved = files(tmp_path, "params", "optimizer", "history", "vista")
    half_trained(task).save_params(**saved)
    again = classifier(callbacks=[Trace()]).initialize()
    again.load_params(**saved)
    x, y, x_val, y_val = arrays(task)
    again.partial_fit(x, y, X_val=x_val, y_val=y_val)
    check(again, dict(again.callbacks_)["Trace"], plain, (3, 4))
    assert len(again.history) == EPOCHS


def test_a_second_run_of_a_script_resumes_from_its_checkpoint(task, plain, tmp_path):
    """The second ``fit`` loads what the first one saved at its end."""
    for epochs in (2, None):
        saver = TrainEndCheckpoint(dirname=str(tmp_path), f_vista="vista.pt")
        net = classifier(callbacks=[Trace(), saver, LoadInitState(saver)])
        net.fit(*arrays(task), epochs=epochs)
    check(net, dict(net.callbacks_)["Trace"], plain, (3, 4))


@pytest.mark.parametrize("fit", ["fit", "partial_fit"])
def test_a_history_without_vistas_state_is_rejected(task, tmp_path, fit):
    saver = Checkpoint(monitor=None, dirname=str(tmp_path))
    half_trained(task, callbacks=[saver])
    net = classifier(callbacks=[LoadInitState(Checkpoint(dirname=str(tmp_path)))])
    with pytest.raises(ValueError, match=r"^the history has 2 epochs, but the net has no VISTA state .*f_vista"):
        getattr(net, fit)(*arrays(task)[:2])
    assert net.vista_ is None
    assert len(net.history) == 2


def test_loaded_weights_and_a_warm_start_begin_a_new_training(task, tmp_path):
    saved = files(tmp_path, "params", "optimizer")
    half_trained(task).save_params(**saved)
    net = classifier(epochs=2, warm_start=True).initialize()
    net.load_params(**saved)
    assert net.partial_fit(*arrays(task)[:2]).vista_.epoch == 2
    assert net.fit(*arrays(task)).vista_.epoch == 2
    assert len(net.history) == 4


def test_partial_fit_after_the_last_epoch_warns_and_trains_nothing(task):
    x, y, *_ = arrays(task)
    net = classifier().fit(*arrays(task))
    weights = net.module_[0].weight.clone()
    with pytest.warns(UserWarning, match="^all 4 epochs are done, so partial_fit trains nothing"):
        net.partial_fit(x, y)
    with pytest.raises(ValueError, match=r"^epochs must be at most 0, since 4 of 4 are done, got 2"):
        net.partial_fit(x, y, epochs=2)
    assert len(net.history) == EPOCHS
    assert torch.equal(net.module_[0].weight, weights)


def test_predictions_of_loaded_parameters_need_the_classes(task, tmp_path):
    x, y, *_ = arrays(task)
    names = np.array([f"digit {label}" for label in range(10)])
    fitted = classifier(epochs=2).fit(x, names[y])
    fitted.save_params(**files(tmp_path, "params"))
    for classes, ends in ((None, pytest.raises(AttributeError, match="pass classes=")), (names, nullcontext())):
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


def test_set_params_on_a_fitted_net_applies_to_its_next_fit(task):
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
def test_unknown_parameters_are_rejected_by_name_and_not_stored(task, fitted, name):
    net = classifier(epochs=2)
    if fitted:
        net.fit(*arrays(task))
    before = net.get_params(deep=False)
    message = f"{name} is not a parameter.* tau and .*vista__schedule" if "vista" in name else "Invalid parameter"
    with pytest.raises(ValueError, match=message):
        net.set_params(**{name: 0.1})
    assert net.get_params(deep=False) == before
    net.fit(*arrays(task))


def test_misspelt_constructor_parameters_are_rejected_by_fit(task):
    with pytest.raises(ValueError, match=r"vista__shedule is not a parameter.*vista__schedule"):
        classifier(vista__shedule="linear").fit(*arrays(task))
    with pytest.raises(ValueError, match="moduel__width"):
        classifier(moduel__width=8).fit(*arrays(task))


def test_resuming_with_other_options_or_labels_is_rejected(task):
    x, y, *_ = arrays(task)
    net = half_trained(task)
    with pytest.raises(ValueError, match=r"made with tau=0\.0, but this Vista has tau=0\.1"):
        net.set_params(tau=0.1).partial_fit(x, y)
    with pytest.raises(ValueError, match="made with labels="):
        net.set_params(tau=0.0).partial_fit(x, y[::-1].copy())
    assert net.vista_.epoch == 2
    assert net.partial_fit(x, y).vista_.epoch == EPOCHS


@pytest.mark.filterwarnings("ignore:You set iterator_valid__shuffle")
def test_shuffled_validation_is_rejected(task):
    with pytest.raises(ValueError, match="in order and in batches, got RandomSampler"):
        classifier(iterator_valid__shuffle=True).fit(*arrays(task))


@pytest.mark.parametrize(("batch", "dropped"), [(256, 100), (64, 36)])
def test_dropped_validation_samples_are_rejected_before_training(task, batch, dropped):
    net = classifier(iterator_valid__drop_last=True, batch_size=batch)
    message = f"^iterator_valid__drop_last=True drops {dropped} of the 100 validation samples"
    with pytest.raises(ValueError, match=message):
        net.fit(*arrays(task))
    assert len(net.history) == 0
    assert net.set_params(batch_size=50).fit(*arrays(task)).vista_.epoch == EPOCHS


@pytest.mark.parametrize("kind", [float, object])
@pytest.mark.parametrize(("missing", "called"), [(np.nan, "NaN"), (None, "None|NaN")])
def test_missing_labels_are_rejected(task, kind, missing, called):
    x, y, x_val, y_val = arrays(task)
    gaps, val_gaps = y.astype(kind), y_val.astype(kind)
    gaps[3] = val_gaps[7] = missing
    for fit in (classifier().fit, classifier().partial_fit):
        with pytest.raises(ValueError, match=rf"^y\[3\] is ({called}), but every sample needs a label"):
            fit(x, gaps)
    with pytest.raises(ValueError, match=rf"^y_val\[7\] is ({called})"):
        classifier().fit(x, y, x_val, val_gaps)


def test_unknown_validation_labels_are_rejected(task):
    x, y, x_val, _ = arrays(task)
    with pytest.raises(ValueError, match="unseen labels"):
        classifier().fit(x, y, x_val, np.full(len(x_val), 99))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"max_epochs": 5}, "max_epochs is not a parameter: use epochs=5"),
        ({"train_split": lambda *_: None}, "train_split must be None, .*: use validation_fraction"),
    ],
)
def test_arguments_that_would_be_ignored_are_rejected(given, message):
    with pytest.raises(ValueError, match=message):
        VistaClassifier(Net, **given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"criterion": nn.NLLLoss}, "criterion must be CrossEntropyLoss, .* got NLLLoss"),
        ({"criterion": nn.NLLLoss()}, "criterion must be CrossEntropyLoss"),
        ({"criterion__label_smoothing": 0.5}, r"criterion__label_smoothing must be 0\.0, .* got 0\.5"),
        ({"criterion": nn.CrossEntropyLoss(label_smoothing=0.5)}, "criterion__label_smoothing must be 0"),
        ({"criterion__ignore_index": 3}, "criterion__ignore_index must be -100, .* got 3"),
        ({"criterion__reduction": "sum"}, "criterion__reduction must be 'mean', .* got 'sum'"),
    ],
)
def test_criteria_that_would_be_ignored_are_rejected(task, given, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        classifier(**given).fit(*arrays(task))


def test_criterion_settings_are_checked_by_every_fit(task):
    net = classifier(epochs=2).fit(*arrays(task)).set_params(criterion__label_smoothing=0.5)
    for fit in (net.fit, net.partial_fit):
        with pytest.raises(ValueError, match=r"^criterion__label_smoothing must be 0\.0, .* got 0\.5"):
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


def test_a_fit_without_labels_is_rejected(task):
    x, y, val_x, _ = arrays(task)
    for arguments, name in (((x, None), "y"), ((x, y, val_x), "X_val or y_val")):
        with pytest.raises(ValueError, match=f"{name} is None"):
            classifier().fit(*arguments)


def test_class_weights_reach_the_loss(task):
    x, y, *validation = arrays(task)
    plain = classifier(epochs=2).fit(x, y, *validation)
    weighted = classifier(epochs=2, criterion__weight=torch.linspace(0.1, 2, 10)).fit(x, y, *validation)
    pairs = zip(plain.module_.parameters(), weighted.module_.parameters(), strict=True)
    assert any(not torch.equal(a, b) for a, b in pairs)
