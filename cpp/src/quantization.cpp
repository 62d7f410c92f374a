#include "perseus/quantization.hpp"

#include <algorithm>
#include <cmath>

namespace perseus {

namespace {

constexpr double kMostQuanta = 4e15;
constexpr double kNearWhole = 4e-16;  // relative; about two ulps

}  // namespace

TimeQuantum TimeQuantum::for_longest_path(double longest_s) {
  TimeQuantum quantum;
  if (longest_s > 0.0) {
    quantum.exponent_ = std::clamp(static_cast<int>(std::floor(std::log10(kMostQuanta / longest_s))), -290, 300);
  }
  quantum.per_second_ = std::pow(10.0, std::abs(quantum.exponent_));
  return quantum;
}

double TimeQuantum::quanta(double seconds) const {
  return exponent_ >= 0 ? seconds * per_second_ : seconds / per_second_;
}

Time TimeQuantum::round_up(double seconds) const {
  const double exact = quanta(seconds);
  const double nearest = std::nearbyint(exact);
  if (std::abs(exact - nearest) <= kNearWhole * std::abs(exact)) return static_cast<Time>(nearest);
  return static_cast<Time>(std::ceil(exact));
}

double TimeQuantum::seconds(Time quanta) const {
  return exponent_ >= 0 ? static_cast<double>(quanta) / per_second_ : static_cast<double>(quanta) * per_second_;
}

}  // namespace perseus
