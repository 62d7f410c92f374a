"""Profiles survive a file unchanged, and whatever a file holds is read or refused with one clear error."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from perseus.errors import ProfileError
from perseus.profiles import Profiles, read_profiles

GOOD = (
    b"# measured\nstage,instruction,frequency,note,time,energy\n"
    b'0,forward,1410,"a, b",0.05,20\n0,forward,1200,c,0.06,18\n\n'
    b"0,backward,1410,c,0.10,40\n0,backward,1200,c,0.12,36\n"
)
numbers = st.floats(1e-100, 1e100)
# never numbers, of which a knob may not have some only
texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=6).map("n".__add__)
rows = st.lists(st.tuples(numbers, texts, numbers, numbers), min_size=1, max_size=8)


def content(profiles: Profiles) -> dict[tuple[int, str], list[tuple[object, ...]]]:
    return {
        key: sorted(
            zip(
                profiles[key].times_s.tolist(),
                profiles[key].energies_j.tolist(),
                *(profiles[key].knobs[name].tolist() for name in profiles.knob_names),
                strict=True,
            )
        )
        for key in profiles.keys
    }


@settings(max_examples=150)
@given(rows, st.sampled_from(["frequency", "sm share", "a;b;c;d;e;f", "#x", 'quo"te']))
def test_a_file_keeps_everything(points: list[tuple[float, str, float, float]], knob: str) -> None:
    setting, note, time_s, energy_j = (list(values) for values in zip(*points, strict=True))
    columns = {"stage": [0] * len(points), "kind": ["F"] * len(points), knob: setting, "note": note}
    profiles = read_profiles({**columns, "time": time_s, "energy": energy_j}, blocking_power_w=1.0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "profile.csv"
        profiles.to_csv(path)
        again = read_profiles(path, blocking_power_w=1.0, duplicates="error")
    assert content(again) == content(profiles)


def read_or_refuse(path: Path) -> Profiles | str:
    try:
        return read_profiles(path, blocking_power_w=70.0)
    except ProfileError as error:
        return str(error)


pieces = st.one_of(
    st.binary(max_size=4),
    st.sampled_from([b"\n", b"\r", b'"', b",", b";", b"\t", b"#", b"-", b"nan", b"1e999", b"\xef\xbb\xbf", b"0", b" "]),
)
edits = st.lists(st.tuples(st.integers(0, len(GOOD)), st.integers(0, 12), pieces), max_size=4)


@settings(max_examples=300)
@given(edits, st.booleans())
def test_whatever_a_file_holds_is_read_or_refused(changes: list[tuple[int, int, bytes]], semicolons: bool) -> None:
    data = GOOD.replace(b",", b";") if semicolons else GOOD
    for begin, length, piece in changes:
        data = data[:begin] + piece + data[begin + length :]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "profile.csv"
        path.write_bytes(data)
        found = read_or_refuse(path)
        if isinstance(found, str):
            assert found.startswith(str(path))
            assert "\n" not in found
        else:
            for key in found:
                assert (found[key].times_s > 0.0).all()
                assert (found[key].energies_j > 0.0).all()
                assert len(found.curve(*key).times_s) >= 1
