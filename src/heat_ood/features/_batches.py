"""What a loader yields: images, pairs or dictionaries, turned into model inputs and labels."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from os import PathLike
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
)
from torch.utils.data.sampler import SubsetRandomSampler, WeightedRandomSampler

from ..errors import InputError
from ._columns import as_labels
from ._features import Features
from ._stamps import UnknownError, size_of

__all__ = [
    *("Batch", "Inputs", "check_loader", "check_order", "count_of", "label_array", "promised_by", "rest_of"),
    *("similar", "unpack"),
]

LABELS = ("label", "labels", "target", "targets", "y")
KEPT = (
    *("batch_size", "num_workers", "collate_fn", "pin_memory", "timeout"),
    *("worker_init_fn", "multiprocessing_context", "prefetch_factor"),
)
"""What a loader of other samples takes over from a loader."""
RANDOM = (RandomSampler, SubsetRandomSampler, WeightedRandomSampler)


class Inputs(NamedTuple):
    """The arguments of one forward pass."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @property
    def tensors(self) -> list[Tensor]:
        return [v for v in (*self.args, *self.kwargs.values()) if isinstance(v, Tensor)]

    @property
    def mask(self) -> Tensor | None:
        """Which tokens of each text there are, where the inputs say so, as those of Hugging Face do."""
        found = self.kwargs.get("attention_mask")
        return found if isinstance(found, Tensor) and found.ndim == 2 else None

    def __len__(self) -> int:
        return len(self.tensors[0])

    @property
    def size(self) -> int:
        """How many samples there are; in a graph, a number that is not known yet."""
        return self.tensors[0].shape[0]

    def rows(self, rows: slice) -> Inputs:
        """The inputs of some samples."""
        n = len(self)

        def cut(value: Any) -> Any:
            return value[rows] if isinstance(value, Tensor) and value.ndim and len(value) == n else value

        return Inputs(tuple(map(cut, self.args)), {k: cut(v) for k, v in self.kwargs.items()})

    def to(self, device: torch.device) -> Inputs:
        def move(value: Any) -> Any:
            return value.to(device, non_blocking=True) if isinstance(value, Tensor) else value

        return Inputs(tuple(map(move, self.args)), {k: move(v) for k, v in self.kwargs.items()})


class Batch(NamedTuple):
    """Inputs of a model and, where the loader gives them, the labels."""

    inputs: Inputs
    labels: Tensor | None


def unpack(batch: Any, model: nn.Module) -> Batch:
    """Images alone, ``(images, labels)``, or a dictionary of inputs with or without labels."""
    labels = None
    if isinstance(batch, Mapping):
        labels = next((batch[key] for key in LABELS if batch.get(key) is not None), None)
        inputs = keyword_inputs({k: v for k, v in batch.items() if k not in LABELS}, model)
    elif isinstance(batch, (tuple, list)):
        if not batch:
            raise InputError(
                "The loader gave an empty batch. It must yield images, (images, labels), or a dictionary of inputs."
            )
        inner = unpack(batch[0], model)
        inputs, labels = inner.inputs, batch[1] if len(batch) > 1 else inner.labels
    elif isinstance(batch, (Tensor, np.ndarray)):
        inputs = Inputs((torch.as_tensor(batch),), {})
    else:
        raise InputError(
            f"Cannot read a batch of type {type(batch).__name__}. A loader must yield images, (images, labels), or a "
            "dictionary of inputs."
        )

    if not inputs.tensors or not inputs.tensors[0].ndim or not len(inputs):
        raise InputError(
            "A batch holds no samples. Leave out empty batches, and give images a first dimension for the samples."
        )
    labels = None if labels is None else as_labels(labels).cpu()
    if labels is not None and len(labels) != len(inputs):
        raise InputError(f"A batch has {len(inputs)} samples but {len(labels)} labels. Check the loader's collate_fn.")
    return Batch(inputs, labels)


def keyword_inputs(values: Mapping[str, Any], model: nn.Module) -> Inputs:
    tensors = {str(k): torch.as_tensor(v) for k, v in values.items() if isinstance(v, (Tensor, np.ndarray))}
    parameters = inspect.signature(model.forward).parameters
    anything = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    accepted = {k: v for k, v in tensors.items() if k in parameters or (anything and len(tensors) > 1)}
    if accepted:
        return Inputs((), accepted)
    if len(tensors) == 1:
        return Inputs(tuple(tensors.values()), {})
    raise InputError(
        f"None of the batch's entries {sorted(values)} is an argument of the model, which takes {sorted(parameters)}. "
        "Yield (images, labels), or name the entries as the model's forward does."
    )


def check_loader(loader: Any) -> None:
    """Refuse what is no loader but is often passed for one: an array, a data set, a data module, a path."""
    kind, dataset = f"{type(loader).__module__.partition('.')[0]}.{type(loader).__name__}", "dataset"
    more = ""
    if isinstance(loader, (str, PathLike)):
        dataset, more = "open_images(path)", " heat_ood.images.open_images reads a folder of images."
        kind = f"{str(loader)!r}, a path"
    elif isinstance(loader, (Tensor, np.ndarray)) or arrays_of_samples(loader):
        dataset, kind = "TensorDataset(images, labels)", f"{type(loader).__name__} of samples"
        more = " In Python, extractor(images) takes a single batch."
    elif callable(getattr(loader, "train_dataloader", None)):
        more = f" After setup(), {type(loader).__name__}.train_dataloader() gives one; its loader must not shuffle."
    elif isinstance(loader, IterableDataset):
        more = " Where it yields whole batches, batch_size=None."
    elif kind.startswith("datasets."):
        dataset = 'dataset.with_format("torch")'
    elif isinstance(loader, Features):
        more = " These are features already: they need no loader."
    elif not isinstance(loader, (Dataset, Mapping)) and isinstance(loader, Iterable):
        return
    raise InputError(
        f"{kind} is no loader; pass a DataLoader: DataLoader({dataset}, batch_size=64), or anything that yields "
        f"batches.{more}"
    )


def arrays_of_samples(value: Any) -> bool:
    """Whether this is the pair of all images and all labels, not a list of batches."""
    pair = value if isinstance(value, (tuple, list)) and len(value) == 2 else ()
    arrays = [torch.as_tensor(part) for part in pair if isinstance(part, (Tensor, np.ndarray))]
    return len(arrays) == 2 and arrays[0].ndim > 1 and arrays[1].ndim == 1 and not arrays[1].is_floating_point()


def check_order(loader: Any) -> None:
    """Refuse a loader that shuffles, since its second pass would not continue its first, and what is no loader."""
    check_loader(loader)
    sampler = getattr(loader, "sampler", None)
    inner = getattr(getattr(loader, "batch_sampler", None), "sampler", None)
    for s in (sampler, inner):
        if isinstance(s, RANDOM) or getattr(s, "shuffle", False) is True:
            raise InputError(
                f"The loader shuffles ({type(s).__name__}), so features would lose their order and an interrupted "
                "run could not continue. "
                "Pass DataLoader(dataset, batch_size=…, shuffle=False)."
            )


def count_of(loader: Any) -> int | None:
    """How many samples a loader will give, if it can be known without running it."""
    if isinstance(loader, list | tuple):
        with suppress(UnknownError, StopIteration, IndexError, TypeError):
            return sum(size_of(batch) for batch in loader)
        return None
    if isinstance(loader, DataLoader) and loader.batch_size is not None and type(loader.sampler) is SequentialSampler:
        n = len(loader.sampler)
        return n // loader.batch_size * loader.batch_size if loader.drop_last else n
    return None


def promised_by(loader: Any) -> int | None:
    """How many batches a loader says that it will give; None where it does not, or only by a guess.

    A data set that is a stream has a guess at best: its workers split it among them, and each drops its own rest.
    """
    if isinstance(getattr(loader, "dataset", None), IterableDataset):
        return None
    try:
        return len(loader)
    except (TypeError, NotImplementedError, AttributeError):
        return None


def rest_of(loader: Any, done: int, labels: np.ndarray[Any, Any] | None) -> Iterator[Any] | None:
    """The batches of a plain loader after ``done`` samples, without loading those before.

    None where that is not safe: a sampler of one's own, or labels that cannot be checked without loading.
    """
    if type(loader) is not DataLoader or loader.worker_init_fn is not None:
        return None
    dataset: Any = loader.dataset
    plain = type(loader.sampler) is SequentialSampler and type(loader.batch_sampler) is BatchSampler
    if not plain or not loader.batch_size or (done % loader.batch_size and done != count_of(loader)):
        return None
    if labels is not None:
        known = label_array(dataset)
        if known is None or not np.array_equal(known[:done], labels):
            return None
    return iter(similar(loader, Subset(dataset, range(done, len(dataset))), drop_last=loader.drop_last))


def similar(loader: DataLoader[Any], dataset: Any, **changes: Any) -> DataLoader[Any]:
    """A loader of another data set, in the same batches and by the same workers."""
    kept: dict[str, Any] = {name: getattr(loader, name) for name in KEPT}
    return DataLoader(dataset, **kept, **changes)


def label_array(dataset: Any) -> np.ndarray[Any, Any] | None:
    """The labels of a data set that lists them, as torchvision's do, unless it changes them when they are read."""
    if isinstance(dataset, Subset):
        inner = label_array(dataset.dataset)
        return None if inner is None else inner[np.asarray(dataset.indices)]
    targets = getattr(dataset, "targets", None)
    if targets is None or getattr(dataset, "target_transform", None) is not None:
        return None
    array = np.asarray(targets)
    return array if array.ndim == 1 and array.dtype.kind in "iu" and len(array) == len(dataset) else None
