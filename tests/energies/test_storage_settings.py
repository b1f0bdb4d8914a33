"""What loads, scores: whatever stands in the settings of a file, checksums that hold, in bounded time and memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import heat_ood
from forks import Forks, forks
from heat_ood import Energy, Features, FormatError, HeatError, InputError, Residual, create
from heat_ood.energies import Composition, FreeEnergy, KNearest, MaximumSoftmax, Scale
from method_data import CASES, Case
from peaks import PEAK
from storage_data import VARIANTS, data, sign, sign_tensors, tensors_of

HANG = 600
COMPOSED = (
    "proposals",
    "ebm denoising",
    "composition",
    "hybrid",
    "heat mapping",
    "heat joint",
    "heat contrast",
    "heat energies",
)


@pytest.mark.parametrize("names", [CASES[::2], CASES[1::2], COMPOSED], ids=["even", "odd", "composed"])
def test_every_setting_of_every_method(names: tuple[str, ...], tmp_path: Path) -> None:
    """In a process with 3 GB and ten seconds a try; the script with 0 tries makes all of them, some 50,000."""
    helpers = Path(__file__).parents[1] / "helpers"
    path = os.pathsep.join([str(Path(heat_ood.__file__).parents[1]), str(helpers)])
    done = subprocess.run(
        [sys.executable, str(helpers / "settings_data.py"), str(tmp_path), "3", *names],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        timeout=HANG,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    *wrong, last = done.stdout.splitlines()
    assert not wrong, "\n".join(wrong[:20])
    assert int(last.removeprefix("tried ")) > 500


SCRIPT = f"""{PEAK}
import resource, sys
from heat_ood import Energy, FormatError
resource.setrlimit(resource.RLIMIT_AS, (2 * 2**30,) * 2)
try:
    Energy.load(sys.argv[1])
except FormatError as error:
    print(peak() // 1024, error)
"""


def residual(**changes: Any) -> Callable[[dict[str, Any]], None]:
    return lambda manifest: manifest["energy"]["settings"]["residual"]["settings"].update(changes)


def own(**changes: Any) -> Callable[[dict[str, Any]], None]:
    return lambda manifest: manifest["energy"]["settings"].update(changes)


def many(manifest: dict[str, Any]) -> None:
    part = {"$energy": "msp", "settings": {}}
    manifest["energy"]["settings"]["parts"]["$map"] = [[f"p{i}", part] for i in range(300_000)]


def deep(manifest: dict[str, Any]) -> None:
    energy = manifest["energy"]
    for _ in range(60):
        energy = {"$energy": "composition", "settings": {"parts": {"$map": [["a", energy]]}}}
    manifest["energy"] = energy


def marked(manifest: dict[str, Any]) -> None:
    manifest["fitted"]["marks"] = [[0], [[0.0]] * 500_000]


BOMBS: dict[str, tuple[Callable[[], Energy], Callable[[dict[str, Any]], None]]] = {
    "a wide flow": (lambda: Case("residual-flow").fitted(), own(hidden=30_000)),
    "a long flow": (lambda: Case("residual-flow").fitted(), own(couplings=1_000_000)),
    "a deep tied network": (lambda: VARIANTS["ebm"](), residual(depth=1_000_000, tied=True)),
    "a wide network": (lambda: VARIANTS["ebm"](), residual(hidden=20_000)),
    "a deep network": (lambda: VARIANTS["ebm"](), residual(depth=1_000_000)),
    "many wells": (lambda: VARIANTS["ebm denoising"](), residual(wells=10**9)),
    "many parts": (lambda: VARIANTS["composition"](), many),
    "many priors": (lambda: VARIANTS["heat plain"](), own(priors=[f"gmm@{i}" for i in range(300_000)])),
    "parts in parts": (lambda: VARIANTS["composition"](), deep),
    "many marks": (lambda: VARIANTS["layer"](), marked),
    "many neighbours": (lambda: Case("knn").fitted(), own(k=10**9)),
    "many powers": (lambda: Case("gram").fitted(), own(powers=10**9)),
}


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    with forks(tmp_path_factory.mktemp("forks"), "heat_ood.energies", "heat_ood.heat") as made:
        yield made


@pytest.mark.filterwarnings("ignore:The residual of:RuntimeWarning")
@pytest.mark.parametrize("name", BOMBS)
def test_a_small_file_cannot_ask_for_much(name: str, limited: Forks, tmp_path: Path) -> None:
    make, change = BOMBS[name]
    make().save(tmp_path / "it")
    sign(tmp_path / "it", change)
    done = limited.run(SCRIPT, tmp_path / "it", seconds=20)
    assert b"does not fit together" in done.stdout, done.stderr
    assert int(done.stdout.split()[0]) < 1000, "megabytes"


def test_a_first_layer_alone_does_not_bring_a_network(tmp_path: Path) -> None:
    """The file brings 20,000 weights of a width-1 layer, and asks for matrices of 20,000 by 20,000."""
    train = Features(avg=torch.rand(100, 1, generator=torch.Generator().manual_seed(0)))
    settings = Residual(epochs=1, hidden=8, depth=4)
    create("ebm", normalise=False, residual=settings).fit(train).save(tmp_path / "it")
    _, tensors = tensors_of(tmp_path / "it")
    tensors["network.layers.0.weight"], tensors["network.layers.0.bias"] = torch.zeros(20_000, 1), torch.zeros(20_000)
    sign_tensors(tmp_path / "it", tensors)
    sign(tmp_path / "it", residual(hidden=20_000))
    with pytest.raises(FormatError, match="its weights are not those of a network of"):
        Energy.load(tmp_path / "it")


def test_a_training_log_without_its_numbers_is_refused(tmp_path: Path) -> None:
    """``heat-ood info`` shows them."""

    def rename(manifest: dict[str, Any]) -> None:
        manifest["facts"] = json.loads(json.dumps(manifest["facts"]).replace('"energy_negative"', '"energy"'))

    Case("ebm").fitted().save(tmp_path / "it")
    sign(tmp_path / "it", rename)
    with pytest.raises(FormatError, match="training log"):
        Energy.load(tmp_path / "it")


def test_settings_are_checked_before_the_first_score(tmp_path: Path) -> None:
    Case("scale").fitted().save(tmp_path / "it")
    for value in ("x", 1.5, -0.1, None, [0.5], True):
        sign(tmp_path / "it", own(percentile=value))
        with pytest.raises(FormatError, match="percentile"):
            Energy.load(tmp_path / "it")


# The same in Python


@pytest.mark.parametrize(
    ("energy", "message"),
    [
        (Scale(percentile="85"), "percentile of Scale is a number, not '85'"),  # type: ignore[arg-type]
        (Scale(proposals=1), "proposals of Scale is true or false, not 1"),  # type: ignore[arg-type]
        (KNearest(k=2.5), "k of KNearest is a whole number, not 2.5"),  # type: ignore[arg-type]
        (KNearest(columns="avg"), r"columns of KNearest is a sequence \(text\), not 'avg'|no column 'a'"),  # type: ignore[arg-type]
        (FreeEnergy(temperature=1e-300), "temperature must be positive, from 1e-30 to 1e"),
        (create("gmm", clusters=0), "clusters must be at least 1"),
        (create("heat", seed=-1), "seed is a whole number of at least 0"),
        (create("heat", residual=Residual(depth=101)), "depth is at most 100"),
        (create("heat", residual=Residual(hidden="wide")), "hidden of Residual is a whole number, not 'wide'"),
        (Composition({}), "between 1 and 1000 parts"),
    ],
)
def test_settings_of_another_type_are_said_at_the_fit(energy: Energy, message: str) -> None:
    with pytest.raises(InputError, match=message):
        energy.fit(data())


def test_numbers_of_numpy_and_lists_are_settings_too() -> None:
    import numpy as np

    train = data()
    create("gmm", columns=["avg"], shrinkage=np.float32(0.5), clusters=np.int64(3)).fit(train)
    Composition({"msp": MaximumSoftmax()}, np.float64(0.5), np.array([2.0])).fit(train)
    with pytest.raises(HeatError):
        Composition({"msp": MaximumSoftmax()}, 0.5, np.array(["x"])).fit(train)


def test_many_neighbours_are_found_as_few_are() -> None:
    g = torch.Generator().manual_seed(0)
    stored, z = torch.rand(9000, 2, generator=g), torch.rand(30, 2, generator=g)
    knn = KNearest(normalise=False, k=8500).fit(Features(avg=stored))
    expected = torch.cdist(z.double(), stored.double()).kthvalue(8500).values
    assert torch.allclose(knn.score(z).double(), expected, atol=1e-5)
