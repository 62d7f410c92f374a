// Max-flow on the critical residual network, warm: the flow of the last phase is feasible and is only added to.
//
// Both methods work in rounds. A round starts from exact labels, the hops from the source that CriticalSearch found
// (its failing search, which the method needs anyway to find the minimum cut, doubles as the global relabelling), and
// makes the flow blocking: afterwards no path that climbs one label a step leads from source to sink. The labels of
// successive rounds grow, so a max-flow takes few rounds; warm, it is mostly one.
//
// PushRelabel: a preflow with the excess turned round. The sink demands flow; a node with demand pulls it over critical
//   arcs from nodes one label lower, the highest label first (Goldberg & Tarjan 1988; Cherkassky & Goldberg 1997). A
//   node that cannot pull what it needs is relabelled beyond the sink, which closes it for the round, and hands the rest
//   of its demand back to those who asked (Karzanov 1974; the wave method of Tarjan 1984). Two things keep the excess
//   local: the work is confined to the cone of nodes from which the sink can be reached label by label, and no node is
//   asked for more than an upper bound of what can come to it, the sum over its cone arcs of the lesser of their
//   capacity and the bound of the node below. Without the bound, what a bottleneck refuses travels back to the sink.
// Augment: depth-first augmentation of the level graph from the sink back to the source with current arcs (Dinic 1970).
//
// Amounts at or above kUnbounded mean a path without capacity: the iteration can get no shorter.
#pragma once

#include <cstdint>
#include <vector>

#include "perseus/critical_search.hpp"
#include "perseus/integer.hpp"
#include "perseus/residual_network.hpp"

namespace perseus {

enum class MaxFlowMethod { kPushRelabel, kAugment };

// More than all finite capacities together (choose_slope_unit keeps their sum below a quarter of the infinite flow).
template <class Flow>
inline constexpr Flow kUnbounded = kInfiniteFlow<Flow> / 2;

template <class Flow>
class PushRelabel {
 public:
  PushRelabel(ResidualNetwork<Flow>& network, CriticalSearch<Flow>& search);

  // After a successful find_levels: makes the flow blocking. Returns what reached the sink; >= kUnbounded if unbounded,
  // and the flow is then not usable.
  Flow blocking_flow();

 private:
  void grow_cone();
  void bound_cone();
  void demand(std::int32_t v, Flow amount);
  void pull(std::int32_t v);
  void hand_back(std::int32_t v);

  ResidualNetwork<Flow>& network_;
  CriticalSearch<Flow>& search_;
  std::vector<std::int32_t> cone_;       // this round's nodes, from the sink down label by label
  std::vector<Flow> demand_;             // per node; 0 between rounds, but for source and sink
  std::vector<Flow> room_;               // per node of the cone: what it can still be asked for
  std::vector<Flow> pulled_;             // per entry: pulled over it in this round
  std::vector<std::int32_t> touched_;    // entries whose pulled_ was set in this round
  std::vector<std::int32_t> current_;    // per node: entry from which pulling goes on; valid where round_ is this one
  std::vector<std::uint32_t> round_;     // per node: last round in which it was in the cone
  std::vector<std::int32_t> label_;      // per node of the cone: its label at the round's start
  std::vector<std::vector<std::int32_t>> active_;  // per label: nodes with demand
  std::int32_t highest_ = 0;             // no active node has a higher label
  std::uint32_t this_round_ = 0;
};

template <class Flow>
class LevelAugment {
 public:
  LevelAugment(ResidualNetwork<Flow>& network, CriticalSearch<Flow>& search);

  // As PushRelabel::blocking_flow.
  Flow blocking_flow();

 private:
  std::int32_t admissible_entry(std::int32_t v);

  ResidualNetwork<Flow>& network_;
  CriticalSearch<Flow>& search_;
  std::vector<std::int32_t> current_;   // per node: as in PushRelabel
  std::vector<std::uint32_t> round_;    // per node: last round in which current_ was set
  std::vector<std::int32_t> path_;      // entries from the sink back, each entering the node before
  std::uint32_t this_round_ = 0;
};

extern template class PushRelabel<std::int64_t>;
extern template class PushRelabel<Int128>;
extern template class LevelAugment<std::int64_t>;
extern template class LevelAugment<Int128>;

}  // namespace perseus
