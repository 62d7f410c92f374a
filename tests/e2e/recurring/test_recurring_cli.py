import json
import math
import os
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from perseus.cli.recurring import app as recurring
from perseus.errors import MissingExtraError
from perseus.recurring.errors import StoreError
from perseus.recurring.policy import PolicySettings
from perseus.recurring.power_limits import Measurement
from perseus.recurring.power_profile import PowerPoint
from perseus.recurring.store import JobKey, JobSettings, TrialStore
from perseus.recurring.trial import TrialResult

TRACES = Path(os.environ.get("PERSEUS_SHARED_DATA", Path(__file__).parents[4] / "shared" / "data")) / "nsdi23"
needs_traces = pytest.mark.skipif(
    not TRACES.is_dir(), reason=f"the Zeus traces are not at {TRACES}; set PERSEUS_SHARED_DATA"
)

app = typer.Typer()
app.add_typer(recurring)


@app.callback()
def main() -> None:
    """Stand for the whole command line."""


def perseus(*arguments: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["recurring", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result.output


@needs_traces
def test_replay_shows_the_published_tables() -> None:
    text = perseus("replay", TRACES, "--gpu", "v100", "--seeds", 3)
    for number in ("0.8200", "0.5721", "0.3340", "0.4320", "48, 150"):
        assert number in text
    assert "v100: geometric mean of Zeus energy / default energy 0.55" in text


@needs_traces
def test_replay_as_json() -> None:
    document = json.loads(
        perseus("replay", TRACES, "--gpu", "A40", "--job", "NeuMF", "--job", "bert(qa)", "--seeds", 2, "--json")
    )
    assert [job["job"] for job in document["jobs"]] == ["NeuMF", "BERT(QA)"]
    assert document["jobs"][0]["optimum_batch_size"] == 16384
    assert document["jobs"][0]["aborted"] == 0


@needs_traces
def test_infinite_beta_is_null_in_json() -> None:
    text = perseus("replay", TRACES, "--gpu", "p100", "--job", "resnet-50", "--seeds", 1, "--beta", math.inf, "--json")
    assert json.loads(text)["beta"] is None


@needs_traces
def test_replay_draws_a_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    perseus("replay", TRACES, "--job", "resnet-50", "--seeds", 1, "--plot", tmp_path / "replay.png", "--quiet")
    assert (tmp_path / "replay.png").read_bytes().startswith(b"\x89PNG")


@needs_traces
def test_a_picture_without_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match=r"perseus-energy\[plot\]"):
        perseus("replay", TRACES, "--gpu", "v100", "--job", "neumf", "--seeds", 1, "--plot", tmp_path / "x.png")


@needs_traces
@pytest.mark.parametrize(("option", "known"), [("--gpu", "v100"), ("--job", "neumf")])
def test_unknown_names(option: str, known: str) -> None:
    assert known in perseus("replay", TRACES, option, "h100", code=2)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    store = TrialStore(tmp_path / "log")
    key = JobKey(job="asr", hardware="1 GPU, 250 W")
    settings = JobSettings(
        policy=PolicySettings(batch_sizes=(8, 16), default=16), eta=0.5, target=0.9, better="higher", max_epochs=9
    )
    trial = store.lease(key, settings, max_power_w=250.0, lease_s=60.0)
    result = TrialResult(ending="reached", epochs=3, energy_j=200.0, time_s=1.0, metric=0.93, power_limit_w=150.0)
    store.finish(key, trial, result)
    store.add_measurement(key, 16, Measurement(PowerPoint(150.0, 140.0, 3.0), 0.01))
    store.lease(key, settings, max_power_w=250.0, lease_s=60.0)
    return tmp_path / "log"


def test_show(log: Path) -> None:
    text = perseus("show", "asr", "--store", log)
    assert "asr on 1 GPU, 250 W" in text
    assert "reached" in text
    assert "running" in text
    assert "next: batch size 16 (concurrent)" in text


def test_show_as_json(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERSEUS_RECURRING_STORE", str(log))
    (document,) = json.loads(perseus("show", "asr", "--json"))["hardware"]
    assert [trial["ending"] for trial in document["trials"]] == ["reached", "running"]
    assert document["trials"][0]["cost_j"] == 225.0
    assert document["trials"][0]["cap_j"] is None
    assert document["trials"][1]["cap_j"] == 450.0
    assert document["power_limits"] == {"16": [{"limit_w": 150.0, "average_power_w": 140.0, "rate_per_s": 3.0}]}
    assert document["next"] == {"batch_size": 16, "phase": "concurrent", "cap_j": 450.0}


def test_show_of_an_unknown_job(log: Path) -> None:
    with pytest.raises(StoreError, match="it has asr"):
        perseus("show", "nlp", "--store", log)
