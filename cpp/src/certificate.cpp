#include "perseus/certificate.hpp"

#include <algorithm>

namespace perseus {

namespace {
std::size_t at(std::int32_t index) { return static_cast<std::size_t>(index); }
}  // namespace

template <class Flow>
Certificate<Flow>::Certificate(const ActivityNetwork& network, const CurveSet<Flow>& curves,
                               std::span<const std::int32_t> curve)
    : network_(network),
      curves_(curves),
      curve_(curve),
      hint_(at(network.num_arcs()), 0),
      balance_(at(network.num_nodes()), Flow{0}) {}

template <class Flow>
bool Certificate<Flow>::arc_is_optimal(std::size_t arc, Time duration, Flow flow) {
  const auto first = at(curves_.first(curve_[arc]));
  const auto n = at(curves_.num_breakpoints(curve_[arc]));
  const Time* t = curves_.times().data() + first;
  const Flow* level = curves_.levels().data() + first;
  if (duration < t[0] || flow < 0) return false;
  if (n == 1) return duration == t[0] || flow == 0;
  std::size_t k = at(hint_[arc]);  // t[k] <= duration < t[k + 1]
  while (k > 0 && t[k] > duration) --k;
  while (k + 1 < n && t[k + 1] <= duration) ++k;
  hint_[arc] = static_cast<std::int32_t>(k);
  energy_ += curves_.energy_above_base(curve_[arc], std::min(duration, t[n - 1]));
  if (duration == t[k]) return level[k + 1] <= flow && flow <= level[k];
  return flow == level[k + 1];
}

template <class Flow>
bool Certificate<Flow>::holds(std::span<const Time> potential, std::span<const Flow> flow, Flow value,
                              Int128 energy) {
  energy_ = 0;
  std::fill(balance_.begin(), balance_.end(), Flow{0});
  bool optimal = true;
  for (std::size_t arc = 0; arc < flow.size(); ++arc) {
    const std::size_t tail = at(network_.tail()[arc]);
    const std::size_t head = at(network_.head()[arc]);
    optimal = optimal && arc_is_optimal(arc, potential[head] - potential[tail], flow[arc]);
    balance_[tail] += flow[arc];
    balance_[head] -= flow[arc];
  }
  if (network_.source() == network_.sink()) return optimal && energy_ == energy;
  balance_[at(network_.source())] -= value;
  balance_[at(network_.sink())] += value;
  const bool conserved = std::all_of(balance_.begin(), balance_.end(), [](Flow b) { return b == 0; });
  return optimal && conserved && energy_ == energy;
}

template class Certificate<std::int64_t>;
template class Certificate<Int128>;

}  // namespace perseus
