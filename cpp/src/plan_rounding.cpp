#include "perseus/plan_rounding.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <optional>
#include <utility>

#include "perseus/chain_improvement.hpp"
#include "perseus/choice_selection.hpp"
#include "perseus/integer.hpp"
#include "perseus/quantization.hpp"
#include "perseus/slack_reclaiming.hpp"
#include "perseus/timetable.hpp"

namespace perseus {

namespace {

// A chain that saves less than this share of the plan's energy is rounding error, not progress.
constexpr double kLeastShare = 1e-13;
// Exchanges and chains take turns at most this many times.
constexpr int kTurns = 4;

std::size_t at(std::int32_t index) { return static_cast<std::size_t>(index); }

bool all_within(std::span<const std::int32_t> values, std::size_t size) {
  return std::all_of(values.begin(), values.end(), [size](std::int32_t v) { return v >= 0 && at(v) < size; });
}

bool is_valid(const PlanProblem& problem) {
  const std::size_t n = problem.menu_of.size();
  const auto& offsets = problem.menu_offsets;
  const bool menus_fit = !offsets.empty() && offsets.front() == 0 &&
                         static_cast<std::size_t>(offsets.back()) == problem.choice_time_s.size() &&
                         std::adjacent_find(offsets.begin(), offsets.end(), std::greater_equal<>()) == offsets.end();
  return menus_fit && problem.choice_energy_j.size() == problem.choice_time_s.size() &&
         problem.successor.size() == problem.predecessor.size() &&
         problem.latency_s.size() == problem.predecessor.size() && all_within(problem.menu_of, offsets.size() - 1) &&
         all_within(problem.predecessor, n) && all_within(problem.successor, n);
}

RoundedPlan ended(RoundingStatus status) {
  RoundedPlan plan;
  plan.status = status;
  return plan;
}

}  // namespace

// What all plans of a pipeline share.
struct PlanSpace::Parts {
  bool build(const PlanProblem& problem);
  // Longest path at the slowest choices, summed as the solver does, so that both choose the same quantum.
  double longest_path_s(const PlanProblem& problem) const;
  Time quantized_deadline(double deadline_s) const;
  std::optional<std::vector<std::int32_t>> entries_of(std::span<const std::int32_t> choice) const;

  TimeQuantum quantum;
  PrecedenceGraph graph;
  std::vector<double> choice_energy_j;  // menus.energy_j looks at it
  ChoiceMenus menus;
  Time slowest_makespan = 0;
};

bool PlanSpace::Parts::build(const PlanProblem& problem) {
  if (!graph.build(problem.menu_of.size(), problem.predecessor, problem.successor)) return false;
  for (const std::int32_t operation : graph.operation()) {
    const std::size_t menu = at(problem.menu_of[at(operation)]);
    menus.first.push_back(static_cast<std::int32_t>(problem.menu_offsets[menu]));
    menus.last.push_back(static_cast<std::int32_t>(problem.menu_offsets[menu + 1]) - 1);
  }
  quantum = TimeQuantum::for_longest_path(longest_path_s(problem));
  for (const double time_s : problem.choice_time_s) menus.time.push_back(quantum.round_up(time_s));
  choice_energy_j.assign(problem.choice_energy_j.begin(), problem.choice_energy_j.end());
  menus.energy_j = choice_energy_j;
  menus.mark_hulls(problem.menu_offsets);
  std::vector<Time> latency;
  for (const double latency_s : problem.latency_s) latency.push_back(quantum.round_up(latency_s));
  graph.set_latencies(latency);
  ChoiceSelection slowest(graph, menus);
  slowest.reset(menus.last, 0);
  slowest_makespan = slowest.timetable().makespan();
  return true;
}

double PlanSpace::Parts::longest_path_s(const PlanProblem& problem) const {
  std::vector<double> finish_s(at(graph.size()));
  double longest_s = 0.0;
  for (std::int32_t v = 0; v < graph.size(); ++v) {
    double start_s = 0.0;
    for (const auto& arc : graph.in(v)) {
      start_s = std::max(start_s, finish_s[at(arc.peer)] + problem.latency_s[at(arc.dependency)]);
    }
    finish_s[at(v)] = start_s + problem.choice_time_s[at(menus.last[at(v)])];
    longest_s = std::max(longest_s, finish_s[at(v)]);
  }
  return longest_s;
}

// The most quanta that are no longer than the deadline when converted back; no more than the longest path.
Time PlanSpace::Parts::quantized_deadline(double deadline_s) const {
  if (deadline_s >= quantum.seconds(slowest_makespan)) return slowest_makespan;
  auto deadline = static_cast<Time>(std::max(quantum.quanta(deadline_s), 0.0));
  while (quantum.seconds(deadline + 1) <= deadline_s) ++deadline;
  while (quantum.seconds(deadline) > deadline_s) --deadline;
  return deadline;
}

// None if a choice is not on its menu.
std::optional<std::vector<std::int32_t>> PlanSpace::Parts::entries_of(std::span<const std::int32_t> choice) const {
  if (choice.size() != menus.first.size()) return std::nullopt;
  std::vector<std::int32_t> entries(choice.size());
  for (std::size_t v = 0; v < entries.size(); ++v) {
    const std::int32_t chosen = choice[at(graph.operation()[v])];
    if (chosen < 0 || chosen > menus.last[v] - menus.first[v]) return std::nullopt;
    entries[v] = menus.first[v] + chosen;
  }
  return entries;
}

namespace {

// Sets of choices within a deadline, and how they get better.
class Improvement {
 public:
  Improvement(const TimeQuantum& quantum, const PrecedenceGraph& graph, const ChoiceMenus& menus, Time deadline,
              const RoundingOptions& options)
      : quantum_(quantum), graph_(graph), menus_(menus), deadline_(deadline), options_(options) {}

  // None if they miss the deadline.
  std::optional<ChoiceSelection> selection_of(std::vector<std::int32_t> entries) const;
  // Reclaims the slack of each start by both rules, improves the best, and returns it as a plan.
  RoundedPlan best_of(std::span<const ChoiceSelection> starts) const;
  RoundedPlan too_short(const std::vector<std::int32_t>& entries) const;

 private:
  std::int64_t visits(std::int64_t effort) const { return effort * (graph_.size() + graph_.num_dependencies()); }
  ChoiceSelection reclaimed(std::span<const ChoiceSelection> starts) const;
  std::int64_t search(ChoiceSelection& selection) const;
  void write(const ChoiceSelection& selection, RoundedPlan& plan) const;

  const TimeQuantum& quantum_;
  const PrecedenceGraph& graph_;
  const ChoiceMenus& menus_;
  Time deadline_;
  const RoundingOptions& options_;
};

std::optional<ChoiceSelection> Improvement::selection_of(std::vector<std::int32_t> entries) const {
  ChoiceSelection selection(graph_, menus_);
  selection.reset(std::move(entries), deadline_);
  if (selection.timetable().makespan() > deadline_) return std::nullopt;
  return selection;
}

ChoiceSelection Improvement::reclaimed(std::span<const ChoiceSelection> starts) const {
  SlackReclaiming reclaiming(graph_);
  std::optional<ChoiceSelection> best;
  double best_j = 0.0;
  for (const ChoiceSelection& start : starts) {
    for (const ReclaimRule rule : {ReclaimRule::kSaving, ReclaimRule::kSavingPerTime}) {
      ChoiceSelection selection = start;
      reclaiming.reclaim_all(selection, rule, visits(options_.reclaim_effort));
      const double energy_j = selection.total_energy_j();
      if (best && energy_j >= best_j) continue;
      best = std::move(selection);
      best_j = energy_j;
    }
  }
  return *best;
}

// Exchanges single operations and chooses chains anew in turns, until neither helps.
std::int64_t Improvement::search(ChoiceSelection& selection) const {
  SlackReclaiming reclaiming(graph_);
  std::int64_t exchanges = 0;
  if (options_.exchange_effort > 0) exchanges += reclaiming.exchange(selection, visits(options_.exchange_effort));
  if (options_.chain_effort <= 0) return exchanges;
  ChainImprovement chains(graph_);
  const double least_j = kLeastShare * std::abs(selection.total_energy_j());
  for (int turn = 0; turn < kTurns; ++turn) {
    const double saved_j = chains.improve(selection, options_.chain_effort * graph_.size(), least_j);
    if (saved_j <= least_j) break;
    const std::int64_t kept = reclaiming.exchange(selection, visits(options_.exchange_effort));
    if (kept == 0) break;
    exchanges += kept;
  }
  return exchanges;
}

RoundedPlan Improvement::best_of(std::span<const ChoiceSelection> starts) const {
  RoundedPlan plan;
  plan.rounded_energy_j = starts.front().total_energy_j();
  ChoiceSelection selection = options_.reclaim ? reclaimed(starts) : starts.front();
  plan.reclaimed_energy_j = selection.total_energy_j();
  if (options_.reclaim) plan.exchanges = search(selection);
  write(selection, plan);
  return plan;
}

void Improvement::write(const ChoiceSelection& selection, RoundedPlan& plan) const {
  plan.energy_j = selection.total_energy_j();
  plan.makespan_s = quantum_.seconds(selection.timetable().makespan());
  plan.choice.resize(menus_.first.size());
  plan.start_s.resize(menus_.first.size());
  for (std::int32_t v = 0; v < graph_.size(); ++v) {
    const std::size_t operation = at(graph_.operation()[at(v)]);
    plan.choice[operation] = selection.entry(v) - menus_.first[at(v)];
    plan.start_s[operation] = quantum_.seconds(selection.timetable().start(v));
  }
}

RoundedPlan Improvement::too_short(const std::vector<std::int32_t>& entries) const {
  ChoiceSelection selection(graph_, menus_);
  selection.reset(entries, deadline_);
  RoundedPlan plan = ended(RoundingStatus::kDeadlineTooShort);
  plan.makespan_s = quantum_.seconds(selection.timetable().makespan());
  return plan;
}

// Choices next to planned durations.
class Rounding {
 public:
  Rounding(const TimeQuantum& quantum, const PrecedenceGraph& graph, const ChoiceMenus& menus, Time deadline,
           std::span<const double> planned_s);

  std::vector<std::int32_t> all_rounded_down() const;
  std::vector<std::int32_t> carried_forwards() const;
  std::vector<std::int32_t> carried_backwards() const;

 private:
  std::int32_t rounded_down(std::int32_t v) const { return menus_.slowest_within(v, planned_[at(v)]); }
  std::int32_t rounded_to_hull(std::int32_t v, Time room) const;

  const PrecedenceGraph& graph_;
  const ChoiceMenus& menus_;
  Time deadline_;
  std::vector<Time> planned_;  // per number: planned duration, within its menu's times
  Timetable timetable_;        // of the planned durations
};

Rounding::Rounding(const TimeQuantum& quantum, const PrecedenceGraph& graph, const ChoiceMenus& menus, Time deadline,
                   std::span<const double> planned_s)
    : graph_(graph), menus_(menus), deadline_(deadline), planned_(menus.first.size()), timetable_(graph) {
  for (std::size_t v = 0; v < planned_.size(); ++v) {
    const auto fastest = static_cast<double>(menus_.time[at(menus_.first[v])]);
    const auto slowest = static_cast<double>(menus_.time[at(menus_.last[v])]);
    const double quanta = std::nearbyint(quantum.quanta(planned_s[at(graph_.operation()[v])]));
    planned_[v] = static_cast<Time>(std::max(fastest, std::min(quanta, slowest)));
  }
  timetable_.reset(planned_, deadline);
}

std::vector<std::int32_t> Rounding::all_rounded_down() const {
  std::vector<std::int32_t> entries(planned_.size());
  for (std::int32_t v = 0; v < graph_.size(); ++v) entries[at(v)] = rounded_down(v);
  return entries;
}

// The slowest vertex within the room, but not beyond the one next to the planned duration.
std::int32_t Rounding::rounded_to_hull(std::int32_t v, Time room) const {
  std::int32_t next = rounded_down(v);
  if (menus_.time[at(next)] < planned_[at(v)]) ++next;
  const std::int32_t most = menus_.hull_at_or_above(next);
  return menus_.hull_at_or_below(std::min(menus_.slowest_within(v, room), most));
}

std::vector<std::int32_t> Rounding::carried_forwards() const {
  std::vector<std::int32_t> entries(planned_.size());
  std::vector<Time> finish(planned_.size());
  for (std::int32_t v = 0; v < graph_.size(); ++v) {
    Time start = 0;
    for (const auto& arc : graph_.in(v)) start = std::max(start, finish[at(arc.peer)] + arc.latency);
    entries[at(v)] = rounded_to_hull(v, timetable_.limit(v) - start);
    finish[at(v)] = start + menus_.time[at(entries[at(v)])];
  }
  return entries;
}

std::vector<std::int32_t> Rounding::carried_backwards() const {
  std::vector<std::int32_t> entries(planned_.size());
  std::vector<Time> start(planned_.size());
  for (std::int32_t v = graph_.size(); v-- > 0;) {
    Time limit = deadline_;
    for (const auto& arc : graph_.out(v)) limit = std::min(limit, start[at(arc.peer)] - arc.latency);
    entries[at(v)] = rounded_to_hull(v, limit - timetable_.start(v));
    start[at(v)] = limit - menus_.time[at(entries[at(v)])];
  }
  return entries;
}

// The operations by the middle of their execution, as a share of the makespan, on average over two timetables.
std::vector<std::int32_t> by_time(const Timetable& one, const Timetable& other, std::int32_t size) {
  std::vector<double> key(at(size));
  const double one_makespan = static_cast<double>(std::max<Time>(one.makespan(), 1));
  const double other_makespan = static_cast<double>(std::max<Time>(other.makespan(), 1));
  for (std::int32_t v = 0; v < size; ++v) {
    key[at(v)] = static_cast<double>(2 * one.start(v) + one.duration(v)) / one_makespan +
                 static_cast<double>(2 * other.start(v) + other.duration(v)) / other_makespan;
  }
  std::vector<std::int32_t> order(at(size));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) { return key[at(a)] < key[at(b)]; });
  return order;
}

}  // namespace

PlanSpace::PlanSpace(const PlanProblem& problem) : parts_(std::make_unique<Parts>()) {
  if (!is_valid(problem)) {
    status_ = RoundingStatus::kInvalid;
  } else if (!parts_->build(problem)) {
    status_ = RoundingStatus::kCyclic;
  }
}

PlanSpace::~PlanSpace() = default;
PlanSpace::PlanSpace(PlanSpace&&) noexcept = default;
PlanSpace& PlanSpace::operator=(PlanSpace&&) noexcept = default;

RoundedPlan PlanSpace::round(std::span<const double> planned_s, double deadline_s,
                             const RoundingOptions& options) const {
  if (status_ != RoundingStatus::kComplete) return ended(status_);
  if (planned_s.size() != parts_->menus.first.size()) return ended(RoundingStatus::kInvalid);
  const Time deadline = parts_->quantized_deadline(deadline_s);
  const Improvement improvement(parts_->quantum, parts_->graph, parts_->menus, deadline, options);
  const Rounding rounding(parts_->quantum, parts_->graph, parts_->menus, deadline, planned_s);
  std::vector<ChoiceSelection> starts;
  const auto add = [&](std::vector<std::int32_t> entries) {
    if (auto start = improvement.selection_of(std::move(entries))) starts.push_back(std::move(*start));
  };
  if (options.reclaim && !options.carry) add(rounding.carried_forwards());
  if (starts.empty()) add(rounding.all_rounded_down());
  if (starts.empty()) add(parts_->menus.first);  // the planned durations do not meet the deadline
  if (starts.empty()) return improvement.too_short(parts_->menus.first);
  if (options.reclaim && options.carry) {
    add(rounding.carried_forwards());
    add(rounding.carried_backwards());
  }
  return improvement.best_of(starts);
}

RoundedPlan PlanSpace::splice(std::span<const std::int32_t> base, std::span<const std::int32_t> other,
                              SplicedPart part, double deadline_s, const RoundingOptions& options) const {
  if (status_ != RoundingStatus::kComplete) return ended(status_);
  const auto base_entries = parts_->entries_of(base);
  const auto other_entries = parts_->entries_of(other);
  if (!base_entries || !other_entries) return ended(RoundingStatus::kInvalid);
  const Time deadline = parts_->quantized_deadline(deadline_s);
  const Improvement improvement(parts_->quantum, parts_->graph, parts_->menus, deadline, options);
  std::optional<ChoiceSelection> start = improvement.selection_of(*base_entries);
  if (!start) return improvement.too_short(*base_entries);
  ChoiceSelection slower(parts_->graph, parts_->menus);
  slower.reset(*other_entries, deadline);
  std::vector<std::int32_t> order = by_time(start->timetable(), slower.timetable(), parts_->graph.size());
  if (part == SplicedPart::kEnd) std::reverse(order.begin(), order.end());
  // Bisection for the most operations that the deadline lets the other plan have; `enough` fit, `many` do not.
  std::size_t enough = 0;
  for (std::size_t many = order.size() + 1; many - enough > 1;) {
    const std::size_t middle = enough + (many - enough) / 2;
    std::vector<std::int32_t> entries = *base_entries;
    for (std::size_t i = 0; i < middle; ++i) entries[at(order[i])] = (*other_entries)[at(order[i])];
    if (auto spliced = improvement.selection_of(std::move(entries))) {
      enough = middle;
      start = std::move(spliced);
    } else {
      many = middle;
    }
  }
  return improvement.best_of(std::span(&*start, 1));
}

RoundedPlan PlanSpace::improve(std::span<const std::int32_t> choice, double deadline_s,
                               const RoundingOptions& options) const {
  if (status_ != RoundingStatus::kComplete) return ended(status_);
  const auto entries = parts_->entries_of(choice);
  if (!entries) return ended(RoundingStatus::kInvalid);
  const Improvement improvement(parts_->quantum, parts_->graph, parts_->menus, parts_->quantized_deadline(deadline_s),
                                options);
  const std::optional<ChoiceSelection> start = improvement.selection_of(*entries);
  if (!start) return improvement.too_short(*entries);
  return improvement.best_of(std::span(&*start, 1));
}

RoundedPlan round_plan(const PlanProblem& problem, const RoundingOptions& options) {
  if (problem.planned_s.size() != problem.menu_of.size()) return ended(RoundingStatus::kInvalid);
  return PlanSpace(problem).round(problem.planned_s, problem.deadline_s, options);
}

}  // namespace perseus
