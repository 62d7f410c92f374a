// Proof that potentials and a flow are both optimal, checked from the definitions.
//
// Shares nothing with the search: it reads the network, the curves, the potentials and the flows, not the residual
// arcs or levels. What it proves (convex duality; Rockafellar, Network Flows and Monotropic Optimization, 1984):
//  - primal feasibility: every arc has at least its shortest duration between its ends;
//  - conservation: the flow enters at the source, leaves at the sink, and is kept at every other node;
//  - complementary slackness: each arc's flow lies in the subdifferential of its curve at the arc's duration;
//  - the durations' energy, in exact 128-bit integers.
// Then no schedule with this iteration time needs less energy, and -flow is the frontier's slope there.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "perseus/activity_network.hpp"
#include "perseus/convex_curve.hpp"
#include "perseus/integer.hpp"

namespace perseus {

template <class Flow>
class Certificate {
 public:
  Certificate(const ActivityNetwork& network, const CurveSet<Flow>& curves, std::span<const std::int32_t> curve);

  // True if the pair is optimal, of flow value `value` and of energy `energy` above that at the longest durations.
  bool holds(std::span<const Time> potential, std::span<const Flow> flow, Flow value, Int128 energy);

 private:
  bool arc_is_optimal(std::size_t arc, Time duration, Flow flow);

  const ActivityNetwork& network_;
  const CurveSet<Flow>& curves_;
  std::span<const std::int32_t> curve_;
  std::vector<std::int32_t> hint_;  // per arc: breakpoint at or before the last duration; where the search starts
  std::vector<Flow> balance_;       // per node: outflow - inflow
  Int128 energy_ = 0;               // summed so far
};

extern template class Certificate<std::int64_t>;
extern template class Certificate<Int128>;

}  // namespace perseus
