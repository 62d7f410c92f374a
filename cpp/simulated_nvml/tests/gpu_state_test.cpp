#include "gpu_state.hpp"

#include <doctest/doctest.h>

using namespace perseus::simulated;

namespace {

GpuState quiet_gpu(const char* key) {
  GpuState gpu = make_gpu(static_cast<std::uint32_t>(find_gpu_model(key)), 0, 7);
  gpu.options.time_noise = 0;
  gpu.options.power_noise = 0;
  return gpu;
}

}  // namespace

TEST_CASE("energy is power times time, however the time is cut") {
  GpuState whole = quiet_gpu("a100");
  GpuState cut = whole;
  launch(whole, {0.5, 0.2, 0.6});
  launch(cut, {0.5, 0.2, 0.6});
  advance(whole, 2.0);
  for (double t = 0; t < 2.0; t += 0.0013) advance(cut, t);
  advance(cut, 2.0);
  const GpuModel& model = model_of(whole);
  const double expected = busy_power_w(model, 1410, 0.6) * 0.5 + model.idle_w * 1.5;
  CHECK(whole.energy_j == doctest::Approx(expected).epsilon(1e-9));
  CHECK(cut.energy_j == doctest::Approx(expected).epsilon(1e-9));
  CHECK(whole.finished[0].end_s == doctest::Approx(0.5));
}

TEST_CASE("a clock change takes effect after its latency and slows the running kernel") {
  GpuState gpu = quiet_gpu("a100");
  CHECK(order_clocks(gpu, {705, 705}) == doctest::Approx(0.010));
  launch(gpu, {0.1, 0.0, 0.6});
  advance(gpu, 0.005);
  CHECK(current_clock_mhz(gpu) == 1410);
  advance(gpu, 0.011);
  CHECK(current_clock_mhz(gpu) == 705);
  CHECK(current_reasons(gpu) == reason_application_clocks);
  advance(gpu, 1.0);
  CHECK(gpu.finished[0].end_s == doctest::Approx(0.010 + 0.090 * 2));
}

TEST_CASE("the counter moves only at its ticks") {
  GpuState gpu = quiet_gpu("a100");
  advance(gpu, 1.0);
  const double shown = counter_j(gpu);
  const double tick = gpu.next_tick_s;
  advance(gpu, tick - 1e-6);
  CHECK(counter_j(gpu) == shown);
  advance(gpu, tick + 1e-6);
  CHECK(counter_j(gpu) == doctest::Approx(shown + 6.2));
}

TEST_CASE("a long quiet time keeps energy, ticks and the averaged power right") {
  GpuState gpu = quiet_gpu("a40");
  advance(gpu, 1000.03);
  CHECK(gpu.energy_j == doctest::Approx(1000.03 * 30.5));
  CHECK(gpu.energy_j - counter_j(gpu) <= 0.1 * 30.5 + 1e-6);
  CHECK(average_power_w(gpu) == doctest::Approx(30.5).epsilon(0.001));
}

TEST_CASE("above its power limit the GPU throttles and says so") {
  GpuState gpu = quiet_gpu("a100");
  gpu.power_limit_w = 250;
  launch(gpu, {0.1, 0.0, 1.0});
  CHECK(current_power_w(gpu) <= 250);
  CHECK(current_clock_mhz(gpu) < 1410);
  CHECK((current_reasons(gpu) & reason_power_cap) != 0);
}

TEST_CASE("contexts cost the blocking power, and a frozen or capped GPU shows it") {
  GpuState gpu = quiet_gpu("a40");
  gpu.contexts[0] = 1;
  CHECK(current_power_w(gpu) == doctest::Approx(70.38));
  gpu.options.cap_mhz = 1000;
  CHECK(current_clock_mhz(gpu) == 990);
  CHECK((current_reasons(gpu) & 0x20) != 0);
  gpu.options.counter_frozen = 1;
  advance(gpu, 5);
  CHECK(counter_j(gpu) == 0);
}

TEST_CASE("noise is seeded") {
  GpuState one = make_gpu(2, 0, 5);
  GpuState same = make_gpu(2, 0, 5);
  GpuState other = make_gpu(2, 0, 6);
  const double first = draw_normal(one);
  CHECK(first == draw_normal(same));
  CHECK(first != draw_normal(other));
  double sum = 0;
  double squares = 0;
  for (int i = 0; i < 20000; ++i) {
    const double x = draw_normal(one);
    sum += x;
    squares += x * x;
  }
  CHECK(sum / 20000 == doctest::Approx(0).scale(1).epsilon(0.03));
  CHECK(squares / 20000 == doctest::Approx(1).epsilon(0.05));
}

TEST_CASE("kernels run in their order and the queue has an end") {
  GpuState gpu = quiet_gpu("h100");
  for (std::size_t i = 0; i < max_queue; ++i) CHECK(launch(gpu, {0.01, 0.5, 0.5}) == i + 1);
  CHECK(launch(gpu, {0.01, 0.5, 0.5}) == 0);
  CHECK(time_left_s(gpu, 3) == doctest::Approx(0.03));
  CHECK(time_left_s(gpu, 99) < 0);
  advance(gpu, 0.035);
  CHECK(time_left_s(gpu, 3) == 0);
  CHECK(gpu.finished[2].start_s == doctest::Approx(0.02));
  for (std::size_t i = 0; i < max_pending; ++i) CHECK(order_clocks(gpu, {210, 210}) > 0);
  CHECK(order_clocks(gpu, {210, 210}) < 0);
}
