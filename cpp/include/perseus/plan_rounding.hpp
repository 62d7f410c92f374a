// From continuous durations to profiled choices: one per operation, the makespan within a deadline.
//
// Problem.  Each operation has a menu of choices (time, effective energy), times increasing and energies decreasing.
//   Given durations that are optimal when any duration may be chosen, and a deadline T, pick one choice per operation
//   such that the longest path is at most T and the total effective energy is small. Finding the least is NP-hard; the
//   continuous optimum bounds it from below.
// Method.
//   1. Round down, in three ways: every operation to the slowest choice within its planned duration; and, walking in
//      topological order forwards or backwards, every operation to a vertex of its convex hull next to its planned
//      duration, the slower one if the time that its predecessors (successors) left over by rounding down pays for it.
//      Between neighbouring vertices the relaxation is linear, so a round-up makes good what round-downs lost.
//   2. Reclaim the slack that is left (slack_reclaiming.hpp) by two rules, largest saving and largest saving per second
//      of slack; each wins at some T. The best of all is kept.
//   3. Exchange choices locally, within a budget.
// Exactness.  Times are integer quanta, chosen and rounded as for the frontier (quantization.hpp): choices up, the
//   deadline down. So the shortest iteration time stays feasible, and the makespan never exceeds the deadline.
// Cost.  O(operations + dependencies) for each rounding; reclaiming and exchanging by budget. Deterministic.
// Limits.  Fewer than 2^31 operations, dependencies and choices. No recursion.
// Reference.  Chung et al., Reducing energy bloat in large model training, SOSP 2024, section 4, rounds down only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace perseus {

struct PlanProblem {
  // The choices of all menus, flattened: menu m holds menu_offsets[m] to menu_offsets[m+1], at least one, times
  // strictly increasing and effective energies strictly decreasing.
  std::span<const std::int64_t> menu_offsets;
  std::span<const double> choice_time_s;
  std::span<const double> choice_energy_j;
  std::span<const std::int32_t> menu_of;      // per operation
  std::span<const double> planned_s;          // per operation: its duration in the continuous optimum
  std::span<const std::int32_t> predecessor;  // per dependency
  std::span<const std::int32_t> successor;    // per dependency
  std::span<const double> latency_s;          // per dependency, >= 0
  double deadline_s = 0.0;
};

struct RoundingOptions {
  bool reclaim = true;  // false: round down only, in the first way
  // Visits of operations allowed to each reclaiming and to the exchange, times (operations + dependencies).
  std::int64_t reclaim_effort = 64;
  std::int64_t exchange_effort = 64;
};

enum class RoundingStatus {
  kComplete,
  kDeadlineTooShort,  // even the fastest choices take longer: makespan_s
  kCyclic,            // the dependencies contain a cycle
  kInvalid,           // sizes or indices of the problem do not fit together
};

struct RoundedPlan {
  RoundingStatus status = RoundingStatus::kComplete;
  std::vector<std::int32_t> choice;  // per operation: index into its menu
  std::vector<double> start_s;       // per operation: earliest start
  double makespan_s = 0.0;
  double rounded_energy_j = 0.0;     // total effective energy after rounding down in the first way
  double reclaimed_energy_j = 0.0;   // after reclaiming
  double energy_j = 0.0;             // of the plan
  std::int64_t exchanges = 0;
};

RoundedPlan round_plan(const PlanProblem& problem, const RoundingOptions& options);

}  // namespace perseus
