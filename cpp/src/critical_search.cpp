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
  reached_.resize(at(network.num_nodes()) + 1);  // one more: the queue's end is written before it is known to count
}

template <class Flow>
void CriticalSearch<Flow>::reset() {
  for (const std::int32_t v : reached()) level_[at(v)] = kUnreached;
  for (const std::int32_t v : offered_) best_[at(v)] = kNoLength;
  num_reached_ = 0;
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
bool CriticalSearch<Flow>::find_levels() {
  reset();
  const std::int32_t sink = network_.sink();
  const std::int32_t* const first = network_.first_entries();
  const std::int32_t* const peers = network_.peers();
  const std::uint8_t* const critical = network_.criticals();
  std::int32_t* const level = level_.data();
  std::int32_t* const queue = reached_.data();
  std::size_t end = 0;
  queue[end++] = network_.source();
  level[at(network_.source())] = 0;
  for (std::size_t i = 0; i < end && level[at(sink)] == kUnreached; ++i) {
    const std::int32_t v = queue[i];
    const std::int32_t next = level[at(v)] + 1;
    const std::int32_t last = first[v + 1];
    for (std::int32_t e = first[v]; e < last; ++e) {  // no branches: whether an arc counts cannot be predicted
      const std::int32_t peer = peers[e];
      const std::int32_t found = std::int32_t{critical[e]} & std::int32_t{level[peer] == kUnreached};
      level[peer] += found * (next - kUnreached);
      queue[end] = peer;
      end += static_cast<std::size_t>(found);
    }
  }
  num_reached_ = end;
  return level[at(sink)] != kUnreached;
}

template <class Flow>
bool CriticalSearch<Flow>::settle(std::int32_t v, Time distance) {
  level_[at(v)] = 0;
  distance_[at(v)] = distance;
  reached_[num_reached_++] = v;
  return v == network_.sink();
}

template <class Flow>
Time CriticalSearch<Flow>::lower_potentials() {
  for (const std::int32_t v : reached()) {
    distance_[at(v)] = 0;
    for (std::int32_t e = network_.first(v); e < network_.first(v + 1); ++e) {
      if (level_[at(network_.peer(e))] == kUnreached) offer(network_.peer(e), network_.slack(v, network_.entry(e)));
    }
  }
  std::make_heap(heap_.begin(), heap_.end(), Later{});
  std::size_t scanned = num_reached_;
  Time now = 0;
  bool done = false;
  while (!done && !heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end(), Later{});
    const Event event = heap_.back();
    heap_.pop_back();
    if (level_[at(event.node)] != kUnreached) continue;
    now = event.distance;
    done = settle(event.node, now);
    for (; !done && scanned < num_reached_; ++scanned) {
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
  network_.raise_potentials(reached(), distance_, now);
  return now;
}

template class CriticalSearch<std::int64_t>;
template class CriticalSearch<Int128>;

}  // namespace perseus
