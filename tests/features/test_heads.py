"""Which layer is the head: found, named, given, or absent; and what an error says where it cannot be told."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from heat_ood.errors import InputError
from heat_ood.features import Extractor
from small_networks import Net, expected_std, images


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def test_no_head() -> None:
    model, x = Net(lambda net, x: x.mean((2, 3))), images()
    with pytest.raises(InputError, match=r"(?s)No linear layer.*final \(12 → 5\).*head=False"):
        Extractor(model)(x)
    features = Extractor(model, head=False)(x)
    model.eval()
    with torch.no_grad():
        torch.testing.assert_close(features.avg, model(x))
        torch.testing.assert_close(features.std, expected_std(model.maps(x)))
    assert features.head is None
    assert features.logits is None


def test_no_head_and_maps_for_output() -> None:
    model, x = Net(lambda net, x: x), images()
    features = Extractor(model, head=False)(x)
    model.eval()
    with torch.no_grad():
        torch.testing.assert_close(features.avg, model(x).mean((2, 3)))
        torch.testing.assert_close(features.std, expected_std(model(x)))


def test_no_head_but_logits() -> None:
    model, x = Net(lambda net, x: {"logits": net.final(x.mean((2, 3))) ** 2, "features": x.mean((2, 3))}), images()
    features = Extractor(model, head=False)(x)
    assert features.head is None
    assert features.avg.shape == (4, 12)
    torch.testing.assert_close(features.logits, model.eval()(x)["logits"].detach())


def test_named_head_stands_for_the_logits() -> None:
    model, x = Net(lambda net, x: net.final(x.mean((2, 3))).log_softmax(1)), images()
    with pytest.raises(InputError, match="head=…"):
        Extractor(model)(x)
    for head in ("final", model.final):
        features = Extractor(model, head=head)(x)
        torch.testing.assert_close(features.logits.log_softmax(1), model.eval()(x).detach())


def test_given_weights() -> None:
    class Products(Net):
        def forward(self, x: Tensor) -> Tensor:
            return self.maps(x).mean((2, 3)) @ self.final.weight.T + self.final.bias

    model, x = Products(), images()
    with pytest.raises(InputError, match="No linear layer"):
        Extractor(model)(x)
    weights = (model.final.weight.detach().numpy(), model.final.bias)
    extractor = Extractor(model, head=weights)
    for features in (extractor(x), extractor(x)):
        torch.testing.assert_close(features.logits, model.eval()(x).detach())
        assert features.std.shape == (4, 12)


def test_given_weights_of_a_probe_on_a_backbone() -> None:
    model, x = Net(lambda net, x: x.mean((2, 3))), images()
    features = Extractor(model, head=(torch.rand(3, 12), None))(x)
    assert features.logits.shape == (4, 3)
    assert features.std.shape == (4, 12)
    with pytest.raises(InputError, match="reproduces none"):
        Extractor(model, head=(torch.rand(3, 11), None))(x)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"head": "fc"}, r"no layer 'fc'.*final \(12 → 5\)"),
        ({"head": nn.Linear(2, 2)}, "not part of the model"),
        ({"head": 3}, "head is a module"),
        ({"head": True}, "head is a module"),
        ({"layers": ("conv", "nope")}, r"no layer 'nope'.*conv2"),
        ({"layers": ("conv", "conv")}, "twice"),
        ({"autocast": torch.float32}, "autocast"),
    ],
)
def test_wrong_settings_say_what_there_is(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Extractor(Net(), **settings)
    with pytest.raises(InputError, match=r"nn\.Module"):
        Extractor(lambda x: x)


def test_a_head_or_layer_that_does_not_run() -> None:
    model = Net()
    model.spare = nn.Linear(3, 3)
    with pytest.raises(InputError, match="no single vector"):
        Extractor(model, head="spare")(images())
    with pytest.raises(InputError, match="no part"):
        Extractor(model, layers=("spare",))(images())


def test_broken_output_is_not_blamed_on_the_head() -> None:
    with pytest.raises(InputError, match="not finite for any"):
        Extractor(Net())(images() * float("nan"))
