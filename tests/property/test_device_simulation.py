"""Whatever is done to a simulated GPU, its physics stays sound."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perseus.device import open_gpus, simulated

kernels = st.builds(
    simulated.Kernel,
    work_s=st.floats(0.001, 0.2),
    memory_share=st.floats(0.0, 1.0),
    activity=st.floats(0.0, 1.2),
)
steps = st.one_of(
    st.tuples(st.just("run"), kernels),
    st.tuples(st.just("sleep"), st.floats(0.0, 3.0)),
    st.tuples(st.just("lock"), st.integers(1, 2500)),
    st.tuples(st.just("reset"), st.none()),
    st.tuples(st.just("limit"), st.floats(0.0, 1.0)),
)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(simulated.MODELS), st.lists(steps, max_size=25), st.integers(0, 1000))
def test_energy_time_and_clocks_stay_sound(model: str, program: list[tuple[str, object]], seed: int) -> None:
    with simulated.start(model, time_scale=0, seed=seed) as machine:
        gpu, behind = open_gpus()[0], machine.gpu(0)
        behind.set(time_noise=0, power_noise=0)
        clocks = gpu.supported_clocks_mhz()
        low_w, high_w = gpu.power_limit_range_w()
        seen_s, seen_j, counter_j = 0.0, 0.0, 0.0
        for action, argument in program:
            if action == "run":
                assert isinstance(argument, simulated.Kernel)
                start_s, end_s = behind.run(argument)
                assert end_s - start_s >= behind.true_time_s(clocks[0], argument) * (1 - 1e-9)
                assert end_s - start_s <= behind.true_time_s(clocks[-1], argument) * (1 + 1e-9)
            elif action == "sleep":
                machine.sleep_s(float(argument))  # type: ignore[arg-type]
            elif action == "lock":
                mhz = int(argument)  # type: ignore[call-overload]
                gpu.lock_clocks_mhz(mhz, mhz)
                expected = next((clock for clock in clocks if clock <= mhz), clocks[-1])
                assert gpu.achieved_clock_mhz() == expected
            elif action == "reset":
                gpu.reset_clocks()
            else:
                gpu.set_power_limit_w(round(low_w + float(argument) * (high_w - low_w), 3))  # type: ignore[arg-type]
            now_s, energy_j, shown_j = machine.now_s(), behind.get("energy_j"), gpu.energy_j()
            assert now_s >= seen_s
            # Between the least and the greatest power that the model knows.
            assert energy_j - seen_j >= behind.get("idle_power_w") * (now_s - seen_s) * (1 - 1e-6) - 1e-9
            assert energy_j - seen_j <= max(high_w, 95.0) * (now_s - seen_s) * (1 + 1e-6) + 1e-9
            # The counter lags behind the truth, by one period at most.
            assert counter_j <= shown_j <= energy_j + 1e-3
            assert energy_j - shown_j <= max(high_w, 95.0) * (behind.get("counter_period_s") + 1e-6)
            seen_s, seen_j, counter_j = now_s, energy_j, shown_j


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(simulated.MODELS), kernels, st.integers(0, 40))
def test_a_kernel_costs_what_the_model_says(model: str, kernel: simulated.Kernel, step: int) -> None:
    with simulated.start(model, time_scale=0) as machine:
        gpu, behind = open_gpus()[0], machine.gpu(0)
        behind.set(time_noise=0, power_noise=0)
        mhz = gpu.supported_clocks_mhz()[step]
        gpu.lock_clocks_mhz(mhz, mhz)
        before_j = behind.get("energy_j")
        start_s, end_s = behind.run(kernel)
        used_j = behind.get("energy_j") - before_j
        power_w = behind.true_energy_j(mhz, kernel) / behind.true_time_s(mhz, kernel)
        if power_w <= gpu.power_limit_w():
            assert end_s - start_s == pytest.approx(behind.true_time_s(mhz, kernel), rel=1e-6)
            assert used_j == pytest.approx(behind.true_energy_j(mhz, kernel), rel=1e-3)
        else:
            assert end_s - start_s > behind.true_time_s(mhz, kernel) * (1 - 1e-9)
            assert used_j <= gpu.power_limit_w() * (end_s - start_s) * (1 + 1e-3)
