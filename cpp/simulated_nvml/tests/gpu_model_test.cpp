#include "gpu_model.hpp"

#include <doctest/doctest.h>

#include <algorithm>

using namespace perseus::simulated;

TEST_CASE("supported clocks are those that NVML lists") {
  const auto a100 = supported_clocks_mhz(gpu_models()[static_cast<std::size_t>(find_gpu_model("a100"))]);
  CHECK(a100.size() == 81);
  CHECK(a100.front() == 1410);
  CHECK(a100.back() == 210);
  const auto v100 = supported_clocks_mhz(gpu_models()[static_cast<std::size_t>(find_gpu_model("v100"))]);
  CHECK(v100[1] == 1522);
  CHECK(v100[2] == 1515);
  CHECK(find_gpu_model("b200") == -1);
}

TEST_CASE("any clock snaps down to a supported one") {
  for (const GpuModel& model : gpu_models()) {
    const auto clocks = supported_clocks_mhz(model);
    for (std::uint32_t mhz = model.min_mhz; mhz <= model.max_mhz + 50; ++mhz) {
      const auto expected = std::find_if(clocks.begin(), clocks.end(), [mhz](std::uint32_t c) { return c <= mhz; });
      CAPTURE(mhz);
      CHECK(snap_down_mhz(model, mhz) == *expected);
    }
    CHECK(snap_down_mhz(model, 1) == model.min_mhz);
  }
}

TEST_CASE("power rises and time falls with the clock; energy has an inner minimum") {
  const KernelCost cost{0.05, 0.1, 0.7};
  for (const GpuModel& model : gpu_models()) {
    const auto clocks = supported_clocks_mhz(model);
    double best = 1e30;
    std::uint32_t best_mhz = 0;
    for (std::size_t i = 0; i + 1 < clocks.size(); ++i) {
      CHECK(busy_power_w(model, clocks[i], 0.7) > busy_power_w(model, clocks[i + 1], 0.7));
      CHECK(kernel_time_s(model, clocks[i], cost) < kernel_time_s(model, clocks[i + 1], cost));
      const double energy = busy_power_w(model, clocks[i], 0.7) * kernel_time_s(model, clocks[i], cost);
      if (energy < best) best_mhz = clocks[i];
      best = std::min(best, energy);
    }
    CHECK(best_mhz < model.max_mhz);
    CHECK(best_mhz > model.min_mhz);
    CHECK(kernel_time_s(model, model.max_mhz, cost) == doctest::Approx(0.05));
    CHECK(kernel_time_s(model, model.min_mhz, {0.05, 1.0, 1.0}) == doctest::Approx(0.05));
    CHECK(model.static_w <= model.blocking_w);
    CHECK(model.idle_w <= model.static_w);  // work never costs less than rest
  }
}

TEST_CASE("throttling finds the highest clock that fits the limit") {
  for (const GpuModel& model : gpu_models()) {
    const auto clocks = supported_clocks_mhz(model);
    for (double limit = model.min_limit_w; limit <= model.max_limit_w; limit += 7) {
      const auto first = std::find_if(clocks.begin(), clocks.end(), [&](std::uint32_t c) { return busy_power_w(model, c, 1.2) <= limit; });
      const std::uint32_t expected = first == clocks.end() ? clocks.back() : *first;
      CHECK(throttled_clock_mhz(model, model.max_mhz, 1.2, limit) == expected);
    }
  }
}
