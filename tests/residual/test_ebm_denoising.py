"""The energy-based model that learns by denoising: a log density with a known answer, and an energy like any other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from heat_ood import Energy, Features, FormatError, InputError, create
from heat_ood.residual import Checkpoint, Denoising, EnergyBasedModel
from heat_ood.residual._denoising import DenoisingTraining, denoising_loss
from heat_ood.residual._wells import Wells
from storage_data import sign, sign_tensors, tensors_of

CENTRES = torch.tensor([[2.0, 0.0], [-2.0, 0.0], [0.0, 2.0], [0.0, -2.0]], dtype=torch.float64)
QUICK = Denoising(epochs=3, wells=16, batch=64)


def clusters(n: int, seed: int = 0) -> Tensor:
    """Four narrow clusters in the plane; one Gaussian thinks the empty centre the likeliest place."""
    g = torch.Generator().manual_seed(seed)
    noise = 0.3 * torch.randn(n, 2, generator=g, dtype=torch.float64)
    return CENTRES[torch.randint(4, (n,), generator=g)] + noise


def fitted(settings: Denoising = QUICK, seed: int = 0, n: int = 400) -> EnergyBasedModel:
    ebm = create("ebm", normalise=False, residual=settings, seed=seed).fit(Features(avg=clusters(n)))
    assert isinstance(ebm, EnergyBasedModel)
    return ebm


def test_denoising_is_the_default_and_old_files_are_not_taken_for_it() -> None:
    """A file of version 0.1 says Residual, and no objective: it stays what it was."""
    assert create("ebm").settings["residual"] == Denoising()
    golden = Path(__file__).parents[1] / "golden" / "v0.1" / "methods" / "ebm"
    assert type(Energy.load(golden).settings["residual"]).__name__ == "Residual"


def test_the_energy_is_the_log_density_of_the_smoothed_data() -> None:
    """In whitened coordinates the smoothed clusters are a mixture with a known density.

    The noise joins them: of clusters far apart, score matching learns the form and not which is the deeper.
    """
    ebm = fitted(Denoising(noise=1.0, wells=16, epochs=30, lr=0.1), n=3000)
    mixture = ebm.prior.mixture
    noise = torch.randn(500, 2, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    x = mixture.whiten(clusters(500, seed=9)) + noise
    covariance = 0.09 * mixture.white @ mixture.white.T + torch.eye(2, dtype=torch.float64)
    parts = torch.distributions.MultivariateNormal(mixture.whiten(CENTRES), covariance)
    expected = -parts.log_prob(x[:, None]).logsumexp(1)

    learned, one = (float((e - expected).std()) for e in (ebm.score(mixture.colour_in(x)), 0.25 * x.square().sum(1)))
    assert learned < 0.15 * float(expected.std())
    assert learned < 0.5 * one, "one Gaussian does as well"


def test_it_rises_in_the_hole_and_without_bound_far_away() -> None:
    ebm = fitted(Denoising(noise=0.3, wells=16, epochs=30, lr=0.1), n=2000)
    data = ebm.score(clusters(300, seed=5))
    hole, far, farther = ebm.score(torch.tensor([[0.0, 0.0], [20.0, 20.0], [40.0, 40.0]], dtype=torch.float64))
    assert hole > data.mean() + 2 * data.std()
    assert far > data.max()
    assert 3 < (farther - data.mean()) / (far - data.mean()) < 5  # quadratically


def test_the_least_loss_is_that_of_the_true_score() -> None:
    """A standard Gaussian: the noise is known up to a share of 1 / (1 + σ²), and a flat energy knows nothing."""
    g = torch.Generator().manual_seed(0)
    x, noise = (torch.randn(20_000, 3, generator=g, dtype=torch.float64) for _ in range(2))
    gaussian = Wells(3, 1, scale=(1 + 0.25) ** -0.5, dtype=torch.float64)
    flat = Wells(3, 1, scale=0.0, dtype=torch.float64)
    with torch.no_grad():
        for network in (gaussian, flat):
            network.layers[1].weight.zero_()  # type: ignore[operator, union-attr]
    assert float(denoising_loss(gaussian, x, noise, 0.5)) == pytest.approx(1 / 1.25, abs=0.01)
    assert float(denoising_loss(flat, x, noise, 0.5)) == pytest.approx(1, abs=0.02)


def test_whitening_becomes_part_of_the_network() -> None:
    """The energy of the features is that of their coordinates, whatever their scale and place were."""
    z = clusters(400)
    one = create("ebm", normalise=False, residual=QUICK).fit(Features(avg=z))
    other = create("ebm", normalise=False, residual=QUICK).fit(Features(avg=100 * z + 7))
    torch.testing.assert_close(one.score(z), other.score(100 * z + 7), rtol=1e-5, atol=1e-5)


def test_save_load_and_seed(tmp_path: Path) -> None:
    test = clusters(50, seed=1)
    ebm, same, other = (fitted(seed=s).calibrate(clusters(60, seed=2)) for s in (0, 0, 1))
    ebm.save(tmp_path / "ebm")
    again = Energy.load(tmp_path / "ebm")
    assert repr(again) == repr(ebm)
    assert "Denoising(wells=16, epochs=3, batch=64)" in repr(ebm)
    assert torch.equal(again.score(test), ebm.score(test))
    assert torch.equal(again.p_value(test), ebm.p_value(test))
    assert torch.equal(same.score(test), ebm.score(test))
    assert not torch.equal(other.score(test), ebm.score(test))
    assert again.log_ == ebm.log_  # type: ignore[attr-defined]


def test_held_out_samples_watch() -> None:
    """Few samples and many steps: the epoch that is kept is the best on those that it does not learn from."""
    ebm = fitted(Denoising(noise=0.1, wells=64, epochs=60, batch=16, patience=0.2), n=40)
    losses = [entry["held_out_loss"] for entry in ebm.log_]
    assert len(losses) < 60
    assert ebm.outcome_ == f"stopped early after epoch {len(losses)} of 60"
    assert min(losses) < losses[-1]


def test_contrast_is_refused() -> None:
    z = Features(avg=clusters(100))
    with pytest.raises(InputError, match="has no negatives"):
        EnergyBasedModel(normalise=False, residual=QUICK).fit(z, contrast=z)


def test_divergence_is_said_and_leaves_something_that_scores() -> None:
    with pytest.warns(RuntimeWarning, match="diverged in epoch 1"):
        ebm = fitted(Denoising(epochs=3, wells=4, lr=1e200))
    assert torch.isfinite(ebm.score(clusters(20))).all()


@pytest.mark.parametrize("n", [2, 3, 7])
def test_a_handful_of_samples_is_enough(n: int) -> None:
    assert torch.isfinite(fitted(n=n).score(clusters(20, seed=4))).all()


@pytest.mark.parametrize(
    "settings", [{"noise": 0.0}, {"wells": 0}, {"epochs": 0}, {"lr": -1.0}, {"batch": 0}, {"noise": "x"}]
)
def test_settings_that_cannot_be_meant(settings: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(settings))):
        fitted(Denoising(**settings))


# Files


def test_settings_of_a_file_are_checked_against_what_it_brings(tmp_path: Path) -> None:
    fitted().save(tmp_path / "it")

    def change(**changes: Any) -> Any:
        return lambda manifest: manifest["energy"]["settings"]["residual"]["settings"].update(changes)

    for changes in ({"wells": 10**9}, {"wells": 17}, {"noise": -1.0}, {"lr": "x"}):
        sign(tmp_path / "it", change(**changes))
        with pytest.raises(FormatError, match="does not fit together"):
            Energy.load(tmp_path / "it")
        sign(tmp_path / "it", change(wells=16, noise=1.0, lr=0.01))
    Energy.load(tmp_path / "it")


def test_weights_of_another_shape_or_type_are_refused(tmp_path: Path) -> None:
    for name, value in (("layers.1.bias", torch.zeros(3)), ("layers.0.bias", torch.zeros(2, dtype=torch.float16))):
        fitted().save(tmp_path / "it")
        _, tensors = tensors_of(tmp_path / "it")
        sign_tensors(tmp_path / "it", tensors | {f"network.{name}": value})
        with pytest.raises(FormatError, match="does not fit together"):
            Energy.load(tmp_path / "it")


def test_another_training_log_is_refused(tmp_path: Path) -> None:
    def rename(manifest: dict[str, Any]) -> None:
        manifest["facts"] = json.loads(json.dumps(manifest["facts"]).replace('"held_out_loss"', '"gap"'))

    fitted().save(tmp_path / "it")
    sign(tmp_path / "it", rename)
    with pytest.raises(FormatError, match="training log"):
        Energy.load(tmp_path / "it")


# Checkpoints


class KilledError(Exception):
    pass


def test_an_interrupted_training_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    """KilledError in the third epoch of four, after two were kept."""
    settings, train = Denoising(epochs=4, wells=8, batch=64), Features(avg=clusters(300))
    whole = EnergyBasedModel(normalise=False, residual=settings).fit(train)

    def killer(done: int, total: int, numbers: dict[str, float]) -> None:
        if done > total * 0.6:
            raise KilledError

    checkpoint = Checkpoint(tmp_path / "it.safetensors", "run")
    with pytest.raises(KilledError):
        EnergyBasedModel(normalise=False, residual=settings).fit(train, report=killer, checkpoint=checkpoint)
    resumed = EnergyBasedModel(normalise=False, residual=settings).fit(train, checkpoint=checkpoint)
    assert torch.equal(whole.score(clusters(50)), resumed.score(clusters(50)))
    assert whole.log_ == resumed.log_


def test_a_checkpoint_of_another_network_is_refused(tmp_path: Path) -> None:
    checkpoint, train = Checkpoint(tmp_path / "it.safetensors", "run"), Features(avg=clusters(300))
    EnergyBasedModel(normalise=False, residual=QUICK).fit(train, checkpoint=checkpoint)
    with pytest.raises(FormatError, match="damaged"):
        EnergyBasedModel(normalise=False, residual=Denoising(epochs=3, wells=9)).fit(train, checkpoint=checkpoint)


def test_a_training_goes_over_all_samples_once_an_epoch() -> None:
    seen: list[Tensor] = []
    x = torch.randn(100, 2, generator=torch.Generator().manual_seed(0))

    def real(chosen: Tensor) -> Tensor:
        seen.append(chosen)
        return x[chosen]

    settings = Denoising(epochs=2, wells=4, batch=32)
    DenoisingTraining(Wells(2, 4), real, 100, x, settings, torch.Generator().manual_seed(0)).run()
    assert torch.cat(seen).sort().values.tolist() == sorted([*range(100)] * 2)
