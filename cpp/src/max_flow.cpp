#include "perseus/max_flow.hpp"

#include <algorithm>

namespace perseus {

namespace {
std::size_t at(std::int32_t index) { return static_cast<std::size_t>(index); }
}  // namespace

template <class Flow>
PushRelabel<Flow>::PushRelabel(ResidualNetwork<Flow>& network, CriticalSearch<Flow>& search)
    : network_(network),
      search_(search),
      demand_(at(network.num_nodes()), Flow{0}),
      room_(at(network.num_nodes()), Flow{0}),
      pulled_(2 * at(network.num_arcs()), Flow{0}),
      current_(at(network.num_nodes()), 0),
      round_(at(network.num_nodes()), 0),
      label_(at(network.num_nodes()), 0) {}

template <class Flow>
void PushRelabel<Flow>::grow_cone() {
  cone_.clear();
  const auto enter = [this](std::int32_t v) {
    round_[at(v)] = this_round_;
    current_[at(v)] = network_.first(v);
    label_[at(v)] = search_.level(v);
    cone_.push_back(v);
  };
  enter(network_.sink());
  for (std::size_t i = 0; i < cone_.size(); ++i) {
    const std::int32_t v = cone_[i];
    const std::int32_t lower = label_[at(v)] - 1;
    for (std::int32_t e = network_.first(v); e < network_.first(v + 1); ++e) {
      const std::int32_t u = network_.peer(e);
      if (search_.level(u) == lower && round_[at(u)] != this_round_ && network_.critical(network_.mate(e))) enter(u);
    }
  }
}

template <class Flow>
void PushRelabel<Flow>::bound_cone() {
  for (std::size_t i = cone_.size(); i-- > 0;) {
    const std::int32_t v = cone_[i];
    const std::int32_t lower = label_[at(v)] - 1;
    Flow bound = lower < 0 ? kUnbounded<Flow> : Flow{0};
    for (std::int32_t e = network_.first(v); e < network_.first(v + 1) && bound < kUnbounded<Flow>; ++e) {
      const std::int32_t u = network_.peer(e);
      if (search_.level(u) != lower || !network_.critical(network_.mate(e))) continue;
      bound += std::min(room_[at(u)], network_.capacity(network_.mate(e)));
    }
    room_[at(v)] = std::min(bound, kUnbounded<Flow>);
  }
}

template <class Flow>
void PushRelabel<Flow>::demand(std::int32_t v, Flow amount) {
  Flow& total = demand_[at(v)];
  if (total == 0 && v != network_.source()) {
    const std::int32_t label = label_[at(v)];
    if (at(label) >= active_.size()) active_.resize(at(label) + 1);
    active_[at(label)].push_back(v);
    highest_ = std::max(highest_, label);
  }
  total += amount;
}

template <class Flow>
void PushRelabel<Flow>::pull(std::int32_t v) {
  const std::int32_t lower = label_[at(v)] - 1;
  Flow& wanted = demand_[at(v)];
  std::int32_t& e = current_[at(v)];
  for (; e < network_.first(v + 1); ++e) {
    const std::int32_t u = network_.peer(e);
    if (search_.level(u) != lower) continue;
    const std::int32_t towards_v = network_.mate(e);
    if (!network_.critical(towards_v)) continue;
    const Flow amount = std::min({wanted, network_.capacity(towards_v), room_[at(u)]});
    if (amount == 0) continue;
    network_.push(towards_v, amount);
    room_[at(u)] -= amount;
    if (pulled_[at(towards_v)] == 0) touched_.push_back(towards_v);
    pulled_[at(towards_v)] += amount;
    wanted -= amount;
    demand(u, amount);
    if (wanted == 0) return;  // this arc may have more to give: stay on it
  }
}

// Undoes pulls of this round over arcs that leave v until v demands nothing more; they cover its demand, since demand
// comes from nowhere else. A pull takes one step of the curve at most, so it can be undone in one push.
template <class Flow>
void PushRelabel<Flow>::hand_back(std::int32_t v) {
  search_.close(v);
  Flow& wanted = demand_[at(v)];
  for (std::int32_t e = network_.first(v); wanted > 0 && e < network_.first(v + 1); ++e) {
    const Flow amount = std::min(wanted, pulled_[at(e)]);
    if (amount == 0) continue;
    network_.push(network_.mate(e), amount);
    pulled_[at(e)] -= amount;
    wanted -= amount;
    demand(network_.peer(e), amount);
  }
}

template <class Flow>
Flow PushRelabel<Flow>::blocking_flow() {
  ++this_round_;
  const std::int32_t source = network_.source();
  const std::int32_t sink = network_.sink();
  demand_[at(source)] = 0;
  demand_[at(sink)] = 0;
  highest_ = 0;
  grow_cone();
  bound_cone();
  const Flow wanted = room_[at(sink)];
  if (wanted >= kUnbounded<Flow>) return wanted;
  demand(sink, wanted);
  while (highest_ > 0) {
    std::vector<std::int32_t>& nodes = active_[at(highest_)];
    if (nodes.empty()) {
      --highest_;
      continue;
    }
    const std::int32_t v = nodes.back();
    nodes.pop_back();
    pull(v);
    if (demand_[at(v)] > 0 && v != sink) hand_back(v);
  }
  for (const std::int32_t e : touched_) pulled_[at(e)] = 0;
  touched_.clear();
  return wanted - demand_[at(sink)];
}

template <class Flow>
LevelAugment<Flow>::LevelAugment(ResidualNetwork<Flow>& network, CriticalSearch<Flow>& search)
    : network_(network),
      search_(search),
      current_(at(network.num_nodes()), 0),
      round_(at(network.num_nodes()), 0) {}

// The next critical entry into v from one label lower, or -1.
template <class Flow>
std::int32_t LevelAugment<Flow>::admissible_entry(std::int32_t v) {
  if (round_[at(v)] != this_round_) {
    round_[at(v)] = this_round_;
    current_[at(v)] = network_.first(v);
  }
  const std::int32_t lower = search_.level(v) - 1;
  for (std::int32_t& e = current_[at(v)]; e < network_.first(v + 1); ++e) {
    if (search_.level(network_.peer(e)) != lower) continue;
    const std::int32_t towards_v = network_.mate(e);
    if (network_.critical(towards_v)) return towards_v;
  }
  return -1;
}

template <class Flow>
Flow LevelAugment<Flow>::blocking_flow() {
  ++this_round_;
  path_.clear();
  Flow total{0};
  const auto leaves = [this](std::int32_t e) { return network_.peer(network_.mate(e)); };
  const auto enters = [this](std::int32_t e) { return network_.peer(e); };
  for (std::int32_t v = network_.sink();;) {
    if (v != network_.source()) {
      const std::int32_t e = admissible_entry(v);
      if (e >= 0) {
        path_.push_back(e);
        v = leaves(e);
      } else if (path_.empty()) {
        return total;
      } else {
        search_.close(v);
        v = enters(path_.back());
        path_.pop_back();
      }
      continue;
    }
    Flow amount = kInfiniteFlow<Flow>;
    for (const std::int32_t e : path_) amount = std::min(amount, network_.capacity(e));
    if (amount >= kUnbounded<Flow>) return amount;
    std::size_t keep = path_.size();
    for (std::size_t i = path_.size(); i-- > 0;) {
      if (network_.capacity(path_[i]) == amount) keep = i;
      network_.push(path_[i], amount);
    }
    total += amount;
    path_.resize(keep + 1);
    v = enters(path_.back());
    path_.pop_back();
  }
}

template class PushRelabel<std::int64_t>;
template class PushRelabel<Int128>;
template class LevelAugment<std::int64_t>;
template class LevelAugment<Int128>;

}  // namespace perseus
