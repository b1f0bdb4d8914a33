"""Products by oneDNN are the products, their derivatives too, and are made only where they are quicker."""

from __future__ import annotations

import platform

import pytest
import torch
from torch import Tensor
from torch.nn.functional import linear

from heat_ood.residual import Network
from heat_ood.residual._gradient import InputGradient
from heat_ood.residual._products import Affine, affine, product, quick

here = platform.machine().lower() in ("x86_64", "amd64") and torch.backends.mkldnn.is_available()
needed = pytest.mark.skipif(not here, reason="torch has no oneDNN for this processor")


def drawn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def relative(found: Tensor, exact: Tensor) -> float:
    return float((found - exact).norm() / exact.norm())


@needed
def test_large_float32_matrices_alone() -> None:
    x, w = drawn(8, 512), drawn(1024, 512)
    assert quick(x, w)
    assert quick(drawn(8, 1024), w.T)
    assert not quick(drawn(8, 20), drawn(20, 20))
    assert not quick(x.double(), w.double())
    assert not quick(x.to("meta"), w.to("meta"))


@needed
@pytest.mark.parametrize("n", [1, 7, 256, 500])
@pytest.mark.parametrize("bias", [True, False])
def test_the_product_is_the_product(n: int, bias: bool) -> None:
    x, w, b = drawn(n, 512), drawn(1024, 512, seed=1), drawn(1024, seed=2) if bias else None
    exact = linear(x.double(), w.double(), None if b is None else b.double())
    assert relative(product(x, w, b), exact) < 1e-6
    back = drawn(n, 1024, seed=3)
    assert relative(product(back, w.T), back.double() @ w.double()) < 1e-6
    assert relative(product(back.T, x.T), back.double().T @ x.double()) < 1e-6


@needed
@pytest.mark.parametrize("precision", ["highest", "medium"])
def test_a_caller_s_precision_of_products_is_no_less_than_asked(precision: str) -> None:
    before = torch.get_float32_matmul_precision()
    x, w = drawn(64, 512), drawn(1024, 512, seed=1)
    try:
        torch.set_float32_matmul_precision(precision)
        found = product(x, w)
    finally:
        torch.set_float32_matmul_precision(before)
    assert relative(found, x.double() @ w.double().T) < (1e-6 if precision == "highest" else 1e-2)


@needed
def test_derivatives_are_those_of_torch() -> None:
    x, w, b = drawn(64, 512), drawn(1024, 512, seed=1), drawn(1024, seed=2)
    pull = drawn(64, 1024, seed=3)
    ours = [t.clone().requires_grad_() for t in (x, w, b)]
    exact = [t.double().requires_grad_() for t in (x, w, b)]
    found = affine(*ours)
    assert "Affine" in str(found.grad_fn)
    found.backward(pull)
    linear(*exact).backward(pull.double())
    for one, other in zip(ours, exact, strict=True):
        assert one.grad is not None
        assert other.grad is not None
        assert relative(one.grad, other.grad) < 1e-6


@needed
def test_an_input_without_a_gradient_costs_no_product(monkeypatch: pytest.MonkeyPatch) -> None:
    x, w, b = drawn(4, 512), drawn(1024, 512).requires_grad_(), drawn(1024).requires_grad_()
    found = affine(x, w, b)
    made: list[Tensor] = []
    monkeypatch.setattr("heat_ood.residual._products.product", lambda *a: made.append(a[0]) or a[0] @ a[1].T)
    found.sum().backward()
    assert len(made) == 1


def test_what_is_not_trained_is_torch_s_own() -> None:
    x, w, b = drawn(8, 512), drawn(1024, 512).requires_grad_(), drawn(1024)
    with torch.no_grad():
        assert torch.equal(affine(x, w, b), linear(x, w, b))
    assert torch.equal(affine(x, w.detach(), b), linear(x, w, b))
    small = drawn(8, 20), drawn(30, 20).requires_grad_(), drawn(30)
    assert torch.equal(affine(*small), linear(*small))


@needed
@pytest.mark.parametrize("tied", [False, True])
def test_a_large_network_s_gradient_is_that_of_float64(tied: bool) -> None:
    network = Network(512, 1024, 4, tied, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        network.layers[-1].weight.normal_(generator=torch.Generator().manual_seed(1))
    x = drawn(64, 512, seed=2)
    found = InputGradient(network)(x).clone()
    inputs = x.double().requires_grad_()
    (exact,) = torch.autograd.grad(network.double()(inputs).sum(), inputs)
    off = (found - exact).abs()
    # A value next to a kink may fall on its other side, which moves the gradient of that sample alone.
    assert off.median() < 1e-5
    assert (off.amax(1) > 1e-3).float().mean() < 0.2


@needed
def test_training_a_large_network_takes_the_same_step() -> None:
    def gradients(dtype: torch.dtype) -> list[Tensor]:
        network = Network(512, 1024, 4, generator=torch.Generator().manual_seed(0))
        with torch.no_grad():
            network.layers[-1].weight.normal_(generator=torch.Generator().manual_seed(1))
        network.to(dtype)(drawn(64, 512, dtype=dtype)).square().mean().backward()
        return [p.grad for p in network.parameters() if p.grad is not None]

    pairs = list(zip(gradients(torch.float32), gradients(torch.float64), strict=True))
    assert len(pairs) == 8
    assert all(relative(one, other) < 1e-4 for one, other in pairs)


def test_second_derivatives_are_refused_rather_than_wrong() -> None:
    if not here:
        pytest.skip("torch has no oneDNN for this processor")
    x, w, b = drawn(4, 512).requires_grad_(), drawn(1024, 512).requires_grad_(), drawn(1024)
    (first,) = torch.autograd.grad(Affine.apply(x, w, b).square().sum(), x, create_graph=True)  # type: ignore[no-untyped-call]
    with pytest.raises(RuntimeError, match=r"once_differentiable|does not require grad"):
        first.sum().backward()
