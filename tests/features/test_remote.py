"""Stores, images and scores by URL: on fsspec's memory and local file systems, and on an S3 server on loopback."""

from __future__ import annotations

import sys
import uuid
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from heat_ood import Extractor
from heat_ood.errors import FormatError, InputError
from heat_ood.features import Features, digest_of_samples, merge_shards, shard_name
from heat_ood.files import Mirror, url_of
from heat_ood.images import open_images
from shard_data import sharded
from store_data import same, some

fsspec = pytest.importorskip("fsspec", reason="pip install heat-ood[remote]")
SCHEMES = ("memory", "file", "s3")
DATA = TensorDataset(torch.rand(48, 4, generator=torch.Generator().manual_seed(0)), torch.arange(48) % 3)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """A server that speaks S3, on loopback."""
    pytest.importorskip("s3fs", reason="for S3: pip install s3fs 'moto[server]'")
    moto = pytest.importorskip("moto.server", reason="for S3: pip install s3fs 'moto[server]'")
    running = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    yield f"http://{host}:{port}"
    running.stop()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEAT_OOD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(params=SCHEMES)
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A folder of one's own, elsewhere."""
    own = f"b{uuid.uuid4().hex}"
    if request.param == "file":
        return f"file://{tmp_path}/{own}"
    if request.param == "memory":
        return f"memory://{own}"
    address = request.getfixturevalue("server")
    for name, value in {
        "AWS_ENDPOINT_URL": address,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    fsspec.filesystem("s3").mkdir(own)
    return f"s3://{own}/data"


def extractor() -> Extractor:
    torch.manual_seed(0)
    return Extractor(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)))


def send(local: Path, url: str) -> None:
    system, root = fsspec.core.url_to_fs(url)
    system.makedirs(root.rpartition("/")[0], exist_ok=True)
    system.put_file(str(local), root)


def test_urls_are_told_from_paths() -> None:
    assert url_of(Path("gs://bucket/a b")) == "gs://bucket/a b"
    assert url_of(Path("file:///tmp/x")) == "file:///tmp/x"
    assert [url_of(path) for path in ("a/b", "/a", "C:/x", "c:\\x", "a:b", "")] == [None] * 6


def test_a_store_goes_there_and_comes_back(url: str) -> None:
    one = some(6)
    one.save(url)
    assert same(Features.open(url, verify=True), one)
    other = some(9, seed=1)
    other.save(url)
    assert same(Features.open(url), other)
    with pytest.raises(FormatError, match="holds no features"):
        Features.open(f"{url}/elsewhere")


def test_shards_made_there_are_the_one_run_and_are_fetched_when_touched(url: str, tmp_path: Path, cache: Path) -> None:
    loader = DataLoader(DATA, batch_size=2)
    one = extractor().extract(loader, tmp_path / "one", progress=False)
    for number in (2, 0):
        extractor().extract(loader, f"{url}/f", progress=False, shard=(number, 3))
    with pytest.raises(InputError, match="shard-00001 is missing"):
        merge_shards(f"{url}/f")
    with pytest.raises(FormatError, match=r"2 shards that are not closed: run heat-ood merge"):
        Features.open(f"{url}/f")
    extractor().extract(loader, f"{url}/f", progress=False, shard=(1, 3))
    merge_shards(f"{url}/f")
    for file in sorted(cache.rglob("*"), reverse=True):  # as on another machine
        file.unlink() if file.is_file() else file.rmdir()
    shards = Features.open(f"{url}/f")
    assert torch.equal(shards[20:22].avg, one.avg[20:22])
    assert {file.parent.name for file in cache.rglob("avg.npy")} == {"shard-00001"}
    assert digest_of_samples(shards) == digest_of_samples(one)


def test_a_shard_that_is_there_is_not_made_again(url: str, monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    loader, net = DataLoader(DATA, batch_size=2), extractor()
    made = net.extract(loader, url, progress=False, shard="1/3")
    for file in sorted(cache.rglob("*"), reverse=True):
        file.unlink() if file.is_file() else file.rmdir()
    monkeypatch.setattr(net, "forward", None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        again = net.extract(loader, url, progress=False, shard="1/3")
        assert same(again, made)
        with pytest.raises(InputError, match="another part of the samples"):
            net.extract(loader, url, progress=False, shard="1/4")


def test_the_manifest_is_sent_last(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[str] = []
    send_all = Mirror.send

    def noted(self: Mirror, names: Any) -> None:
        names = list(names)
        sent.extend(names)
        send_all(self, names)

    monkeypatch.setattr(Mirror, "send", noted)
    some(6).save(url)
    assert sent[-1] == "manifest.json"
    assert sent.count("manifest.json") == 1
    assert len(sent) > 5


def test_a_file_that_is_gone_is_named(url: str, tmp_path: Path) -> None:
    one = some(8)
    for number in range(2):
        one[4 * number : 4 * number + 4].save(f"{url}/{shard_name(number)}")
    shards = merge_shards(url)
    system, root = fsspec.core.url_to_fs(url)
    system.rm(f"{root}/shard-00001/std.npy")
    assert torch.equal(shards[:4].std, one.std[:4])
    with pytest.raises(FormatError, match=r"shard-00001/std\.npy is missing"):
        _ = shards[4:].std


def test_images_of_lists_and_tars_elsewhere(url: str, tmp_path: Path) -> None:
    import tarfile

    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (4, 5, 5, 3), dtype=np.uint8)
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for i, one in enumerate(pixels):
            Image.fromarray(one).save(tmp_path / f"{i}.png")
            send(tmp_path / f"{i}.png", f"{url}/images/{i}.png")
            archive.add(tmp_path / f"{i}.png", f"{i}.png")
    for name in ("a-0.tar", "a-1.tar"):
        send(tmp_path / "a.tar", f"{url}/{name}")
    (tmp_path / "list.txt").write_text(f"images/0.png\t1\n{url}/images/1.png\t0\n")
    send(tmp_path / "list.txt", f"{url}/list.txt")
    listed = open_images(f"{url}/list.txt")
    assert [np.array_equal(listed.pixels(i), pixels[i]) for i in range(2)] == [True, True]
    assert listed.targets.tolist() == [1, 0]
    tars = open_images(f"{url}/a-{{0..1}}.tar", part=lambda n: range(1, n))
    assert np.array_equal(tars.pixels(3), pixels[3])
    assert (len(tars), tars.place) == (4, (1, 2))
    with pytest.raises(InputError, match="Pass a list of paths"):
        open_images(f"{url}/images")
    with pytest.raises(InputError, match="There is no"):
        open_images(f"{url}/nowhere.txt")


def test_what_fsspec_does_not_know() -> None:
    with pytest.raises(InputError, match="fsspec knows"):
        Features.open("nothing-of-the-kind://x/y")


def test_without_fsspec_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(InputError, match=r"pip install heat-ood\[remote\]"):
        Features.open("memory://x")


def test_a_folder_here_needs_no_fsspec(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "fsspec", None)
    assert len(sharded(some(6), tmp_path, (2, 4))) == 6
