"""Hook any classifier: pooled features, the head that reads them and the layers before, in one pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..errors import Argument, InputError
from ..files import url_of
from ._batches import Inputs, unpack
from ._columns import Array, Head, as_head
from ._contrast import Distorted
from ._distortions import CONTRAST
from ._double import Stage, precision
from ._features import Features
from ._heads import listing
from ._manifest import read_manifest
from ._parting import part_of
from ._plan import Plan, Reading
from ._recording import probe_stages, record
from ._remote import begun_at, send_store
from ._seen import Seen, seen_of
from ._shard import Shard, folder_of
from ._stamps import Stamps, stamps_of
from ._tracker import Tracker
from ._weights import Weights, digest_of

if TYPE_CHECKING:
    from ._guard import Guard

__all__ = ["Extractor"]


class Extractor:
    """Turn a frozen model into a source of :class:`Features`; the model is never changed.

    The linear head and its input, the maps that enter the pooling and their layout are found by what flows
    through the model in the first batch. That ``avg`` times the head gives the model's logits is verified in
    every batch.

    Args:
        model: any ``nn.Module``: convolutional, transformer or plain.
        layers: earlier layers to pool in the same pass: module names, or ``"stages"`` for the output of each block
            after which resolution or width changes. Of tokens, the patches are pooled.
        head: the linear head, if it is not to be found: a module or its name, or ``(W, b)``. ``False`` if there is
            none: the model's output is then ``avg``.
        device: where the images go; by default where the model's parameters are. The model itself is not moved.
        autocast: run the model in ``torch.bfloat16`` or ``torch.float16``.
        name: what the model is called (``timm:resnet50``); None is its class.
        weights: the file that its weights came from, to be told later.

    Example:
        >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))
        >>> Extractor(model)(torch.rand(2, 3, 16, 16))
        Features(n=2, avg=8, std=8, logits=5)
        >>> Extractor(model, layers=("0",))(torch.rand(2, 3, 16, 16)).layers["0"].std.shape
        torch.Size([2, 8])
    """

    def __init__(
        self,
        model: nn.Module,
        layers: str | Sequence[str] | None = None,
        head: str | nn.Module | Head | tuple[Array, Array | None] | bool | None = None,
        *,
        device: str | torch.device | None = None,
        autocast: torch.dtype | None = None,
        name: str | None = None,
        weights: str | None = None,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise InputError(
                f"Extractor needs an nn.Module, not {type(model).__name__}. Wrap a function in a module whose "
                "forward calls it."
            )
        if autocast not in (None, torch.bfloat16, torch.float16):
            raise InputError(f"autocast is torch.bfloat16, torch.float16 or None, not {autocast}.")
        self.model, self.layers, self.head, self.device, self.autocast = model, layers, head, device, autocast
        self.name, self.weights = name, weights
        self._names: tuple[str, ...] | None = None if layers == "stages" else self._checked(layers)
        self._head = self._resolved(head)
        self._tracker = Tracker()

    @property
    def network(self) -> nn.Module:
        """The model itself, without a wrapper for compilation or several devices, which would hide it."""
        model: Any = self.model
        while True:
            if isinstance(model, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
                model = model.module
            elif isinstance(getattr(model, "_orig_mod", None), nn.Module):
                model = model._orig_mod
            else:
                return model  # type: ignore[no-any-return]

    def _checked(self, layers: str | Sequence[str] | None) -> tuple[str, ...]:
        names = (layers,) if isinstance(layers, str) else tuple(layers or ())
        known = dict(self.network.named_modules())
        for name in names:
            if name not in known or not name:
                top = [n for n in known if n and n.count(".") < 2]
                shown = ", ".join(top[:40]) + (", …" if len(top) > 40 else "")
                raise InputError(
                    f'The model has no layer {name!r}. It has: {shown}. Pass names among these, or layers="stages".'
                )
        if len(set(names)) != len(names):
            raise InputError(f"A layer is named twice in {names}. Name each layer once.")
        return names

    def _resolved(self, head: Any) -> nn.Module | tuple[Tensor, Tensor | None] | bool | None:
        if head is None or head is False:
            return False if head is False else None
        if isinstance(head, str):
            found: nn.Module | None = dict(self.network.named_modules()).get(head)
            if found is None:
                raise InputError(
                    f"The model has no layer {head!r} to be its head. {listing(self.network)} Name one of them."
                )
            return found
        if isinstance(head, nn.Module):
            if not any(module is head for module in self.network.modules()):
                raise InputError(
                    f"The head given is not part of the model. {listing(self.network)} Name one of them, or pass "
                    "head=(W, b)."
                )
            return head
        if isinstance(head, tuple) and len(head) == 2:
            weight, bias = as_head(head)
            return weight, bias
        raise InputError(f"head is a module, its name, (W, b), False or None; not {head!r}.")

    def __call__(self, images: Any) -> Features:
        """The features of one batch, in memory on the CPU: images, ``(images, labels)``, or a dictionary of inputs."""
        batch = unpack(images, self.network)
        return self.features_of(self.forward(batch.inputs), batch.labels).to("cpu")

    def read(self, images: Any) -> tuple[Tensor | None, Features]:
        """The model's logits and the features of one batch, on the model's device; nothing is copied."""
        batch = unpack(images, self.network)
        reading = self.forward(batch.inputs)
        head = None if reading.head is None else as_head(reading.head)
        return reading.logits, Features.unchecked(reading.columns, batch.labels, head, reading.fingerprint)

    def maps(self, images: Any) -> tuple[Tensor | None, dict[str, Tensor]]:
        """The model's logits and, unpooled, the layers of one batch, (n, channels, positions), on the model's device.

        Of tokens there are the patches; a vector has one position.

        Example:
            >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))
            >>> logits, maps = Extractor(model, layers=("0",)).maps(torch.rand(2, 3, 6, 6))
            >>> maps["0"].shape
            torch.Size([2, 8, 16])
        """
        found: dict[str, Tensor] = {}
        reading = self.forward(unpack(images, self.network).inputs, found)
        return reading.logits, found

    def forward(self, inputs: Inputs, maps: dict[str, Tensor] | None = None) -> Reading:
        """One pass through the frozen model; the first one also finds where the features flow.

        Any number of threads may do so at once: what a pass reads belongs to the call.
        """
        weights = self._tracker.weights_of(self.network)
        device = self._device(weights)
        with torch.no_grad(), precision(device, self.autocast):
            reading = self._tracker.read(self, weights, inputs.to(device), device, maps)
        reading.fingerprint = self._fingerprint_of(weights)
        return reading

    def flow(self, inputs: Inputs) -> tuple[Plan, Stage, bool]:
        """Where the features flow, on which stage, and whether in half precision; found by a pass."""
        self.forward(inputs)
        flow, weights = self._tracker.flow, self._tracker.weights_of(self.network)
        return flow.plan, flow.stage, self.autocast is not None or weights.half

    def recorded(self, stage: Stage, inputs: Inputs, half: bool) -> tuple[Plan, Reading | None]:
        """Where the features flow, by a pass that looks at every call."""
        if self._names is None:
            self._names = self._checked(probe_stages(stage, inputs))
        return record(stage, inputs, self._names, self._head, half)

    def features_of(self, reading: Reading, labels: Tensor | None = None) -> Features:
        """A reading as features, with the head and the model's fingerprint."""
        head = None if reading.head is None else copy_of_head(reading.head)
        # Logits that follow from the head are not kept twice.
        logits = None if head is not None else reading.logits
        return Features(reading.avg, reading.std, logits, labels, head, reading.layers, reading.fingerprint)

    def seen(self, loader: Iterable[Any], stamps: Callable[[Any], Stamps | None] = stamps_of) -> Seen:
        """What is known of the samples of a loader before they are read, and of the model."""
        source = loader.loader if isinstance(loader, Distorted) else loader
        found = seen_of(source, self.name or type(self.network).__name__, self.weights, stamps)
        layers = (self.layers,) if isinstance(self.layers, str) else tuple(self.layers or ())
        head = "none" if self.head is False else self.head if isinstance(self.head, str) else None
        found = replace(found, layers=layers or None, head=head)
        return replace(found, classes=None) if isinstance(loader, Distorted) else found

    def _device(self, weights: Weights | None = None) -> torch.device:
        own = (weights or self._tracker.weights_of(self.network)).device
        if self.device is None:
            return own or torch.device("cpu")
        asked = torch.device(self.device)
        if own is not None and own.type != asked.type:
            raise InputError(
                f"The model is on {own} but the images should go to {asked}. Move it first: model.to({str(asked)!r})."
            )
        return asked

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the model's class, its parameters and buffers, and the layers chosen.

        It is made anew when a change is noticed: any that torch counts, and most of those made through ``.data`` or
        NumPy (some numbers of each tensor are looked at once a second); :meth:`compute_fingerprint` reads all.
        """
        return self._fingerprint_of(self._tracker.weights_of(self.network))

    def _fingerprint_of(self, weights: Weights) -> str:
        return weights.fingerprint() or self._computed(weights)

    def compute_fingerprint(self) -> str:
        """The fingerprint from the bytes of the model as they are now, not as they were when it was last asked for."""
        return self._computed(self._tracker.weights_of(self.network))

    def _computed(self, weights: Weights) -> str:
        names = {id(module): name for name, module in self.network.named_modules()}
        head = (
            names[id(self._head)]
            if isinstance(self._head, nn.Module)
            else None
            if isinstance(self._head, tuple)
            else self._head
        )
        what = type(self.network).__qualname__, self.layers if isinstance(self.layers, str) else self._names, head
        given = list(zip(("W", "b"), self._head, strict=True)) if isinstance(self._head, tuple) else []
        return weights.keep(digest_of(what, [*weights.named, *given]))

    def extract(
        self,
        loader: Iterable[Any],
        path: str | PathLike[str] | None = None,
        *,
        progress: bool = True,
        overwrite: bool = False,
        dtype: torch.dtype = torch.float32,
        description: str = "Extracting",
        shard: Shard | str | Sequence[int] | None = None,
    ) -> Features:
        """The features of everything a loader yields, streamed to ``path`` and opened memory-mapped.

        A run that was interrupted continues where it was; a store that is finished is opened as it is.

        Args:
            loader: yields images, ``(images, labels)`` or dictionaries, in a fixed order.
            path: a folder for the features; None keeps them in memory. With ``://`` in it, features are made in a
                folder of the cache and sent when they are finished, the manifest last.
            progress: show a bar on the terminal.
            overwrite: start anew, even if there are features at ``path``, of this or another model.
            dtype: how to store them: ``torch.float32``, ``torch.float16`` for half the space, or ``torch.float64``.
            description: what the bar says.
            shard: one part of the samples alone, ``"3/64"`` or ``(3, 64)``, counted from 0, into the folder
                ``shard-00003`` of ``path``. Each part can be made by another process, on another machine;
                :func:`merge_shards` closes the store when all are there.

        Example:
            >>> import tempfile
            >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
            >>> loader = [(torch.rand(5, 4), torch.zeros(5, dtype=torch.long)) for _ in range(2)]
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     Extractor(model).extract(loader, folder)
            Features(n=10, avg=8, logits=3, classes=3)
        """
        from ._streaming import check_there, extract

        place, words = None, description
        if shard is not None:
            loader, place = part_of(loader, Shard.of_any(shard))
            path, words = None if path is None else folder_of(path, place), f"{description} {place}"
        options: dict[str, Any] = {"progress": progress, "overwrite": overwrite, "dtype": dtype, "shard": place}
        if path is None or (url := url_of(path)) is None:
            return extract(self, loader, path, description=words, **options)
        mirror, there = begun_at(url, overwrite)
        if there and not read_manifest(mirror.local).finished:
            raise InputError(f"{url} holds features that are not finished. Pass ", *(Argument("overwrite", True), "."))
        if there:
            check_there(self, loader, mirror.local, dtype, place)
            return Features.open(url)
        features = extract(self, loader, mirror.local, description=words, **options)
        send_store(mirror)
        return features

    def contrast(
        self,
        loader: Iterable[Any],
        path: str | PathLike[str] | None = None,
        kinds: Sequence[str] = CONTRAST,
        *,
        samples: int | None = None,
        seed: int = 0,
        progress: bool = True,
        overwrite: bool = False,
        dtype: torch.dtype = torch.float32,
    ) -> Features:
        """The features of distorted ID images, for ``HEAT().fit(train, contrast=…)``; labels are numbers of kinds.

        Args:
            loader: ID images, best those that the backbone was trained on, as for :meth:`extract`; it may shuffle.
            path: a folder for the features; None keeps them in memory.
            kinds: which distortions, in equal shares; :data:`~heat_ood.features.KINDS` has all.
            samples: so many, of images drawn at random; None distorts each image once, and more than there are images
                goes round again with other distortions.
            seed: of the order and of the distortions.
            progress: show a bar on the terminal.
            overwrite: start anew, even if there are features at ``path``.
            dtype: how to store them.

        Example:
            >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))
            >>> Extractor(model).contrast([torch.rand(6, 3, 16, 16)], kinds=("jigsaw-2", "mixup"))
            Features(n=6, avg=8, std=8, logits=5, classes=5)
        """
        distorted = Distorted(loader, self.network, kinds, samples, seed)
        return self.extract(
            distorted, path, progress=progress, overwrite=overwrite, dtype=dtype, description="Distorting"
        )

    def guard(self, detector: Any) -> Guard:
        """A module from images to logits, score and p-value, in one pass through the model."""
        from ._guard import Guard

        return Guard(self, detector)

    def __repr__(self) -> str:
        parts = [type(self.network).__name__]
        parts += [] if self.layers is None else [f"layers={self.layers!r}"]
        parts += (
            [f"head={self.head!r}"] if isinstance(self.head, (str, bool)) else [] if self.head is None else ["head=…"]
        )
        return f"Extractor({', '.join(parts)})"


def copy_of_head(head: tuple[Tensor, Tensor | None]) -> Head:
    """The head on the CPU, safe from a later change of the model."""
    weight, bias = as_head(head)
    return Head(
        *(
            t.detach().to("cpu", torch.float64 if t.dtype == torch.float64 else torch.float32, copy=True)
            for t in (weight, bias)
        )
    )
