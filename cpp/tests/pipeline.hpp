// A small problem for the tests: owns the arrays that a TradeoffProblem looks at.
#pragma once

#include <cstdint>
#include <vector>

#include "perseus/tradeoff_solver.hpp"

namespace perseus {

struct Pipeline {
  std::vector<std::int64_t> offsets{0};
  std::vector<double> times_s;
  std::vector<double> energies_j;
  std::vector<std::int32_t> curve_of;
  std::vector<double> fixed_time_s;
  std::vector<std::int32_t> predecessor;
  std::vector<std::int32_t> successor;
  std::vector<double> latency_s;

  std::int32_t curve(const std::vector<double>& t, const std::vector<double>& e) {
    times_s.insert(times_s.end(), t.begin(), t.end());
    energies_j.insert(energies_j.end(), e.begin(), e.end());
    offsets.push_back(static_cast<std::int64_t>(times_s.size()));
    return static_cast<std::int32_t>(offsets.size()) - 2;
  }
  std::int32_t operation(std::int32_t curve_index) {
    curve_of.push_back(curve_index);
    fixed_time_s.push_back(0.0);
    return static_cast<std::int32_t>(curve_of.size()) - 1;
  }
  std::int32_t fixed(double time_s) {
    curve_of.push_back(-1);
    fixed_time_s.push_back(time_s);
    return static_cast<std::int32_t>(curve_of.size()) - 1;
  }
  void edge(std::int32_t from, std::int32_t to, double latency = 0.0) {
    predecessor.push_back(from);
    successor.push_back(to);
    latency_s.push_back(latency);
  }
  TradeoffSolution solve(MaxFlowMethod method = MaxFlowMethod::kPushRelabel, const SlotMap& slots = {}) const {
    TradeoffProblem problem;
    problem.curves = {offsets, times_s, energies_j};
    problem.curve_of = curve_of;
    problem.fixed_time_s = fixed_time_s;
    problem.predecessor = predecessor;
    problem.successor = successor;
    problem.latency_s = latency_s;
    problem.slots = slots;
    SolveOptions options;
    options.max_flow = method;
    return solve_tradeoff(problem, options);
  }
};

inline std::vector<double> times(const TradeoffSolution& s) {
  std::vector<double> t;
  for (const Time q : s.frontier.time) t.push_back(s.quantum.seconds(q));
  return t;
}

}  // namespace perseus
