// Operations and dependencies as an activity-on-arc network with one source and one sink.
//
// Nodes are events; an arc (u, v) with duration d demands potential(v) >= potential(u) + d. Each operation is an arc
// from its start event to its end event, each dependency an arc of fixed length (its latency). The graph holds
// integers only; durations, capacities, flows are parallel arrays elsewhere.
//
// Reductions made while building, all exact:
//  - an edge of no latency between two operations of the same run of consecutive operations (i -> i+1 -> ...) is
//    implied by the run and dropped;
//  - of parallel dependencies the longest stays;
//  - a dependency of no latency that is the only arc into its head, or the only arc out of its tail, joins the two
//    events: the potentials can be equal without loss, since an operation that has more time than it needs waits
//    for free. Events of different slots (splice.hpp) are never joined.
// Nodes are numbered by earliest start at the longest durations, ties in topological order, so that what is close in
// time is close in memory, and every arc goes from a lower to a higher number.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "perseus/integer.hpp"

namespace perseus {

struct Dependency {
  std::int32_t predecessor;  // operation
  std::int32_t successor;    // operation
  Time latency;              // quanta, >= 0
};

class ActivityNetwork {
 public:
  // `longest` is each operation's longest useful duration; operations with `fixed` true are constraints, not choices.
  // `slot` is each operation's slot, or empty if the pipeline is not to be spliced.
  // Returns false if the dependencies contain a cycle; the network is then empty.
  bool build(std::span<const Time> longest, std::span<const std::uint8_t> fixed,
             std::span<const Dependency> dependencies, std::span<const std::int32_t> slot = {});

  std::int32_t num_nodes() const { return num_nodes_; }
  std::int32_t num_arcs() const { return static_cast<std::int32_t>(tail_.size()); }
  std::int32_t source() const { return source_; }
  std::int32_t sink() const { return sink_; }

  // Arcs 0 .. num_operation_arcs()-1 are operations that have a choice, the rest constraints of fixed length.
  std::int32_t num_operation_arcs() const { return num_operation_arcs_; }
  const std::vector<std::int32_t>& tail() const { return tail_; }
  const std::vector<std::int32_t>& head() const { return head_; }
  // Per arc: the operation, or -1 for a dependency.
  const std::vector<std::int32_t>& operation() const { return operation_; }
  // Per arc: the fixed length of a constraint, the longest useful duration of an operation.
  const std::vector<Time>& length() const { return length_; }
  // Per node: the longest path from the source when every arc has length().
  const std::vector<Time>& earliest() const { return earliest_; }

  // Per node: the lowest event joined in it, 2 * operation for a start and 2 * operation + 1 for an end; source and sink
  // are 2 * operations and that plus one.
  const std::vector<std::int32_t>& event() const { return event_; }

  // Longest path from source to sink with these arc lengths, O(nodes + arcs).
  Time longest_path(std::span<const Time> arc_length) const;

 private:
  std::int32_t num_nodes_ = 0;
  std::int32_t source_ = 0;
  std::int32_t sink_ = 0;
  std::int32_t num_operation_arcs_ = 0;
  std::vector<std::int32_t> tail_;
  std::vector<std::int32_t> head_;
  std::vector<std::int32_t> operation_;
  std::vector<Time> length_;
  std::vector<Time> earliest_;
  std::vector<std::int32_t> event_;
  std::vector<std::int32_t> arcs_by_tail_;  // arc numbers, sorted by tail
};

}  // namespace perseus
