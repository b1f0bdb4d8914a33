"""From a real network and real images to a calibrated detector, on a part of the data folder."""

import importlib.util
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.special import logsumexp

from heat_ood import HEAT, Extractor, Features, Residual, create, evaluate
from heat_ood.errors import Notice
from heat_ood.heat._choice import AGAINST_CONTRAST, PAPER_PRIORS

TRAIN, HELD, TEST, OOD, DISTORTED = 4000, 1000, 1000, 400, 1000
QUICK = Residual(epochs=10)


@pytest.fixture(scope="module")
def nets(data_dir):
    spec = importlib.util.spec_from_file_location("nets", data_dir / "nets.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def sets(data_dir, nets, tmp_path_factory):
    """Features of the CIFAR-100 network, streamed to disk: training and test images, SVHN and textures, distortions."""
    folder = tmp_path_factory.mktemp("features")
    extractor = Extractor(nets.load("cifar100"), layers="stages")

    def load(path, start, count):
        with np.load(data_dir / path) as file:
            x = file["images"][start : start + count]
            y = file["labels"][start : start + count] if "labels" in file else None
        parts = range(0, count, 200)
        return [
            nets.normalise(x[i : i + 200])
            if y is None
            else (nets.normalise(x[i : i + 200]), torch.from_numpy(y[i : i + 200]))
            for i in parts
        ]

    def extract(path, start, count, name):
        return extractor.extract(load(path, start, count), folder / name)

    def distort(path, start, name, seed):
        return extractor.contrast(load(path, start, DISTORTED), folder / name, seed=seed)

    return {
        "train": extract("cifar100_train.npz", 0, TRAIN, "train"),
        "held": extract("cifar100_test.npz", 0, HELD, "held"),
        "test": extract("cifar100_test.npz", HELD, TEST, "test"),
        "svhn": extract("ood/svhn.npz", 0, OOD, "svhn"),
        "textures": extract("ood/textures.npz", 0, OOD, "textures"),
        "contrast": distort("cifar100_train.npz", 0, "contrast", seed=0),
        "distorted": distort("cifar100_test.npz", HELD, "distorted", seed=1),
    }


@pytest.fixture(scope="module")
def detector(sets):
    return HEAT(PAPER_PRIORS, residual=QUICK).fit(sets["train"], progress=False).calibrate(sets["held"])


def test_features_are_what_the_network_computes(data_dir, nets, sets):
    model = nets.load("cifar100")
    with np.load(data_dir / "cifar100_test.npz") as file:
        x = nets.normalise(file["images"][HELD : HELD + 50])
        labels = file["labels"][HELD : HELD + TEST]
    with torch.no_grad():
        maps = model.stage4(model.stage3(model.stage2(model.stage1(model.stem(x)))))
        assert torch.allclose(sets["test"].avg[:50], maps.mean((2, 3)), atol=1e-5)
        assert torch.allclose(sets["test"].std[:50], maps.flatten(2).std(2, correction=0), atol=1e-5)
        assert torch.allclose(sets["test"].logits[:50], model(x), atol=1e-4)
    accuracy = (sets["test"].logits.argmax(1).numpy() == labels).mean()
    assert 0.63 < accuracy < 0.73  # 68.3 % on the whole test set


@pytest.mark.parametrize(("name", "column"), [("gmm", "avg"), ("gmm-std", "std")])
def test_gaussian_priors_equal_an_independent_computation(sets, name, column):
    def unit(features):
        z = getattr(features, column).double().numpy()
        return z / np.linalg.norm(z, axis=1, keepdims=True)

    z, y, x = unit(sets["train"]), sets["train"].labels.numpy(), unit(sets["svhn"])
    means = np.stack([z[y == c].mean(0) for c in range(100)])
    centred = z - means[y]
    covariance = centred.T @ centred / len(z)
    rho = 1e-3
    covariance = (1 - rho) * covariance + rho * np.trace(covariance) / 512 * np.eye(512)
    distance = np.stack([np.einsum("nd,dn->n", x - m, np.linalg.solve(covariance, (x - m).T)) for m in means], 1)
    constant = 0.5 * np.linalg.slogdet(2 * np.pi * covariance)[1] + np.log(100)
    expected = constant - logsumexp(-distance / 2, axis=1)

    prior = create(name, shrinkage=rho).fit(sets["train"])
    assert np.allclose(prior.score(sets["svhn"]), expected, rtol=1e-4)


def test_detects_and_keeps_its_false_alarm_rate(sets, detector):
    ood = {name: sets[name] for name in ("svhn", "textures")}
    result = evaluate(detector, sets["test"], ood, intervals=False)
    plain = evaluate(HEAT(PAPER_PRIORS, residual=None).fit(sets["train"]), sets["test"], ood, intervals=False)
    assert result.average.auroc > 0.7
    assert abs(result.average.auroc - plain.average.auroc) < 0.03  # a bounded residual cannot undo the priors

    alarms = detector.predict(sets["test"], fpr=0.1).double().mean().item()
    assert alarms < 0.1 + 3 * (0.1 * 0.9 * (1 / TEST + 1 / HELD)) ** 0.5
    assert detector.predict(sets["svhn"], fpr=0.1).double().mean().item() > 2 * alarms


def test_residuals_learn_on_real_features(detector):
    assert set(detector.outcomes) == set(PAPER_PRIORS)
    for log in detector.log.values():
        assert min(e["held_out_loss"] for e in log) < -0.1 * QUICK.bound
        assert log[-1]["energy_real"] < log[-1]["energy_negative"]


def test_stored_and_in_memory_features_give_the_same_detector(sets):
    """To the last bit: what differs in one sample differs in the first epoch."""
    train, short = sets["train"], replace(QUICK, epochs=1)
    arrays = Features(train.avg.numpy().copy(), train.std.clone(), labels=train.labels.tolist(), head=train.head)
    one, other = (HEAT(PAPER_PRIORS, residual=short).fit(given, progress=False) for given in (train, arrays))
    assert torch.equal(one.score(sets["svhn"]), other.score(sets["svhn"]))


def test_saved_detector_needs_neither_model_nor_data(sets, detector, tmp_path):
    detector.save(tmp_path / "detector")
    loaded = HEAT.load(tmp_path / "detector")
    assert torch.equal(loaded.p_value(sets["svhn"]), detector.p_value(sets["svhn"]))


def test_the_default_reads_all_stages_and_learns_from_distorted_images(sets, detector, tmp_path, monkeypatch):
    monkeypatch.setattr("heat_ood.heat._choice.AGAINST_CONTRAST", replace(AGAINST_CONTRAST, epochs=10))
    with warnings.catch_warnings():
        warnings.simplefilter("error", Notice)  # nothing lacks
        heat = HEAT().fit(sets["train"], sets["contrast"], progress=False).calibrate(sets["held"])
        plain = HEAT(residual=None).fit(sets["train"])
    stages = tuple(f"gmm-joint@stage{i}" for i in (1, 2, 3))  # stage4 is what the head reads
    assert heat.priors_ == ("energy", "relative-gmm-joint", *stages, "gmm-joint")

    ood = {name: sets[name] for name in ("svhn", "textures")}
    last, composed, taught = (evaluate(d, sets["test"], ood, intervals=False).average for d in (detector, plain, heat))
    assert composed.auroc > last.auroc + 0.03
    assert taught.auroc > composed.auroc - 0.005  # what it learned from distortions does not cost what the priors know
    told = [evaluate(d, sets["test"], {"": sets["distorted"]}, intervals=False).average.auroc for d in (plain, heat)]
    assert told[1] > told[0] + 0.01

    alarms = heat.predict(sets["test"], fpr=0.1).double().mean().item()
    assert alarms < 0.1 + 3 * (0.1 * 0.9 * (1 / TEST + 1 / HELD)) ** 0.5
    heat.save(tmp_path / "detector")
    assert torch.equal(HEAT.load(tmp_path / "detector").score(sets["svhn"]), heat.score(sets["svhn"]))
