#include "perseus/chain_improvement.hpp"

#include <algorithm>
#include <cstdlib>
#include <limits>

namespace perseus {

namespace {

constexpr std::int64_t kBuckets = 256;
// Others are fixed at their earliest starts plus this share, in quarters, of their slack.
constexpr Time kShares[] = {0, 4, 2, 1, 3, 5};
constexpr Time kWholeShare = 4;
// Not a share: what a chain needs is as early as possible, what needs it as late as possible. Not always feasible.
constexpr Time kApart = 5;
constexpr double kNone = std::numeric_limits<double>::infinity();

std::size_t at(std::int32_t index) { return static_cast<std::size_t>(index); }

// Latency of the dependency from u to v, the longest if there are several.
Time latency_between(const PrecedenceGraph& graph, std::int32_t u, std::int32_t v) {
  Time latency = 0;
  for (const auto& arc : graph.out(u)) {
    if (arc.peer == v) latency = std::max(latency, arc.latency);
  }
  return latency;
}

}  // namespace

ChainImprovement::ChainImprovement(const PrecedenceGraph& graph) : graph_(&graph) {
  cover(true);
  cover(false);
}

// Splits the operations into chains. The caller numbers the operations GPU by GPU, so going on with the peer of the
// nearest number follows a GPU, and with the one of the farthest number, a microbatch.
void ChainImprovement::cover(bool near_first) {
  std::vector<std::uint8_t> taken(at(graph_->size()), 0);
  const auto distance = [this](std::int32_t u, std::int32_t v) {
    return std::abs(graph_->operation()[at(u)] - graph_->operation()[at(v)]);
  };
  for (std::int32_t head = 0; head < graph_->size(); ++head) {
    if (taken[at(head)] != 0) continue;
    std::vector<std::int32_t> chain;
    for (std::int32_t v = head; v >= 0;) {
      taken[at(v)] = 1;
      chain.push_back(v);
      std::int32_t next = -1;
      for (const auto& arc : graph_->out(v)) {
        if (taken[at(arc.peer)] != 0) continue;
        if (next < 0 || (distance(v, arc.peer) < distance(v, next)) == near_first) next = arc.peer;
      }
      v = next;
    }
    chains_.push_back(std::move(chain));
  }
}

void ChainImprovement::fix_others(const ChoiceSelection& selection, Time share) {
  const Timetable& timetable = selection.timetable();
  const Time before = share == kApart ? 0 : share;
  const Time behind = share == kApart ? kWholeShare : share;
  const auto mixed = [&](std::int32_t v, Time part) {
    const Time slack = timetable.slack(v);
    return timetable.start(v) + slack / kWholeShare * part + slack % kWholeShare * part / kWholeShare;
  };
  start_.resize(at(graph_->size()));
  due_.resize(at(graph_->size()));
  for (std::int32_t v = 0; v < graph_->size(); ++v) {
    start_[at(v)] = mixed(v, before);
    due_[at(v)] = mixed(v, behind);
  }
}

void ChainImprovement::set_windows(const ChoiceSelection& selection, std::span<const std::int32_t> chain) {
  const Timetable& timetable = selection.timetable();
  windows_.assign(chain.size(), {0, timetable.deadline()});
  for (std::size_t i = 0; i < chain.size(); ++i) {
    const std::int32_t before = i > 0 ? chain[i - 1] : -1;
    const std::int32_t after = i + 1 < chain.size() ? chain[i + 1] : -1;
    Window& window = windows_[i];
    for (const auto& arc : graph_->in(chain[i])) {
      if (arc.peer == before) continue;
      window.release = std::max(window.release, start_[at(arc.peer)] + timetable.duration(arc.peer) + arc.latency);
    }
    for (const auto& arc : graph_->out(chain[i])) {
      if (arc.peer != after) window.due = std::min(window.due, due_[at(arc.peer)] - arc.latency);
    }
  }
  const ChoiceMenus& menus = selection.menus();
  for (std::size_t i = chain.size() - 1; i-- > 0;) {
    const Time fastest = menus.time[at(menus.first[at(chain[i + 1])])];
    const Time latency = latency_between(*graph_, chain[i], chain[i + 1]);
    windows_[i].due = std::min(windows_[i].due, windows_[i + 1].due - fastest - latency);
  }
}

// Adds the labels of v, which follow from the labels first to last of the operation before.
void ChainImprovement::extend(const ChoiceMenus& menus, std::int32_t v, const Window& window, Time latency,
                              std::size_t first, std::size_t last) {
  const Time fastest = menus.time[at(menus.first[at(v)])];
  const Time earliest = std::max(window.release, labels_[first].finish + latency) + fastest;
  const Time width = window.due - earliest + 1;
  if (width <= 0) return;
  const double per_quantum = static_cast<double>(kBuckets) / static_cast<double>(width);
  bucket_.assign(static_cast<std::size_t>(kBuckets) + 1, {0, kNone, -1, -1});
  for (std::size_t label = first; label < last; ++label) {
    const Time begin = std::max(window.release, labels_[label].finish + latency);
    // Of the labels that wait for the release, the last is the cheapest.
    if (label + 1 < last && labels_[label + 1].finish + latency <= window.release) continue;
    for (std::int32_t entry = menus.first[at(v)]; entry <= menus.last[at(v)]; ++entry) {
      const Time finish = begin + menus.time[at(entry)];
      if (finish > window.due) break;
      ++work_;
      const double energy_j = labels_[label].energy_j + menus.energy_j[at(entry)];
      Label& best = bucket_[static_cast<std::size_t>(static_cast<double>(finish - earliest) * per_quantum)];
      if (energy_j < best.energy_j || (energy_j == best.energy_j && finish < best.finish)) {
        best = {finish, energy_j, entry, static_cast<std::int32_t>(label)};
      }
    }
  }
  double cheapest_j = kNone;
  for (const Label& label : bucket_) {
    if (label.energy_j >= cheapest_j) continue;
    cheapest_j = label.energy_j;
    labels_.push_back(label);
  }
}

bool ChainImprovement::improve_chain(ChoiceSelection& selection, std::span<const std::int32_t> chain, double least_j) {
  set_windows(selection, chain);
  labels_.assign(1, {0, 0.0, -1, -1});
  first_.assign(1, 1);
  double before_j = 0.0;
  for (std::size_t i = 0; i < chain.size(); ++i) {
    const std::size_t last = labels_.size();
    const std::size_t first = i == 0 ? 0 : first_[i - 1];
    const Time latency = i == 0 ? 0 : latency_between(*graph_, chain[i - 1], chain[i]);
    if (i > 0) first_.push_back(last);
    extend(selection.menus(), chain[i], windows_[i], latency, first, last);
    if (labels_.size() == last) return false;
    before_j += selection.energy_j(chain[i]);
  }
  if (labels_.back().energy_j >= before_j - least_j) return false;
  selection.open_journal();
  if (take_labels(selection, chain) < -least_j) {
    selection.keep_changes();
    return true;
  }
  selection.undo_changes();
  return false;
}

// Changes to the choices of the cheapest label: first all faster ones, then slower ones as far as the slack allows.
// Returns the change of energy, J.
double ChainImprovement::take_labels(ChoiceSelection& selection, std::span<const std::int32_t> chain) {
  const ChoiceMenus& menus = selection.menus();
  chosen_.resize(chain.size());
  for (std::size_t i = chain.size(), label = labels_.size() - 1; i-- > 0;) {
    chosen_[i] = labels_[label].entry;
    label = static_cast<std::size_t>(labels_[label].before);
  }
  double change_j = 0.0;
  const auto choose = [&](std::int32_t v, std::int32_t entry) {
    change_j += menus.energy_j[at(entry)] - selection.energy_j(v);
    selection.choose(v, entry);
  };
  for (std::size_t i = 0; i < chain.size(); ++i) {
    if (chosen_[i] < selection.entry(chain[i])) choose(chain[i], chosen_[i]);
  }
  for (std::size_t i = 0; i < chain.size(); ++i) {
    const std::int32_t v = chain[i];
    if (chosen_[i] <= selection.entry(v)) continue;
    const Time room = selection.timetable().duration(v) + selection.timetable().slack(v);
    const std::int32_t entry = std::min(chosen_[i], menus.slowest_within(v, room));
    if (entry > selection.entry(v)) choose(v, entry);
  }
  return change_j;
}

double ChainImprovement::improve(ChoiceSelection& selection, std::int64_t work, double least_j) {
  const double before_j = selection.total_energy_j();
  const std::int64_t stop = work_ + work;
  for (bool improved = true; improved;) {
    improved = false;
    for (const Time share : kShares) {
      for (const auto& chain : chains_) {
        if (work_ >= stop) return before_j - selection.total_energy_j();
        fix_others(selection, share);
        improved = improve_chain(selection, chain, least_j) || improved;
      }
    }
  }
  return before_j - selection.total_energy_j();
}

}  // namespace perseus
