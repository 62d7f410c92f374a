// The whole solver on networks small enough to work out by hand, and random ones checked by certificates and by the
// agreement of two max-flow methods that share no code.
#include "perseus/tradeoff_solver.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "pipeline.hpp"

using namespace perseus;

namespace {

// A random DAG with ties, single-choice, zero-length and fixed operations; magnitudes scaled by `time` and `energy`.
Pipeline random_pipeline(std::mt19937& random, double time, double energy) {
  Pipeline p;
  const auto whole = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  const int curves = whole(1, 4);
  for (int c = 0; c < curves; ++c) {
    const int n = whole(1, 4);
    std::vector<double> t{time * whole(1, 5)};
    std::vector<double> e{energy * 100.0};
    double slope = whole(5, 30);
    for (int k = 1; k < n; ++k) {
      const int step = whole(1, 4);
      t.push_back(t.back() + time * step);
      e.push_back(e.back() - energy * slope * step);
      slope *= 0.5;
    }
    p.curve(t, e);
  }
  const int n = whole(1, 40);
  for (int i = 0; i < n; ++i) {
    if (whole(0, 9) == 0) {
      p.fixed(time * whole(0, 3));
    } else {
      p.operation(whole(0, curves - 1));
    }
    for (int j = 0; j < i; ++j) {
      if (whole(0, 9) < 2) p.edge(j, i, whole(0, 3) == 0 ? time * whole(1, 3) : 0.0);
    }
  }
  return p;
}

}  // namespace

TEST_CASE("one operation gives its own curve") {
  Pipeline p;
  p.operation(p.curve({1.0, 2.0, 4.0}, {10.0, 6.0, 4.0}));
  const TradeoffSolution s = p.solve();
  REQUIRE(s.status == SolveStatus::kComplete);
  CHECK(times(s) == std::vector<double>{4.0, 2.0, 1.0});
  CHECK(s.frontier.energy_j == std::vector<double>{4.0, 6.0, 10.0});
  CHECK(s.frontier.slope_w.size() == 2);
  CHECK(s.frontier.slope_w[0] == doctest::Approx(1.0));
  CHECK(s.frontier.slope_w[1] == doctest::Approx(4.0));
  CHECK(s.statistics.certificates == 3);
}

TEST_CASE("of two operations in a row the cheaper is shortened first") {
  Pipeline p;
  const auto a = p.operation(p.curve({1.0, 2.0}, {5.0, 0.0}));
  const auto b = p.operation(p.curve({1.0, 3.0}, {4.0, 0.0}));
  p.edge(a, b);
  const TradeoffSolution s = p.solve();
  CHECK(times(s) == std::vector<double>{5.0, 3.0, 2.0});
  CHECK(s.frontier.energy_j[1] == doctest::Approx(4.0));
  CHECK(s.frontier.energy_j[2] == doctest::Approx(9.0));
  const double second = s.quantum.quanta(1.0);
  CHECK(s.frontier.durations_between(0, 0.5)[1] / second == doctest::Approx(2.0));
  CHECK(s.frontier.durations_between(1, 0.25)[0] / second == doctest::Approx(1.75));
}

TEST_CASE("operations in parallel are shortened together, and what has slack waits") {
  Pipeline p;
  const auto curve = p.curve({1.0, 2.0}, {3.0, 0.0});
  p.operation(curve);
  p.operation(curve);
  p.operation(p.curve({0.5, 1.0}, {7.0, 0.0}));
  const TradeoffSolution s = p.solve();
  CHECK(times(s) == std::vector<double>{2.0, 1.0});
  CHECK(s.frontier.energy_j.back() == doctest::Approx(6.0));
  CHECK(s.frontier.durations_between(1, 0.0)[2] / s.quantum.quanta(1.0) == doctest::Approx(1.0));
}

TEST_CASE("latency and operations of fixed time only shift the frontier") {
  Pipeline p;
  const auto a = p.operation(p.curve({1.0, 2.0}, {5.0, 0.0}));
  const auto b = p.fixed(0.25);
  p.edge(a, b, 0.125);
  const TradeoffSolution s = p.solve();
  CHECK(times(s) == std::vector<double>{2.375, 1.375});
}

TEST_CASE("nothing to choose gives one breakpoint") {
  Pipeline empty;
  CHECK(times(empty.solve()) == std::vector<double>{0.0});
  Pipeline zero;
  zero.fixed(0.0);
  CHECK(times(zero.solve()) == std::vector<double>{0.0});
  Pipeline single;
  single.operation(single.curve({3.0}, {1.0}));
  const TradeoffSolution s = single.solve();
  CHECK(times(s) == std::vector<double>{3.0});
  CHECK(s.frontier.energy_j == std::vector<double>{1.0});
}

TEST_CASE("a cycle is a status") {
  Pipeline p;
  const auto curve = p.curve({1.0, 2.0}, {3.0, 0.0});
  const auto a = p.operation(curve);
  const auto b = p.operation(curve);
  p.edge(a, b);
  p.edge(b, a);
  CHECK(p.solve().status == SolveStatus::kCyclic);
}

TEST_CASE("a callback that returns false stops the solve") {
  // A chain long enough that it takes more than the 50 ms between calls even on a fast machine.
  Pipeline p;
  std::mt19937 random(7);
  std::int32_t last = -1;
  for (int i = 0; i < 20000; ++i) {
    const double slope = std::uniform_real_distribution<double>(1.0, 2.0)(random);
    const auto next = p.operation(p.curve({1.0, 2.0}, {slope, 0.0}));
    if (last >= 0) p.edge(last, next);
    last = next;
  }
  const TradeoffProblem problem{{p.offsets, p.times_s, p.energies_j}, p.curve_of, p.fixed_time_s,
                                p.predecessor, p.successor, p.latency_s, SlotMap{}};
  SolveOptions options;
  int calls = 0;
  options.progress = [&](const SolveProgress& progress) {
    CHECK(progress.longest_s == doctest::Approx(40000.0));
    CHECK(progress.shortest_s == doctest::Approx(20000.0));
    return ++calls < 2;
  };
  CHECK(solve_tradeoff(problem, options).status == SolveStatus::kInterrupted);
  CHECK(calls == 2);
}

TEST_CASE("random networks: certified, convex, and the same from both max-flow methods") {
  for (unsigned seed = 0; seed < 400; ++seed) {
    std::mt19937 random(seed);
    const double scale[] = {1e-9, 1e-3, 1.0, 1e3, 1e9};
    const Pipeline p = random_pipeline(random, scale[seed % 5], scale[(seed / 5) % 5]);
    const TradeoffSolution a = p.solve(MaxFlowMethod::kPushRelabel);
    const TradeoffSolution b = p.solve(MaxFlowMethod::kAugment);
    CAPTURE(seed);
    REQUIRE(a.status == SolveStatus::kComplete);
    REQUIRE(b.status == SolveStatus::kComplete);
    CHECK(a.statistics.certificates == static_cast<std::int64_t>(a.frontier.time.size()));
    CHECK(a.frontier.time == b.frontier.time);
    CHECK(a.frontier.energy_j == b.frontier.energy_j);
    for (std::size_t i = 0; i + 1 < a.frontier.slope_w.size(); ++i) {
      CHECK(a.frontier.slope_w[i] < a.frontier.slope_w[i + 1]);
    }
  }
}

TEST_CASE("a dynamic range beyond 64 bits is solved with 128-bit flows") {
  Pipeline p;
  const auto a = p.operation(p.curve({1e-6, 2e-6}, {1e9, 0.0}));
  const auto b = p.operation(p.curve({1800.0, 3600.0}, {1e3, 0.0}));
  p.edge(a, b);
  const TradeoffSolution s = p.solve();
  REQUIRE(s.status == SolveStatus::kComplete);
  CHECK_FALSE(s.statistics.flows_of_64_bits);
  REQUIRE(s.frontier.time.size() == 3);
  CHECK(s.frontier.energy_j[1] == doctest::Approx(1e3).epsilon(1e-6));
  CHECK(s.frontier.energy_j[2] == doctest::Approx(1e9 + 1e3).epsilon(1e-9));
}
