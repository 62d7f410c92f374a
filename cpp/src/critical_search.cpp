#include "perseus/critical_search.hpp"

#include <algorithm>

namespace perseus {

namespace {

std::size_t at(std::int32_t index) { return static_cast<std::size_t>(index); }

// Later first, so that the heap's top is the earliest; ties by node keep the run deterministic.
struct Later {
  template <class Event>
  bool operator()(const Event& a, const Event& b) const {
    return a.distance != b.distance ? a.distance > b.distance : a.node > b.node;
  }
};

}  // namespace

template <class Flow>
CriticalSearch<Flow>::CriticalSearch(ResidualNetwork<Flow>& network)
    : network_(network),
      level_(at(network.num_nodes()), kUnreached),
      best_(at(network.num_nodes()), kNoLength),
      distance_(at(network.num_nodes()), 0) {
  reached_.reserve(at(network.num_nodes()));
}

template <class Flow>
void CriticalSearch<Flow>::reset() {
  for (const std::int32_t v : reached_) level_[at(v)] = kUnreached;
  for (const std::int32_t v : offered_) best_[at(v)] = kNoLength;
  reached_.clear();
  offered_.clear();
  heap_.clear();
}

template <class Flow>
void CriticalSearch<Flow>::offer(std::int32_t v, Time distance) {
  Time& best = best_[at(v)];
  if (distance >= best || distance >= best_[at(network_.sink())]) return;
  if (best == kNoLength) offered_.push_back(v);
  best = distance;
  heap_.push_back({distance, v});
}

template <class Flow>
bool CriticalSearch<Flow>::find_levels(bool keep_frontier) {
  reset();
  const std::int32_t sink = network_.sink();
  reached_.push_back(network_.source());
  level_[at(network_.source())] = 0;
  if (network_.source() == sink) return true;
  for (std::size_t i = 0; i < reached_.size(); ++i) {
    const std::int32_t v = reached_[i];
    const std::int32_t next = level_[at(v)] + 1;
    for (std::int32_t e = network_.first(v); e < network_.first(v + 1); ++e) {
      const ResidualArc& arc = network_.entry(e);
      if (level_[at(arc.peer)] != kUnreached) continue;
      const Time slack = network_.slack(v, arc);
      if (slack == 0) {
        level_[at(arc.peer)] = next;
        reached_.push_back(arc.peer);
        if (arc.peer == sink) return true;
      } else if (keep_frontier) {
        offer(arc.peer, slack);
      }
    }
  }
  return false;
}

template <class Flow>
bool CriticalSearch<Flow>::settle(std::int32_t v, Time distance) {
  level_[at(v)] = 0;
  distance_[at(v)] = distance;
  reached_.push_back(v);
  return v == network_.sink();
}

template <class Flow>
Time CriticalSearch<Flow>::lower_potentials() {
  for (const std::int32_t v : reached_) distance_[at(v)] = 0;
  std::make_heap(heap_.begin(), heap_.end(), Later{});
  std::size_t scanned = reached_.size();
  Time now = 0;
  bool done = false;
  while (!done && !heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end(), Later{});
    const Event event = heap_.back();
    heap_.pop_back();
    if (level_[at(event.node)] != kUnreached) continue;
    now = event.distance;
    done = settle(event.node, now);
    for (; !done && scanned < reached_.size(); ++scanned) {
      const std::int32_t v = reached_[scanned];
      for (std::int32_t e = network_.first(v); e < network_.first(v + 1); ++e) {
        const ResidualArc& arc = network_.entry(e);
        if (level_[at(arc.peer)] != kUnreached) continue;
        const Time slack = network_.slack(v, arc);
        if (slack == 0) {
          done = settle(arc.peer, now);
          if (done) break;
        } else {
          const std::size_t before = heap_.size();
          offer(arc.peer, now + slack);
          if (heap_.size() != before) std::push_heap(heap_.begin(), heap_.end(), Later{});
        }
      }
    }
  }
  std::vector<Time>& potential = network_.potential();
  for (const std::int32_t v : reached_) potential[at(v)] += now - distance_[at(v)];
  return now;
}

template class CriticalSearch<std::int64_t>;
template class CriticalSearch<Int128>;

}  // namespace perseus
