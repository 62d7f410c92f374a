#include "perseus/slack_reclaiming.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace perseus {

namespace {

// Sweeps halve the least saving per second that they take this many times, then take all that fits.
constexpr int kSweeps = 20;
// An exchange speeds its operation up by at most this many entries: more free slack that others rarely can use.
constexpr std::int32_t kExchangeSteps = 3;
// An exchange that saves less than this share of the pipeline's range of energies is rounding error, not progress.
constexpr double kLeastShare = 1e-13;

std::size_t at(std::int32_t index) { return static_cast<std::size_t>(index); }

// Heap order: the best key on top, ties by number.
bool worse(const Candidate& a, const Candidate& b) {
  if (a.key != b.key) return a.key < b.key;
  return a.v > b.v;
}

std::vector<std::int32_t> all_numbers(const PrecedenceGraph& graph) {
  std::vector<std::int32_t> numbers(at(graph.size()));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

// The slowest entry of v within `room` that steps of at least `least_rate` (J per quantum) lead to.
std::int32_t slowest_worth(const ChoiceSelection& selection, std::int32_t v, Time room, double least_rate) {
  const ChoiceMenus& menus = selection.menus();
  std::int32_t reached = selection.entry(v);
  const std::int32_t slowest = menus.slowest_within(v, room);
  for (std::int32_t entry = reached + 1; entry <= slowest; ++entry) {
    const double saving = menus.energy_j[at(reached)] - menus.energy_j[at(entry)];
    const auto longer = static_cast<double>(menus.time[at(entry)] - menus.time[at(reached)]);
    if (saving >= least_rate * longer) reached = entry;
  }
  return reached;
}

double energy_range_j(const ChoiceMenus& menus) {
  double range_j = 0.0;
  for (std::size_t v = 0; v < menus.first.size(); ++v) {
    range_j += menus.energy_j[at(menus.first[v])] - menus.energy_j[at(menus.last[v])];
  }
  return range_j;
}

// What one step faster costs (J); infinite if there is none.
double cost_of_speeding_up(const ChoiceSelection& selection, std::int32_t v) {
  const std::int32_t entry = selection.entry(v);
  if (entry == selection.menus().first[at(v)]) return std::numeric_limits<double>::infinity();
  return selection.menus().energy_j[at(entry) - 1] - selection.energy_j(v);
}

// Operations to be tried, first in first out, each at most once at a time.
class TrialQueue {
 public:
  explicit TrialQueue(std::vector<std::int32_t> order) : order_(std::move(order)), waiting_(order_.size(), 1) {}

  bool empty() const { return next_ == order_.size(); }
  std::int32_t pop() {
    const std::int32_t v = order_[next_++];
    waiting_[at(v)] = 0;
    return v;
  }
  void push(std::int32_t v) {
    if (waiting_[at(v)] != 0) return;
    waiting_[at(v)] = 1;
    order_.push_back(v);
  }

 private:
  std::vector<std::int32_t> order_;
  std::vector<std::uint8_t> waiting_;  // per operation
  std::size_t next_ = 0;
};

}  // namespace

double SlackReclaiming::reclaim(ChoiceSelection& selection, std::span<const std::int32_t> operations, ReclaimRule rule,
                                std::int64_t stop) {
  heap_.clear();
  for (const std::int32_t v : operations) {
    if (const auto candidate = selection.best_slower(v, rule)) heap_.push_back(*candidate);
  }
  std::make_heap(heap_.begin(), heap_.end(), worse);
  double saved_j = 0.0;
  while (!heap_.empty() && selection.timetable().visits() < stop) {
    std::pop_heap(heap_.begin(), heap_.end(), worse);
    const Candidate top = heap_.back();
    heap_.pop_back();
    if (selection.fits(top)) {
      saved_j += selection.energy_j(top.v) - selection.menus().energy_j[at(top.entry)];
      selection.choose(top.v, top.entry);
    }
    if (const auto candidate = selection.best_slower(top.v, rule)) {
      heap_.push_back(*candidate);
      std::push_heap(heap_.begin(), heap_.end(), worse);
    }
  }
  return saved_j;
}

// Each sweep goes through the operations in topological order with exact starts, known as it goes, and limits from
// before the sweep, which stay exact for an operation until one behind it changes.
void SlackReclaiming::reclaim_by_sweeps(ChoiceSelection& selection) const {
  double least_rate = 0.0;
  for (std::int32_t v = 0; v < graph_->size(); ++v) {
    const auto candidate = selection.best_slower(v, ReclaimRule::kSavingPerTime);
    if (candidate && std::isfinite(candidate->key)) least_rate = std::max(least_rate, candidate->key);
  }
  std::vector<std::int32_t> entries = selection.entries();
  std::vector<Time> finish(entries.size());
  for (int sweep = 0; sweep <= kSweeps; ++sweep) {
    least_rate = sweep == kSweeps ? 0.0 : least_rate / 2;
    for (std::int32_t v = 0; v < graph_->size(); ++v) {
      Time start = 0;
      for (const auto& arc : graph_->in(v)) start = std::max(start, finish[at(arc.peer)] + arc.latency);
      entries[at(v)] = slowest_worth(selection, v, selection.timetable().limit(v) - start, least_rate);
      finish[at(v)] = start + selection.menus().time[at(entries[at(v)])];
    }
    selection.reset(entries, selection.timetable().deadline());
  }
}

void SlackReclaiming::reclaim_all(ChoiceSelection& selection, ReclaimRule rule, std::int64_t visits) {
  reclaim(selection, all_numbers(*graph_), rule, selection.timetable().visits() + visits);
  if (!heap_.empty()) reclaim_by_sweeps(selection);
}

bool SlackReclaiming::try_exchange(ChoiceSelection& selection, std::int32_t v, std::int32_t faster, double least_j,
                                   std::int64_t stop) {
  double saved_j = selection.energy_j(v) - selection.menus().energy_j[at(faster)];
  selection.open_journal();
  selection.choose(v, faster);
  around_.clear();
  for (std::size_t i = 0; i < selection.timetable().num_changed(); ++i) {
    if (const std::int32_t u = selection.timetable().changed(i); u != v) around_.push_back(u);
  }
  saved_j += reclaim(selection, around_, ReclaimRule::kSaving, stop);
  if (saved_j <= least_j) {
    selection.undo_changes();
    return false;
  }
  reclaim(selection, std::span(&v, 1), ReclaimRule::kSaving, stop);
  selection.keep_changes();
  return true;
}

bool SlackReclaiming::improve_at(ChoiceSelection& selection, std::int32_t v, double least_j, std::int64_t stop) {
  const std::int32_t fastest = std::max(selection.menus().first[at(v)], selection.entry(v) - kExchangeSteps);
  for (std::int32_t faster = selection.entry(v); faster-- > fastest;) {
    if (selection.timetable().visits() >= stop) return false;
    if (try_exchange(selection, v, faster, least_j, stop)) return true;
  }
  return false;
}

std::int64_t SlackReclaiming::exchange(ChoiceSelection& selection, std::int64_t visits) {
  const std::int64_t stop = selection.timetable().visits() + visits;
  const double least_j = kLeastShare * energy_range_j(selection.menus());
  std::vector<std::int32_t> order = all_numbers(*graph_);
  std::vector<double> cost_j(order.size());
  for (const std::int32_t v : order) cost_j[at(v)] = cost_of_speeding_up(selection, v);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int32_t a, std::int32_t b) { return cost_j[at(a)] < cost_j[at(b)]; });
  TrialQueue queue(std::move(order));
  std::int64_t kept = 0;
  while (!queue.empty() && selection.timetable().visits() < stop) {
    const std::int32_t v = queue.pop();
    if (!improve_at(selection, v, least_j, stop)) continue;
    ++kept;
    for (std::size_t i = 0; i < selection.timetable().num_changed(); ++i) queue.push(selection.timetable().changed(i));
  }
  return kept;
}

}  // namespace perseus
