#include "perseus/residual_network.hpp"

#include <numeric>
#include <utility>

namespace perseus {

namespace {
std::size_t at(std::int32_t index) { return static_cast<std::size_t>(index); }
}  // namespace

template <class Flow>
ResidualNetwork<Flow>::ResidualNetwork(const ActivityNetwork& network, const CurveSet<Flow>& curves,
                                       std::vector<std::int32_t> curve)
    : source_(network.source()),
      sink_(network.sink()),
      times_(curves.times()),
      levels_(curves.levels()),
      potential_(network.earliest()) {
  const std::size_t num_arcs = at(network.num_arcs());
  flow_.assign(num_arcs, Flow{0});
  at_level_.resize(num_arcs);
  first_.assign(at(network.num_nodes()) + 1, 0);
  for (std::size_t a = 0; a < num_arcs; ++a) {
    ++first_[at(network.tail()[a]) + 1];
    ++first_[at(network.head()[a]) + 1];
  }
  std::partial_sum(first_.begin(), first_.end(), first_.begin());
  entries_.resize(2 * num_arcs);
  peer_.resize(2 * num_arcs);
  critical_.resize(2 * num_arcs);
  position_.resize(2 * num_arcs);
  shift_.assign(at(network.num_nodes()), 0);
  std::vector<std::int32_t> next(first_.begin(), first_.end() - 1);
  for (std::size_t a = 0; a < num_arcs; ++a) {
    at_level_[a] = curves.first(curve[a]) + curves.num_breakpoints(curve[a]) - 1;
    const std::int32_t tail = network.tail()[a];
    const std::int32_t head = network.head()[a];
    const auto direction = static_cast<std::int32_t>(2 * a);
    position_[2 * a] = next[at(tail)]++;
    position_[2 * a + 1] = next[at(head)]++;
    entries_[at(position_[2 * a])] = {0, head, direction};
    entries_[at(position_[2 * a + 1])] = {0, tail, direction + 1};
    peer_[at(position_[2 * a])] = head;
    peer_[at(position_[2 * a + 1])] = tail;
    refresh(static_cast<std::int32_t>(a));
  }
}

template <class Flow>
void ResidualNetwork<Flow>::refresh(std::int32_t arc) {
  const std::size_t a = at(arc);
  const std::size_t k = at(at_level_[a]);
  const std::int32_t forward = position_[2 * a];
  const std::int32_t backward = position_[2 * a + 1];
  Time back = -kNoLength;
  if (flow_[a] > 0) back = flow_[a] == levels_[k + 1] ? -times_[k + 1] : -times_[k];
  entries_[at(forward)].length = times_[k];
  entries_[at(backward)].length = back;
  refresh_critical(peer_[at(backward)], forward);
  refresh_critical(peer_[at(forward)], backward);
}

template <class Flow>
void ResidualNetwork<Flow>::raise_potentials(std::span<const std::int32_t> nodes, std::span<const Time> distance,
                                             Time amount) {
  for (const std::int32_t v : nodes) {
    shift_[at(v)] = amount - distance[at(v)];
    potential_[at(v)] += shift_[at(v)];
  }
  for (const std::int32_t v : nodes) {
    const Time shift = shift_[at(v)];
    const std::int32_t last = first(v + 1);
    for (std::int32_t e = first(v); e < last; ++e) {
      if (shift_[at(peer(e))] == shift) continue;  // nothing has changed between the two
      refresh_critical(v, e);
      if (shift_[at(peer(e))] == 0) refresh_critical(peer(e), mate(e));
    }
  }
  for (const std::int32_t v : nodes) shift_[at(v)] = 0;
}

template class ResidualNetwork<std::int64_t>;
template class ResidualNetwork<Int128>;

}  // namespace perseus
