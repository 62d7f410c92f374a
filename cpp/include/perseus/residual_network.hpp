// The residual network of the parametric convex-cost flow that is dual to the time-energy problem.
//
// Every arc carries a flow x and a level k with l[k+1] <= x < l[k] on its curve (convex_curve.hpp); potentials pi give
// each arc the difference d = pi(head) - pi(tail). A residual arc (v, w) has a length L, and pi(w) - pi(v) - L >= 0 is
// its slack:
//   forward:   L = t[k],    capacity l[k] - x
//   backward:  none if x = 0;
//              L = -t[k],   capacity x - l[k+1]        if x > l[k+1]
//              L = -t[k+1], capacity l[k+1] - l[k+2]   if x = l[k+1]
// Invariant: all slacks are >= 0, which is complementary slackness: the flow and the durations min(d, t[n-1]) are both
// optimal. A residual arc of slack 0 is *critical*: flow can be pushed along it and the invariant stays.
//
// Each node's residual arcs lie side by side, so that a search reads one line of memory per node. Both directions of
// an arc have an entry; `mate` finds one from the other. Which entries are critical is kept as a byte beside their
// peers, so that the breadth-first searches, most of the work, read five bytes an arc and no potentials.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "perseus/activity_network.hpp"
#include "perseus/convex_curve.hpp"
#include "perseus/integer.hpp"

namespace perseus {

// One direction of an arc, seen from the node that it leaves.
struct ResidualArc {
  Time length;         // slack = pi(peer) - pi(node) - length; -kNoLength where the residual arc does not exist
  std::int32_t peer;   // the node that it enters
  std::int32_t arc;    // 2 * arc for forward, 2 * arc + 1 for backward
};

template <class Flow>
class ResidualNetwork {
 public:
  // `curve` gives each arc's curve in `curves`. Starts with no flow, at the earliest potentials of `network`.
  ResidualNetwork(const ActivityNetwork& network, const CurveSet<Flow>& curves, std::vector<std::int32_t> curve);

  std::int32_t num_nodes() const { return static_cast<std::int32_t>(first_.size()) - 1; }
  std::int32_t num_arcs() const { return static_cast<std::int32_t>(flow_.size()); }
  std::int32_t source() const { return source_; }
  std::int32_t sink() const { return sink_; }

  // Residual arcs leaving v: entries first(v) .. first(v + 1) - 1.
  std::int32_t first(std::int32_t v) const { return first_[static_cast<std::size_t>(v)]; }
  const ResidualArc& entry(std::int32_t e) const { return entries_[static_cast<std::size_t>(e)]; }
  // The entry of the opposite direction of the same arc.
  std::int32_t mate(std::int32_t e) const { return position_[static_cast<std::size_t>(entry(e).arc ^ 1)]; }

  Time slack(std::int32_t v, const ResidualArc& a) const {
    return potential_[static_cast<std::size_t>(a.peer)] - potential_[static_cast<std::size_t>(v)] - a.length;
  }
  // Flow that the residual arc still takes; valid only where it exists.
  Flow capacity(std::int32_t e) const;
  // Pushes `amount` in (0, capacity(e)] along entry e and moves the arc's level.
  void push(std::int32_t e, Flow amount);

  bool critical(std::int32_t e) const { return critical_[static_cast<std::size_t>(e)] != 0; }
  std::int32_t peer(std::int32_t e) const { return peer_[static_cast<std::size_t>(e)]; }

  // The arrays behind first, peer and critical, for loops that must not reload them.
  const std::int32_t* first_entries() const { return first_.data(); }
  const std::int32_t* peers() const { return peer_.data(); }
  const std::uint8_t* criticals() const { return critical_.data(); }

  // Raises the potential of nodes[i] by `amount` - distance[nodes[i]], for all of them at once. Nodes not named behave
  // as if at distance `amount`.
  void raise_potentials(std::span<const std::int32_t> nodes, std::span<const Time> distance, Time amount);

  const std::vector<Time>& potential() const { return potential_; }
  const std::vector<Flow>& flow() const { return flow_; }

 private:
  void refresh(std::int32_t arc);
  void refresh_critical(std::int32_t v, std::int32_t e) {
    critical_[static_cast<std::size_t>(e)] = slack(v, entries_[static_cast<std::size_t>(e)]) == 0;
  }

  std::int32_t source_;
  std::int32_t sink_;
  const std::vector<Time>& times_;    // of the curve set, which outlives this
  const std::vector<Flow>& levels_;
  std::vector<std::int32_t> first_;      // per node, and one more
  std::vector<ResidualArc> entries_;     // two per arc, grouped by the node that they leave
  std::vector<std::int32_t> peer_;       // per entry: its peer again
  std::vector<std::uint8_t> critical_;   // per entry: its slack is 0
  std::vector<std::int32_t> position_;   // per direction (2 * arc + backward): its entry
  std::vector<std::int32_t> at_level_;   // per arc: index of t[k] in times_ and of l[k] in levels_
  std::vector<Flow> flow_;               // per arc, >= 0
  std::vector<Time> potential_;          // per node
  std::vector<Time> shift_;              // per node: by how much raise_potentials moves it; 0 outside of it
};

template <class Flow>
inline Flow ResidualNetwork<Flow>::capacity(std::int32_t e) const {
  const std::int32_t direction = entry(e).arc;
  const auto arc = static_cast<std::size_t>(direction >> 1);
  const auto k = static_cast<std::size_t>(at_level_[arc]);
  if ((direction & 1) == 0) return levels_[k] - flow_[arc];
  const Flow above = flow_[arc] - levels_[k + 1];
  return above > 0 ? above : levels_[k + 1] - levels_[k + 2];
}

template <class Flow>
inline void ResidualNetwork<Flow>::push(std::int32_t e, Flow amount) {
  const std::int32_t direction = entry(e).arc;
  const std::int32_t arc = direction >> 1;
  const auto a = static_cast<std::size_t>(arc);
  const auto k = static_cast<std::size_t>(at_level_[a]);
  if ((direction & 1) == 0) {
    flow_[a] += amount;
    if (flow_[a] == levels_[k]) --at_level_[a];
  } else {
    if (flow_[a] == levels_[k + 1]) ++at_level_[a];
    flow_[a] -= amount;
  }
  refresh(arc);
}

extern template class ResidualNetwork<std::int64_t>;
extern template class ResidualNetwork<Int128>;

}  // namespace perseus
