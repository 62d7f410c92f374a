#include "perseus/choice_selection.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace perseus {

namespace {

std::size_t at(std::int32_t index) { return static_cast<std::size_t>(index); }

}  // namespace

std::int32_t ChoiceMenus::slowest_within(std::int32_t v, Time limit) const {
  const auto begin = time.begin() + first[at(v)];
  const auto end = time.begin() + last[at(v)] + 1;
  const auto within = static_cast<std::int32_t>(std::upper_bound(begin, end, limit) - begin);
  return first[at(v)] + std::max(within - 1, 0);
}

std::int32_t ChoiceMenus::hull_at_or_below(std::int32_t entry) const {
  while (on_hull[at(entry)] == 0) --entry;
  return entry;
}

std::int32_t ChoiceMenus::hull_at_or_above(std::int32_t entry) const {
  while (on_hull[at(entry)] == 0) ++entry;
  return entry;
}

void ChoiceMenus::mark_hulls(std::span<const std::int64_t> offsets) {
  on_hull.assign(time.size(), 0);
  std::vector<std::size_t> hull;
  // Whether the middle one of three entries is on or above the line through the others.
  const auto above = [this](std::size_t a, std::size_t b, std::size_t c) {
    const auto first_step = static_cast<double>(time[b] - time[a]);
    const auto second_step = static_cast<double>(time[c] - time[b]);
    return (energy_j[b] - energy_j[a]) * second_step >= (energy_j[c] - energy_j[b]) * first_step;
  };
  for (std::size_t menu = 0; menu + 1 < offsets.size(); ++menu) {
    hull.clear();
    for (auto entry = static_cast<std::size_t>(offsets[menu]); entry < static_cast<std::size_t>(offsets[menu + 1]);
         ++entry) {
      while (hull.size() > 1 && above(hull[hull.size() - 2], hull.back(), entry)) hull.pop_back();
      hull.push_back(entry);
    }
    for (const std::size_t entry : hull) on_hull[entry] = 1;
  }
}

void ChoiceSelection::reset(std::vector<std::int32_t> entries, Time deadline) {
  entry_ = std::move(entries);
  journaling_ = false;
  std::vector<Time> durations(entry_.size());
  for (std::size_t v = 0; v < durations.size(); ++v) durations[v] = menus_->time[at(entry_[v])];
  timetable_.reset(durations, deadline);
}

void ChoiceSelection::choose(std::int32_t v, std::int32_t entry) {
  if (journaling_) journal_.push_back({v, entry_[at(v)]});
  entry_[at(v)] = entry;
  timetable_.set_duration(v, menus_->time[at(entry)]);
}

double ChoiceSelection::total_energy_j() const {
  double total_j = 0.0;
  for (const std::int32_t entry : entry_) total_j += menus_->energy_j[at(entry)];
  return total_j;
}

bool ChoiceSelection::fits(const Candidate& candidate) const {
  return menus_->time[at(candidate.entry)] <= timetable_.duration(candidate.v) + timetable_.slack(candidate.v);
}

std::optional<Candidate> ChoiceSelection::best_slower(std::int32_t v, ReclaimRule rule) const {
  const std::int32_t now = entry(v);
  if (now == menus_->last[at(v)]) return std::nullopt;
  const Time duration = timetable_.duration(v);
  const Time room = duration + timetable_.slack(v);
  if (menus_->time[at(now) + 1] > room) return std::nullopt;
  const std::int32_t slowest = menus_->slowest_within(v, room);
  if (rule == ReclaimRule::kSaving) return Candidate{energy_j(v) - menus_->energy_j[at(slowest)], v, slowest};
  Candidate best{-1.0, v, now};
  for (std::int32_t entry = now + 1; entry <= slowest; ++entry) {
    const double saving = energy_j(v) - menus_->energy_j[at(entry)];
    const auto longer = static_cast<double>(menus_->time[at(entry)] - duration);
    const double key = longer > 0.0 ? saving / longer : std::numeric_limits<double>::infinity();
    if (key >= best.key) best = {key, v, entry};
  }
  return best;
}

void ChoiceSelection::open_journal() {
  journaling_ = true;
  journal_.clear();
  timetable_.open_journal();
}

void ChoiceSelection::keep_changes() {
  journaling_ = false;
  timetable_.keep_changes();
}

void ChoiceSelection::undo_changes() {
  journaling_ = false;
  for (auto change = journal_.rbegin(); change != journal_.rend(); ++change) entry_[at(change->v)] = change->before;
  timetable_.undo_changes();
}

}  // namespace perseus
