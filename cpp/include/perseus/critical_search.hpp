// Searches from the source over residual arcs: breadth first over critical ones, then by distance over the rest.
//
// `find_levels` numbers nodes by their hops from the source over critical arcs (exact labels for the max-flow) and
// stops as soon as the sink has its number. If the sink cannot be reached, the nodes reached are the source side of a
// minimum cut, and `lower_potentials` goes on from there: Dijkstra with the slacks as lengths, until the sink is
// reached at distance D; then every potential rises by D - min(distance, D), which shortens the iteration by D, keeps
// every slack >= 0 and makes the path to the sink critical. All events that fall together are taken in one phase.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "perseus/integer.hpp"
#include "perseus/residual_network.hpp"

namespace perseus {

template <class Flow>
class CriticalSearch {
 public:
  explicit CriticalSearch(ResidualNetwork<Flow>& network);

  // O(nodes + arcs). True if the sink can be reached.
  bool find_levels();

  // Hops from the source, or kUnreached. Valid for nodes below the sink's level after a successful find_levels.
  std::int32_t level(std::int32_t v) const { return level_[static_cast<std::size_t>(v)]; }
  void close(std::int32_t v) { level_[static_cast<std::size_t>(v)] = kClosed; }

  // After a find_levels that failed: moves the potentials; returns D > 0. The sink must be reachable at all,
  // which holds while source and sink are joined by any path of arcs.
  Time lower_potentials();

  static constexpr std::int32_t kUnreached = -1;
  static constexpr std::int32_t kClosed = -2;

 private:
  struct Event {
    Time distance;
    std::int32_t node;
  };

  void reset();
  std::span<const std::int32_t> reached() const { return {reached_.data(), num_reached_}; }
  void offer(std::int32_t v, Time distance);
  bool settle(std::int32_t v, Time distance);

  ResidualNetwork<Flow>& network_;
  std::vector<std::int32_t> level_;    // per node
  std::vector<Time> best_;             // per node: least distance offered, kNoLength if none
  std::vector<Time> distance_;         // per reached node
  std::vector<std::int32_t> reached_;  // nodes in the order in which they were reached, then unused places
  std::size_t num_reached_ = 0;
  std::vector<std::int32_t> offered_;  // nodes whose best_ was set
  std::vector<Event> heap_;            // smallest distance on top; may hold outdated events
};

extern template class CriticalSearch<std::int64_t>;
extern template class CriticalSearch<Int128>;

}  // namespace perseus
