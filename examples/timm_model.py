"""Guard a timm model with a head of your own on its backbone.

    python examples/timm_model.py                   # a tiny network with random weights: no download, a few seconds
    python examples/timm_model.py --model resnet50 --size 224 --pretrained                    # with weights of the Hub
    python examples/timm_model.py --model resnet50 --size 224 --weights resnet50.safetensors  # or of a file

The head learns to tell tiles of a photograph of a temple from tiles of one of a flower; digits and noise are neither.
All images come with scikit-learn and are a toy, the more so with random weights: this shows how, not how well.
"""

import argparse
from collections.abc import Sequence

import numpy as np
import timm
import torch
from PIL import Image
from sklearn.datasets import load_digits, load_sample_images
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from heat_ood import HEAT, Evaluation, Extractor, Features, evaluate

parser = argparse.ArgumentParser()
parser.add_argument("--model", default="test_resnet", help="any of timm.list_models()")
parser.add_argument("--size", type=int, default=64, help="height and width of the images")
parser.add_argument("--pretrained", action="store_true", help="with timm's own weights")
parser.add_argument("--weights", help="with those of a .safetensors file")


def tiles(photo: np.ndarray, side: int = 24) -> list[np.ndarray]:
    rows, columns = (range(0, length - side + 1, side) for length in photo.shape[:2])
    return [photo[i : i + side, j : j + side] for i in rows for j in columns]


def main(arguments: Sequence[str] | None = None) -> tuple[float, Evaluation]:
    # A backbone with a new head of two classes, and the preprocessing that belongs to it.
    args = parser.parse_args(arguments)
    torch.manual_seed(0)
    pretrained, file = args.pretrained or bool(args.weights), {"file": args.weights} if args.weights else {}
    model = timm.create_model(args.model, pretrained, pretrained_cfg_overlay=file, num_classes=2).eval()
    transform = timm.data.create_transform(**timm.data.resolve_data_config({"img_size": args.size}, model=model))

    def prepared(images: Sequence[np.ndarray]) -> Tensor:
        return torch.stack([transform(Image.fromarray(image).convert("RGB")) for image in images])

    temple, flower = (tiles(photo) for photo in load_sample_images().images)
    images, labels = prepared([*temple, *flower]), torch.tensor([0] * len(temple) + [1] * len(flower))
    fitting, held_out, test = torch.randperm(len(images)).tensor_split([400, 650])

    # Train the head alone, on what the frozen backbone makes of the training tiles.
    with torch.no_grad():
        z = model.forward_head(model.forward_features(images[fitting]), pre_logits=True)
    optimiser = torch.optim.Adam(model.get_classifier().parameters(), lr=1e-2)
    for _ in range(200):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model.get_classifier()(z), labels[fitting]).backward()
        optimiser.step()

    # Fit and calibrate. HEAT() with contrast, as in own_model.py, works too; without a residual it is fitted at once.
    extractor = Extractor(model, layers="stages")

    def features(*tensors: Tensor) -> Features:
        return extractor.extract(DataLoader(TensorDataset(*tensors), batch_size=64))

    detector = HEAT(residual=None).fit(features(images[fitting], labels[fitting]))
    detector.calibrate(features(images[held_out]))  # tiles that the head was not trained on

    known = features(images[test])
    false_alarms = detector.predict(known, fpr=0.05).double().mean().item()
    print(f"{args.model}, {'pretrained' if pretrained else 'random weights'}: {known}")
    print(f"{false_alarms:.1%} of {len(known)} known tiles are flagged, where 5% were allowed on average.")
    digits = prepared((load_digits().images[:200] * 15.9).astype(np.uint8))
    noise = prepared(np.random.default_rng(0).integers(0, 256, (200, 24, 24, 3), dtype=np.uint8))
    result = evaluate(detector, known, {"digits": features(digits), "noise": features(noise)}, intervals=False)
    print(result)
    return false_alarms, result


if __name__ == "__main__":
    main()
