"""Train two small networks of other kinds on CIFAR-10, for the suite's variants: a ViT and a contrastive network.

    python experiments/networks.py vit
    python experiments/networks.py contrastive

Each takes 10 to 15 minutes of one core and is kept in --out with its facts; the suites look for them there. Killed at
any point, the same command goes on after the last epoch that was finished. Nothing is chosen by an OOD set.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from heat_ood.benchmarks import SetSpec, open_set, suite
from heat_ood.benchmarks._datasets import DATASETS
from heat_ood.benchmarks._training import augment, epoch_seed, normalise, pixels_of
from heat_ood.files import write, write_tensors
from heat_ood.residual import Checkpoint
from tables import header

ROOT = Path(__file__).parents[1]
OUT = Path.home() / ".cache" / "heat-ood" / "experiments"
BATCH, SEED, CIFAR10 = 128, 0, DATASETS["cifar10"]
TEMPERATURE, PROJECTED = 0.1, 128
"""Of the contrastive loss, and the width it is computed in."""
RECIPES = {"vit": {"epochs": 7, "lr": 1e-3}, "contrastive": {"epochs": 3, "lr": 1e-3}}
Loss = Callable[[Tensor, Tensor, torch.Generator], Tensor]


def vit() -> tuple[nn.Module, nn.Module, Loss]:
    """The network, what is trained of it and beside it, and the loss of a batch: cross-entropy."""
    from small_networks import vit as network

    model = network()

    def loss(images: Tensor, labels: Tensor, generator: torch.Generator) -> Tensor:
        return F.cross_entropy(model(normalise(augment(images, generator), CIFAR10)), labels)

    return model, model, loss


def contrastive() -> tuple[nn.Module, nn.Module, Loss]:
    """A fourth stage on frozen ones, and a projection that is thrown away: supervised-contrastive, two views."""
    from small_networks import contrastive as network

    model = network(suite(ROOT / "suites" / "shared-cifar10.toml").data_root())
    trunk = nn.Sequential(model.stem, model.stage1, model.stage2, model.stage3)
    projection = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, PROJECTED))
    trained = nn.ModuleDict({"stage4": model.stage4, "projection": projection})

    def loss(images: Tensor, labels: Tensor, generator: torch.Generator) -> Tensor:
        views = torch.cat([augment(images, generator), augment(images, generator)])
        x = normalise(views, CIFAR10).contiguous(memory_format=torch.channels_last)
        with torch.no_grad():
            maps = trunk.eval()(x)
        z = F.normalize(projection(model.stage4(maps).mean((2, 3))))
        return supervised_contrastive(z, labels.repeat(2))

    return model, trained, loss


def supervised_contrastive(z: Tensor, labels: Tensor) -> Tensor:
    r"""The loss of Khosla et al. (2020), its first form: of each sample, the mean over those of its class.

    .. math:: -\frac{1}{|P(i)|} \sum_{p \in P(i)} \log \frac{\exp(z_i z_p / T)}{\sum_{a \ne i} \exp(z_i z_a / T)}
    """
    alike = z @ z.T / TEMPERATURE
    own = torch.eye(len(z), dtype=torch.bool)
    logp = alike - alike.masked_fill(own, -math.inf).logsumexp(1, keepdim=True)
    positive = (labels[:, None] == labels) & ~own
    return -((logp * positive).sum(1) / positive.sum(1)).mean()


def train(name: str, folder: Path) -> None:
    """All epochs, from the checkpoint on; then the weights and the facts."""
    recipe = {"network": name, "batch": BATCH, "seed": SEED, **RECIPES[name]}
    images, labels = cifar10("train")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        model, trained, loss = {"vit": vit, "contrastive": contrastive}[name]()
    optimiser = torch.optim.AdamW(trained.parameters(), lr=recipe["lr"], weight_decay=0.05)
    checkpoint = Checkpoint(folder / "checkpoint.safetensors", json.dumps(recipe, sort_keys=True))
    facts = restored(checkpoint, trained, optimiser)
    steps = len(images) // BATCH
    for epoch in range(len(facts["losses"]), recipe["epochs"]):
        started, total = time.process_time(), 0.0
        trained.train()
        for step, (x, y, generator) in enumerate(batches(images, labels, epoch)):
            for group in optimiser.param_groups:
                group["lr"] = recipe["lr"] * rate((epoch * steps + step) / (recipe["epochs"] * steps))
            found = loss(x, y, generator)
            optimiser.zero_grad()
            found.backward()
            optimiser.step()
            total += float(found.detach())
            if step % 50 == 49:
                print(f"epoch {epoch + 1}, {step + 1} of {steps}: loss {total / (step + 1):.4f}", flush=True)
        facts["losses"].append(total / steps)
        facts["seconds"] += time.process_time() - started
        keep(checkpoint, trained, optimiser, facts)
    finish(name, folder, model, trained, recipe, facts)
    checkpoint.remove()


def rate(done: float) -> float:
    """Up in the first tenth, then down to nothing, both straight."""
    return min(done / 0.1, (1 - done) / 0.9)


def batches(images: Tensor, labels: Tensor, epoch: int) -> Iterator[tuple[Tensor, Tensor, torch.Generator]]:
    """Those of an epoch, which follow from its number alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(epoch_seed(SEED, epoch))
        generator = torch.Generator().manual_seed(epoch_seed(SEED, epoch))
        order = torch.randperm(len(images), generator=generator)
        for chosen in torch.split(order[: len(images) // BATCH * BATCH], BATCH):
            yield images[chosen], labels[chosen], generator


def cifar10(split: str) -> tuple[Tensor, Tensor]:
    protocol = suite(ROOT / "suites" / "shared-cifar10.toml")
    spec: SetSpec = getattr(protocol.id, split)
    return pixels_of(open_set(spec, protocol.data_root()))


def keep(checkpoint: Checkpoint, trained: nn.Module, optimiser: torch.optim.Optimizer, facts: dict) -> None:
    tensors = {f"model.{key}": value.clone() for key, value in trained.state_dict().items()}
    for i, parameter in enumerate(trained.parameters()):
        tensors |= {f"{key}.{i}": value.clone() for key, value in optimiser.state[parameter].items()}
    checkpoint.save(tensors, facts)


def restored(checkpoint: Checkpoint, trained: nn.Module, optimiser: torch.optim.Optimizer) -> dict:
    """Put the last state back; the losses so far, and the seconds they took."""
    found = checkpoint.load()
    if found is None:
        return {"losses": [], "seconds": 0.0}
    tensors, facts = found
    own = {key.removeprefix("model."): v for key, v in tensors.items() if key.startswith("model.")}
    trained.load_state_dict(own)
    for i, parameter in enumerate(trained.parameters()):
        optimiser.state[parameter] = {key: tensors[f"{key}.{i}"] for key in ("step", "exp_avg", "exp_avg_sq")}
    return facts


@torch.no_grad()
def finish(name: str, folder: Path, model: nn.Module, trained: nn.Module, recipe: dict, facts: dict) -> None:
    """Write the weights, and beside them what there is to say: the test images are looked at here alone."""
    model.eval()
    given = torch.cat([model(normalise(x, CIFAR10)) for x in torch.split(cifar10("test")[0], 500)])
    if name == "contrastive":  # no head: by the nearest mean of a class
        images, labels = cifar10("train")
        z = F.normalize(torch.cat([model(normalise(x, CIFAR10)) for x in torch.split(images[:10_000], 500)]))
        means = F.normalize(torch.stack([z[labels[:10_000] == c].mean(0) for c in range(10)]))
        given = F.normalize(given) @ means.T
    accuracy = float((given.argmax(1) == cifar10("test")[1]).float().mean())
    sizes = {what: sum(p.numel() for p in part.parameters()) for what, part in (("all", model), ("trained", trained))}
    write_tensors(folder / "model.safetensors", model.state_dict())
    found = {"recipe": recipe, "parameters": sizes, "accuracy": accuracy, **facts}
    write(folder / "facts.json", json.dumps(found, indent=2) + "\n")
    print(f"{name}: {sizes}, {100 * accuracy:.1f} % of test images right, {facts['seconds'] / 60:.1f} minutes")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network", choices=list(RECIPES))
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    header(f"Training the small {options.network} network")
    sys.path.insert(0, str(ROOT / "suites"))
    folder = options.out / options.network
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / "facts.json").exists():
        sys.exit(f"{folder} holds a trained network already. Delete it to train anew.")
    train(options.network, folder)


if __name__ == "__main__":
    main()
