"""A GPU on a virtual clock: its speed follows the power limit, its counter ticks.

Power at relative clock f is static + dynamic * f**3; a step takes memory + compute / f.  A power limit
lowers f until the power fits.  What a measurement should find is known exactly.
"""

from __future__ import annotations

import random


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class FakeGpu:
    def __init__(
        self,
        clock: Clock,
        *,
        uuid: str = "GPU-0",
        tick_s: float = 0.1,
        static_w: float = 60.0,
        dynamic_w: float = 200.0,
        range_w: tuple[float, float] = (100.0, 250.0),
        noise: float = 0.0,
    ) -> None:
        self.uuid = uuid
        self.clock = clock
        self.tick_s = tick_s
        self.static_w = static_w
        self.dynamic_w = dynamic_w
        self.range_w = range_w
        self.noise = noise
        self.limit_w = range_w[1]
        self.limits_set_w: list[float] = []
        self.counter_resets = 0
        self._lost_j = 0.0
        self.fails: dict[str, Exception] = {}
        self._random = random.Random(uuid)
        self._energy_j = 0.0
        self._shown_j = 0.0
        self._next_tick_s = tick_s

    # what a recurring job uses

    def energy_j(self) -> float:
        self._maybe_fail("energy_j")
        return self._lost_j + self._shown_j

    def power_limit_w(self) -> float:
        self._maybe_fail("power_limit_w")
        return self.limit_w

    def power_limit_range_w(self) -> tuple[float, float]:
        self._maybe_fail("power_limit_range_w")
        return self.range_w

    def set_power_limit_w(self, limit_w: float) -> None:
        self._maybe_fail("set_power_limit_w")
        assert self.range_w[0] <= limit_w <= self.range_w[1], "asked outside the range"
        self.limit_w = limit_w
        self.limits_set_w.append(limit_w)

    # the truth

    def relative_clock(self, limit_w: float | None = None) -> float:
        limit = self.limit_w if limit_w is None else limit_w
        return min(1.0, ((limit - self.static_w) / self.dynamic_w) ** (1.0 / 3.0))

    def power_w(self, limit_w: float | None = None) -> float:
        return self.static_w + self.dynamic_w * self.relative_clock(limit_w) ** 3

    def step_s(self, limit_w: float | None = None) -> float:
        return 0.02 + 0.06 / self.relative_clock(limit_w)

    def work(self, duration_s: float, power_w: float | None = None) -> None:
        """Let ``duration_s`` pass at a power; the counter shows only what was there at its last tick."""
        power = self.power_w() if power_w is None else power_w
        left_s, now_s = duration_s, self.clock.now_s
        while now_s + left_s >= self._next_tick_s:
            part_s = self._next_tick_s - now_s
            self._energy_j += power * part_s
            self._shown_j = self._energy_j
            left_s, now_s = left_s - part_s, self._next_tick_s
            self._next_tick_s += self.tick_s
        self._energy_j += power * left_s

    def step(self) -> None:
        duration_s = self.step_s() * (1.0 + self.noise * self._random.uniform(-1.0, 1.0))
        self.work(duration_s)
        self.clock.now_s += duration_s

    def reset_counter(self, *, hidden: bool = False) -> None:
        """Let the counter begin anew; hidden as by the device layer, which lets no reading fall but counts resets."""
        if hidden:
            self._lost_j += self._shown_j
            self.counter_resets += 1
        self._energy_j = self._shown_j = 0.0

    def _maybe_fail(self, method: str) -> None:
        if method in self.fails:
            raise self.fails[method]
