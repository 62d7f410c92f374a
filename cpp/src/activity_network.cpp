#include "perseus/activity_network.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace perseus {

namespace {

struct Arc {
  std::int32_t tail;
  std::int32_t head;
  std::int32_t operation;  // -1: dependency
  Time length;
};

std::size_t at(std::int32_t index) { return static_cast<std::size_t>(index); }

// Disjoint sets of events that share one potential.
class EventSets {
 public:
  explicit EventSets(std::size_t size) : parent_(size) { std::iota(parent_.begin(), parent_.end(), 0); }

  std::int32_t find(std::int32_t event) {
    while (parent_[at(event)] != event) {
      parent_[at(event)] = parent_[at(parent_[at(event)])];
      event = parent_[at(event)];
    }
    return event;
  }

  void join(std::int32_t kept, std::int32_t gone) { parent_[at(gone)] = kept; }

 private:
  std::vector<std::int32_t> parent_;
};

// Numbers runs of consecutive operations i -> i+1 joined by a dependency.
std::vector<std::int32_t> runs_of_operations(std::size_t num_operations, std::span<const Dependency> dependencies) {
  std::vector<std::uint8_t> follows(num_operations, 0);
  for (const Dependency& d : dependencies) {
    if (d.successor == d.predecessor + 1) follows[at(d.successor)] = 1;
  }
  std::vector<std::int32_t> run(num_operations);
  std::int32_t current = -1;
  for (std::size_t i = 0; i < num_operations; ++i) run[i] = follows[i] ? current : ++current;
  return run;
}

// Events 2i and 2i+1 are the start and end of operation i; then source and sink.
std::vector<Arc> arcs_of_events(std::span<const Time> longest, std::span<const Dependency> dependencies,
                                std::int32_t source, std::int32_t sink) {
  const std::size_t n = longest.size();
  const std::vector<std::int32_t> run = runs_of_operations(n, dependencies);
  std::vector<std::uint8_t> has_predecessor(n, 0);
  std::vector<std::uint8_t> has_successor(n, 0);
  std::vector<Arc> arcs;
  arcs.reserve(n + dependencies.size() + 64);
  for (std::size_t i = 0; i < n; ++i) {
    const auto operation = static_cast<std::int32_t>(i);
    arcs.push_back({2 * operation, 2 * operation + 1, operation, longest[i]});
  }
  for (const Dependency& d : dependencies) {
    has_successor[at(d.predecessor)] = 1;
    has_predecessor[at(d.successor)] = 1;
    const bool implied = d.latency == 0 && d.successor > d.predecessor + 1 &&
                         run[at(d.predecessor)] == run[at(d.successor)];
    if (!implied) arcs.push_back({2 * d.predecessor + 1, 2 * d.successor, -1, d.latency});
  }
  for (std::size_t i = 0; i < n; ++i) {
    const auto operation = static_cast<std::int32_t>(i);
    if (!has_predecessor[i]) arcs.push_back({source, 2 * operation, -1, 0});
    if (!has_successor[i]) arcs.push_back({2 * operation + 1, sink, -1, 0});
  }
  if (n == 0) arcs.push_back({source, sink, -1, 0});
  return arcs;
}

// Sorts constraints (all behind the first `num_operations` arcs) and keeps the longest of each parallel group.
void drop_parallel_constraints(std::vector<Arc>& arcs, std::size_t num_operations) {
  const auto begin = arcs.begin() + static_cast<std::ptrdiff_t>(num_operations);
  std::sort(begin, arcs.end(), [](const Arc& a, const Arc& b) {
    if (a.tail != b.tail) return a.tail < b.tail;
    if (a.head != b.head) return a.head < b.head;
    return a.length > b.length;
  });
  arcs.erase(std::unique(begin, arcs.end(),
                         [](const Arc& a, const Arc& b) { return a.tail == b.tail && a.head == b.head; }),
             arcs.end());
}

// Joins events of one slot over constraints of length 0 that are alone at one of their ends, until none is left.
void join_events(std::vector<Arc>& arcs, std::size_t num_operations, std::span<const std::int32_t> event_slot,
                 std::int32_t source, std::int32_t sink, EventSets& sets) {
  const std::size_t num_events = event_slot.size();
  bool changed = true;
  while (changed) {
    changed = false;
    std::vector<std::int32_t> in_degree(num_events, 0);
    std::vector<std::int32_t> out_degree(num_events, 0);
    for (const Arc& arc : arcs) {
      ++out_degree[at(arc.tail)];
      ++in_degree[at(arc.head)];
    }
    for (std::size_t a = num_operations; a < arcs.size(); ++a) {
      const Arc& arc = arcs[a];
      if (arc.length != 0) continue;
      const std::int32_t tail = sets.find(arc.tail);
      const std::int32_t head = sets.find(arc.head);
      if (tail == head || (tail == source && head == sink)) continue;
      if (event_slot[at(tail)] != event_slot[at(head)]) continue;
      const bool alone_at_head = in_degree[at(head)] == 1;
      const bool alone_at_tail = out_degree[at(tail)] == 1;
      if (!alone_at_head && !alone_at_tail) continue;
      const std::int32_t in = in_degree[at(tail)] + in_degree[at(head)] - 1;
      const std::int32_t out = out_degree[at(tail)] + out_degree[at(head)] - 1;
      const std::int32_t kept = head == sink || head == source ? head : tail;
      sets.join(kept, kept == tail ? head : tail);
      in_degree[at(kept)] = in;
      out_degree[at(kept)] = out;
      changed = true;
    }
    for (Arc& arc : arcs) {
      arc.tail = sets.find(arc.tail);
      arc.head = sets.find(arc.head);
    }
    const auto begin = arcs.begin() + static_cast<std::ptrdiff_t>(num_operations);
    arcs.erase(std::remove_if(begin, arcs.end(), [](const Arc& a) { return a.tail == a.head; }), arcs.end());
    drop_parallel_constraints(arcs, num_operations);
  }
}

// Source and sink stand before and after all slots; without slots all events are in one.
std::vector<std::int32_t> slots_of_events(std::span<const std::int32_t> slot, std::size_t num_events) {
  std::vector<std::int32_t> of_event(num_events, 0);
  if (slot.empty()) return of_event;
  for (std::size_t i = 0; i < slot.size(); ++i) of_event[2 * i] = of_event[2 * i + 1] = slot[i];
  of_event[num_events - 2] = *std::min_element(slot.begin(), slot.end());
  of_event[num_events - 1] = *std::max_element(slot.begin(), slot.end());
  return of_event;
}

struct Placement {
  std::vector<std::int32_t> order;  // events that are in use, in topological order
  std::vector<Time> earliest;       // per event
};

// Kahn's algorithm; the order is shorter than the number of events in use if there is a cycle.
Placement place_events(const std::vector<Arc>& arcs, const std::vector<std::uint8_t>& used) {
  const std::size_t n = used.size();
  std::vector<std::int32_t> first(n + 1, 0);
  std::vector<std::int32_t> in_degree(n, 0);
  for (const Arc& arc : arcs) {
    ++first[at(arc.tail) + 1];
    ++in_degree[at(arc.head)];
  }
  std::partial_sum(first.begin(), first.end(), first.begin());
  std::vector<std::int32_t> out(arcs.size());
  std::vector<std::int32_t> next(first.begin(), first.end() - 1);
  for (std::size_t a = 0; a < arcs.size(); ++a) {
    out[at(next[at(arcs[a].tail)]++)] = static_cast<std::int32_t>(a);
  }
  Placement placement;
  placement.earliest.assign(n, 0);
  for (std::size_t v = 0; v < n; ++v) {
    if (used[v] && in_degree[v] == 0) placement.order.push_back(static_cast<std::int32_t>(v));
  }
  for (std::size_t i = 0; i < placement.order.size(); ++i) {
    const std::int32_t v = placement.order[i];
    for (std::int32_t p = first[at(v)]; p < first[at(v) + 1]; ++p) {
      const Arc& arc = arcs[at(out[at(p)])];
      Time& earliest = placement.earliest[at(arc.head)];
      earliest = std::max(earliest, placement.earliest[at(v)] + arc.length);
      if (--in_degree[at(arc.head)] == 0) placement.order.push_back(arc.head);
    }
  }
  return placement;
}

}  // namespace

bool ActivityNetwork::build(std::span<const Time> longest, std::span<const std::uint8_t> fixed,
                            std::span<const Dependency> dependencies, std::span<const std::int32_t> slot) {
  *this = ActivityNetwork();
  const auto num_operations = static_cast<std::int32_t>(longest.size());
  const std::int32_t source = 2 * num_operations;
  const std::int32_t sink = source + 1;
  std::vector<Arc> arcs = arcs_of_events(longest, dependencies, source, sink);
  // Operations without a choice are constraints.
  const auto choices_end = std::stable_partition(arcs.begin(), arcs.end(), [&](const Arc& arc) {
    return arc.operation >= 0 && !fixed[at(arc.operation)];
  });
  const auto num_choices = static_cast<std::size_t>(choices_end - arcs.begin());
  for (auto arc = choices_end; arc != arcs.end(); ++arc) arc->operation = -1;

  const std::size_t num_events = at(sink) + 1;
  EventSets sets(num_events);
  drop_parallel_constraints(arcs, num_choices);
  join_events(arcs, num_choices, slots_of_events(slot, num_events), source, sink, sets);

  std::vector<std::uint8_t> used(num_events, 0);
  used[at(source)] = used[at(sink)] = 1;
  for (const Arc& arc : arcs) used[at(arc.tail)] = used[at(arc.head)] = 1;
  Placement placement = place_events(arcs, used);
  const auto num_used = static_cast<std::size_t>(std::count(used.begin(), used.end(), std::uint8_t{1}));
  if (placement.order.size() != num_used) return false;
  std::stable_sort(placement.order.begin(), placement.order.end(), [&](std::int32_t a, std::int32_t b) {
    return placement.earliest[at(a)] < placement.earliest[at(b)];
  });

  std::vector<std::int32_t> number(num_events, -1);
  earliest_.resize(num_used);
  for (std::size_t i = 0; i < num_used; ++i) {
    number[at(placement.order[i])] = static_cast<std::int32_t>(i);
    earliest_[i] = placement.earliest[at(placement.order[i])];
  }
  event_.assign(num_used, sink);
  for (std::int32_t event = sink; event >= 0; --event) {
    const std::int32_t set = number[at(sets.find(event))];
    if (set >= 0) event_[at(set)] = event;
  }
  num_nodes_ = static_cast<std::int32_t>(num_used);
  source_ = number[at(source)];
  sink_ = number[at(sink)];
  num_operation_arcs_ = static_cast<std::int32_t>(num_choices);
  // Operations in the order of their start, so that sweeps over them walk the potentials in order.
  std::stable_sort(arcs.begin(), arcs.begin() + static_cast<std::ptrdiff_t>(num_choices),
                   [&](const Arc& a, const Arc& b) { return number[at(a.tail)] < number[at(b.tail)]; });
  for (const Arc& arc : arcs) {
    tail_.push_back(number[at(arc.tail)]);
    head_.push_back(number[at(arc.head)]);
    operation_.push_back(arc.operation);
    length_.push_back(arc.length);
  }
  arcs_by_tail_.resize(arcs.size());
  std::iota(arcs_by_tail_.begin(), arcs_by_tail_.end(), 0);
  std::stable_sort(arcs_by_tail_.begin(), arcs_by_tail_.end(),
                   [&](std::int32_t a, std::int32_t b) { return tail_[at(a)] < tail_[at(b)]; });
  return true;
}

Time ActivityNetwork::longest_path(std::span<const Time> arc_length) const {
  std::vector<Time> earliest(at(num_nodes_), 0);
  for (const std::int32_t arc : arcs_by_tail_) {
    Time& reached = earliest[at(head_[at(arc)])];
    reached = std::max(reached, earliest[at(tail_[at(arc)])] + arc_length[at(arc)]);
  }
  return earliest[at(sink_)];
}

}  // namespace perseus
