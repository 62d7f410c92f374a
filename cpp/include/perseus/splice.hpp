// Periodic pipelines: solve a small one, repeat a slot of it exactly.
//
// Problem.  A schedule's steady state repeats: the operations can be put into slots such that slot j + 1 is slot j with
//   other microbatches, and the pipeline with n * p more microbatches is the same one with any one of its slots repeated
//   n more times. Its frontier should not cost n times as much.
// Theorem.  Let (x, pi) be optimal for the small pipeline, and let slot j have dependencies only from slot j - 1 and to
//   slot j + 1, the same ones on both sides. If
//     - the flows that cross into the slot equal those that cross out of it, arc by arc,
//     - each crossing arc with flow has the same difference tau of potentials across the slot, and
//     - each one without flow stays feasible when its head moves by tau,
//   then repeating the slot n times, each copy with the slot's flows and its potentials moved on by tau, is optimal for
//   the large pipeline: complementary slackness and conservation are local, and every arc and node of the large pipeline
//   looks like one of the small. Its time is T + n * tau, its flow value the same F, its energy E + n * E(slot).
// The end.  The small pipeline's shortest time need not lead to that of the large one: a path of operations that are all
//   at their fastest goes through each slot, but need not leave the repeated slot where it entered it. So the longest
//   path of the large pipeline at the shortest durations is worked out too, copy by copy until the times of one copy are
//   those of the last one moved on, and has to equal the time of the last breakpoint.
// Use.  Along the frontier a slot is found for each pair of neighbouring breakpoints that qualifies at both with the
//   flow between them, so that interpolation stays optimal in between. A pipeline whose phases have several steady
//   states (GPipe: all forwards, then all backwards) has a region of slots for each; a slot is repeated in each region.
// Limits.  Which optimal flow the max-flow happens to find decides whether a slot qualifies; where none does, the caller
//   solves a larger pipeline, and in the end the whole one.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "perseus/activity_network.hpp"
#include "perseus/integer.hpp"
#include "perseus/residual_network.hpp"

namespace perseus {

// The periodic structure of a pipeline, per operation. Slots are numbered along the dependencies.
struct SlotMap {
  std::span<const std::int32_t> slot;      // per operation
  std::span<const std::int32_t> place;     // per operation: the same for corresponding operations of different slots
  std::span<const std::int32_t> region;    // per slot: its region 0, 1, ..., or -1 if it can't be repeated
  std::int32_t num_regions = 0;
  std::int64_t repeats = 0;                // n; the slots chosen, one a region, are each repeated n more times

  bool empty() const { return slot.empty(); }
};

// One slot of each region, good between two neighbouring breakpoints.
struct Splice {
  std::vector<std::int32_t> slots;  // per region
  Time longer_tau = 0;              // time that one repetition of all of them takes at the longer breakpoint
  Time shorter_tau = 0;             // and at the shorter
};

template <class Flow>
class Splicer {
 public:
  Splicer(const ActivityNetwork& network, const SlotMap& map);

  // Looks at all slots with the flow that has just become maximum, at the breakpoint where it did.
  void begin_interval(const ResidualNetwork<Flow>& state);
  // Looks at them again with the same flow at the next breakpoint. False if some region has no slot that qualifies at
  // both.
  bool end_interval(const ResidualNetwork<Flow>& state, Splice& splice);

  // The longest path of the large pipeline with these arc lengths; kNoLength if some region has no slot to repeat.
  Time longest_path(std::span<const Time> arc_length) const;

 private:
  // How corresponding dependencies cross into and out of a slot.
  struct Crossing {
    std::int32_t arc_in;    // from the slot before
    std::int32_t arc_out;   // to the slot after
    std::int32_t head_in;   // node of the slot that arc_in enters
    std::int32_t head_out;  // the corresponding node of the slot after
    std::int32_t tail_out;  // node of the slot that arc_out leaves
    Time length;
  };
  struct Candidate {
    std::int32_t slot;
    std::int32_t region;
    std::size_t first;  // its crossings: first .. last - 1
    std::size_t last;
  };

  void advance(std::span<const std::int32_t> nodes, std::span<const Time> arc_length, std::int32_t from_slot,
               std::vector<Time>& earliest) const;
  void repeat(const Candidate& candidate, std::span<const Time> arc_length, std::vector<Time>& earliest) const;
  bool qualifies(const Candidate& candidate, const ResidualNetwork<Flow>& state, Time& tau) const;

  const ActivityNetwork& network_;
  std::int32_t num_regions_;
  std::int64_t repeats_;
  std::vector<std::vector<std::int32_t>> slot_nodes_;  // per slot: its nodes in topological order
  std::vector<std::int32_t> node_slot_;                // per node
  std::vector<std::int32_t> in_first_;                 // per node, and one more: its entering arcs in in_arcs_
  std::vector<std::int32_t> in_arcs_;
  std::vector<Crossing> crossings_;
  std::vector<Candidate> candidates_;
  std::vector<Time> longer_tau_;   // per candidate: at begin_interval, or kNoLength if it did not qualify
};

extern template class Splicer<std::int64_t>;
extern template class Splicer<Int128>;

}  // namespace perseus
