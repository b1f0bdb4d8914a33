"""The suites that ship, and what a file of one's own may and may not say."""

from __future__ import annotations

import importlib
import re
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from cifar_data import write_cifar10
from heat_ood import Extractor, methods
from heat_ood.benchmarks import digits
from heat_ood.benchmarks._datasets import DATASETS
from heat_ood.benchmarks._readers import READERS, MissingData, SetSpec, open_set
from heat_ood.benchmarks._reading import suite, suites
from heat_ood.benchmarks._suites import Backbone, Contrast
from heat_ood.errors import InputError
from heat_ood.features._distortions import CONTRAST
from heat_ood.heat._choice import earlier_layers
from heat_ood.images import Preprocessing

NEAR_TO_FAR = {"mid": ("lsun", "places"), "far": ("textures", "svhn")}
LEADERBOARD = {"near": ("ssb-hard", "ninco"), "far": ("inaturalist", "textures", "openimage-o")}
CLASSIC = ("mnist", "svhn", "textures", "places365")
SHARED = {"mid": ("scenes", "clothing"), "far": ("textures", "svhn")}
TABLE: dict[str, dict[str, tuple[str, ...]]] = {
    "cifar10": {"near": ("cifar100", "tinyimagenet"), **NEAR_TO_FAR},
    "cifar100": {"near": ("cifar10", "tinyimagenet"), **NEAR_TO_FAR},
    "imagenet": {"ood": ("inaturalist", "sun", "places", "textures")},
    "imagenet-openood": {
        "near": ("species", "inaturalist", "openimage-o", "imagenet-o"),
        "far": ("textures", "mnist"),
    },
    "imagenet-vit": {"ood": ("openimage-o", "textures", "inaturalist", "imagenet-o")},
    "openood-v1.5-cifar10": {"near": ("cifar100", "tinyimagenet"), "far": CLASSIC},
    "openood-v1.5-cifar100": {"near": ("cifar10", "tinyimagenet"), "far": CLASSIC},
    "openood-v1.5-imagenet200": LEADERBOARD,
    "openood-v1.5-imagenet": LEADERBOARD,
    "shared-cifar10": {"near": ("cifar100", "tinyimagenet"), **SHARED},
    "shared-cifar100": {"near": ("cifar10", "tinyimagenet"), **SHARED},
    "shared-imagenet": {
        "near": ("clothing",),
        "mid": ("scenes",),
        "far": ("textures",),
        "shift": ("edges", "cue-conflict"),
    },
    "demo": {"near": ("letters", "digit-pairs"), "far": ("photo-patches",)},
}
DOCS = "".join(f.read_text("utf-8") for f in sorted(Path(__file__).parents[2].glob("docs/benchmarks*.md")))
MINE = """
title = "mine"

[id]
name = "things"
calibration = 5
train = { reader = "folder", path = "train" }
test = { reader = "folder", path = "test" }

[backbone]
title = "a network"
model = "my_models:small"

[[ood]]
name = "others"
reader = "folder"
path = "others"
"""


SUITES = Path(__file__).parents[2] / "suites"


@pytest.fixture(autouse=True)
def own_suites(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEAT_OOD_SUITES", str(SUITES))


def written(tmp_path: Path, text: str = MINE) -> Path:
    file = tmp_path / "mine.toml"
    file.write_text(text, encoding="utf-8")
    return file


def test_the_suites_are_those_of_the_table() -> None:
    assert {name: dict(s.groups) for name, s in suites().items()} == TABLE


@pytest.mark.parametrize("name", TABLE)
def test_a_suite_is_whole(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/nowhere")
    found = suite(name)
    assert found.name == name
    assert found.custom == name.startswith("shared")
    assert [spec.name for spec in found.ood] == [n for names in found.groups.values() for n in names]
    assert set(found.left_out) <= set(methods())
    for spec in (found.id.train, found.id.test, *found.ood):
        if spec.reader != "digits":
            with pytest.raises(MissingData) as caught:
                open_set(spec, "/nowhere")
            assert caught.value.get
            assert caught.value.put.is_relative_to("/nowhere")
    for backbone in (found.backbone, *(v.backbone for v in found.variants if v.backbone)):
        assert isinstance(backbone.preprocessing, Preprocessing)
        assert backbone.layers == "stages"
        assert backbone.get or name == "demo"


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "openood-v1.5-cifar10", "openood-v1.5-cifar100"])
def test_a_cifar_backbone_is_normalised_as_it_was_trained(name: str) -> None:
    backbone, dataset = suite(name).backbone, DATASETS[suite(name).id.name]
    assert backbone.preprocessing == dataset.preprocessing
    assert backbone.model.endswith(f"_{suite(name).id.name}")


def test_the_variants_of_imagenet() -> None:
    dice, supcon = suite("imagenet").variants
    assert dice.priors == ("gmm", "gmm-std", "dice")
    assert dice.backbone is None
    assert supcon.priors == ("gmm", "gmm-std")
    assert supcon.backbone is not None
    assert supcon.backbone.head is False


@pytest.mark.parametrize("name", ["imagenet", "imagenet-vit", "openood-v1.5-imagenet"])
def test_timm_has_the_backbone_and_asks_for_the_same_images(name: str) -> None:
    timm = importlib.import_module("timm")
    backbone = suite(name).backbone
    config = timm.get_pretrained_cfg(backbone.model.removeprefix("timm:"))
    assert backbone.pretrained
    assert config.to_dict()["num_classes"] == 1000
    assert backbone.preprocessing == Preprocessing.from_config(config.to_dict())


def test_openood_takes_its_validation_images_to_calibrate() -> None:
    found = suite("openood-v1.5-imagenet200").id
    assert isinstance(found.calibration, SetSpec)
    assert found.calibration.path == "benchmark_imglist/imagenet200/val_imagenet200.txt"


def test_the_demo_is_the_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digits, "train", partial(digits.train, epochs=1))
    found = suite("demo")
    model, data = found.backbone.load("."), digits.load_data()
    again = digits.train(*data.train)
    images = open_set(found.ood[0], ".")
    assert found.backbone.preprocessing is not None
    images.preprocessing = found.backbone.preprocessing
    x = torch.stack([images[i] for i in range(20)])  # type: ignore[misc]
    with torch.no_grad():
        torch.testing.assert_close(model(x), again(data.ood["letters"][:20]), rtol=1e-4, atol=1e-4)
    features = Extractor(model, found.backbone.layers)(x)
    assert features.avg.shape == (20, 64)  # type: ignore[union-attr]
    assert earlier_layers(features) == ["stage2"]


@pytest.mark.parametrize("name", ["shared-cifar10", "shared-cifar100"])
def test_the_shared_networks(data_dir: Path, name: str) -> None:
    found = suite(name)
    root = found.data_root(data_dir)
    model = found.backbone.load(root)
    images = open_set(SetSpec("x", "npz", "cifar100_test.npz"), root, limit=50)
    assert found.backbone.preprocessing is not None
    images.preprocessing = found.backbone.preprocessing
    x = torch.stack([images[i][0] for i in range(50)])
    sys.path.insert(0, str(SUITES))
    nets = importlib.import_module("shared_networks").networks(data_dir / "nets.py")
    with np.load(data_dir / "cifar100_test.npz") as file:
        assert torch.equal(x, nets.normalise(file["images"][list(images.rows)]))
    with torch.no_grad():
        logits = model(x)
        assert earlier_layers(Extractor(model, found.backbone.layers)(x)) == ["stage1", "stage2", "stage3"]
        torch.testing.assert_close(
            logits, nets.load(found.id.name)(x), rtol=1e-3, atol=1e-4
        )  # another layout in memory
    if name == "shared-cifar100":
        assert (logits.argmax(1).numpy() == images.targets).mean() > 0.5


def test_where_the_shared_data_lie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = suite("shared-cifar10")
    monkeypatch.delenv("HEAT_OOD_DATA", raising=False)
    assert found.data_root().resolve() == (Path(__file__).parents[3] / "shared" / "data").resolve(), "beside it"
    monkeypatch.chdir(tmp_path)
    assert suite("cifar10").data_root() == Path("data")
    monkeypatch.setenv("HEAT_OOD_DATA", str(tmp_path))
    assert found.data_root() == tmp_path
    assert suite("cifar10").data_root() == tmp_path
    assert found.data_root(tmp_path / "given") == tmp_path / "given"
    with pytest.raises(InputError, match=r"the network of cifar10 is not there: there is no .*given/nets\.py"):
        found.backbone.load(tmp_path / "given")


def test_a_suite_of_ones_own(tmp_path: Path) -> None:
    found = suite(written(tmp_path))
    assert (found.name, found.title, found.id.title) == ("mine", "mine", "things")
    assert found.custom
    assert found.groups == {"ood": ("others",)}
    assert found.id.calibration == 5
    assert found.id.seed == 0
    assert found.id.train == SetSpec("things-train", "folder", "train")
    assert found.backbone == Backbone("a network", "my_models:small", folder=tmp_path)
    assert found.data_root() == tmp_path
    assert found.notes == ()
    assert found.variants == ()
    assert found.contrast == Contrast(CONTRAST, None, 0)
    assert found.apart == ()
    assert found.counted == ("others",)
    assert found.pictures
    assert found.backbone.batch_size == 64


def test_contrast_can_be_switched_off(tmp_path: Path) -> None:
    text = MINE.replace('title = "mine"', 'title = "mine"\ncontrast = false')
    assert suite(written(tmp_path, text)).contrast is None
    assert all(found.contrast == Contrast() for found in suites().values())


def test_how_much_contrast_there_is() -> None:
    assert [Contrast().count(n) for n in (10, 50_000, 1_281_167)] == [10, 50_000, 50_000]
    assert [Contrast(samples=100).count(n) for n in (10, 1000)] == [100, 100]


def test_everything_that_a_file_may_say(tmp_path: Path) -> None:
    text = MINE.replace('title = "mine"', 'title = "mine"\nroot = "images"\nnotes = ["one", "two"]')
    text = text.replace("calibration = 5", 'title = "my things"\ncalibration = { reader = "npz", path = "held.npz" }')
    text = text.replace(
        'model = "my_models:small"',
        'model = "my_models:small"\nweights = "w.safetensors"\nlayers = ["a", "b"]\nhead = "fc"\nget = "ask me"\n'
        '[backbone.preprocessing]\nsize = 8\nmean = [0, 0.5, 1]\nstd = [1, 1, 1]\ninterpolation = "bicubic"\n'
        "crop_pct = 0.9\nsquash = true",
    )
    text += 'limit = 3\nget = "there"\ngroup = "far"\n\n[[variants]]\nname = "other"\ntitle = "another"\n'
    text += 'priors = ["gmm"]\nbackbone = { title = "b", model = "m:f", head = false, layers = "stages" }\n'
    text += '\n[[ood]]\nname = "mine"\ngroup = "odd"\nreader = "encoded-npz"\npath = "m.npz"\nrows = "m:f"\n'
    text = text.replace('head = "fc"', 'head = "fc"\nbatch_size = 4')
    text = text.replace('title = "mine"', 'title = "mine"\napart = ["odd"]\npictures = false')
    text += '\n[left_out]\ngram = "slow"\n\n[contrast]\nkinds = ["noise", "mixup"]\nsamples = 70\nseed = 3\n'
    found = suite(written(tmp_path, text))
    assert found.data_root() == tmp_path / "images"
    assert found.id.calibration == SetSpec("things-calibration", "npz", "held.npz")
    assert found.backbone.layers == ("a", "b")
    assert found.backbone.preprocessing == Preprocessing((8, 8), (0, 0.5, 1), (1, 1, 1), "bicubic", 0.9, True)
    rows = SetSpec("mine", "encoded-npz", "m.npz", rows="m:f", folder=tmp_path)
    assert found.ood == (SetSpec("others", "folder", "others", get="there", limit=3), rows)
    assert found.groups == {"far": ("others",), "odd": ("mine",)}
    assert found.apart == ("odd",)
    assert found.counted == ("others",)
    assert not found.pictures
    assert found.backbone.batch_size == 4
    assert found.variants[0].backbone == Backbone("b", "m:f", head=False, layers="stages", folder=tmp_path)
    assert found.left_out == {"gram": "slow"}
    assert found.contrast == Contrast(("noise", "mixup"), 70, 3)
    assert found.notes == ("one", "two")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('title = "mine"', "", r"title is missing\. Add it: text"),
        ('title = "mine"', 'title = ""', "title is empty"),
        ('title = "mine"', "title = 3", r"title is 3\. Give text"),
        ('title = "mine"', 'tittle = "mine"\ntitle = "x"', r"tittle is not a key\. Did you mean title\?"),
        ('title = "mine"', 'title = "mine"\nnotes = "one"', r"notes is 'one'\. Give \[ \] with text"),
        ('title = "mine"', 'title = "mine"\nnotes = [1]', r"notes\[0\] is 1"),
        ('title = "mine"', 'title = "mine"\napart = ["far"]', r"apart names 'far', which is no group\. There are ood"),
        ('title = "mine"', 'title = "mine"\napart = ["ood"]', "apart names all groups"),
        ('title = "mine"', 'title = "mine"\napart = ["ood", "ood"]', "apart names 'ood' twice"),
        ('title = "mine"', 'title = "mine"\npictures = "no"', "pictures is 'no'. Give true or false"),
        ('path = "others"', 'path = "others"\nrows = "m:f"', r"ood\[0\]: others is read by folder, with rows"),
        ('model = "my_models:small"', 'model = "my_models:small"\nbatch_size = 0', "backbone.batch_size is 0"),
        ("calibration = 5", "calibration = 0", "id.calibration is 0"),
        ("calibration = 5", "calibration = true", "id.calibration is True"),
        ("calibration = 5", "", "id.calibration is missing"),
        ('path = "test"', 'pat = "test"', "id.test.path is missing"),
        ('path = "test" }', 'path = "test", paht = "x" }', "id.test.paht is not a key.*Did you mean path"),
        ('reader = "folder", path = "test"', 'reader = "zip", path = "test"', "id.test: There is no reader 'zip'"),
        ('name = "others"', 'name = "a/b"', r"ood\[0\].name is 'a/b'\. Use letters"),
        ('name = "others"', 'name = "test"', "which is taken"),
        ('name = "others"', 'name = "contrast"', "which is taken"),
        ('title = "mine"', 'title = "mine"\ncontrast = true', r"contrast is true\. Give a table, false"),
        ('title = "mine"', 'title = "mine"\ncontrast = 3', r"contrast is 3\. Give a table"),
        ("[backbone]", '[contrast]\nkind = ["noise"]\n[backbone]', r"contrast\.kind is not a key\. Did you mean kinds"),
        ("[backbone]", '[contrast]\nkinds = ["fog"]\n[backbone]', r"contrast: The kinds cannot be \('fog',\)"),
        ("[backbone]", "[contrast]\nsamples = 0\n[backbone]", "contrast: samples is 0"),
        ("[backbone]", "[contrast]\nseed = -1\n[backbone]", "contrast: seed is -1"),
        ('path = "others"', 'path = "others"\nlimit = 1.5', r"ood\[0\].limit is 1.5\. Give a whole number"),
        ('[[ood]]\nname = "others"', '[ood]\nname = "others"', r"ood is \{"),
        ("[backbone]", "[backbon]", "backbone is missing"),
        ('model = "my_models:small"', 'model = "my_models:small"\nhead = true', "backbone.head is true"),
        (
            'model = "my_models:small"',
            'model = "m:f"\n[backbone.preprocessing]\nmean = [1, 2]\nstd = [1, 2]',
            "backbone.preprocessing: Cannot normalise",
        ),
        ('model = "my_models:small"', 'model = "m:f"\npreprocessing = 3', "backbone.preprocessing is 3. Give a table"),
        ('path = "others"', 'path = "others"\n[left_out]\ngrams = "slow"', "left_out.grams is not a method"),
        (
            'path = "others"',
            'path = "others"\n[[ood]]\nname = "others"\nreader = "folder"\npath = "b"',
            "'others' twice",
        ),
        (
            'path = "others"',
            'path = "others"\n[[ood]]\nname = "b"\ngroup = "far"\nreader = "folder"\npath = "b"',
            "sets without a group",
        ),
        ('title = "mine"', "title = ", "is no TOML file"),
    ],
)
def test_a_file_that_cannot_be_meant(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in MINE
    file = written(tmp_path, MINE.replace(old, new, 1))
    with pytest.raises(InputError, match=message) as caught:
        suite(file)
    assert str(file) in str(caught.value)


@pytest.mark.parametrize("text", re.findall(r"```toml\n(.*?)```", DOCS, re.DOTALL))
def test_an_example_in_the_docs_is_a_suite(tmp_path: Path, text: str) -> None:
    found = suite(written(tmp_path, text))
    assert found.ood
    assert found.backbone.preprocessing is not None
    assert found.contrast == Contrast(), "it shows the defaults"


def test_the_docs_have_an_example_and_every_reader_and_suite() -> None:
    assert "```toml\n" in DOCS
    assert all(f"`{name}`" in DOCS for name in (*READERS, *TABLE))


def test_no_ood_sets(tmp_path: Path) -> None:
    text = MINE[: MINE.index("[[ood]]")]
    with pytest.raises(InputError, match="ood is missing"):
        suite(written(tmp_path, text))
    with pytest.raises(InputError, match="ood is empty"):
        suite(written(tmp_path, "ood = []\n" + text))


def test_a_name_that_is_no_suite(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no suite 'cifar11'.*Did you mean cifar10\?.*demo"):
        suite("cifar11")
    with pytest.raises(InputError, match="no such file"):
        suite(tmp_path / "gone.toml")


def test_a_backbones_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = f"models_of_{tmp_path.name}"
    (tmp_path / f"{module}.py").write_text("from torch import nn\ndef small(): return nn.Linear(3, 2)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    backbone = Backbone("mine", f"{module}:small", weights="w.safetensors", get="train it")
    with pytest.raises(MissingData, match=r"the backbone \(mine\) is not there.*Get it: train it") as caught:
        backbone.load(tmp_path)
    assert caught.value.put == tmp_path / "w.safetensors"

    model = nn.Linear(3, 2)
    save_file(dict(model.state_dict()), tmp_path / "w.safetensors")
    save_file({k: v + 1 for k, v in model.state_dict().items()}, tmp_path / "own.safetensors")
    found: Any = backbone.load(tmp_path)
    assert torch.equal(found.weight, model.weight)
    found = backbone.load(tmp_path, tmp_path / "own.safetensors")
    assert torch.equal(found.weight, model.weight + 1)


def test_the_sets_of_a_suite_open_from_one_root(tmp_path: Path) -> None:
    write_cifar10(tmp_path / "cifar-10-batches-bin")
    found = suite("cifar10")
    assert len(open_set(found.id.train, tmp_path)) == 20
    assert len(open_set(found.id.test, tmp_path)) == 6
    with pytest.raises(MissingData, match="cifar100 is not there"):
        open_set(found.ood[0], tmp_path)
