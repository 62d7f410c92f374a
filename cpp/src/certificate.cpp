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
      checked_(at(network.num_arcs())),
      balance_(at(network.num_nodes()), Flow{0}) {}

template <class Flow>
void Certificate<Flow>::add_to_balance(std::size_t node, Flow amount) {
  unbalanced_ -= balance_[node] != 0;
  balance_[node] += amount;
  unbalanced_ += balance_[node] != 0;
}

template <class Flow>
bool Certificate<Flow>::is_optimal(std::size_t arc, Time duration, Flow flow) {
  Checked& checked = checked_[arc];
  const auto first = at(curves_.first(curve_[arc]));
  const std::int32_t n = curves_.num_breakpoints(curve_[arc]);
  const Time* t = curves_.times().data() + first;
  const Flow* level = curves_.levels().data() + first;
  if (duration < t[0] || flow < 0) return false;
  if (n == 1) return duration == t[0] || flow == 0;
  std::int32_t& k = checked.breakpoint;  // to become t[k] <= duration < t[k + 1]
  while (k > 0 && t[k] > duration) --k;
  while (k + 1 < n && t[k + 1] <= duration) ++k;
  const Int128 energy = curves_.energy_above_base(curve_[arc], k, std::min(duration, t[n - 1]));
  energy_ += energy - checked.energy;
  checked.energy = energy;
  if (duration == t[k]) return level[k + 1] <= flow && flow <= level[k];
  return flow == level[k + 1];
}

template <class Flow>
bool Certificate<Flow>::holds(std::span<const Time> potential, std::span<const Flow> flow, Flow value,
                              Int128 energy) {
  const std::int32_t* const tail = network_.tail().data();
  const std::int32_t* const head = network_.head().data();
  for (std::size_t arc = 0; arc < flow.size(); ++arc) {
    Checked& checked = checked_[arc];
    const Time duration = potential[at(head[arc])] - potential[at(tail[arc])];
    if (duration == checked.duration && flow[arc] == checked.flow) continue;
    if (!is_optimal(arc, duration, flow[arc])) return false;
    add_to_balance(at(tail[arc]), flow[arc] - checked.flow);
    add_to_balance(at(head[arc]), checked.flow - flow[arc]);
    checked.duration = duration;
    checked.flow = flow[arc];
  }
  if (energy_ != energy) return false;
  if (network_.source() == network_.sink()) return unbalanced_ == 0;
  const bool through = balance_[at(network_.source())] == value && balance_[at(network_.sink())] == -value;
  return through && unbalanced_ == (value != 0 ? 2 : 0);
}

template class Certificate<std::int64_t>;
template class Certificate<Int128>;

}  // namespace perseus
