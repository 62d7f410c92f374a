// Piecewise-linear convex decreasing curves of effective energy over duration, in integers.
//
// A curve has breakpoints t[0] < t[1] < ... < t[n-1] (quanta) and, between t[k-1] and t[k], the slope -s[k] with
// s[1] > s[2] > ... > s[n-1] > 0. Below t[0] the operation cannot run; beyond t[n-1] waiting is free. Its dual is
// the arc capacity function of the min cut: `levels` l[0] = infinite, l[k] = s[k], l[n] = 0, and a flow x with
// l[k+1] <= x <= l[k] supports the duration t[k].
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "perseus/integer.hpp"
#include "perseus/quantization.hpp"

namespace perseus {

// Curves as measured: breakpoints of curve c are offsets[c] .. offsets[c+1]-1, time increasing, energy decreasing.
struct MeasuredCurves {
  std::span<const std::int64_t> offsets;
  std::span<const double> times_s;
  std::span<const double> energies_j;

  std::size_t size() const { return offsets.empty() ? 0 : offsets.size() - 1; }
};

template <class Flow>
class CurveSet {
 public:
  // Rounds measured curves to integers: slopes are taken from the rounded times, neighbours whose slopes no longer
  // decrease are merged, and flat ends are dropped. `slope_unit_w` is the power of one unit of flow.
  static CurveSet from_measured(const MeasuredCurves& measured, const TimeQuantum& quantum, double slope_unit_w);

  // Adds a curve with the single breakpoint `time`: a dependency's latency or an operation of fixed time.
  std::int32_t add_fixed(Time time);

  std::size_t size() const { return first_.size(); }
  std::int32_t num_breakpoints(std::int32_t curve) const { return count_[static_cast<std::size_t>(curve)]; }
  // Index of the curve's first breakpoint in times() and levels(); the curve owns num_breakpoints + 1 places there.
  std::int32_t first(std::int32_t curve) const { return first_[static_cast<std::size_t>(curve)]; }
  Time min_time(std::int32_t curve) const { return times_[static_cast<std::size_t>(first(curve))]; }
  Time max_time(std::int32_t curve) const {
    return times_[static_cast<std::size_t>(first(curve) + num_breakpoints(curve) - 1)];
  }
  // Energy (J) at max_time, from the measurement.
  double energy_at_max_time_j(std::int32_t curve) const { return base_energy_j_[static_cast<std::size_t>(curve)]; }
  // Energy above that at max_time, at a duration in [min_time, max_time], in units of slope times quantum.
  Int128 energy_above_base(std::int32_t curve, Time duration) const;
  // The same where it is known that t[k] <= duration, and duration < t[k + 1] if there is one.
  Int128 energy_above_base(std::int32_t curve, std::int32_t k, Time duration) const {
    const auto index = static_cast<std::size_t>(first(curve) + k);
    return energy_[index] - Int128{levels_[index + 1]} * (duration - times_[index]);
  }

  const std::vector<Time>& times() const { return times_; }
  const std::vector<Flow>& levels() const { return levels_; }

 private:
  void append(std::span<const Time> times, std::span<const Flow> slopes, double base_energy_j);

  std::vector<std::int32_t> first_;      // per curve: index of t[0] and l[0]
  std::vector<std::int32_t> count_;      // per curve: n >= 1
  std::vector<double> base_energy_j_;    // per curve
  std::vector<Time> times_;              // per curve t[0..n-1], then one unused place
  std::vector<Flow> levels_;             // per curve l[0..n]
  std::vector<Int128> energy_;           // per curve: energy above base at t[0..n-1], then one unused place
};

// The power (W) of one unit of flow for these curves with these multiplicities (operations per curve), and whether
// 64-bit flows suffice.
struct SlopeUnit {
  double watts = 1.0;
  bool fits_64_bits = true;
  bool representable = true;  // false: not even 128 bits suffice
};
SlopeUnit choose_slope_unit(const MeasuredCurves& measured, std::span<const std::int64_t> multiplicity,
                            const TimeQuantum& quantum);

extern template class CurveSet<std::int64_t>;
extern template class CurveSet<Int128>;

}  // namespace perseus
