// Takes slower, cheaper choices as far as the slack of a timetable allows.
//
// Slack only shrinks while slower choices are taken, so a choice that does not fit never fits later (a smaller step of
// the same operation may), and a key kept in a heap only overestimates: it is refreshed when it comes to the top.
// Work is counted in visits of operations (Timetable::visits), not timed, so that equal inputs give equal results.
#pragma once

#include <cstdint>
#include <span>

#include "perseus/choice_selection.hpp"

namespace perseus {

class SlackReclaiming {
 public:
  explicit SlackReclaiming(const PrecedenceGraph& graph) : graph_(&graph) {}

  // Takes slower choices of all operations, best first by the rule, until none fits. Beyond `visits` it goes on by
  // sweeps, O(operations + dependencies) each.
  void reclaim_all(ChoiceSelection& selection, ReclaimRule rule, std::int64_t visits);

  // Exchanges: speeds one operation up by a few steps, cheapest first, and reclaims the slack that this frees around
  // it; keeps what lowers the total energy, undoes the rest. Ends when no exchange helps or `visits` are spent.
  // Returns how many were kept.
  std::int64_t exchange(ChoiceSelection& selection, std::int64_t visits);

 private:
  // Best first, of these operations only, until `stop` visits. Returns the energy saved, J; candidates are left in
  // heap_ if the visits ended it.
  double reclaim(ChoiceSelection& selection, std::span<const std::int32_t> operations, ReclaimRule rule,
                 std::int64_t stop);
  void reclaim_by_sweeps(ChoiceSelection& selection) const;
  bool try_exchange(ChoiceSelection& selection, std::int32_t v, std::int32_t faster, double least_j,
                    std::int64_t stop);
  bool improve_at(ChoiceSelection& selection, std::int32_t v, double least_j, std::int64_t stop);

  const PrecedenceGraph* graph_;
  // Work space, kept to save allocations.
  std::vector<Candidate> heap_;
  std::vector<std::int32_t> around_;
};

}  // namespace perseus
