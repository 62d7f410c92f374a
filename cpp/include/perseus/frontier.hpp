// The time-energy frontier: every breakpoint of E(T) and the durations at each, compactly.
//
// Breakpoints run from the longest useful iteration time down to the shortest. Between neighbours E is linear, and so
// are optimal durations: interpolating two optimal sets of durations is feasible, and by convexity costs no more than
// the interpolated energy, which is the optimum. Durations are stored as the changes from one breakpoint to the next,
// with a full copy whenever the changes since the last copy outnumber the operations: at most twice the changes in
// memory, O(operations) per look-up.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "perseus/integer.hpp"

namespace perseus {

class DurationHistory {
 public:
  // Starts with these durations (quanta) as breakpoint 0.
  void start(std::vector<Time> durations);
  // Calls `duration(i)` for every i in order and adds a breakpoint of the changes.
  template <class DurationOf>
  void add(DurationOf&& duration);

  std::size_t num_breakpoints() const { return change_first_.size(); }
  std::size_t num_changes() const { return changed_.size(); }
  // Durations between breakpoints `index` (weight 1 - share) and `index + 1` (weight share), in quanta.
  std::vector<double> between(std::size_t index, double share) const;
  std::size_t memory_bytes() const;

 private:
  std::vector<Time> at(std::size_t index) const;

  std::vector<Time> current_;                // durations at the last breakpoint
  std::vector<std::size_t> change_first_;    // per breakpoint: its first change; breakpoint 0 has none
  std::vector<std::int32_t> changed_;        // per change: which
  std::vector<Time> new_duration_;           // per change: its duration from here on
  std::vector<std::size_t> copy_at_;         // breakpoints with a full copy, increasing
  std::vector<std::vector<Time>> copies_;
  std::size_t changes_since_copy_ = 0;
};

template <class DurationOf>
void DurationHistory::add(DurationOf&& duration) {
  change_first_.push_back(changed_.size());
  for (std::size_t i = 0; i < current_.size(); ++i) {
    const Time d = duration(i);
    if (d == current_[i]) continue;
    current_[i] = d;
    changed_.push_back(static_cast<std::int32_t>(i));
    new_duration_.push_back(d);
    ++changes_since_copy_;
  }
  if (changes_since_copy_ > current_.size()) {
    copy_at_.push_back(change_first_.size() - 1);
    copies_.push_back(current_);
    changes_since_copy_ = 0;
  }
}

struct Frontier {
  // Breakpoint 0 is the longest useful iteration time, the last the shortest iteration time.
  std::vector<Time> time;        // quanta, strictly decreasing
  std::vector<double> energy_j;  // effective energy of all operations that have a choice
  std::vector<double> slope_w;   // -dE/dT between breakpoint i and i + 1; size one less than time
  DurationHistory durations;     // of the operations in `operation`
  std::vector<std::int32_t> operation;      // operations that have a choice
  std::vector<Time> longest;     // per operation of the problem: longest useful, or fixed, duration
  std::vector<std::int32_t> repeated_slots;  // if spliced: per interval i, i + 1, a slot of each region

  // Durations (quanta) of every operation of the problem, between breakpoints `index` and `index + 1`.
  std::vector<double> durations_between(std::size_t index, double share) const;
};

}  // namespace perseus
