"""An exported guard without torch and without heat-ood: onnxruntime, numpy and Pillow are enough.

    heat-ood export guard --out guard.onnx
    python examples/onnx_alone.py guard.onnx photo.jpg another.png

Everything but the decoding and resizing of images is in the graph; how they are resized stands in the file.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import onnxruntime
from PIL import Image


def pixels(image: Image.Image, prepared: dict[str, Any]) -> np.ndarray[Any, Any]:
    """An image resized and cropped as the model's images were, (height, width, channels), uint8."""
    image = image.convert("RGB" if len(prepared["mean"]) == 3 else "L")
    height, width = prepared["size"]
    tall, wide = int(height / prepared["crop_pct"]), int(width / prepared["crop_pct"])
    if not prepared["squash"]:  # the shorter side has the size, the longer one follows
        if image.width * tall <= image.height * wide:
            tall = int(wide * image.height / image.width)
        else:
            wide = int(tall * image.width / image.height)
    if (image.height, image.width) != (tall, wide):
        image = image.resize((wide, tall), Image.Resampling[prepared["interpolation"].upper()])
    top, left = round((tall - height) / 2), round((wide - width) / 2)
    return np.array(image.crop((left, top, left + width, top + height))).reshape(height, width, -1)


def main(arguments: list[str]) -> list[dict[str, Any]]:
    file, *photos = arguments
    session = onnxruntime.InferenceSession(file)
    about = json.loads(session.get_modelmeta().custom_metadata_map["heat-ood"])

    batch = np.stack([pixels(Image.open(photo), about["preprocessing"]) for photo in photos])
    names = [output.name for output in session.get_outputs()]
    found = dict(zip(names, session.run(names, {"pixels": batch}), strict=True))  # add "fpr": np.array(0.01) for 1 %

    rows = []
    for i, photo in enumerate(photos):
        best = int(found["logits"][i].argmax())
        row = {
            "photo": photo,
            "class": about["classes"][best] if about["classes"] else str(best),
            "score": float(found["score"][i]),
            "p_value": float(found["p_value"][i]),
            "ood": bool(found["ood"][i]),
            "energies": dict(zip(about["energies"], found["energies"][i].tolist(), strict=True))
            if about["energies"]
            else {},
        }
        rows.append(row)
        verdict = "unlike the training data" if row["ood"] else "like the training data"
        print(f"{photo}: {row['class']}, {verdict} (p-value {row['p_value']:.4f})")
    return rows


if __name__ == "__main__":
    main(sys.argv[1:])
