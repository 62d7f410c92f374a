"""How profile files are split, and which names mean which kinds."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import perseus
from perseus import profiles as profiles_module

HEADER = "stage,instruction,frequency,time,energy\n"


def read(folder: Path, text: str) -> perseus.Profiles:
    path = folder / "profile.csv"
    path.write_text(text, encoding="utf-8", newline="")
    return perseus.read_profiles(path, blocking_power_w=70.0)


@pytest.mark.parametrize("name", ["a;b;c;d;e;f;g", "a,b,c,d,e,f,g", "a\tb\tc", "#x", 'quo""te', "  spaced   out "])
@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_the_known_names_tell_the_separator(tmp_path: Path, separator: str, name: str) -> None:
    """Not the mark that the header has most of: a quoted name may hold many."""
    header = separator.join(["stage", "kind", f'"{name}"', "time", "energy"])
    profiles = read(tmp_path, header + "\n" + separator.join(["0", "F", "7", "1", "2"]) + "\n")
    assert profiles.knob_names == (" ".join(name.replace('""', '"').split()),)
    assert profiles[0, "forward"].knobs[profiles.knob_names[0]].tolist() == [7.0]


def test_quoted_text_may_hold_anything(tmp_path: Path) -> None:
    text = 'stage,kind,note,time,energy\n0,F,"a\n# b, c\n\nd",1,2\n# comment\n0,F,"say ""x""",1,3\n'
    assert read(tmp_path, text)[0, "forward"].knobs["note"].tolist() == ["a # b, c d", 'say "x"']
    with pytest.raises(perseus.ProfileError, match="line 2: found 6 values"):
        read(tmp_path, text.replace('d",1', 'd",1,1'))
    with pytest.raises(perseus.ProfileError, match="line 7: time is 'bad'"):
        read(tmp_path, text.replace('x""",1', 'x""",bad'))


def test_decimal_commas_leave_text_alone(tmp_path: Path) -> None:
    text = "stage;kind;note;time;energy\n0;F;1,5 hot;0,5;2\n0;F;cold. dry;0,25;2,5\n"
    measured = read(tmp_path, text)[0, "forward"]
    assert measured.times_s.tolist() == [0.25, 0.5]
    assert measured.knobs["note"].tolist() == ["cold. dry", "1,5 hot"]


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        *[(given, "forward") for given in ("f", "F", "fwd", "FWD", "Forward", " forward ")],
        *[(given, "backward") for given in ("b", "bwd", "BACKWARD")],
        *[(given, "input_grad") for given in ("I", "input_grad", "Input-Grad", "input  grad")],
        *[(given, "weight_grad") for given in ("W", "Weight_Grad")],
        *[(given, "recompute") for given in ("R", "recompute")],
        ("Data-Load", "data-load"),
    ],
)
def test_kinds(tmp_path: Path, given: str, kind: str) -> None:
    assert read(tmp_path, f"{HEADER}0,{given},1,1,2\n").kinds == (kind,)


def test_names_of_one_kind_are_the_same(tmp_path: Path) -> None:
    assert len(read(tmp_path, HEADER + "0,F,2,1,2\n0,forward,1,2,1\n")[0, "forward"]) == 2


def test_threads_that_ask_at_once_get_one_curve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    profiles = read(tmp_path, HEADER + "0,F,1,1,2\n")
    both_compute = threading.Barrier(2, timeout=10)
    compute = profiles_module.effective_curve

    def wait_and_compute(*arguments: object) -> perseus.Curve:
        both_compute.wait()
        return compute(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(profiles_module, "effective_curve", wait_and_compute)
    curves: list[perseus.Curve] = []
    threads = [threading.Thread(target=lambda: curves.append(profiles.curve(0, "forward"))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(curves) == 2
    assert curves[0] is curves[1]
    assert profiles.curve(0, "forward") is curves[0]
