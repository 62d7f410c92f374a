// The exact time-energy frontier of a pipeline, by iterative minimum cut on the critical DAG.
//
// Problem.  Given operations i with convex, decreasing, piecewise-linear effective energies c_i(d) and dependencies
//   between them, minimise sum_i c_i(d_i) subject to the longest path being at most T, for every T at once. E(T) is
//   convex and piecewise linear; its breakpoints and the durations there are the result.
// Dual.  A flow from source to sink whose value F is -dE/dT; it is optimal iff it is conserved and each arc's flow lies
//   in the negated subdifferential of its curve at the arc's duration (complementary slackness).
// Iteration.  At the longest useful durations the flow is zero. Each phase
//     1. augments the flow to a maximum over critical residual arcs (max_flow.hpp). The search that then fails has found
//        a minimum cut: the cheapest way, in J per s, to shorten every critical path;
//     2. shortens the iteration by the largest D for which that cut stays the cheapest (critical_search.hpp);
//     3. records the breakpoint (T - D, E + F * D) and which durations moved.
//   It ends when the critical network carries unbounded flow: no duration on some critical path can shrink.
// Invariant.  Potentials and flow satisfy complementary slackness after every push and every change of potentials.
// Exactness.  Times, slopes and flows are integers, energies 128-bit integers. Equal events tie exactly, each
//   augmentation raises F by >= 1 and each phase lowers T by >= 1 quantum, so it terminates without perturbation.
// Cost.  O(nodes + arcs) per phase and round, plus the heap of events; breakpoints x size in all.
// Limits.  Sizes below 2^30 arcs; magnitudes as in quantization.hpp and convex_curve.hpp.
// References.  Kelley, Critical-path planning and scheduling: mathematical basis, 1961. Fulkerson, A network flow
//   computation for project cost curves, 1961. Phillips & Dessouky, Solving the project time/cost tradeoff problem using
//   the minimal cut concept, 1977. Chung et al., Reducing energy bloat in large model training, SOSP 2024, section 4.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "perseus/convex_curve.hpp"
#include "perseus/frontier.hpp"
#include "perseus/max_flow.hpp"
#include "perseus/quantization.hpp"
#include "perseus/splice.hpp"
#include "perseus/status.hpp"

namespace perseus {

struct TradeoffProblem {
  MeasuredCurves curves;                         // effective energies
  std::span<const std::int32_t> curve_of;        // per operation: its curve, or -1 for an operation of fixed time
  std::span<const double> fixed_time_s;          // per operation: read where curve_of is -1
  std::span<const std::int32_t> predecessor;     // per dependency
  std::span<const std::int32_t> successor;       // per dependency
  std::span<const double> latency_s;             // per dependency
  SlotMap slots;                                 // empty, or: solve the pipeline with slots repeated (splice.hpp)
};

struct SolveProgress {
  std::int64_t phases;
  double time_s;         // reached so far, falling from longest_s to shortest_s
  double longest_s;
  double shortest_s;
};

struct SolveOptions {
  MaxFlowMethod max_flow = MaxFlowMethod::kPushRelabel;
  bool certify = true;
  double stop_at_s = 0.0;  // stop at the first breakpoint at or below this time
  // Called a few times a second, from the solving thread; false stops the solve.
  std::function<bool(const SolveProgress&)> progress;
};

struct SolveStatistics {
  std::int64_t phases = 0;
  std::int64_t rounds = 0;              // blocking flows
  std::int64_t certificates = 0;        // breakpoints proven optimal
  std::int32_t nodes = 0;
  std::int32_t arcs = 0;
  double slope_unit_w = 1.0;
  bool flows_of_64_bits = true;
};

struct TradeoffSolution {
  SolveStatus status = SolveStatus::kComplete;
  TimeQuantum quantum;
  Frontier frontier;
  SolveStatistics statistics;
};

TradeoffSolution solve_tradeoff(const TradeoffProblem& problem, const SolveOptions& options);

}  // namespace perseus
