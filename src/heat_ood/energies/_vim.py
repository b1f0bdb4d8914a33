"""Virtual-logit matching: what of a feature lies outside the principal space, beside the logits."""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor

from ..errors import Argument, InputError
from ..features import Features, Moments, Space, normalise, working_dtype
from ..registry import register
from ._base import CHUNK
from ._borrowing import Borrowing
from ._head import HeadPrior, free_energy
from ._settings import check_settings

__all__ = ["SubspaceDistance", "VirtualLogit"]


def complement_of(moments: Moments, origin: Tensor, dimension: int | None) -> Tensor:
    """Orthonormal directions outside the principal space about ``origin``, (d, d - dimension), in float64."""
    d = len(origin)
    if dimension is None:
        dimension = 1000 if d >= 2048 else 512 if d >= 768 else d // 2
    if not 0 <= dimension < d:
        raise InputError(
            Argument("dimension", dimension),
            f" of {d} features leaves no residual. Choose one between 0 and {d - 1}, or None for the authors' rule.",
        )
    directions: Tensor = torch.linalg.eigh(moments.about(origin).outer / moments.n).eigenvectors
    return directions[:, : d - dimension]


def origin_of(weight: Tensor, bias: Tensor) -> Tensor:
    r"""Where the head's logits are (nearest to) zero, :math:`-W^+ b`, (d,), in float64.

    What is singular to the precision of the weights counts as singular: the rows of many heads all but sum to zero.
    """
    inverse: Tensor = torch.linalg.pinv(weight.double(), rtol=max(weight.shape) * torch.finfo(weight.dtype).eps)
    return -inverse @ bias.double()


def check_complement(origin: Tensor, complement: Tensor, dimension: int | None) -> None:
    """Refuse an origin and directions that do not fit together, or not to the setting."""
    fits = complement.ndim == 2 and origin.shape == complement.shape[:1] and complement.shape[1] > 0
    if not fits or origin.dtype != complement.dtype or not origin.is_floating_point():
        raise InputError(f"the origin and the complement have shapes {tuple(origin.shape)}, {tuple(complement.shape)}")
    if dimension is not None and complement.shape[1] != len(origin) - dimension:
        raise InputError(f"{complement.shape[1]} directions of {len(origin)} are outside one of dimension {dimension}")
    if not (origin.isfinite().all() and complement.isfinite().all()):
        raise InputError("the origin or the complement is not finite")


@register("vim", "virtual logit outside the principal space")
class VirtualLogit(HeadPrior):
    r"""A virtual logit for what lies outside the principal space, against the free energy (ViM; Wang et al., 2022).

    .. math::
        E(z) = \alpha \|R^\top (z - o)\| - \log \sum_c \exp f_c(z), \qquad
        o = -W^+ b, \quad \alpha = \frac{\sum_i \max_c f_c(z_i)}{\sum_i \|R^\top (z_i - o)\|}

    where :math:`R` are the eigenvectors of the second moment of :math:`z - o` without the ``dimension`` largest. It is
    the log of the odds of the virtual logit, and ranks as the softmax probability that the paper takes, without
    its saturation.

    Args:
        dimension: of the principal space; None is the authors' rule: 1000 of 2048 features or more, 512 of 768 or more,
            else half of them.
        proposals: fit the mixture, which takes a pass over the features and is needed to propose, not to score.

    Example:
        >>> train = Features(avg=torch.tensor([[4.0, 1.0], [4.0, -1.0]]), head=(torch.tensor([[1.0, 0.0]]), None))
        >>> vim = VirtualLogit().fit(train)
        >>> vim.alpha, vim.score(torch.tensor([[1.0, 2.0]]))
        (tensor(4.), tensor([7.]))

    References:
        Wang, Li, Feng and Zhang, ViM: Out-Of-Distribution with Virtual-logit Matching, CVPR 2022.
    """

    rises = ("far",)
    origin: Tensor
    complement: Tensor
    alpha: Tensor

    def __init__(self, dimension: int | None = None, proposals: bool = False) -> None:
        super().__init__(proposals)
        self.dimension = dimension
        for name in ("origin", "complement", "alpha"):
            self.register_buffer(name, None)

    def learn(self, features: Features) -> None:
        moments = Moments.of((z, None) for z in self.chunks(features))
        origin = origin_of(self.weight, self.bias)
        complement = complement_of(moments, origin, self.dimension)
        self.origin, self.complement = origin.to(self.weight), complement.to(self.weight).contiguous()

        sums = torch.zeros(3, dtype=torch.float64, device=self.weight.device)
        for z in self.chunks(features):
            x = z - self.origin
            terms = (self.logits_at(z).amax(1), self.outside(z).norm(dim=1), x.norm(dim=1))
            sums += torch.stack([term.sum(dtype=torch.float64) for term in terms])
        if sums[1] <= 100 * torch.finfo(self.weight.dtype).eps * sums[2]:
            inside = len(origin) - complement.shape[1]
            raise InputError(
                f"VirtualLogit cannot be fitted: the {moments.n:,} samples lie within their {inside} principal "
                "directions, and nothing is left outside. Choose a smaller ",
                Argument("dimension"),
                ", or pass more samples.",
            )
        self.alpha = (sums[0] / sums[1]).to(self.weight)

    def outside(self, z: Tensor) -> Tensor:
        """The coordinates outside the principal space, (n, d - dimension)."""
        return (z - self.origin) @ self.complement

    def energy_of(self, z: Tensor) -> Tensor:
        norm: Tensor = torch.linalg.vector_norm(self.outside(z), dim=1)
        return self.alpha * norm + free_energy(self.logits_at(z))

    def gradient_of(self, z: Tensor) -> Tensor:
        r""":math:`\alpha R r / \|r\| - \mathrm{softmax}(f) W` with :math:`r = R^\top (z - o)`."""
        up = self.alpha * normalise(self.outside(z)) @ self.complement.T
        return up - self.logits_at(z).softmax(1) @ self.weight

    def validate(self) -> None:
        super().validate()
        check_complement(self.origin, self.complement, self.dimension)
        like = self.alpha.dtype == self.weight.dtype == self.origin.dtype
        if not like or self.alpha.shape != () or not self.alpha.isfinite() or len(self.origin) != self.weight.shape[1]:
            raise InputError(f"the head and the principal space of {len(self.origin)} features disagree")


@register("vim-residual", "norm outside the principal space")
class SubspaceDistance(Borrowing):
    r"""The norm of what lies outside the principal space (the Residual of Wang et al., 2022).

    .. math:: E(z) = \|R^\top (z - o)\|

    It is the virtual logit of :class:`VirtualLogit` alone. Without a head the origin :math:`o` is the mean of the ID
    features, and :math:`R` what principal component analysis leaves: so it works on contrastive backbones.

    Args:
        dimension: of the principal space; None is the authors' rule, as for :class:`VirtualLogit`.
        proposals: fit the mixture, which takes a pass over the features and is needed to propose, not to score.

    Example:
        >>> line = torch.tensor([[-2.0, 1.0], [0.0, 1.0], [2.0, 1.0]])
        >>> SubspaceDistance(dimension=1).fit(Features(avg=line)).score(torch.tensor([[9.0, 4.0]]))
        tensor([3.])

    References:
        Wang, Li, Feng and Zhang, ViM: Out-Of-Distribution with Virtual-logit Matching, CVPR 2022.
    """

    rises = ("far",)
    origin: Tensor
    complement: Tensor

    def __init__(self, dimension: int | None = None, proposals: bool = False) -> None:
        super().__init__(proposals)
        self.dimension = dimension
        for name in ("origin", "complement"):
            self.register_buffer(name, None)

    @property
    def reads(self) -> tuple[str, ...]:
        return ("avg",)

    @property
    def space(self) -> Space:
        return Space(("avg",), normalise=False)

    def fit(self, features: Features) -> Self:
        check_settings(self)
        self.begin(features)
        batches = features.only(self.reads).batches(CHUNK)
        moments = Moments.of(((self.space(batch), None) for batch in batches), number_of=features.number_of)
        head = features.head
        origin = moments.mean if head is None else origin_of(*head).to(moments.origin.device)
        complement = complement_of(moments, origin, self.dimension)
        dtype = working_dtype(self.space.blocks(features[:1])[0])
        self.origin, self.complement = origin.to(dtype), complement.to(dtype).contiguous()
        self.borrow(features)
        return self

    def energy(self, features: Features) -> Tensor:
        return self.energy_of(self.space(features, self.origin.dtype))

    def outside(self, z: Tensor) -> Tensor:
        """The coordinates outside the principal space, (n, d - dimension)."""
        self.check_width(z, len(self.origin))
        return (z - self.origin) @ self.complement

    def energy_of(self, z: Tensor) -> Tensor:
        norm: Tensor = torch.linalg.vector_norm(self.outside(z), dim=1)
        return norm

    def gradient_of(self, z: Tensor) -> Tensor:
        return normalise(self.outside(z)) @ self.complement.T

    def validate(self) -> None:
        super().validate()
        check_complement(self.origin, self.complement, self.dimension)
        if self.density is not None and self.density.white.shape[1] != len(self.origin):
            raise InputError("the mixture and the principal space read features of different widths")
