// Chooses anew for all operations of a chain at once, with the times of all others fixed.
//
// Problem.  A chain is a path of the DAG, such as the operations of one GPU, or one microbatch's way through the stages.
//   When every other operation keeps its start and its choice, each operation of the chain has a release (the latest end
//   of what it needs) and a due time (the earliest start of what needs it), and the cheapest choices are those of a
//   knapsack in a row: the least energy of the operations so far for every time at which they may end.
// Method.  Dynamic programming along the chain over labels (end, energy), of which none is both later and dearer than
//   another. The window of ends is divided into buckets and the cheapest label of each is kept, so the result is exact
//   only as far as buckets are not shared; it is taken if it saves energy, so it never makes a plan worse.
//   Where others are fixed decides what a chain can gain, so chains are tried with all others as early as possible, as
//   late as possible, and between: any mixture of two feasible schedules is feasible.
// Invariant.  The makespan of the selection stays within the deadline.
// Cost.  O(length * buckets * choices) for a chain. Deterministic.
// Reference.  The neighbourhood is that of dynasearch and of "discrete time-cost trade-off" on chains (De et al. 1995).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "perseus/choice_selection.hpp"

namespace perseus {

class ChainImprovement {
 public:
  explicit ChainImprovement(const PrecedenceGraph& graph);

  // Goes round all chains and mixtures until none improves or `work` (labels extended) is spent. Returns the energy
  // saved, J.
  double improve(ChoiceSelection& selection, std::int64_t work, double least_j);
  // Labels extended so far.
  std::int64_t work() const { return work_; }

 private:
  // The least energy of the chain up to an operation that ends at `finish`.
  struct Label {
    Time finish;
    double energy_j;
    std::int32_t entry;   // of that operation
    std::int32_t before;  // label of the operation before; -1 at the chain's first
  };
  struct Window {
    Time release;
    Time due;
  };

  void cover(bool near_first);
  void fix_others(const ChoiceSelection& selection, Time share);
  void set_windows(const ChoiceSelection& selection, std::span<const std::int32_t> chain);
  void extend(const ChoiceMenus& menus, std::int32_t v, const Window& window, Time latency, std::size_t first,
              std::size_t last);
  double take_labels(ChoiceSelection& selection, std::span<const std::int32_t> chain);
  bool improve_chain(ChoiceSelection& selection, std::span<const std::int32_t> chain, double least_j);

  const PrecedenceGraph* graph_;
  std::vector<std::vector<std::int32_t>> chains_;
  std::int64_t work_ = 0;
  // Work space.
  std::vector<Time> start_;             // per operation: where it is fixed for what needs it
  std::vector<Time> due_;               // per operation: where it is fixed for what it needs
  std::vector<std::int32_t> chosen_;    // per operation of the chain: the entry of the cheapest label
  std::vector<Window> windows_;         // per operation of the chain
  std::vector<Label> labels_;           // of all operations of the chain, one after the other
  std::vector<std::size_t> first_;      // per operation of the chain: its first label; one more at the end
  std::vector<Label> bucket_;           // the cheapest label of each
};

}  // namespace perseus
