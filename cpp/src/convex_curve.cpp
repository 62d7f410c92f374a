#include "perseus/convex_curve.hpp"

#include <algorithm>
#include <cmath>

namespace perseus {

namespace {

// Rounding slopes to multiples of the unit moves the pipeline's energy by at most half a unit times the sum of all
// operations' time ranges; the first fraction is aimed at, the second is the coarsest accepted with 64-bit flows.
constexpr double kFinestFraction = 1e-12;
constexpr double kCoarsestFraction = 1e-9;

double floor_to_power_of_two(double value) { return std::exp2(std::floor(std::log2(value))); }
double ceil_to_power_of_two(double value) { return std::exp2(std::ceil(std::log2(value))); }

// A convex chain of integer breakpoints under construction.
template <class Flow>
struct Chain {
  std::vector<Time> times;
  std::vector<double> energies;
  std::vector<Flow> slopes;  // slopes[k] between vertices k and k+1

  void clear() {
    times.clear();
    energies.clear();
    slopes.clear();
  }
};

template <class Flow>
Flow rounded_slope(double energy_drop_j, double seconds, double unit_w) {
  return static_cast<Flow>(std::nearbyint(energy_drop_j / seconds / unit_w));
}

}  // namespace

template <class Flow>
void CurveSet<Flow>::append(std::span<const Time> times, std::span<const Flow> slopes, double base_energy_j) {
  first_.push_back(static_cast<std::int32_t>(times_.size()));
  count_.push_back(static_cast<std::int32_t>(times.size()));
  base_energy_j_.push_back(base_energy_j);
  times_.insert(times_.end(), times.begin(), times.end());
  times_.push_back(kNoLength);
  levels_.push_back(kInfiniteFlow<Flow>);
  levels_.insert(levels_.end(), slopes.begin(), slopes.end());
  levels_.push_back(Flow{0});
  const std::size_t start = energy_.size();
  energy_.resize(start + times.size() + 1, Int128{0});
  for (std::size_t k = times.size() - 1; k-- > 0;) {
    energy_[start + k] = energy_[start + k + 1] + Int128{slopes[k]} * (times[k + 1] - times[k]);
  }
}

template <class Flow>
std::int32_t CurveSet<Flow>::add_fixed(Time time) {
  append(std::span<const Time>(&time, 1), {}, 0.0);
  return static_cast<std::int32_t>(size()) - 1;
}

template <class Flow>
Int128 CurveSet<Flow>::energy_above_base(std::int32_t curve, Time duration) const {
  const auto begin = times_.begin() + first(curve);
  const auto end = begin + num_breakpoints(curve);
  const auto above = std::upper_bound(begin, end, duration);  // first breakpoint beyond the duration
  if (above == end) return 0;
  const auto index = static_cast<std::size_t>(above - times_.begin());
  return energy_[index] + Int128{levels_[index]} * (*above - duration);
}

template <class Flow>
CurveSet<Flow> CurveSet<Flow>::from_measured(const MeasuredCurves& measured, const TimeQuantum& quantum,
                                             double slope_unit_w) {
  CurveSet set;
  Chain<Flow> chain;
  for (std::size_t c = 0; c < measured.size(); ++c) {
    chain.clear();
    for (auto p = static_cast<std::size_t>(measured.offsets[c]); p < static_cast<std::size_t>(measured.offsets[c + 1]);
         ++p) {
      const Time time = quantum.round_up(measured.times_s[p]);
      const double energy = measured.energies_j[p];
      if (!chain.times.empty() && time <= chain.times.back()) {
        // Equal after rounding: the later point costs less energy and replaces the earlier one.
        chain.times.pop_back();
        chain.energies.pop_back();
        if (!chain.slopes.empty()) chain.slopes.pop_back();
      }
      // Pop vertices that are no longer convex once the slopes are whole numbers.
      while (!chain.times.empty()) {
        const Flow slope = rounded_slope<Flow>(chain.energies.back() - energy,
                                               quantum.seconds(time - chain.times.back()), slope_unit_w);
        if (chain.slopes.empty() || slope < chain.slopes.back()) {
          chain.slopes.push_back(slope);
          break;
        }
        chain.times.pop_back();
        chain.energies.pop_back();
        chain.slopes.pop_back();
      }
      chain.times.push_back(time);
      chain.energies.push_back(energy);
    }
    while (!chain.slopes.empty() && chain.slopes.back() <= 0) {
      chain.slopes.pop_back();
      chain.times.pop_back();
      chain.energies.pop_back();
    }
    set.append(chain.times, chain.slopes, chain.energies.back());
  }
  return set;
}

SlopeUnit choose_slope_unit(const MeasuredCurves& measured, std::span<const std::int64_t> multiplicity,
                            const TimeQuantum& quantum) {
  double energy_range_j = 0.0;
  double time_range_s = 0.0;
  double steepest_sum_w = 0.0;
  for (std::size_t c = 0; c < measured.size(); ++c) {
    const auto begin = static_cast<std::size_t>(measured.offsets[c]);
    const auto end = static_cast<std::size_t>(measured.offsets[c + 1]);
    if (end - begin < 2) continue;
    const auto weight = static_cast<double>(multiplicity[c]);
    energy_range_j += weight * (measured.energies_j[begin] - measured.energies_j[end - 1]);
    time_range_s += weight * (measured.times_s[end - 1] - measured.times_s[begin]);
    const double first_step_s =
        std::max(measured.times_s[begin + 1] - measured.times_s[begin], quantum.seconds(Time{1}));
    steepest_sum_w += weight * (measured.energies_j[begin] - measured.energies_j[begin + 1]) / first_step_s;
  }
  if (!(energy_range_j > 0.0) || !(time_range_s > 0.0)) return {};
  const double average_w = energy_range_j / time_range_s;
  const double finest_w = floor_to_power_of_two(average_w * kFinestFraction);
  const double unit_64_w = std::max(finest_w, ceil_to_power_of_two(std::ldexp(steepest_sum_w, -60)));
  if (unit_64_w <= average_w * kCoarsestFraction) return {unit_64_w, true, true};
  // Energies in units of slope times quantum, and the sum of all slopes, must stay below 2^124.
  const double most_energy_units = energy_range_j / finest_w / quantum.seconds(Time{1});
  const bool representable = most_energy_units < 0x1p124 && steepest_sum_w / finest_w < 0x1p124;
  return {finest_w, false, representable};
}

template class CurveSet<std::int64_t>;
template class CurveSet<Int128>;

}  // namespace perseus
