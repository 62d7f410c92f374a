#include "perseus/plan_rounding.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "perseus/choice_selection.hpp"
#include "perseus/integer.hpp"
#include "perseus/quantization.hpp"
#include "perseus/slack_reclaiming.hpp"
#include "perseus/timetable.hpp"

namespace perseus {

namespace {

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
         problem.planned_s.size() == n && problem.successor.size() == problem.predecessor.size() &&
         problem.latency_s.size() == problem.predecessor.size() && all_within(problem.menu_of, offsets.size() - 1) &&
         all_within(problem.predecessor, n) && all_within(problem.successor, n);
}

class PlanRounding {
 public:
  PlanRounding(const PlanProblem& problem, const RoundingOptions& options) : problem_(problem), options_(options) {}
  RoundedPlan run();

 private:
  bool build();
  double longest_path_s() const;
  void set_deadline();
  void set_planned();
  std::int32_t rounded_down(std::int32_t v) const { return menus_.slowest_within(v, planned_[at(v)]); }
  std::vector<std::int32_t> all_rounded_down() const;
  std::int32_t rounded_to_hull(std::int32_t v, Time room) const;
  std::vector<std::int32_t> carried_forwards(const Timetable& planned) const;
  std::vector<std::int32_t> carried_backwards(const Timetable& planned) const;
  std::optional<ChoiceSelection> selection_of(std::vector<std::int32_t> entries) const;
  std::optional<ChoiceSelection> rounded_selection() const;
  ChoiceSelection reclaimed(const ChoiceSelection& rounded);
  void write(const ChoiceSelection& selection, RoundedPlan& plan) const;
  std::int64_t visits(std::int64_t effort) const { return effort * (graph_.size() + graph_.num_dependencies()); }

  const PlanProblem& problem_;
  const RoundingOptions& options_;
  TimeQuantum quantum_;
  PrecedenceGraph graph_;
  ChoiceMenus menus_;
  Time deadline_ = 0;
  std::vector<Time> planned_;  // per number: planned duration, within its menu's times
};

bool PlanRounding::build() {
  const std::size_t n = problem_.menu_of.size();
  if (!graph_.build(n, problem_.predecessor, problem_.successor)) return false;
  for (const std::int32_t operation : graph_.operation()) {
    const std::size_t menu = at(problem_.menu_of[at(operation)]);
    menus_.first.push_back(static_cast<std::int32_t>(problem_.menu_offsets[menu]));
    menus_.last.push_back(static_cast<std::int32_t>(problem_.menu_offsets[menu + 1]) - 1);
  }
  quantum_ = TimeQuantum::for_longest_path(longest_path_s());
  for (const double time_s : problem_.choice_time_s) menus_.time.push_back(quantum_.round_up(time_s));
  menus_.energy_j = problem_.choice_energy_j;
  menus_.mark_hulls(problem_.menu_offsets);
  std::vector<Time> latency;
  for (const double latency_s : problem_.latency_s) latency.push_back(quantum_.round_up(latency_s));
  graph_.set_latencies(latency);
  set_deadline();
  set_planned();
  return true;
}

// Longest path at the slowest choices, summed as the solver does, so that both choose the same quantum.
double PlanRounding::longest_path_s() const {
  std::vector<double> finish_s(at(graph_.size()));
  double longest_s = 0.0;
  for (std::int32_t v = 0; v < graph_.size(); ++v) {
    double start_s = 0.0;
    for (const auto& arc : graph_.in(v)) {
      start_s = std::max(start_s, finish_s[at(arc.peer)] + problem_.latency_s[at(arc.dependency)]);
    }
    finish_s[at(v)] = start_s + problem_.choice_time_s[at(menus_.last[at(v)])];
    longest_s = std::max(longest_s, finish_s[at(v)]);
  }
  return longest_s;
}

// The most quanta that are no longer than the deadline when converted back; no more than the longest path.
void PlanRounding::set_deadline() {
  ChoiceSelection slowest(graph_, menus_);
  slowest.reset(menus_.last, 0);
  deadline_ = slowest.timetable().makespan();
  if (problem_.deadline_s >= quantum_.seconds(deadline_)) return;
  deadline_ = static_cast<Time>(std::max(quantum_.quanta(problem_.deadline_s), 0.0));
  while (quantum_.seconds(deadline_ + 1) <= problem_.deadline_s) ++deadline_;
  while (quantum_.seconds(deadline_) > problem_.deadline_s) --deadline_;
}

void PlanRounding::set_planned() {
  planned_.resize(menus_.first.size());
  for (std::size_t v = 0; v < planned_.size(); ++v) {
    const auto fastest = static_cast<double>(menus_.time[at(menus_.first[v])]);
    const auto slowest = static_cast<double>(menus_.time[at(menus_.last[v])]);
    const double quanta = std::nearbyint(quantum_.quanta(problem_.planned_s[at(graph_.operation()[v])]));
    planned_[v] = static_cast<Time>(std::max(fastest, std::min(quanta, slowest)));
  }
}

std::vector<std::int32_t> PlanRounding::all_rounded_down() const {
  std::vector<std::int32_t> entries(planned_.size());
  for (std::int32_t v = 0; v < graph_.size(); ++v) entries[at(v)] = rounded_down(v);
  return entries;
}

// The slowest vertex within the room, but not beyond the one next to the planned duration.
std::int32_t PlanRounding::rounded_to_hull(std::int32_t v, Time room) const {
  std::int32_t next = rounded_down(v);
  if (menus_.time[at(next)] < planned_[at(v)]) ++next;
  const std::int32_t most = menus_.hull_at_or_above(next);
  return menus_.hull_at_or_below(std::min(menus_.slowest_within(v, room), most));
}

std::vector<std::int32_t> PlanRounding::carried_forwards(const Timetable& planned) const {
  std::vector<std::int32_t> entries(planned_.size());
  std::vector<Time> finish(planned_.size());
  for (std::int32_t v = 0; v < graph_.size(); ++v) {
    Time start = 0;
    for (const auto& arc : graph_.in(v)) start = std::max(start, finish[at(arc.peer)] + arc.latency);
    entries[at(v)] = rounded_to_hull(v, planned.limit(v) - start);
    finish[at(v)] = start + menus_.time[at(entries[at(v)])];
  }
  return entries;
}

std::vector<std::int32_t> PlanRounding::carried_backwards(const Timetable& planned) const {
  std::vector<std::int32_t> entries(planned_.size());
  std::vector<Time> start(planned_.size());
  for (std::int32_t v = graph_.size(); v-- > 0;) {
    Time limit = deadline_;
    for (const auto& arc : graph_.out(v)) limit = std::min(limit, start[at(arc.peer)] - arc.latency);
    entries[at(v)] = rounded_to_hull(v, limit - planned.start(v));
    start[at(v)] = limit - menus_.time[at(entries[at(v)])];
  }
  return entries;
}

std::optional<ChoiceSelection> PlanRounding::selection_of(std::vector<std::int32_t> entries) const {
  ChoiceSelection selection(graph_, menus_);
  selection.reset(std::move(entries), deadline_);
  if (selection.timetable().makespan() > deadline_) return std::nullopt;
  return selection;
}

// Rounded down, or the fastest choices where the planned durations do not meet the deadline.
std::optional<ChoiceSelection> PlanRounding::rounded_selection() const {
  if (auto rounded = selection_of(all_rounded_down())) return rounded;
  return selection_of(menus_.first);
}

ChoiceSelection PlanRounding::reclaimed(const ChoiceSelection& rounded) {
  Timetable planned(graph_);
  planned.reset(planned_, deadline_);
  SlackReclaiming reclaiming(graph_);
  std::optional<ChoiceSelection> best;
  double best_j = 0.0;
  for (const auto& start : {std::optional(rounded), selection_of(carried_forwards(planned)),
                            selection_of(carried_backwards(planned))}) {
    if (!start) continue;
    for (const ReclaimRule rule : {ReclaimRule::kSaving, ReclaimRule::kSavingPerTime}) {
      ChoiceSelection selection = *start;
      reclaiming.reclaim_all(selection, rule, visits(options_.reclaim_effort));
      const double energy_j = selection.total_energy_j();
      if (best && energy_j >= best_j) continue;
      best = std::move(selection);
      best_j = energy_j;
    }
  }
  return *best;
}

void PlanRounding::write(const ChoiceSelection& selection, RoundedPlan& plan) const {
  plan.energy_j = selection.total_energy_j();
  plan.makespan_s = quantum_.seconds(selection.timetable().makespan());
  plan.choice.resize(planned_.size());
  plan.start_s.resize(planned_.size());
  for (std::int32_t v = 0; v < graph_.size(); ++v) {
    const std::size_t operation = at(graph_.operation()[at(v)]);
    plan.choice[operation] = selection.entry(v) - menus_.first[at(v)];
    plan.start_s[operation] = quantum_.seconds(selection.timetable().start(v));
  }
}

RoundedPlan PlanRounding::run() {
  RoundedPlan plan;
  if (!build()) {
    plan.status = RoundingStatus::kCyclic;
    return plan;
  }
  std::optional<ChoiceSelection> selection = rounded_selection();
  if (!selection) {
    ChoiceSelection fastest(graph_, menus_);
    fastest.reset(menus_.first, deadline_);
    plan.status = RoundingStatus::kDeadlineTooShort;
    plan.makespan_s = quantum_.seconds(fastest.timetable().makespan());
    return plan;
  }
  plan.rounded_energy_j = selection->total_energy_j();
  if (options_.reclaim) selection = reclaimed(*selection);
  plan.reclaimed_energy_j = selection->total_energy_j();
  if (options_.reclaim && options_.exchange_effort > 0) {
    plan.exchanges = SlackReclaiming(graph_).exchange(*selection, visits(options_.exchange_effort));
  }
  write(*selection, plan);
  return plan;
}

}  // namespace

RoundedPlan round_plan(const PlanProblem& problem, const RoundingOptions& options) {
  if (!is_valid(problem)) {
    RoundedPlan plan;
    plan.status = RoundingStatus::kInvalid;
    return plan;
  }
  return PlanRounding(problem, options).run();
}

}  // namespace perseus
