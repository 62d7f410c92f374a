#include "perseus/frontier.hpp"

#include <algorithm>
#include <utility>

namespace perseus {

void DurationHistory::start(std::vector<Time> durations) {
  *this = DurationHistory();
  current_ = durations;
  change_first_.push_back(0);
  copy_at_.push_back(0);
  copies_.push_back(std::move(durations));
}

std::vector<Time> DurationHistory::at(std::size_t index) const {
  const auto copy = static_cast<std::size_t>(std::upper_bound(copy_at_.begin(), copy_at_.end(), index) -
                                             copy_at_.begin()) - 1;
  std::vector<Time> durations = copies_[copy];
  const std::size_t next = copy_at_[copy] + 1;
  const std::size_t from = next < change_first_.size() ? change_first_[next] : changed_.size();
  const std::size_t to = index + 1 < change_first_.size() ? change_first_[index + 1] : changed_.size();
  for (std::size_t c = from; c < to; ++c) durations[static_cast<std::size_t>(changed_[c])] = new_duration_[c];
  return durations;
}

std::vector<double> DurationHistory::between(std::size_t index, double share) const {
  const std::vector<Time> here = at(index);
  std::vector<double> durations(here.begin(), here.end());
  if (share <= 0.0 || index + 1 >= num_breakpoints()) return durations;
  const std::size_t from = change_first_[index + 1];
  const std::size_t to = index + 2 < change_first_.size() ? change_first_[index + 2] : changed_.size();
  for (std::size_t c = from; c < to; ++c) {
    const auto i = static_cast<std::size_t>(changed_[c]);
    durations[i] += share * static_cast<double>(new_duration_[c] - here[i]);
  }
  return durations;
}

std::size_t DurationHistory::memory_bytes() const {
  return changed_.capacity() * sizeof(std::int32_t) + new_duration_.capacity() * sizeof(Time) +
         copies_.size() * current_.size() * sizeof(Time);
}

std::vector<double> Frontier::durations_between(std::size_t index, double share) const {
  std::vector<double> all(longest.begin(), longest.end());
  const std::vector<double> chosen = durations.between(index, share);
  for (std::size_t i = 0; i < chosen.size(); ++i) all[static_cast<std::size_t>(operation[i])] = chosen[i];
  return all;
}

}  // namespace perseus
