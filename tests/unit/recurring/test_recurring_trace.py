from pathlib import Path

import pytest

from perseus.recurring.errors import TraceError
from perseus.recurring.replay import ReplaySettings, replay
from perseus.recurring.trace import TRACED_JOBS, TracedJob, gpus_of, read_trace

JOB = TracedJob(name="tiny", dataset="d", network="n", optimizer="o", target=0.5, max_epochs=10, default_batch_size=32)
TRAIN = """dataset,network,batch_size,optimizer,learning_rate,run,target_metric,target_epoch
d,n,16,o,1,1,0.5,4
d,n,16,o,1,2,0.5,6
d,n,32,o,1,1,0.5,8
d,n,64,o,1,1,0.5,
d,n,16,o,1,1,0.6,9
d,n,16,x,1,1,0.5,1
"""
POWER = """dataset,network,batch_size,optimizer,power_limit,time_per_epoch,average_power
d,n,16,o,100,20,90
d,n,16,o,200,10,150
d,n,64,o,100,9,95
d,n,64,o,200,5,160
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "summary_train.csv").write_text(TRAIN)
    (tmp_path / "summary_power_x1.csv").write_text(POWER)
    return tmp_path


def test_batch_sizes_are_those_of_both_files(directory: Path) -> None:
    trace = read_trace(directory, "x1", JOB)
    assert list(trace.batch_sizes) == [16, 64]
    assert trace.max_power_w == 200.0
    assert trace.default == 16  # the largest below the job's default that this GPU knows
    assert trace.batch_sizes[16].mean_epochs(10) == 5.0
    assert trace.batch_sizes[16].mean_epochs(5) == float("inf")
    assert trace.batch_sizes[64].mean_epochs(10) == float("inf")


def test_gpus(directory: Path, tmp_path: Path) -> None:
    assert gpus_of(directory) == ("x1",)
    with pytest.raises(TraceError, match="summary_power_GPU"):
        gpus_of(tmp_path / "nowhere")


def test_missing_file(directory: Path) -> None:
    with pytest.raises(TraceError, match="No such file"):
        read_trace(directory, "x2", JOB)


def test_missing_column(directory: Path) -> None:
    (directory / "summary_power_x1.csv").write_text("dataset,network\n")
    with pytest.raises(TraceError, match="lacks the columns optimizer"):
        read_trace(directory, "x1", JOB)


def test_nothing_in_common(directory: Path) -> None:
    with pytest.raises(TraceError, match="no batch size has both"):
        read_trace(directory, "x1", TRACED_JOBS[0])


def test_bad_number(directory: Path) -> None:
    (directory / "summary_power_x1.csv").write_text(POWER.replace("90", "ninety"))
    with pytest.raises(TraceError, match="ninety"):
        read_trace(directory, "x1", JOB)


def test_replay_gives_up_after_twenty_tries(directory: Path) -> None:
    (directory / "summary_train.csv").write_text(TRAIN.replace("0.5,4", "0.5,").replace("0.5,6", "0.5,"))
    found = replay(read_trace(directory, "x1", JOB), ReplaySettings(recurrences=5), seed=0)
    assert found.aborted_at == 0
    assert len(found.trials) == 20
