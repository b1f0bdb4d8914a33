"""The watch on the stream is kept as it goes, by one service at a time, and says when it alarms."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from heat_ood.errors import InputError
from heat_ood.serving import Drift, read_token
from heat_ood.serving._keeping import Keeper
from heat_ood.serving._tokens import borne

CALIBRATION = np.random.default_rng(0).normal(size=200)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "drift.json"


@pytest.fixture
def keeper(state: Path) -> Iterator[Keeper]:
    found = Keeper(CALIBRATION, state)
    yield found
    found.close()


def samples_in(state: Path) -> int:
    return int(Drift.load(state, CALIBRATION).report()["samples"])


def test_news_are_written_while_it_runs_and_at_the_end(keeper: Keeper, state: Path) -> None:
    assert samples_in(state) == 0
    keeper.update(np.zeros(3))
    end = time.monotonic() + 20
    while samples_in(state) != 3:
        assert time.monotonic() < end
        time.sleep(0.02)
    keeper.update(np.zeros(2))
    keeper.close()
    assert samples_in(state) == 5


def test_it_goes_on_where_it_was(keeper: Keeper, state: Path) -> None:
    keeper.update(np.linspace(-1, 1, 50))
    before = keeper.report()
    keeper.close()
    again = Keeper(CALIBRATION, state)
    assert again.report() == before
    again.close()


def test_two_do_not_keep_one_file(keeper: Keeper, state: Path) -> None:
    with pytest.raises(InputError, match=r"Another service keeps its drift in .*drift_state"):
        Keeper(CALIBRATION, state)
    keeper.close()
    Keeper(CALIBRATION, state).close()


def test_a_state_that_cannot_be_used_lets_go_of_the_file(state: Path) -> None:
    state.parent.mkdir()
    state.write_text("{}")
    for _ in range(2):
        with pytest.raises(ValueError, match=r"drift.json"):
            Keeper(CALIBRATION, state)
    state.unlink()
    Keeper(CALIBRATION, state).close()


def test_the_alarm_is_said_once_and_again_after_a_restart(
    keeper: Keeper, state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "heat_ood.serving")
    keeper.update(np.random.default_rng(1).normal(size=500))
    assert caplog.text == ""
    for i in range(5):
        keeper.update(np.random.default_rng(2 + i).normal(size=100) + 2)
    assert caplog.text.count("stopped looking like the calibration data") == 1
    assert "likely from sample 50" in caplog.text
    keeper.close()
    Keeper(CALIBRATION, state).close()
    assert caplog.text.count("stopped looking like the calibration data") == 2


def test_a_disk_that_fails_is_said_once_and_tried_again(
    keeper: Keeper, state: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(keeper.drift, "save", full)
        for _ in range(3):
            keeper.save()
    assert caplog.text.count("No space left on device; it is tried again".replace("; it", "); it")) == 1
    keeper.update(np.zeros(4))
    keeper.close()
    assert samples_in(state) == 4


def test_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEAT_OOD_TOKEN", raising=False)
    file = tmp_path / "token"
    assert read_token(None) is None
    file.write_text("a-token-of-some-length\n")
    token = read_token(file)
    assert token == "a-token-of-some-length"
    monkeypatch.setenv("HEAT_OOD_TOKEN", "another-token-in-here")
    assert (read_token(None), read_token(file)) == ("another-token-in-here", token)
    for wrong in ("", "short", "two words that are long enough", "ümlaute-in-einem-token", "x" * 5000):
        file.write_text(wrong)
        with pytest.raises(InputError, match="holds no token"):
            read_token(file)
    good = (b"authorization", b"Bearer a-token-of-some-length")
    assert borne([(b"host", b"x"), good], token)
    assert not borne([good, good], token)
    assert not borne([(b"authorization", "Bearer ä".encode())], token)
