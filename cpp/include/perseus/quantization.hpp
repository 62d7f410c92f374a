// The rim between floating point and the exact integers inside.
//
// Times become multiples of a decimal quantum 10^-k s, as fine as the longest path allows in a double's 53 bits,
// so that equal decimal measurements stay exactly equal and sums of them tie exactly. They are rounded up: a plan
// that meets a deadline in quanta meets it in seconds. Slopes (W) become multiples of a power of two, fine enough
// that rounding moves the energy of the whole pipeline by less than 1e-9 of its range.
#pragma once

#include <cstdint>
#include <span>

#include "perseus/integer.hpp"

namespace perseus {

class TimeQuantum {
 public:
  TimeQuantum() = default;

  // The finest decimal quantum with which `longest_s` stays below 4e15 quanta. Needs longest_s >= 0 and finite.
  static TimeQuantum for_longest_path(double longest_s);

  // Seconds to quanta, rounded up; a value within a few ulps of a whole number of quanta is that number.
  Time round_up(double seconds) const;

  // Quanta to seconds.
  double seconds(Time quanta) const;

  // Quanta (not necessarily whole) of a time in seconds.
  double quanta(double seconds) const;

  // k of 10^-k s.
  int exponent() const { return exponent_; }

 private:
  int exponent_ = 9;
  double per_second_ = 1e9;  // 10^k, or 10^-k where k is negative
};

}  // namespace perseus
