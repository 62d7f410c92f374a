// A pipeline solved by repeating slots of a small one equals the pipeline solved whole.
#include "perseus/splice.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "pipeline.hpp"

using namespace perseus;

namespace {

// 1F1B with its slots: slot j + 1 holds the last forward and the first backward of each stage, moved on by j.
struct Schedule {
  Pipeline pipeline;
  std::vector<std::int32_t> slot;
  std::vector<std::int32_t> place;
  std::vector<std::int32_t> region;
};

Schedule one_f_one_b(int stages, int microbatches, unsigned seed) {
  Schedule s;
  std::mt19937 random(seed);
  const auto uniform = [&](double low, double high) { return std::uniform_real_distribution<double>(low, high)(random); };
  for (int c = 0; c < 2 * stages; ++c) {
    const double fastest = uniform(1.0, 2.0);
    std::vector<double> t{fastest};
    std::vector<double> e{100.0};
    double slope = uniform(10.0, 40.0);
    for (int k = 0; k < 4; ++k) {
      t.push_back(t.back() + uniform(0.05, 0.3));
      e.push_back(e.back() - slope * (t.back() - t[t.size() - 2]));
      slope *= uniform(0.3, 0.9);
    }
    s.pipeline.curve(t, e);
  }
  const auto n = static_cast<std::size_t>(microbatches);
  std::vector<std::vector<std::int32_t>> forward(static_cast<std::size_t>(stages), std::vector<std::int32_t>(n));
  auto backward = forward;
  const int slots = microbatches - stages + 1;
  for (int stage = 0; stage < stages; ++stage) {
    const int warm_up = std::min(microbatches, stages - stage);
    std::int32_t last = -1;
    const auto add = [&](bool is_forward, int m) {
      const std::int32_t operation = s.pipeline.operation(2 * stage + (is_forward ? 0 : 1));
      if (last >= 0) s.pipeline.edge(last, operation);
      last = operation;
      (is_forward ? forward : backward)[static_cast<std::size_t>(stage)][static_cast<std::size_t>(m)] = operation;
      const int number = (is_forward ? m - warm_up + 1 : m) + 1;
      s.slot.push_back(std::clamp(number, 0, slots + 1));
      s.place.push_back(2 * stage + (is_forward ? 0 : 1));
    };
    for (int m = 0; m < warm_up; ++m) add(true, m);
    for (int m = 0; m < microbatches; ++m) {
      add(false, m);
      if (warm_up + m < microbatches) add(true, warm_up + m);
    }
  }
  for (std::size_t stage = 0; stage + 1 < static_cast<std::size_t>(stages); ++stage) {
    for (std::size_t m = 0; m < n; ++m) {
      s.pipeline.edge(forward[stage][m], forward[stage + 1][m]);
      s.pipeline.edge(backward[stage + 1][m], backward[stage][m]);
    }
  }
  s.region.assign(static_cast<std::size_t>(slots) + 2, 0);
  s.region.front() = s.region.back() = -1;
  return s;
}

SlotMap map_of(const Schedule& s, std::int64_t repeats) { return {s.slot, s.place, s.region, 1, repeats}; }

}  // namespace

TEST_CASE("spliced frontiers equal those of the whole pipeline") {
  int spliced = 0;
  for (unsigned seed = 0; seed < 60; ++seed) {
    const int stages = 1 + static_cast<int>(seed % 4);
    const int small = 6 * stages + 8;
    const int large = small + 7 + static_cast<int>(seed % 5);
    const Schedule a = one_f_one_b(stages, small, seed);
    const Schedule b = one_f_one_b(stages, large, seed);
    CAPTURE(seed);
    const TradeoffSolution whole = b.pipeline.solve(MaxFlowMethod::kAugment);
    REQUIRE(whole.status == SolveStatus::kComplete);
    const TradeoffSolution repeated = a.pipeline.solve(MaxFlowMethod::kAugment, map_of(a, large - small));
    if (repeated.status == SolveStatus::kNotSpliceable) continue;
    REQUIRE(repeated.status == SolveStatus::kComplete);
    ++spliced;
    const std::vector<double> expected = times(whole);
    const std::vector<double> found = times(repeated);
    REQUIRE(found.size() == expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
      CHECK(found[i] == doctest::Approx(expected[i]).epsilon(1e-9));
      CHECK(repeated.frontier.energy_j[i] == doctest::Approx(whole.frontier.energy_j[i]).epsilon(1e-9));
    }
    CHECK(repeated.frontier.repeated_slots.size() == found.size() - 1);
  }
  CHECK(spliced > 30);
}

TEST_CASE("slots that cannot be repeated are refused") {
  Schedule s = one_f_one_b(2, 20, 3);
  std::fill(s.region.begin(), s.region.end(), -1);
  CHECK(s.pipeline.solve(MaxFlowMethod::kAugment, map_of(s, 5)).status == SolveStatus::kNotSpliceable);
  Schedule unequal = one_f_one_b(2, 20, 3);
  for (std::size_t i = 0; i < unequal.place.size(); ++i) unequal.place[i] = static_cast<std::int32_t>(i);
  CHECK(unequal.pipeline.solve(MaxFlowMethod::kAugment, map_of(unequal, 5)).status == SolveStatus::kNotSpliceable);
}
