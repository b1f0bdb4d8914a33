"""Train two small networks of other kinds on CIFAR-10, for the variants of the suite shared-cifar10.

    python experiments/networks.py vit
    python experiments/networks.py contrastive

``vit``: a vision transformer from scratch, 13 minutes of one core. ``contrastive``: a projection in place of the head
of the shared network, which is frozen, by the supervised-contrastive loss on its pooled features, minutes; the cache
must have them (heat-ood benchmark shared-cifar10 --method energy --seed 0). As the network is frozen, what it would
give with the projection follows from what is in the cache, and is written to OUT/contrastive/features.

Both are kept in --out with their facts. Killed at any point, the same command goes on after the last epoch that was
finished. Nothing is chosen by an OOD set, and the test images are looked at once, for the accuracy.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from heat_ood import Extractor, Features
from heat_ood.benchmarks import CACHE, open_set, suite
from heat_ood.benchmarks._datasets import DATASETS
from heat_ood.benchmarks._training import augment, epoch_seed, normalise, pixels_of
from heat_ood.files import write, write_tensors
from heat_ood.residual import Checkpoint
from tables import header

sys.path.insert(0, str(Path(__file__).parents[1] / "suites"))
Facts = dict[str, Any]


@dataclass(frozen=True)
class Recipe:
    """AdamW, its rate up in the first tenth and then down to nothing; batches that are full."""

    epochs: int
    batch: int
    lr: float = 1e-3
    decay: float = 0.05


SEED, CIFAR10 = 0, DATASETS["cifar10"]
TEMPERATURE = 0.1
RECIPES = {"vit": Recipe(7, 128), "contrastive": Recipe(10, 512)}


@dataclass
class Task:
    """What is trained, on what, and the loss of a batch."""

    model: nn.Module
    samples: Tensor
    labels: Tensor
    loss: Callable[[Tensor, Tensor, torch.Generator], Tensor]


def vit() -> Task:
    """Cross-entropy of random crops and flips."""
    from small_vit import cifar10 as network

    model, protocol = network(), suite("shared-cifar10")
    images, labels = pixels_of(open_set(protocol.id.train, protocol.data_root()))

    def loss(x: Tensor, y: Tensor, generator: torch.Generator) -> Tensor:
        return F.cross_entropy(model(normalise(augment(x, generator), CIFAR10)), y)

    return Task(model, images, labels, loss)


def contrastive() -> Task:
    """Pooled features of the images as they are: positives are other images of the class, there are no two views."""
    from shared_networks import projection

    model, train = projection(), features("train")
    assert train.labels is not None
    return Task(model, train.avg, train.labels, lambda z, y, _: supervised_contrastive(F.normalize(model(z)), y))


def features(name: str) -> Features:
    """Of the shared network, from the cache of its suite."""
    from shared_networks import cifar10 as network

    own = Extractor(network(suite("shared-cifar10").data_root()), "stages").fingerprint
    for folder in sorted(Path(CACHE).expanduser().glob(f"shared-cifar10/features/{name}-*")):
        if (found := Features.open(folder)).fingerprint == own:
            return found
    sys.exit(f"No features of {name} in the cache. Run: heat-ood benchmark shared-cifar10 --method energy --seed 0")


def supervised_contrastive(z: Tensor, labels: Tensor) -> Tensor:
    r"""The loss of Khosla et al. (2020), its first form: of each sample, the mean over those of its class.

    .. math:: -\frac{1}{|P(i)|} \sum_{p \in P(i)} \log \frac{\exp(z_i z_p / T)}{\sum_{a \ne i} \exp(z_i z_a / T)}
    """
    alike = z @ z.T / TEMPERATURE
    own = torch.eye(len(z), dtype=torch.bool)
    logp = alike - alike.masked_fill(own, -math.inf).logsumexp(1, keepdim=True)
    positive = (labels[:, None] == labels) & ~own
    some = positive.any(1)  # a class of one sample in the batch has nothing to be drawn to
    return -((logp * positive).sum(1)[some] / positive.sum(1)[some]).mean()


def train(name: str, folder: Path) -> None:
    """All epochs, from the checkpoint on; then the weights and the facts."""
    recipe = RECIPES[name]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        task = {"vit": vit, "contrastive": contrastive}[name]()
    optimiser = torch.optim.AdamW(task.model.parameters(), lr=recipe.lr, weight_decay=recipe.decay)
    checkpoint = Checkpoint(folder / "checkpoint.safetensors", json.dumps({"network": name, **asdict(recipe)}))
    facts = restored(checkpoint, task.model, optimiser)
    steps = len(task.samples) // recipe.batch
    for epoch in range(len(facts["losses"]), recipe.epochs):
        started, total = time.process_time(), 0.0
        task.model.train()
        for step, (x, y, generator) in enumerate(batches(task, recipe.batch, epoch)):
            for group in optimiser.param_groups:
                group["lr"] = recipe.lr * rate((epoch * steps + step) / (recipe.epochs * steps))
            found = task.loss(x, y, generator)
            optimiser.zero_grad()
            found.backward()
            optimiser.step()
            total += float(found.detach())
        facts["losses"].append(total / steps)
        facts["seconds"] += time.process_time() - started
        keep(checkpoint, task.model, optimiser, facts)
        print(f"epoch {epoch + 1} of {recipe.epochs}: loss {total / steps:.4f}", flush=True)
    (finish_vit if name == "vit" else finish_contrastive)(folder, task, facts)
    about = {"recipe": asdict(recipe), "parameters": sum(p.numel() for p in task.model.parameters()), **facts}
    write(folder / "facts.json", json.dumps(about, indent=2) + "\n")
    checkpoint.remove()
    right = f"{100 * facts['accuracy']:.1f} % of test images right"
    print(f"{name}: {about['parameters']:,} parameters, {right}, {facts['seconds'] / 60:.1f} minutes")


def rate(done: float) -> float:
    """Up in the first tenth, then down to nothing, both straight."""
    return min(done / 0.1, (1 - done) / 0.9)


def batches(task: Task, size: int, epoch: int) -> Iterator[tuple[Tensor, Tensor, torch.Generator]]:
    """Those of an epoch, which follow from its number alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(epoch_seed(SEED, epoch))
        generator = torch.Generator().manual_seed(epoch_seed(SEED, epoch))
        order = torch.randperm(len(task.samples), generator=generator)
        for chosen in torch.split(order[: len(order) // size * size], size):
            yield task.samples[chosen], task.labels[chosen], generator


def keep(checkpoint: Checkpoint, model: nn.Module, optimiser: torch.optim.Optimizer, facts: Facts) -> None:
    tensors = {f"model.{key}": value.clone() for key, value in model.state_dict().items()}
    for i, parameter in enumerate(model.parameters()):
        tensors |= {f"{key}.{i}": value.clone() for key, value in optimiser.state[parameter].items()}
    checkpoint.save(tensors, facts)


def restored(checkpoint: Checkpoint, model: nn.Module, optimiser: torch.optim.Optimizer) -> Facts:
    """Put the last state back; the losses so far, and the seconds they took."""
    found = checkpoint.load()
    if found is None:
        return {"losses": [], "seconds": 0.0}
    tensors, facts = found
    model.load_state_dict({key.removeprefix("model."): v for key, v in tensors.items() if key.startswith("model.")})
    for i, parameter in enumerate(model.parameters()):
        optimiser.state[parameter] = {key: tensors[f"{key}.{i}"] for key in ("step", "exp_avg", "exp_avg_sq")}
    return facts


@torch.no_grad()
def finish_vit(folder: Path, task: Task, facts: Facts) -> None:
    protocol, model = suite("shared-cifar10"), task.model.eval()
    images, labels = pixels_of(open_set(protocol.id.test, protocol.data_root()))
    given = torch.cat([model(normalise(x, CIFAR10)) for x in torch.split(images, 500)])
    facts["accuracy"] = float((given.argmax(1) == labels).float().mean())
    write_tensors(folder / "model.safetensors", model.state_dict())


@torch.no_grad()
def finish_contrastive(folder: Path, task: Task, facts: Facts) -> None:
    """The whole network, its features of every set, and the accuracy: without a head, by the nearest class mean."""
    from shared_networks import contrastive as network

    whole: Any = network(suite("shared-cifar10").data_root())
    whole.fc.load_state_dict(task.model.state_dict())
    write_tensors(folder / "model.safetensors", whole.state_dict())
    fingerprint = Extractor(whole, "stages", False).fingerprint
    names = ["train", "contrast", "test", *(spec.name for spec in suite("shared-cifar10").ood)]
    for name in names:
        f = features(name)
        shutil.rmtree(folder / "features" / name, ignore_errors=True)
        avg = torch.cat([whole.fc(z) for z in torch.split(f.avg, 4096)])
        Features(avg, f.std, None, f.labels, None, f.layers, fingerprint).save(folder / "features" / name)
    train, test = (Features.open(folder / "features" / name) for name in ("train", "test"))
    means = F.normalize(torch.stack([F.normalize(train.avg[train.labels == c]).mean(0) for c in range(10)]))
    facts["accuracy"] = float(((F.normalize(test.avg) @ means.T).argmax(1) == test.labels).float().mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network", choices=list(RECIPES))
    parser.add_argument("--out", type=Path, default=Path(CACHE).expanduser() / "experiments")
    options = parser.parse_args()
    header(f"Training the small {options.network} network")
    folder = options.out / options.network
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / "facts.json").exists():
        sys.exit(f"{folder} holds a trained network already. Delete it to train anew.")
    train(options.network, folder)


if __name__ == "__main__":
    main()
