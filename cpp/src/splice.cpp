#include "perseus/splice.hpp"

#include <algorithm>
#include <numeric>
#include <tuple>

namespace perseus {

namespace {

std::size_t at(std::int32_t index) { return static_cast<std::size_t>(index); }

// A dependency that crosses from one slot to the next, named by its ends' places so that slots can be compared.
struct CrossingArc {
  std::int32_t tail_place;
  std::int32_t head_place;
  Time length;
  std::int32_t arc;

  auto key() const { return std::tie(tail_place, head_place, length); }
};

// All dependencies across the boundary after one slot.
struct Boundary {
  std::vector<CrossingArc> arcs;
  bool clean = true;  // all of them from the slot before to the slot after
};

class Boundaries {
 public:
  Boundaries(const ActivityNetwork& network, const SlotMap& map) : network_(network), map_(map) {
    boundaries_.resize(map.region.size());
    for (std::int32_t arc = 0; arc < network.num_arcs(); ++arc) add(arc);
    for (Boundary& boundary : boundaries_) {
      std::sort(boundary.arcs.begin(), boundary.arcs.end(),
                [](const CrossingArc& a, const CrossingArc& b) { return a.key() < b.key(); });
    }
  }

  const Boundary& after(std::int32_t slot_before) const { return boundaries_[at(slot_before)]; }

  std::int32_t slot(std::int32_t node) const {
    const std::int32_t operation = network_.event()[at(node)] / 2;
    if (at(operation) < map_.slot.size()) return map_.slot[at(operation)];
    return node == network_.source() ? 0 : static_cast<std::int32_t>(boundaries_.size()) - 1;
  }

  bool same_on_both_sides(std::int32_t of_slot) const {
    const Boundary& in = after(of_slot - 1);
    const Boundary& out = after(of_slot);
    return in.clean && out.clean && !in.arcs.empty() &&
           std::equal(in.arcs.begin(), in.arcs.end(), out.arcs.begin(), out.arcs.end(),
                      [](const CrossingArc& a, const CrossingArc& b) { return a.key() == b.key(); });
  }

 private:
  std::int32_t place(std::int32_t node) const {
    const std::int32_t event = network_.event()[at(node)];
    return at(event / 2) < map_.place.size() ? 2 * map_.place[at(event / 2)] + event % 2 : -1;
  }

  void add(std::int32_t arc) {
    const std::int32_t tail = network_.tail()[at(arc)];
    const std::int32_t head = network_.head()[at(arc)];
    const std::int32_t from = slot(tail);
    const std::int32_t to = slot(head);
    if (from == to) return;
    const bool adjacent = to == from + 1 && place(tail) >= 0 && place(head) >= 0;
    for (std::int32_t b = std::min(from, to); b < std::max(from, to); ++b) {
      boundaries_[at(b)].clean = boundaries_[at(b)].clean && adjacent;
    }
    if (adjacent) {
      boundaries_[at(from)].arcs.push_back({place(tail), place(head), network_.length()[at(arc)], arc});
    }
  }

  const ActivityNetwork& network_;
  const SlotMap& map_;
  std::vector<Boundary> boundaries_;
};

}  // namespace

template <class Flow>
Splicer<Flow>::Splicer(const ActivityNetwork& network, const SlotMap& map)
    : network_(network), num_regions_(map.num_regions), repeats_(map.repeats), slot_nodes_(map.region.size()) {
  if (map.empty()) return;
  const Boundaries boundaries(network, map);
  const auto num_slots = static_cast<std::int32_t>(map.region.size());
  for (std::int32_t slot = 1; slot + 1 < num_slots; ++slot) {
    if (map.region[at(slot)] < 0 || !boundaries.same_on_both_sides(slot)) continue;
    const std::vector<CrossingArc>& in = boundaries.after(slot - 1).arcs;
    const std::vector<CrossingArc>& out = boundaries.after(slot).arcs;
    Candidate candidate{slot, map.region[at(slot)], crossings_.size(), 0};
    for (std::size_t i = 0; i < in.size(); ++i) {
      crossings_.push_back({in[i].arc, out[i].arc, network.head()[at(in[i].arc)], network.head()[at(out[i].arc)],
                            network.tail()[at(out[i].arc)], out[i].length});
    }
    candidate.last = crossings_.size();
    candidates_.push_back(candidate);
  }
  longer_tau_.assign(candidates_.size(), kNoLength);
  node_slot_.resize(at(network.num_nodes()));
  in_first_.assign(node_slot_.size() + 1, 0);
  for (std::int32_t v = 0; v < network.num_nodes(); ++v) {
    node_slot_[at(v)] = boundaries.slot(v);
    slot_nodes_[at(boundaries.slot(v))].push_back(v);
  }
  for (const std::int32_t head : network.head()) ++in_first_[at(head) + 1];
  std::partial_sum(in_first_.begin(), in_first_.end(), in_first_.begin());
  in_arcs_.resize(network.head().size());
  std::vector<std::int32_t> next(in_first_.begin(), in_first_.end() - 1);
  for (std::int32_t arc = 0; arc < network.num_arcs(); ++arc) in_arcs_[at(next[at(network.head()[at(arc)])]++)] = arc;
}

// Raises the earliest times of a slot's nodes by their arcs from nodes of slot `from_slot` or later.
template <class Flow>
void Splicer<Flow>::advance(std::span<const std::int32_t> nodes, std::span<const Time> arc_length,
                            std::int32_t from_slot, std::vector<Time>& earliest) const {
  for (const std::int32_t v : nodes) {
    for (std::int32_t i = in_first_[at(v)]; i < in_first_[at(v) + 1]; ++i) {
      const std::int32_t arc = in_arcs_[at(i)];
      const std::int32_t tail = network_.tail()[at(arc)];
      if (node_slot_[at(tail)] < from_slot) continue;
      earliest[at(v)] = std::max(earliest[at(v)], earliest[at(tail)] + arc_length[at(arc)]);
    }
  }
}

template <class Flow>
void Splicer<Flow>::repeat(const Candidate& candidate, std::span<const Time> arc_length,
                           std::vector<Time>& earliest) const {
  const std::vector<std::int32_t>& nodes = slot_nodes_[at(candidate.slot)];
  std::vector<Time> before(nodes.size());
  std::vector<Time> entry(candidate.last - candidate.first);
  for (std::int64_t copy = 0; copy < repeats_; ++copy) {
    for (std::size_t i = 0; i < nodes.size(); ++i) before[i] = earliest[at(nodes[i])];
    for (std::size_t i = 0; i < entry.size(); ++i) {
      const Crossing& c = crossings_[candidate.first + i];
      entry[i] = earliest[at(c.tail_out)] + c.length;
    }
    for (const std::int32_t v : nodes) earliest[at(v)] = 0;
    for (std::size_t i = 0; i < entry.size(); ++i) {
      Time& reached = earliest[at(crossings_[candidate.first + i].head_in)];
      reached = std::max(reached, entry[i]);
    }
    advance(nodes, arc_length, candidate.slot, earliest);
    const Time moved = earliest[at(nodes.front())] - before.front();
    bool uniform = true;
    for (std::size_t i = 0; i < nodes.size(); ++i) uniform = uniform && earliest[at(nodes[i])] - before[i] == moved;
    if (!uniform) continue;
    for (const std::int32_t v : nodes) earliest[at(v)] += moved * (repeats_ - copy - 1);
    return;
  }
}

template <class Flow>
Time Splicer<Flow>::longest_path(std::span<const Time> arc_length) const {
  std::vector<Time> earliest(node_slot_.size(), 0);
  std::int32_t repeated = 0;
  for (std::size_t slot = 0; slot < slot_nodes_.size(); ++slot) {
    advance(slot_nodes_[slot], arc_length, 0, earliest);
    const auto candidate =
        std::find_if(candidates_.begin(), candidates_.end(), [&](const Candidate& c) { return at(c.slot) == slot; });
    if (candidate == candidates_.end() || candidate->region != repeated) continue;
    repeat(*candidate, arc_length, earliest);
    ++repeated;
  }
  return repeated == num_regions_ ? earliest[at(network_.sink())] : kNoLength;
}

template <class Flow>
bool Splicer<Flow>::qualifies(const Candidate& candidate, const ResidualNetwork<Flow>& state, Time& tau) const {
  const std::vector<Flow>& flow = state.flow();
  const std::vector<Time>& pi = state.potential();
  bool found = false;
  for (std::size_t i = candidate.first; i < candidate.last; ++i) {
    const Crossing& c = crossings_[i];
    if (flow[at(c.arc_in)] != flow[at(c.arc_out)]) return false;
    if (flow[at(c.arc_in)] == 0) continue;
    const Time across = pi[at(c.head_out)] - pi[at(c.head_in)];
    if (found && across != tau) return false;
    tau = across;
    found = true;
  }
  if (!found) return false;
  for (std::size_t i = candidate.first; i < candidate.last; ++i) {
    const Crossing& c = crossings_[i];
    if (flow[at(c.arc_in)] == 0 && pi[at(c.head_in)] + tau - pi[at(c.tail_out)] < c.length) return false;
  }
  return true;
}

template <class Flow>
void Splicer<Flow>::begin_interval(const ResidualNetwork<Flow>& state) {
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    Time tau = 0;
    longer_tau_[i] = qualifies(candidates_[i], state, tau) ? tau : kNoLength;
  }
}

template <class Flow>
bool Splicer<Flow>::end_interval(const ResidualNetwork<Flow>& state, Splice& splice) {
  splice.slots.assign(at(num_regions_), -1);
  splice.longer_tau = splice.shorter_tau = 0;
  std::int32_t missing = num_regions_;
  for (std::size_t i = 0; i < candidates_.size() && missing > 0; ++i) {
    std::int32_t& chosen = splice.slots[at(candidates_[i].region)];
    Time tau = 0;
    if (chosen >= 0 || longer_tau_[i] == kNoLength || !qualifies(candidates_[i], state, tau)) continue;
    chosen = candidates_[i].slot;
    splice.longer_tau += longer_tau_[i];
    splice.shorter_tau += tau;
    --missing;
  }
  return missing == 0;
}

template class Splicer<std::int64_t>;
template class Splicer<Int128>;

}  // namespace perseus
