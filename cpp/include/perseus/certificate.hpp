// Proof that potentials and a flow are both optimal, checked from the definitions.
//
// Shares nothing with the search: it reads the network, the curves, the potentials and the flows, not the residual
// arcs or levels. What it proves (convex duality; Rockafellar, Network Flows and Monotropic Optimization, 1984):
//  - primal feasibility: every arc has at least its shortest duration between its ends;
//  - conservation: the flow enters at the source, leaves at the sink, and is kept at every other node;
//  - complementary slackness: each arc's flow lies in the subdifferential of its curve at the arc's duration;
//  - the durations' energy, in exact 128-bit integers.
// An arc is looked at again only when its duration or its flow is another than when it was last found optimal.
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
  // What is known of an arc: the duration and flow with which it was last checked, and what it then added to the energy.
  struct Checked {
    Time duration = -1;  // no arc has that: it is checked the first time
    Flow flow{0};
    Int128 energy = 0;
    std::int32_t breakpoint = 0;  // at or before the duration: where the search starts
  };

  bool is_optimal(std::size_t arc, Time duration, Flow flow);
  void add_to_balance(std::size_t node, Flow amount);

  const ActivityNetwork& network_;
  const CurveSet<Flow>& curves_;
  std::span<const std::int32_t> curve_;
  std::vector<Checked> checked_;    // per arc
  std::vector<Flow> balance_;       // per node: outflow - inflow
  std::int64_t unbalanced_ = 0;     // nodes whose balance is not 0
  Int128 energy_ = 0;               // sum over arcs
};

extern template class Certificate<std::int64_t>;
extern template class Certificate<Int128>;

}  // namespace perseus
