"""Reading profiles: every rule has one clear message, and every accepted form is read right."""

from __future__ import annotations

import pickle
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import perseus
from perseus.profiles import EXAMPLE_BLOCKING_POWER_W

ROOT = Path(__file__).parents[2]
HEADER = "stage,instruction,frequency,time,energy\n"
GOOD = HEADER + "0,forward,1410,0.05,20\n0,forward,1200,0.06,18\n0,backward,1410,0.10,40\n0,backward,1200,0.12,36\n"


def write(folder: Path, text: str, encoding: str = "utf-8") -> Path:
    path = folder / "profile.csv"
    path.write_bytes(text.encode(encoding))
    return path


def read(folder: Path, text: str, **options: Any) -> perseus.Profiles:
    return perseus.read_profiles(write(folder, text), **{"blocking_power_w": 70.0, **options})


def columns(**changes: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "stage": [0, 0],
        "instruction": ["forward", "forward"],
        "frequency": [1410, 1200],
        "time": [0.05, 0.06],
        "energy": [20.0, 18.0],
    }
    return {name: values for name, values in {**base, **changes}.items() if values is not None}


def check_good(profiles: perseus.Profiles) -> None:
    assert profiles.keys == ((0, "backward"), (0, "forward"))
    assert profiles[0, "forward"].times_s.tolist() == [0.05, 0.06]
    assert profiles[0, "backward"].energies_j.tolist() == [40.0, 36.0]
    assert profiles[0, "backward"].knobs["frequency"].tolist() == [1410.0, 1200.0]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(GOOD, id="plain"),
        pytest.param(GOOD.replace("\n", "\r\n"), id="crlf"),
        pytest.param("\ufeff" + GOOD, id="byte order mark"),
        pytest.param(GOOD.replace(",", ";"), id="semicolon"),
        pytest.param(GOOD.replace(",", ";").replace(".", ","), id="semicolon and decimal comma"),
        pytest.param(GOOD.replace(",", "\t"), id="tab"),
        pytest.param(GOOD.replace(",", " , "), id="spaces"),
        pytest.param(GOOD.replace("forward", '"forward"'), id="quotes"),
        pytest.param("# measured on Monday\n\n" + GOOD.replace("0,backward", "# next\n\n0,backward"), id="comments"),
        pytest.param(GOOD.rstrip("\n"), id="no newline at the end"),
        pytest.param(GOOD + "\n\n", id="newlines at the end"),
        pytest.param(GOOD.replace("instruction", "Kind").replace("time", "TIME"), id="other header"),
        pytest.param(GOOD.replace("forward", "F").replace("backward", "bwd"), id="short kinds"),
        pytest.param(GOOD.replace("forward", "Forward").replace("backward", "BACKWARD"), id="upper case"),
        pytest.param(GOOD.replace("0,", "0.0,", 1), id="stage as a float"),
        pytest.param(GOOD.replace("0.05,20", "5e-2,2E1"), id="exponents"),
    ],
)
def test_accepted_files(tmp_path: Path, text: str) -> None:
    check_good(read(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        pytest.param("", ["profile.csv is empty", "needs a header line"], id="empty"),
        pytest.param("# only\n\n", ["profile.csv is empty"], id="comments only"),
        pytest.param(HEADER, ["has a header but no measurements", "add a line"], id="header only"),
        pytest.param(GOOD.replace("energy", "enrgy"), ["line 1", "'energy'", "did you mean that 'enrgy'"], id="typo"),
        pytest.param(GOOD.replace("stage,", "", 1), ["no column 'stage'", "stage, instruction"], id="column"),
        pytest.param(GOOD.replace("frequency", "time", 1), ["two columns 'time'", "keep one"], id="doubled column"),
        pytest.param(GOOD.replace("frequency", "", 1), ["a column without a name"], id="unnamed column"),
        pytest.param(GOOD + "0,forward,1100\n", ["line 6", "found 3 values", "names 5 columns"], id="short row"),
        pytest.param(GOOD + "0,forward,1100,1,2,3\n", ["line 6", "found 6 values"], id="long row"),
        pytest.param(GOOD + "0,forward,1100,nan,2\n", ["line 6", "time is nan", "must be finite"], id="nan"),
        pytest.param(GOOD + "0,forward,1100,1,-inf\n", ["line 6", "energy is -inf"], id="infinite"),
        pytest.param(GOOD + "0,forward,1100,-1,2\n", ["line 6", "time is -1 s", "above 0"], id="negative time"),
        pytest.param(GOOD + "0,forward,1100,1,0\n", ["line 6", "energy is 0 J", "above 0"], id="zero energy"),
        pytest.param(GOOD + "0,forward,0,1,2\n", ["line 6", "frequency is 0 MHz"], id="zero frequency"),
        pytest.param(GOOD + "0,forward,1100,fast,2\n", ["line 6", "time is 'fast'", "must be a number"], id="text"),
        pytest.param(GOOD + "0,forward,1100,,2\n", ["line 6", "time is empty"], id="empty cell"),
        pytest.param(GOOD + "0.5,forward,1100,1,2\n", ["line 6", "stage is 0.5", "whole numbers"], id="half stage"),
        pytest.param(GOOD + "-1,forward,1100,1,2\n", ["line 6", "stage is -1"], id="negative stage"),
        pytest.param(GOOD + "0,,1100,1,2\n", ["line 6", "instruction is empty"], id="empty kind"),
        pytest.param(
            GOOD + "2,forward,1410,1,2\n2,backward,1410,1,2\n", ["stage 1", "without gaps", "renumber"], id="stage gap"
        ),
        pytest.param(GOOD + "1,forward,1410,1,2\n", ["no 'backward' of stage 1", "measure every kind"], id="kind gap"),
        pytest.param(GOOD + '0,"forward,1100,1,2\n', ["line 6", "not valid CSV", "quotes"], id="open quote"),
        pytest.param(
            "stage,kind,time,energy\n0,forward,1,2\n", ["has no knob", "a column frequency (MHz)"], id="no knob"
        ),
    ],
)
def test_refused_files(tmp_path: Path, text: str, parts: list[str]) -> None:
    with pytest.raises(perseus.ProfileError) as caught:
        read(tmp_path, text)
    for part in parts:
        assert part in str(caught.value)


def test_the_line_counts_comments_and_blank_lines(tmp_path: Path) -> None:
    with pytest.raises(perseus.ProfileError, match="line 8: time is -1 s"):
        read(tmp_path, "# one\n\n" + GOOD + "0,forward,1100,-1,2\n")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(perseus.ProfileError, match=r"missing.csv does not exist"):
        perseus.read_profiles(tmp_path / "missing.csv", blocking_power_w=1.0)
    with pytest.raises(perseus.ProfileError, match="is a directory"):
        perseus.read_profiles(tmp_path, blocking_power_w=1.0)
    path = tmp_path / "latin.csv"
    path.write_bytes(GOOD.replace("forward", "vorw\u00e4rts").encode("latin-1"))
    with pytest.raises(perseus.ProfileError, match=r"is not UTF-8 text \(byte \d+ is 0xe4\); save it as UTF-8"):
        perseus.read_profiles(path, blocking_power_w=1.0)
    with pytest.raises(perseus.ProfileError, match="cannot be read from int; pass the path"):
        perseus.read_profiles(7, blocking_power_w=1.0)


@pytest.mark.parametrize("source", [columns(), pd.DataFrame(columns())], ids=["mapping", "data frame"])
def test_tables(source: object) -> None:
    profiles = perseus.read_profiles(source, blocking_power_w=70)
    assert profiles[0, "forward"].times_s.tolist() == [0.05, 0.06]
    assert profiles.blocking_power_w == {0: 70.0}


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"time": [0.05, -1.0]}, ["row 1", "time is -1 s"]),
        ({"time": [0.05, "x"]}, ["row 1", "time is 'x'"]),
        ({"time": [0.05, None]}, ["row 1", "time is"]),
        ({"time": [True, False]}, ["row 0", "time is"]),
        ({"time": [0.05]}, ["different lengths"]),
        ({"time": [[0.05], [0.06]]}, ["'time'", "shape (2, 1)"]),
        ({"energy": None}, ["no column 'energy'"]),
        ({name: [] for name in columns()}, ["has no rows"]),
    ],
)
def test_refused_mappings(changes: dict[str, Any], parts: list[str]) -> None:
    with pytest.raises(perseus.ProfileError) as caught:
        perseus.read_profiles(columns(**changes), blocking_power_w=70.0)
    for part in parts:
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("power", "message"),
    [
        (-1.0, "blocking_power_w is -1.0; it must be a number of watts, 0 or more"),
        (float("nan"), "blocking_power_w is nan"),
        (float("inf"), "blocking_power_w is inf"),
        ("70", "blocking_power_w is '70'"),
        (True, "blocking_power_w is True"),
        (None, "blocking_power_w is None"),
        ({1: 70.0}, "no entry for stage 0"),
        ({0: -2.0}, "blocking_power_w of stage 0 is -2.0"),
    ],
)
def test_refused_blocking_powers(power: Any, message: str) -> None:
    with pytest.raises(perseus.ProfileError) as caught:
        perseus.read_profiles(columns(), blocking_power_w=power)
    assert message in str(caught.value)


def test_blocking_power_of_zero_and_of_each_stage(tmp_path: Path) -> None:
    assert read(tmp_path, GOOD, blocking_power_w=0).curve(0, "forward").effective_energies_j.tolist() == [20, 18]
    two = GOOD + GOOD.removeprefix(HEADER).replace("0,", "1,").replace("1,1,", "1,")
    text = HEADER + "0,F,1410,1,9\n1,F,1410,1,9\n"
    profiles = read(tmp_path, text, blocking_power_w={0: 2.0, 1: 3.0})
    assert [profiles.curve(stage, "forward").effective_energies_j[0] for stage in (0, 1)] == [7.0, 6.0]
    assert two != GOOD


def test_further_columns_are_knobs(tmp_path: Path) -> None:
    text = "note,stage,kind,frequency,sm_share,time,energy\nhot,0,F,1410,1,1,9\ncold,0,F,1410,0.5,2,7\n"
    profiles = read(tmp_path, text)
    assert profiles.knob_names == ("frequency", "note", "sm_share")
    measured = profiles[0, "forward"]
    assert measured.knobs["sm_share"].tolist() == [1.0, 0.5]
    assert measured.knobs["note"].tolist() == ["hot", "cold"]
    assert len(measured) == 2
    only = read(tmp_path, "stage,kind,power_limit,time,energy\n0,F,250,1,9\n")
    assert only.knob_names == ("power_limit",)


def test_duplicates(tmp_path: Path) -> None:
    text = GOOD + "0,forward,1410,0.07,22\n"
    measured = read(tmp_path, text)[0, "forward"]
    assert measured.times_s.tolist() == pytest.approx([0.06, 0.06])
    assert sorted(measured.counts.tolist()) == [1, 2]
    assert 21.0 in measured.energies_j
    with pytest.raises(perseus.ProfileError, match=r"line 6: stage 0, forward at frequency 1410 stands on line 2 too"):
        read(tmp_path, text, duplicates="error")
    assert len(read(tmp_path, GOOD, duplicates="error")[0, "forward"]) == 2
    with pytest.raises(perseus.ProfileError, match="duplicates='sum' is unknown"):
        read(tmp_path, GOOD, duplicates="sum")


def test_look_up(tmp_path: Path) -> None:
    profiles = read(tmp_path, GOOD)
    assert (0, "forward") in profiles
    assert (1, "forward") not in profiles
    with pytest.raises(perseus.ProfileError, match="Stage 1, 'forward' is not in the profile"):
        profiles[1, "forward"]
    with pytest.raises(perseus.ProfileError, match="Did you mean 'backward'"):
        profiles.curve(0, "backwards")
    assert profiles.curve(0, "forward") is profiles.curve(0, "forward")
    assert profiles.stages == (0,)
    assert profiles.kinds == ("backward", "forward")
    assert "1 stages, kinds backward, forward, 4 points over frequency, blocking power 70 W" in repr(profiles)


def test_immutable(tmp_path: Path) -> None:
    profiles = read(tmp_path, GOOD)
    with pytest.raises(ValueError, match="read-only"):
        profiles[0, "forward"].times_s[0] = 1.0
    with pytest.raises(TypeError):
        profiles.blocking_power_w[0] = 1.0  # type: ignore[index]
    with pytest.raises(TypeError):
        profiles[0, "forward"].knobs["frequency"] = np.zeros(2)  # type: ignore[index]


def check_equal(a: perseus.Profiles, b: perseus.Profiles) -> None:
    assert a.keys == b.keys
    assert a.blocking_power_w == b.blocking_power_w
    for key in a.keys:
        assert a[key].times_s.tolist() == b[key].times_s.tolist()
        assert a[key].energies_j.tolist() == b[key].energies_j.tolist()
        for name in a.knob_names:
            assert a[key].knobs[name].tolist() == b[key].knobs[name].tolist()


def test_round_trips(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    noisy = columns(time=random.random(2), energy=random.random(2) * 1e-7, note=["a,b", 'c"d'])
    profiles = perseus.read_profiles(noisy, blocking_power_w=1 / 3)
    profiles.to_csv(tmp_path / "again.csv")
    check_equal(profiles, perseus.read_profiles(tmp_path / "again.csv", blocking_power_w=1 / 3))
    check_equal(profiles, pickle.loads(pickle.dumps(profiles)))
    assert [path.name for path in tmp_path.iterdir()] == ["again.csv"]


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    profiles = read(tmp_path, GOOD)
    target = tmp_path / "taken"
    (target / "inside").mkdir(parents=True)
    with pytest.raises(OSError, match="taken"):
        profiles.to_csv(target)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["profile.csv", "taken"]


def test_a_million_rows(tmp_path: Path) -> None:
    rows = "".join(
        f"{i % 4},forward,{1410 - i // 4 % 50},{0.01 + i * 1e-9:.9f},{5.0 + i % 7}\n" for i in range(1_000_000)
    )
    profiles = read(tmp_path, HEADER + rows)
    assert profiles.stages == (0, 1, 2, 3)
    assert sum(int(profiles[key].counts.sum()) for key in profiles.keys) == 1_000_000
    assert len(profiles[0, "forward"]) == 50


def test_example_profile() -> None:
    path = perseus.example_profile_path()
    tool = runpy.run_path(str(ROOT / "tools" / "make_example_profile.py"))
    assert path.read_text(encoding="utf-8") == tool["profile"]()
    assert "MODELLED" in path.read_text(encoding="utf-8")
    profiles = perseus.read_profiles(path, blocking_power_w=EXAMPLE_BLOCKING_POWER_W, duplicates="error")
    assert profiles.stages == (0, 1, 2, 3)
    for key in profiles.keys:
        powers_w = profiles[key].energies_j / profiles[key].times_s
        assert powers_w.max() < 400.0
        assert powers_w.min() > EXAMPLE_BLOCKING_POWER_W
        assert len(profiles.curve(*key).times_s) > 10


def test_measured_profiles(shared_data: Path) -> None:
    a100 = perseus.read_profiles(shared_data / "sosp24" / "gpt3-175b_a100-sxm_pp8_tp8.csv", blocking_power_w=83.64)
    a40 = perseus.read_profiles(shared_data / "sosp24" / "gpt3-175b_a40_pp8_tp8.csv", blocking_power_w=70.38)
    for profiles, points in ((a100, 608), (a40, 960)):
        assert profiles.stages == tuple(range(8))
        assert profiles.kinds == ("backward", "forward")
        assert sum(len(profiles[key]) for key in profiles.keys) == points
