"""How often a network is right, and how sure it is of it."""

from __future__ import annotations

import torch

from ._features import Features

__all__ = ["accuracy_of"]

BATCH = 4096


def accuracy_of(features: Features) -> tuple[float, float] | None:
    """The share of samples whose largest logit is that of their label, and the mean of their largest softmax
    probability; None where labels or logits are not known. One batch is held at a time.

    Example:
        >>> logits = torch.tensor([[0.0, 100.0], [100.0, 0.0]])
        >>> accuracy_of(Features(logits=logits, labels=torch.tensor([1, 1])))
        (0.5, 1.0)
    """
    if not {"logits", "labels"} <= features.available or not len(features):
        return None
    right, sure = 0, 0.0
    for batch in features.only(("logits", "labels")).batches(BATCH):
        logits, labels = batch.logits, batch.labels
        assert logits is not None
        assert labels is not None
        right += int((logits.argmax(1).cpu() == labels.cpu()).sum())
        sure += float(torch.softmax(logits.double(), 1).amax(1).sum())
    return right / len(features), sure / len(features)
