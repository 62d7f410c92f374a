#include "perseus/timetable.hpp"

#include <algorithm>
#include <bit>
#include <numeric>

namespace perseus {

namespace {

std::size_t at(std::int32_t index) { return static_cast<std::size_t>(index); }

// Dependencies grouped by one of their ends: first[v] to first[v+1] in `order` are those of v.
struct Grouping {
  std::vector<std::int32_t> first;
  std::vector<std::int32_t> order;
};

Grouping group_by(std::size_t num_operations, std::span<const std::int32_t> end) {
  Grouping groups;
  groups.first.assign(num_operations + 1, 0);
  for (const std::int32_t v : end) ++groups.first[at(v) + 1];
  std::partial_sum(groups.first.begin(), groups.first.end(), groups.first.begin());
  std::vector<std::int32_t> next(groups.first.begin(), groups.first.end() - 1);
  groups.order.resize(end.size());
  for (std::size_t e = 0; e < end.size(); ++e) groups.order[at(next[at(end[e])]++)] = static_cast<std::int32_t>(e);
  return groups;
}

// Kahn's algorithm, first in first out; shorter than the number of operations if there is a cycle.
std::vector<std::int32_t> topological_order(const Grouping& by_predecessor, std::span<const std::int32_t> successor) {
  const std::size_t n = by_predecessor.first.size() - 1;
  std::vector<std::int32_t> waiting_for(n, 0);
  for (const std::int32_t v : successor) ++waiting_for[at(v)];
  std::vector<std::int32_t> order;
  order.reserve(n);
  for (std::size_t v = 0; v < n; ++v) {
    if (waiting_for[v] == 0) order.push_back(static_cast<std::int32_t>(v));
  }
  for (std::size_t i = 0; i < order.size(); ++i) {
    const std::size_t v = at(order[i]);
    for (std::int32_t p = by_predecessor.first[v]; p < by_predecessor.first[v + 1]; ++p) {
      const std::int32_t next = successor[at(by_predecessor.order[at(p)])];
      if (--waiting_for[at(next)] == 0) order.push_back(next);
    }
  }
  return order;
}

}  // namespace

std::int32_t BitWorklist::pop_lowest(std::int32_t from) {
  std::size_t word = at(from) / 64;
  while (words_[word] == 0) ++word;
  const auto bit = static_cast<std::size_t>(std::countr_zero(words_[word]));
  words_[word] &= words_[word] - 1;
  --count_;
  return static_cast<std::int32_t>(word * 64 + bit);
}

std::int32_t BitWorklist::pop_highest(std::int32_t from) {
  std::size_t word = at(from) / 64;
  while (words_[word] == 0) --word;
  const auto bit = static_cast<std::size_t>(63 - std::countl_zero(words_[word]));
  words_[word] &= ~(std::uint64_t{1} << bit);
  --count_;
  return static_cast<std::int32_t>(word * 64 + bit);
}

bool PrecedenceGraph::build(std::size_t num_operations, std::span<const std::int32_t> predecessor,
                            std::span<const std::int32_t> successor) {
  *this = PrecedenceGraph();
  const Grouping by_predecessor = group_by(num_operations, predecessor);
  const Grouping by_successor = group_by(num_operations, successor);
  operation_ = topological_order(by_predecessor, successor);
  if (operation_.size() != num_operations) return false;
  std::vector<std::int32_t> number(num_operations);
  for (std::size_t i = 0; i < num_operations; ++i) number[at(operation_[i])] = static_cast<std::int32_t>(i);

  const auto renumber = [&](const Grouping& groups, std::span<const std::int32_t> peer, std::vector<Arc>& arcs,
                            std::vector<std::int32_t>& first) {
    arcs.reserve(peer.size());
    first.reserve(num_operations + 1);
    for (const std::int32_t operation : operation_) {
      first.push_back(static_cast<std::int32_t>(arcs.size()));
      for (std::int32_t p = groups.first[at(operation)]; p < groups.first[at(operation) + 1]; ++p) {
        const std::int32_t e = groups.order[at(p)];
        arcs.push_back({number[at(peer[at(e)])], e, Time{0}});
      }
    }
    first.push_back(static_cast<std::int32_t>(arcs.size()));
  };
  renumber(by_successor, predecessor, in_, in_first_);
  renumber(by_predecessor, successor, out_, out_first_);
  return true;
}

void PrecedenceGraph::set_latencies(std::span<const Time> latency) {
  for (Arc& arc : in_) arc.latency = latency[at(arc.dependency)];
  for (Arc& arc : out_) arc.latency = latency[at(arc.dependency)];
}

Timetable::Timetable(const PrecedenceGraph& graph) : graph_(&graph) {
  worklist_.resize(at(graph.size()));
  entered_.assign(at(graph.size()), 0);
}

Time Timetable::earliest_start(std::int32_t v) const {
  Time start = 0;
  for (const PrecedenceGraph::Arc& arc : graph_->in(v)) {
    const Times& before = times_[at(arc.peer)];
    start = std::max(start, before.start + before.duration + arc.latency);
  }
  return start;
}

Time Timetable::latest_finish(std::int32_t v) const {
  Time limit = deadline_;
  for (const PrecedenceGraph::Arc& arc : graph_->out(v)) {
    const Times& after = times_[at(arc.peer)];
    limit = std::min(limit, after.limit - after.duration - arc.latency);
  }
  return limit;
}

void Timetable::reset(std::span<const Time> durations, Time deadline) {
  journaling_ = false;
  deadline_ = deadline;
  times_.resize(durations.size());
  for (std::size_t v = 0; v < times_.size(); ++v) times_[v].duration = durations[v];
  for (std::int32_t v = 0; v < graph_->size(); ++v) times_[at(v)].start = earliest_start(v);
  for (std::int32_t v = graph_->size(); v-- > 0;) times_[at(v)].limit = latest_finish(v);
}

Time Timetable::makespan() const {
  Time makespan = 0;
  for (const Times& times : times_) makespan = std::max(makespan, times.start + times.duration);
  return makespan;
}

void Timetable::remember(std::int32_t v) {
  if (!journaling_ || entered_[at(v)] == journal_number_) return;
  entered_[at(v)] = journal_number_;
  journal_.push_back({v, times_[at(v)]});
}

void Timetable::move_starts_after(std::int32_t v) {
  for (const PrecedenceGraph::Arc& arc : graph_->out(v)) worklist_.insert(arc.peer);
  for (std::int32_t u = v; !worklist_.empty();) {
    u = worklist_.pop_lowest(u);
    ++visits_;
    const Time start = earliest_start(u);
    if (start == times_[at(u)].start) continue;
    remember(u);
    times_[at(u)].start = start;
    for (const PrecedenceGraph::Arc& arc : graph_->out(u)) worklist_.insert(arc.peer);
  }
}

void Timetable::move_limits_before(std::int32_t v) {
  for (const PrecedenceGraph::Arc& arc : graph_->in(v)) worklist_.insert(arc.peer);
  for (std::int32_t u = v; !worklist_.empty();) {
    u = worklist_.pop_highest(u);
    ++visits_;
    const Time limit = latest_finish(u);
    if (limit == times_[at(u)].limit) continue;
    remember(u);
    times_[at(u)].limit = limit;
    for (const PrecedenceGraph::Arc& arc : graph_->in(u)) worklist_.insert(arc.peer);
  }
}

void Timetable::set_duration(std::int32_t v, Time duration) {
  if (duration == times_[at(v)].duration) return;
  remember(v);
  times_[at(v)].duration = duration;
  move_starts_after(v);
  move_limits_before(v);
}

void Timetable::open_journal() {
  journaling_ = true;
  journal_.clear();
  ++journal_number_;
}

void Timetable::undo_changes() {
  journaling_ = false;
  for (const Entry& entry : journal_) times_[at(entry.v)] = entry.before;
}

}  // namespace perseus
