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
//   3. Exchange choices locally, then choose whole chains anew (chain_improvement.hpp), within budgets.
//   A second way to a start is to splice two plans in time: the operations up to a point from one, the others from the
//   other. Where a pipeline repeats itself, some iteration times suit the choices well and most do not; a mixture of two
//   that do has the time between, at hardly more than the energy between.
// Exactness.  Times are integer quanta, chosen and rounded as for the frontier (quantization.hpp): choices up, the
//   deadline down. So the shortest iteration time stays feasible, and the makespan never exceeds the deadline.
// Cost.  O(operations + dependencies) for each rounding; reclaiming and exchanging by budget. Deterministic.
// Limits.  Fewer than 2^31 operations, dependencies and choices. No recursion.
// Reference.  Chung et al., Reducing energy bloat in large model training, SOSP 2024, section 4, rounds down only.
#pragma once

#include <cstdint>
#include <memory>
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
  bool carry = true;    // false: one start only, forwards if that meets the deadline, else the first way
  // Visits of operations allowed to each reclaiming and to the exchange, times (operations + dependencies).
  std::int64_t reclaim_effort = 64;
  std::int64_t exchange_effort = 64;
  // Labels that the choice of chains may extend, times operations; 0 for none.
  std::int64_t chain_effort = 0;
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

// Which operations a splice takes from the other plan.
enum class SplicedPart { kBeginning, kEnd };

// The same for many deadlines of one pipeline: what does not depend on them is done once. Immutable, so that threads may
// share it.
class PlanSpace {
 public:
  // Copies what it needs; planned_s and deadline_s are not used.
  explicit PlanSpace(const PlanProblem& problem);
  ~PlanSpace();
  PlanSpace(PlanSpace&&) noexcept;
  PlanSpace& operator=(PlanSpace&&) noexcept;

  // kComplete, kCyclic or kInvalid. With any but the first, plans have that status and nothing else.
  RoundingStatus status() const { return status_; }
  // As round_plan.
  RoundedPlan round(std::span<const double> planned_s, double deadline_s, const RoundingOptions& options) const;
  // Takes operations at the beginning or at the end of the iteration from another plan, as many as the deadline allows,
  // and improves that. Choices are per operation, as in RoundedPlan. The base must meet the deadline (else
  // kDeadlineTooShort), the other plan need not.
  RoundedPlan splice(std::span<const std::int32_t> base, std::span<const std::int32_t> other, SplicedPart part,
                     double deadline_s, const RoundingOptions& options) const;
  // Improves a plan that meets the deadline (else kDeadlineTooShort).
  RoundedPlan improve(std::span<const std::int32_t> choice, double deadline_s, const RoundingOptions& options) const;

 private:
  struct Parts;

  RoundingStatus status_ = RoundingStatus::kComplete;
  std::unique_ptr<Parts> parts_;
};

}  // namespace perseus
