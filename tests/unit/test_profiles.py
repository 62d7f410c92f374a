"""Reading profiles: every rule has one clear message, and every accepted form is read right."""

from __future__ import annotations

import copy
import pickle
import runpy
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
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
        pytest.param(GOOD.replace("\n", "\r"), id="carriage returns"),
        pytest.param(GOOD.replace("frequency", ' "frequency" '), id="quoted header"),
        pytest.param("   # indented\n" + GOOD, id="indented comment"),
        pytest.param(GOOD.replace("1410", "1.41e3"), id="exponent in a knob"),
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
        pytest.param(GOOD.replace("\n", "\r"), id="cr"),
        pytest.param("\ufeff" + GOOD.replace("\n", "\r\n").replace(",", ";"), id="byte order mark, crlf, semicolon"),
        pytest.param(GOOD.replace(",", "\t").replace(".", ","), id="tab and decimal comma"),
        pytest.param('"' + GOOD.replace(",", '","').replace("\n", '"\n"').removesuffix('"'), id="all quoted"),
        pytest.param(GOOD.replace(",", "  ,\t"), id="spaces and tabs around commas"),
        pytest.param(GOOD + "  # indented comment\n \t\n", id="indented comment"),
        pytest.param(GOOD.replace("forward", "f").replace("backward", "B"), id="first letters"),
        pytest.param("".join([HEADER, *reversed(GOOD.removeprefix(HEADER).splitlines(keepends=True))]), id="reversed"),
    ],
)
def test_accepted_files(tmp_path: Path, text: str) -> None:
    check_good(read(tmp_path, text))


MORE = GOOD + "0,forward,1100,{},{}\n"  # the row that breaks a rule stands on line 6


@pytest.mark.parametrize(
    ("text", "place", "found", "rule", "remedy"),
    [
        pytest.param(MORE.format("nan", 2), ", line 6:", "time is nan", "must be finite", "Measure", id="nan"),
        pytest.param(MORE.format("inf", 2), ", line 6:", "time is inf", "must be finite", "Measure", id="infinite"),
        pytest.param(MORE.format(1, "-Infinity"), ", line 6:", "energy is -inf", "finite", "remove", id="-infinite"),
        pytest.param(MORE.format(1, "1e999"), ", line 6:", "energy is inf", "finite", "Measure", id="overflow"),
        pytest.param(MORE.format(-1, 2), ", line 6:", "time is -1 s", "above 0", "Measure", id="negative time"),
        pytest.param(MORE.format(1, -2.5), ", line 6:", "energy is -2.5 J", "above 0", "Measure", id="negative energy"),
        pytest.param(
            MORE.format(1e101, 2), ", line 6:", "time is 1e+101 s", "from 1e-100 to 1e+100", "unit", id="huge"
        ),
        pytest.param(MORE.format(1, 1e-101), ", line 6:", "energy is 1e-101 J", "from 1e-100", "remove", id="tiny"),
        pytest.param(MORE.format(0, 2), ", line 6:", "time is 0 s", "above 0", "Measure", id="zero time"),
        pytest.param(MORE.format(1, "0.0"), ", line 6:", "energy is 0 J", "above 0", "Measure", id="zero energy"),
        pytest.param(MORE.format("fast", 2), ", line 6:", "time is 'fast'", "must be a number", "Correct", id="text"),
        pytest.param(MORE.format("True", 2), ", line 6:", "time is 'True'", "must be a number", "Correct", id="bool"),
        pytest.param(MORE.format("0.1 s", 2), ", line 6:", "time is '0.1 s'", "a number", "Correct", id="unit"),
        pytest.param(MORE.format("0x1p3", 2), ", line 6:", "time is '0x1p3'", "a number", "Correct", id="hexadecimal"),
        pytest.param(
            MORE.format("", 2), ", line 6:", "time is empty", "must be a number", "remove the row", id="empty"
        ),
        pytest.param(MORE.format(1, "  "), ", line 6:", "energy is empty", "must be a number", "remove", id="blank"),
        pytest.param(
            MORE.format('"1,5"', 2),
            ", line 6:",
            "time is '1,5'",
            "a number",
            "with a decimal point",
            id="decimal comma",
        ),
        pytest.param(GOOD + ",,,,\n", ", line 6:", "stage is empty", "a number", "remove the row", id="only commas"),
        pytest.param(
            GOOD + "0,forward,0,1,2\n", ", line 6:", "frequency is 0 MHz", "above 0", "Measure", id="zero frequency"
        ),
        pytest.param(
            GOOD + "0,forward,1410MHz,1,2\n", ", line 6:", "frequency is '1410MHz'", "number", "Correct", id="MHz"
        ),
        pytest.param(
            GOOD + "0.5,forward,1100,1,2\n", ", line 6:", "stage is 0.5", "whole numbers", "Renumber", id="half stage"
        ),
        pytest.param(
            GOOD + "-1,forward,1100,1,2\n", ", line 6:", "stage is -1", "from 0", "Renumber", id="negative stage"
        ),
        pytest.param(
            GOOD + "1e300,forward,1100,1,2\n",
            ", line 6:",
            "stage is 1e+300",
            "below 1000000",
            "Renumber",
            id="far stage",
        ),
        pytest.param(
            GOOD + "first,forward,1100,1,2\n", ", line 6:", "stage is 'first'", "a number", "Correct", id="named stage"
        ),
        pytest.param(
            GOOD + "0,,1100,1,2\n", ", line 6:", "instruction is empty", "must be text", "Fill it in", id="empty kind"
        ),
        pytest.param(
            GOOD + "0,forward,1100\n",
            ", line 6:",
            "found 3 values",
            "names 5 columns",
            "give every line",
            id="short row",
        ),
        pytest.param(GOOD + "0\n", ", line 6:", "found 1 value,", "names 5 columns", "give every line", id="one value"),
        pytest.param(
            GOOD + "0,forward,1100,1,2,3\n", ", line 6:", "found 6 values", "5 columns", "quote text", id="long row"
        ),
        pytest.param(
            GOOD.replace("1200,0.12,36", "1200,0.12,36,"),
            ", line 5:",
            "found 6",
            "5 columns",
            "give",
            id="comma at end",
        ),
        pytest.param(
            GOOD + '0,"forward",1100\n', ", line 6:", "found 3 values", "5 columns", "give", id="short row with quotes"
        ),
        pytest.param(
            GOOD + '0,"forward,1100,1,2\n' + "0,forward,1000,1,2\n" * 3,
            ", line 6:",
            "unexpected end of data",
            "not valid CSV",
            "check the quotes",
            id="open quote",
        ),
        pytest.param(
            GOOD + '0,"for"ward,1100,1,2\n', ", line 6:", "expected after", "not valid CSV", "quotes", id="early quote"
        ),
        pytest.param(
            GOOD.replace("energy", "enrgy"), ", line 1:", "'enrgy'", "no column 'energy'", "did you mean", id="misspelt"
        ),
        pytest.param(
            GOOD.replace("stage,", "", 1),
            ", line 1:",
            "'instruction', 'frequency'",
            "no column 'stage'",
            "has",
            id="less",
        ),
        pytest.param(
            GOOD.removeprefix(HEADER),
            ", line 1:",
            "'0', 'forward'",
            "no column 'stage'",
            "has the columns",
            id="no header",
        ),
        pytest.param(
            GOOD.replace(",", "|"),
            ", line 1:",
            "'stage|instruction|",
            "no column 'stage'",
            "has the columns",
            id="bars",
        ),
        pytest.param(
            GOOD.replace("frequency", "Time", 1),
            ", line 1:",
            "'Time' and 'time'",
            "two columns",
            "keep one",
            id="doubled",
        ),
        pytest.param(
            GOOD.replace("frequency", "kind", 1), ", line 1:", "'instruction' and 'kind'", "two", "rename", id="alias"
        ),
        pytest.param(
            GOOD.replace("frequency", "", 1), ", line 1:", "a column without a name", "", "name it", id="unnamed column"
        ),
        pytest.param("", " is empty", "", "needs a header line and a line for each", "", id="empty file"),
        pytest.param("\n \n", " is empty", "", "needs a header line and a line for each", "", id="blank lines only"),
        pytest.param("# only\n\n", " is empty", "", "needs a header line and a line", "", id="comments only"),
        pytest.param(HEADER, "", "has a header but no measurements", "", "add a line for each", id="header only"),
        pytest.param(
            GOOD + "2,forward,1410,1,2\n2,backward,1410,1,2\n",
            "",
            "no measurements of stage 1, but of stage 2 (line 6)",
            "without gaps",
            "Measure the missing stage, or renumber",
            id="missing stage",
        ),
        pytest.param(
            GOOD.replace("\n0,", "\n1,"), "", "stage 0, but of stage 1 (line 2)", "from 0", "renumber", id="no stage 0"
        ),
        pytest.param(
            GOOD + "1,forward,1410,1,2\n",
            "",
            "no 'backward' of stage 1, but of stage 0 (line 4)",
            "every kind",
            "measure",
            id="missing kind",
        ),
        pytest.param(
            GOOD + "1,forward,1410,1,2\n1,bakward,1410,1,2\n",
            "",
            "no 'bakward' of stage 0, but of stage 1 (line 7)",
            "every kind",
            "Did you mean 'backward'?",
            id="misspelt kind",
        ),
        pytest.param(
            "stage,kind,time,energy\n0,F,1,2\n",
            "",
            "has no knob",
            "it needs what was set",
            "a column freq",
            id="no knob",
        ),
    ],
)
def test_refused_files(tmp_path: Path, text: str, place: str, found: str, rule: str, remedy: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(perseus.ProfileError) as caught:
        perseus.read_profiles(path, blocking_power_w=70.0)
    message = str(caught.value)
    assert message.startswith(f"{path}{place}")
    assert "\n" not in message
    for part in (found, rule, remedy):
        assert part in message


@pytest.mark.parametrize(
    ("cells", "place", "found"),
    [
        (["250", ""], ", line 3:", "power_limit is empty, but a number elsewhere"),
        (["", "250"], ", line 2:", "power_limit is empty, but a number elsewhere"),
        (["nan", "250"], ", line 2:", "power_limit is nan; a knob must be finite"),
        (["250", "inf"], ", line 3:", "power_limit is inf; a knob must be finite"),
    ],
)
def test_a_knob_that_lacks_a_number(tmp_path: Path, cells: list[str], place: str, found: str) -> None:
    text = "stage,kind,power_limit,time,energy\n" + "".join(f"0,F,{cell},1,2\n" for cell in cells)
    with pytest.raises(perseus.ProfileError, match="Fill it in or leave out power_limit") as caught:
        read(tmp_path, text)
    assert f"profile.csv{place} {found}" in str(caught.value)


def test_commas_and_points_in_numbers_are_not_guessed(tmp_path: Path) -> None:
    """1,410 may be 1410 or 1.41."""
    text = GOOD.replace(",", ";").replace("1410", "1,410")
    with pytest.raises(perseus.ProfileError, match=r"line 2: found frequency '1,410', but time '0.05' on line 2; with"):
        read(tmp_path, text)


def test_line_numbers_where_quotes_hold_line_ends(tmp_path: Path) -> None:
    text = 'stage,kind,note,time,energy\n0,F,"a\n\n# b",1,2\n\n0,F,c,-1,2\n'
    with pytest.raises(perseus.ProfileError, match="line 6: time is -1 s"):
        read(tmp_path, text)
    assert read(tmp_path, text.replace("-1", "2"))[0, "forward"].knobs["note"].tolist() == ["a # b", "c"]


@pytest.mark.parametrize("mark", ["\x0b", "\x0c", "\x1c", "\x85", "\u2028"])
def test_only_line_ends_end_lines(tmp_path: Path, mark: str) -> None:
    """As in editors; `str.splitlines` would split at each of these."""
    text = f"stage,kind,note,time,energy\n0,F,a{mark}b,1,2\n0,F,c,-1,2\n"
    with pytest.raises(perseus.ProfileError, match="line 3: time is -1 s"):
        read(tmp_path, text)


def test_a_wide_file(tmp_path: Path) -> None:
    names = [f"setting_of_register_{i}" for i in range(3000)]
    text = ",".join(["stage,kind,time,energy", *names]) + "\n0,F,1,2" + ",7" * 3000 + "\n"
    assert read(tmp_path, text).knob_names == tuple(names)
    with pytest.raises(perseus.ProfileError, match=r"no column 'stage' among 'setting_of_register_0\|"):
        read(tmp_path, "|".join(names * 3) + "\n")


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
    for encoding, message in (("utf-16", "is not UTF-8"), ("utf-16-le", "has zero bytes, so it is binary or UTF-16")):
        with pytest.raises(perseus.ProfileError, match=message):
            perseus.read_profiles(write(tmp_path, GOOD, encoding), blocking_power_w=1.0)
    with pytest.raises(perseus.ProfileError, match="cannot be read from int; pass the path"):
        perseus.read_profiles(7, blocking_power_w=1.0)  # type: ignore[arg-type]


@pytest.mark.parametrize("source", ["", GOOD, "profile\0.csv", Path("a\nb")])
def test_what_is_no_path(source: str | Path) -> None:
    with pytest.raises(perseus.ProfileError, match=r"which is no path; pass the path of a CSV file \(not its content"):
        perseus.read_profiles(source, blocking_power_w=1.0)


def test_a_path_that_the_system_refuses() -> None:
    with pytest.raises(
        perseus.ProfileError, match="cannot be read: File name too long; pass the path of a CSV file that"
    ):
        perseus.read_profiles("x" * 5000, blocking_power_w=1.0)


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
        ({"time": np.array([5, 6], "timedelta64[ms]")}, ["row 0", "timedelta64(5,'ms')", "a number"]),
        ({"time": np.array(["2026-01-01"] * 2, "datetime64[s]")}, ["row 0", "must be a number"]),
        ({"time": pd.Series(pd.to_timedelta([5, 6], unit="ms"))}, ["row 0", "must be a number"]),
        ({"time": [1 + 2j, 1]}, ["row 0", "time is (1+2j)"]),
        ({"time": np.array([0.5, True], object)}, ["row 1", "time is True"]),
        ({"time": np.ma.array([0.5, 0.6], mask=[False, True])}, ["row 1", "time is None"]),
        ({"time": pd.array([0.5, None], "Float64")}, ["row 1", "time is"]),
        ({"time": [10**400, 1]}, ["row 0", "must be a number"]),
        ({"instruction": np.array(["forward", np.nan], object)}, ["row 1", "instruction is nan; it must be text"]),
        ({"instruction": np.array(["forward", None], object)}, ["row 1", "instruction is None"]),
        ({"instruction": [0, 1]}, ["row 0", "instruction is 0"]),
        ({"sm": [1.0, np.nan]}, ["row 1", "sm is nan"]),
        ({"sm": [1.0, None]}, ["row 1", "sm is empty, but a number elsewhere"]),
        ({"frequency": [[1], [2, 3]]}, ["'frequency'", "holds sequences"]),
        ({"frequency": 1410}, ["'frequency'", "shape ()"]),
        ({"Time": [1.0, 2.0]}, ["two columns 'time'", "'time' and 'Time'"]),
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


def test_what_a_table_may_hold() -> None:
    """Whatever stands for the same numbers and names is the same."""
    forms: list[dict[str, Any]] = [
        columns(time=["0.05", " 6e-2 "], stage=["0", "0"]),
        columns(time=[Decimal("0.05"), Decimal("0.06")], frequency=np.array([1410, 1200], np.uint16)),
        columns(instruction=np.array([b"F", b"F"]), energy=np.array([20, 18], np.float32)),
        columns(instruction=pd.Categorical(["F", "F"]), time=pd.array([0.05, 0.06], "Float64")),
        columns(time=np.ma.array([0.05, 0.06], mask=[False, False])),
    ]
    for form in forms:
        measured = perseus.read_profiles(form, blocking_power_w=1.0)[0, "forward"]
        assert measured.times_s.tolist() == [0.05, 0.06]
        assert measured.energies_j.tolist() == [20.0, 18.0]
        assert measured.knobs["frequency"].tolist() == [1410.0, 1200.0]


def test_knobs_that_are_no_numbers() -> None:
    given = columns(on=[True, False], note=["a\r\n b", None], why=np.array([True, None], object), who=["x", pd.NA])
    measured = perseus.read_profiles(given, blocking_power_w=1.0)[0, "forward"]
    assert {name: values.tolist() for name, values in measured.knobs.items() if name != "frequency"} == {
        "on": ["True", "False"],
        "note": ["a b", ""],
        "why": ["True", ""],
        "who": ["x", ""],
    }


class ArrowTable:
    """A table as pyarrow has it: ``columns`` are the arrays, the names stand elsewhere."""

    def __init__(self, given: dict[str, Any]) -> None:
        self.given = given
        self.column_names = list(given)
        self.columns = list(given.values())

    def __getitem__(self, name: str) -> Any:
        return self.given[name]


def test_a_table_with_column_names() -> None:
    assert perseus.read_profiles(ArrowTable(columns()), blocking_power_w=1.0).keys == ((0, "forward"),)


def test_a_data_frame_that_lacks_everything() -> None:
    with pytest.raises(perseus.ProfileError, match="the data frame: there is no column 'stage' among none"):
        perseus.read_profiles(pd.DataFrame(), blocking_power_w=1.0)


@pytest.mark.parametrize(
    ("power", "message"),
    [
        (-1.0, "blocking_power_w is -1.0; it must be a number of watts, 0 or more"),
        (float("nan"), "blocking_power_w is nan"),
        (float("inf"), "blocking_power_w is inf"),
        ("70", "blocking_power_w is '70'"),
        (True, "blocking_power_w is True"),
        (None, "blocking_power_w is None"),
        (np.True_, "it must be a number of watts"),
        (10**400, "must be a number of watts"),
        (1e101, "blocking_power_w is 1e+101; it must be a number of watts, 0 or more (to 1e+100)"),
        (
            [70.0, 71.0],
            "blocking_power_w is [70.0, 71.0]; it must be a number of watts, 0 or more (to 1e+100), or a mapping",
        ),
        ({1: 70.0}, "no entry for stage 0, but for 1"),
        ({"0": 70.0}, "no entry for stage 0, but for '0'; give every stage of the profile one, its number as the key"),
        ({}, "no entry for stage 0, but for none"),
        ({0: -2.0}, "blocking_power_w of stage 0 is -2.0"),
    ],
)
def test_refused_blocking_powers(power: Any, message: str) -> None:
    with pytest.raises(perseus.ProfileError) as caught:
        perseus.read_profiles(columns(), blocking_power_w=power)
    assert message in str(caught.value)


def test_blocking_power_of_zero_and_of_each_stage(tmp_path: Path) -> None:
    assert read(tmp_path, GOOD, blocking_power_w=0).curve(0, "forward").effective_energies_j.tolist() == [20, 18]
    text = HEADER + "0,F,1410,1,9\n1,F,1410,1,9\n"
    profiles = read(tmp_path, text, blocking_power_w={0: 2.0, 1: 3.0})
    assert [profiles.curve(stage, "forward").effective_energies_j[0] for stage in (0, 1)] == [7.0, 6.0]


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
    thrice = columns(**{name: [value] * 3 for name, value in (("stage", 0), ("instruction", "F"), ("frequency", 1))})
    same = perseus.read_profiles({**thrice, "time": [0.1] * 3, "energy": [1e100] * 3}, blocking_power_w=1.0)
    assert same[0, "forward"].times_s.tolist() == [0.1]  # (0.1 + 0.1 + 0.1) / 3 is not
    assert same[0, "forward"].energies_j.tolist() == [1e100]
    with pytest.raises(perseus.ProfileError, match="duplicates='sum' is unknown"):
        read(tmp_path, GOOD, duplicates="sum")


def test_points_stand_by_time_then_energy_then_line(tmp_path: Path) -> None:
    rows = ["2,9,1", "1,8,2", "1,7,3", "2,3,4", "1,7,5"]
    text = "stage,kind,time,energy,setting\n" + "".join(f"0,F,{row}\n" for row in rows)
    measured = read(tmp_path, text)[0, "forward"]
    assert measured.knobs["setting"].tolist() == [3.0, 5.0, 2.0, 4.0, 1.0]
    assert measured.times_s.tolist() == [1.0, 1.0, 1.0, 2.0, 2.0]
    assert measured.energies_j.tolist() == [7.0, 7.0, 8.0, 3.0, 9.0]


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


@pytest.mark.parametrize("copied", [lambda value: pickle.loads(pickle.dumps(value)), copy.deepcopy])
def test_copies_are_immutable_too(tmp_path: Path, copied: Callable[[perseus.Profiles], perseus.Profiles]) -> None:
    again = copied(read(tmp_path, GOOD))
    measured = again[0, "forward"]
    for array in (measured.times_s, measured.energies_j, measured.counts, measured.knobs["frequency"]):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    with pytest.raises(TypeError):
        measured.knobs["frequency"] = np.zeros(2)  # type: ignore[index]
    for name in ("keys", "kinds", "stages", "knob_names", "blocking_power_w"):
        with pytest.raises(AttributeError):
            setattr(again, name, ())


def test_the_arrays_given_stay_the_callers() -> None:
    times = np.array([0.05, 0.06])
    profiles = perseus.read_profiles(columns(time=times), blocking_power_w=1.0)
    times[0] = 7.0
    assert profiles[0, "forward"].times_s.tolist() == [0.05, 0.06]


def test_threads_get_one_curve(tmp_path: Path) -> None:
    profiles = read(tmp_path, GOOD)
    with ThreadPoolExecutor(8) as pool:
        curves = list(pool.map(lambda _: profiles.curve(0, "forward"), range(64)))
    assert len({id(curve) for curve in curves}) == 1


def test_iteration_gives_the_keys(tmp_path: Path) -> None:
    profiles = read(tmp_path, GOOD)
    assert tuple(profiles) == profiles.keys
    assert len(profiles) == 2


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


def test_a_write_that_fails_halfway_keeps_the_former_file(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD)
    no_utf8 = perseus.read_profiles(columns(note=["fine", "\ud800"]), blocking_power_w=1.0)
    with pytest.raises(UnicodeEncodeError):
        no_utf8.to_csv(path)
    assert path.read_text(encoding="utf-8") == GOOD
    assert [file.name for file in tmp_path.iterdir()] == ["profile.csv"]


def test_a_write_replaces_the_former_file(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD + "# the end\n")
    profiles = perseus.read_profiles(path, blocking_power_w=1.0)
    profiles.to_csv(str(path))
    assert path.read_bytes().startswith(b"stage,instruction,frequency,time,energy\r\n0,backward,1410,0.1,40.0\r\n")
    check_equal(perseus.read_profiles(path, blocking_power_w=1.0), profiles)


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
    assert tool["BLOCKING_POWER_W"] == EXAMPLE_BLOCKING_POWER_W
    profiles = perseus.read_profiles(path, blocking_power_w=EXAMPLE_BLOCKING_POWER_W, duplicates="error")
    assert profiles.stages == (0, 1, 2, 3)
    for key in profiles.keys:
        powers_w = profiles[key].energies_j / profiles[key].times_s
        assert powers_w.max() < 400.0
        assert powers_w.min() > EXAMPLE_BLOCKING_POWER_W
        assert len(profiles.curve(*key).times_s) > 10


def test_the_example_is_made_by_its_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["make_example_profile.py", str(tmp_path / "made.csv")])
    runpy.run_path(str(ROOT / "tools" / "make_example_profile.py"), run_name="__main__")
    assert (tmp_path / "made.csv").read_bytes() == perseus.example_profile_path().read_bytes()


def test_the_example_is_realistic() -> None:
    """As GPUs are: a lower clock is slower, draws less power, and by itself saves energy only down to some clock."""
    profiles = perseus.read_profiles(perseus.example_profile_path(), blocking_power_w=EXAMPLE_BLOCKING_POWER_W)
    for key in profiles.keys:
        measured = profiles[key]
        assert (np.diff(measured.knobs["frequency"]) < 0).all()
        assert (np.diff(measured.energies_j / measured.times_s) < 0).all()
        cheapest = int(np.argmin(measured.energies_j))
        assert 0 < cheapest < len(measured) - 1
        assert 0.1 < 1.0 - measured.energies_j[cheapest] / measured.energies_j[0] < 0.4
    for stage in profiles.stages:
        ratio = profiles[stage, "backward"].times_s[0] / profiles[stage, "forward"].times_s[0]
        assert 1.5 < ratio < 2.5


def test_measured_profiles(shared_data: Path) -> None:
    a100 = perseus.read_profiles(shared_data / "sosp24" / "gpt3-175b_a100-sxm_pp8_tp8.csv", blocking_power_w=83.64)
    a40 = perseus.read_profiles(shared_data / "sosp24" / "gpt3-175b_a40_pp8_tp8.csv", blocking_power_w=70.38)
    for profiles, points in ((a100, 608), (a40, 960)):
        assert profiles.stages == tuple(range(8))
        assert profiles.kinds == ("backward", "forward")
        assert sum(len(profiles[key]) for key in profiles.keys) == points
