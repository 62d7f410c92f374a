// One choice per operation, and what follows from it: the timetable and the energy.
//
// Entries of all menus are counted through: an operation's entries are first to last, times not decreasing and energies
// strictly decreasing. Operations go by their number in the PrecedenceGraph.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "perseus/integer.hpp"
#include "perseus/timetable.hpp"

namespace perseus {

struct ChoiceMenus {
  std::vector<Time> time;            // per entry, quanta
  std::span<const double> energy_j;  // per entry, effective
  std::vector<std::uint8_t> on_hull; // per entry: whether on the lower convex hull of its menu
  std::vector<std::int32_t> first;   // per operation: its fastest entry
  std::vector<std::int32_t> last;    // per operation: its slowest entry

  // The slowest entry of v that takes no longer than `limit`; its fastest one if all do.
  std::int32_t slowest_within(std::int32_t v, Time limit) const;
  // The nearest entry on the hull that is not slower, or not faster.
  std::int32_t hull_at_or_below(std::int32_t entry) const;
  std::int32_t hull_at_or_above(std::int32_t entry) const;
  // Fills on_hull; menu m holds entries offsets[m] to offsets[m+1].
  void mark_hulls(std::span<const std::int64_t> offsets);
};

// How a slower choice is ranked.
enum class ReclaimRule {
  kSaving,         // J
  kSavingPerTime,  // J per quantum of slack used
};

// A slower choice of an operation; `key` is the rule's value, larger is better.
struct Candidate {
  double key;
  std::int32_t v;
  std::int32_t entry;
};

class ChoiceSelection {
 public:
  // Graph and menus must outlive the selection and its copies.
  ChoiceSelection(const PrecedenceGraph& graph, const ChoiceMenus& menus) : menus_(&menus), timetable_(graph) {}

  void reset(std::vector<std::int32_t> entries, Time deadline);
  // Changes one choice and the timetable with it.
  void choose(std::int32_t v, std::int32_t entry);

  const ChoiceMenus& menus() const { return *menus_; }
  const Timetable& timetable() const { return timetable_; }
  const std::vector<std::int32_t>& entries() const { return entry_; }
  std::int32_t entry(std::int32_t v) const { return entry_[static_cast<std::size_t>(v)]; }
  double energy_j(std::int32_t v) const { return menus_->energy_j[static_cast<std::size_t>(entry(v))]; }
  double total_energy_j() const;

  // The best slower entry that fits into the slack of v, if any does.
  std::optional<Candidate> best_slower(std::int32_t v, ReclaimRule rule) const;
  bool fits(const Candidate& candidate) const;

  // As in Timetable, for the choices too.
  void open_journal();
  void keep_changes();
  void undo_changes();

 private:
  struct Change {
    std::int32_t v;
    std::int32_t before;
  };

  const ChoiceMenus* menus_;
  Timetable timetable_;
  std::vector<std::int32_t> entry_;  // per operation
  bool journaling_ = false;
  std::vector<Change> journal_;
};

}  // namespace perseus
