"""Guard a PyTorch classifier of your own: its answer, and whether the image is one that it can judge.

    python examples/own_model.py

A small network learns the digits 0 to 6 on the spot; it has never seen a 7, 8 or 9. The images are scikit-learn's
8 × 8 digits, a toy: the numbers show that it works, not how well it works on your data. About ten seconds.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from heat_ood import HEAT, Extractor


class Network(nn.Module):
    """Nothing special: what counts is a linear layer at the end."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.maps = nn.Sequential(self.block(1, 16), self.block(16, 32), nn.MaxPool2d(2), self.block(32, 48))
        self.classifier = nn.Linear(48, classes)

    def block(self, width: int, out: int) -> nn.Sequential:
        return nn.Sequential(nn.Conv2d(width, out, 3, padding=1), nn.BatchNorm2d(out), nn.ReLU())

    def forward(self, images: Tensor) -> Tensor:
        return self.classifier(self.maps(images).mean((2, 3)))


def train(model: nn.Module, images: Tensor, labels: Tensor) -> None:
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(12):
        for rows in torch.randperm(len(images)).split(64):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(images[rows]), labels[rows]).backward()
            optimiser.step()


def main() -> dict[str, float]:
    # What you have: a trained network, its training images, and images of the same kind that it was not trained on.
    torch.manual_seed(0)
    digits = load_digits()
    images, labels = torch.tensor(digits.images / 16).float().unsqueeze(1), torch.tensor(digits.target)
    known, unknown = (labels < 7).nonzero().flatten(), (labels >= 7).nonzero().flatten()
    fitting, held_out, test = known[torch.randperm(len(known))].tensor_split([600, 900])
    model = Network(classes=7)
    train(model, images[fitting], labels[fitting])
    train_loader = DataLoader(TensorDataset(images[fitting], labels[fitting]), batch_size=256)  # does not shuffle
    held_out_loader = DataLoader(TensorDataset(images[held_out], labels[held_out]), batch_size=256)

    # Fit and calibrate. Given a folder as second argument, extract and contrast write to disk and can be resumed.
    extractor = Extractor(model, layers="stages")
    contrast = extractor.contrast(train_loader)  # distorted training images, which a residual learns to tell from them
    detector = HEAT().fit(extractor.extract(train_loader), contrast=contrast)
    detector.calibrate(extractor.extract(held_out_loader))

    # Use: one pass through the network gives its logits, the score and the p-value.
    guard = extractor.guard(detector)
    logits, score, p_value = guard(images[test])
    accuracy = (logits.argmax(1) == labels[test]).float().mean().item()
    false_alarms = (p_value <= 0.05).float().mean().item()
    caught = guard.predict(images[unknown], fpr=0.05).float().mean().item()  # the same as p_value <= 0.05
    print(f"Of {len(test)} known digits, {accuracy:.1%} are classified correctly")
    print(f"and {false_alarms:.1%} flagged as unknown, where 5% were allowed on average.")
    print(f"Of {len(unknown)} unknown digits, {caught:.1%} are flagged.")

    # Keep: JSON and safetensors, no pickle. Loading needs neither the network nor the data.
    with TemporaryDirectory() as folder:
        detector.save(Path(folder, "detector"))
        loaded = HEAT.load(Path(folder, "detector"))
    same = torch.equal(extractor.guard(loaded)(images[test]).score, score)
    print(f"Saved and loaded, it gives {'the same scores' if same else 'OTHER SCORES'}.")
    return {"accuracy": accuracy, "false_alarms": false_alarms, "caught": caught, "same": same}


if __name__ == "__main__":
    main()
