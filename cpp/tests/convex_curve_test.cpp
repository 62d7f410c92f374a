#include "perseus/convex_curve.hpp"

#include <doctest/doctest.h>

#include <vector>

#include "perseus/quantization.hpp"

using namespace perseus;

TEST_CASE("the quantum is decimal and leaves the longest path below 4e15") {
  const TimeQuantum quantum = TimeQuantum::for_longest_path(4.2);
  CHECK(quantum.exponent() == 14);
  CHECK(quantum.round_up(0.1) == 10'000'000'000'000);
  CHECK(quantum.round_up(0.1) + quantum.round_up(0.2) == quantum.round_up(0.3));
  CHECK(quantum.seconds(quantum.round_up(0.3)) == 0.3);
  CHECK(quantum.round_up(0.0) == 0);
  CHECK(quantum.round_up(1.5e-14) == 2);
}

TEST_CASE("quanta of tiny, huge and empty pipelines") {
  CHECK(TimeQuantum::for_longest_path(1e-9).exponent() == 24);
  CHECK(TimeQuantum::for_longest_path(1e18).exponent() == -3);
  CHECK(TimeQuantum::for_longest_path(1e18).round_up(1e18) == 1'000'000'000'000'000);
  CHECK(TimeQuantum::for_longest_path(0.0).round_up(0.0) == 0);
}

TEST_CASE("points that tie after rounding, concave ones and flat ends go") {
  const TimeQuantum second = TimeQuantum::for_longest_path(4e15);  // quantum 1 s
  REQUIRE(second.exponent() == 0);
  const std::vector<std::int64_t> offsets{0, 3, 6, 8};
  const std::vector<double> times{1.2, 1.7, 3.0, /**/ 1.0, 2.0, 3.0, /**/ 1.0, 5.0};
  const std::vector<double> energies{9.0, 8.0, 4.0, /**/ 10.0, 8.0, 4.0, /**/ 1.0, 0.9};
  const auto curves = CurveSet<std::int64_t>::from_measured({offsets, times, energies}, second, 1.0);
  CHECK(curves.num_breakpoints(0) == 2);
  CHECK(curves.min_time(0) == 2);
  CHECK(curves.energy_above_base(0, 2) == 4);
  CHECK(curves.num_breakpoints(1) == 2);  // the middle point lies above the chord
  CHECK(curves.energy_above_base(1, 2) == 3);
  CHECK(curves.num_breakpoints(2) == 1);  // a slope of 0.025 W rounds to nothing
  CHECK(curves.max_time(2) == 1);
  CHECK(curves.energy_at_max_time_j(2) == 1.0);
}

TEST_CASE("the slope unit is fine enough, and 64 bits serve ordinary magnitudes") {
  const std::vector<std::int64_t> offsets{0, 2};
  const std::vector<double> times{1.0, 2.0};
  const std::vector<double> energies{100.0, 0.0};
  const std::vector<std::int64_t> one{1};
  const std::vector<std::int64_t> many{1'000'000};
  const TimeQuantum quantum = TimeQuantum::for_longest_path(2.0);
  CHECK(choose_slope_unit({offsets, times, energies}, one, quantum).watts < 1e-9);
  CHECK(choose_slope_unit({offsets, times, energies}, many, quantum).fits_64_bits);
}
