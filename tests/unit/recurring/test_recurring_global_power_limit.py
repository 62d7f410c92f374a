import pytest
from fake_gpu import Clock, FakeGpu

from perseus.recurring import GlobalPowerLimit, JobError

LIMITS_W = (250.0, 225.0, 200.0, 175.0, 150.0, 125.0, 100.0)


@pytest.fixture
def gpu() -> FakeGpu:
    return FakeGpu(Clock(), noise=0.01)


def best_limit_w(gpu: FakeGpu, max_slowdown: float) -> float:
    fastest_s = min(gpu.step_s(w) for w in LIMITS_W)
    allowed = [w for w in LIMITS_W if gpu.step_s(w) <= (1.0 + max_slowdown) * fastest_s]
    return min(allowed, key=lambda w: gpu.power_w(w) * gpu.step_s(w))


@pytest.mark.parametrize("max_slowdown", [0.02, 0.07, 0.2, 10.0])
def test_least_energy_within_the_slowdown(gpu: FakeGpu, max_slowdown: float) -> None:
    with GlobalPowerLimit(max_slowdown=max_slowdown, gpus=[gpu], clock=gpu.clock) as limit:
        for _ in range(3):
            for _ in limit.steps(range(1000)):
                gpu.step()
        assert limit.power_limit_w == best_limit_w(gpu, max_slowdown)
        assert gpu.limit_w == limit.power_limit_w
    assert gpu.limit_w == 250.0


def test_limits_far_too_slow_are_skipped(gpu: FakeGpu) -> None:
    with GlobalPowerLimit(max_slowdown=0.01, gpus=[gpu], clock=gpu.clock) as limit:
        for _ in limit.steps(range(5000)):
            gpu.step()
        assert len(limit.measurements) < len(LIMITS_W)
        assert limit.power_limit_w == best_limit_w(gpu, 0.01)


def test_step_is_a_callback(gpu: FakeGpu) -> None:
    limit = GlobalPowerLimit(max_slowdown=0.1, gpus=[gpu], clock=gpu.clock)
    for _ in range(3000):
        gpu.step()
        limit.step()
    assert limit.power_limit_w == best_limit_w(gpu, 0.1)
    limit.close()
    limit.step()
    assert gpu.limit_w == 250.0


def test_a_loop_that_ends_early_restores(gpu: FakeGpu) -> None:
    def train() -> None:
        with GlobalPowerLimit(gpus=[gpu], clock=gpu.clock) as limit:
            for k in limit.steps(range(5000)):
                gpu.step()
                if k == 400:
                    raise KeyError(k)

    with pytest.raises(KeyError):
        train()
    assert gpu.limit_w == 250.0


@pytest.mark.parametrize("method", ["energy_j", "set_power_limit_w", "power_limit_range_w"])
def test_faults_do_not_reach_the_loop(gpu: FakeGpu, method: str, caplog: pytest.LogCaptureFixture) -> None:
    gpu.fails[method] = OSError("GPU lost")
    with GlobalPowerLimit(gpus=[gpu], clock=gpu.clock) as limit:
        for _ in limit.steps(range(100)):
            gpu.step()
    assert limit.power_limit_w is None
    assert "GPU lost" in caplog.text


def test_no_gpu(caplog: pytest.LogCaptureFixture) -> None:
    with GlobalPowerLimit(gpus=[]) as limit:
        assert list(limit.steps("abc")) == ["a", "b", "c"]
    assert limit.power_limit_w is None


@pytest.mark.parametrize("max_slowdown", [-0.1, float("nan")])
def test_slowdown_is_checked(max_slowdown: float) -> None:
    with pytest.raises(JobError, match=r"0\.05 for 5 %"):
        GlobalPowerLimit(max_slowdown=max_slowdown)
