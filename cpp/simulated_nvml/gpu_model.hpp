// The physics of one simulated GPU: what a kernel costs in time and power at a core clock.
//
// Definitions. x = f / f_max is the relative core clock.
//
//   voltage      V(f) / V(f_max) = v_floor                                          for x <= knee
//                                = v_floor + (1 - v_floor) * (x - knee) / (1 - knee)  above it
//   busy power   P(f) = static + activity * dynamic * (V(f)/V(f_max))^2 * x           (C V^2 f)
//   time         t(f) = work * ((1 - memory_share) / x + memory_share)
//
// A kernel is described by its time at f_max (`work_s`), the share of that time bound by memory (which
// the core clock does not speed up) and its activity (1 = as power-hungry as a large matrix product).
// With a context but nothing to run (waiting for another rank) the GPU draws the *blocking power*; with
// neither, its idle power.
//
// Throttling. If P(f) passes the power limit, the GPU runs at the highest supported clock that fits.
//
// All functions are pure; units are in the names.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace perseus::simulated {

/// One GPU product. The source of each number stands beside it in gpu_model.cpp.
struct GpuModel {
  std::string_view key;        ///< What a user types: "a100".
  std::string_view name;       ///< What nvmlDeviceGetName says.
  std::uint32_t min_mhz;       ///< Lowest supported core clock.
  std::uint32_t max_mhz;       ///< Highest supported core clock.
  std::uint32_t step_khz;      ///< Distance of two supported clocks; the list is rounded down to MHz.
  std::uint32_t idle_mhz;      ///< Core clock without a context.
  std::uint32_t memory_mhz;    ///< The one supported memory clock.
  double idle_w;               ///< Power without a context.
  double blocking_w;           ///< Power with a context and nothing to run.
  double static_w;             ///< Part of the busy power that doesn't depend on the clock.
  double dynamic_w;            ///< C V^2 f at the highest clock for activity 1.
  double voltage_floor;        ///< V at and below the knee, relative to V at the highest clock.
  double voltage_knee;         ///< Relative clock up to which the voltage stays at its floor.
  double min_limit_w;          ///< Lowest power limit that the driver takes.
  double max_limit_w;          ///< Highest one.
  double default_limit_w;      ///< The limit after a driver load.
  double counter_period_s;     ///< Time between two updates of the energy counter.
  bool averages_power;         ///< nvmlDeviceGetPowerUsage is a 1 s average (Ampere and newer but GA100).
  std::uint32_t capability_major;  ///< CUDA compute capability.
  std::uint32_t capability_minor;
  std::uint64_t memory_bytes;  ///< Device memory.
};

/// What a kernel asks of the GPU.
struct KernelCost {
  double work_s;        ///< Time at the highest clock, > 0.
  double memory_share;  ///< Share of work_s that the core clock doesn't change, in [0, 1].
  double activity;      ///< Share of the dynamic power, in [0, 1.5].
};

/// Models by key, in the order of their release.
const std::array<GpuModel, 4>& gpu_models();

/// The index in gpu_models() of a key, or -1.
int find_gpu_model(std::string_view key);

/// Supported core clocks in MHz, highest first, as NVML lists them.
std::vector<std::uint32_t> supported_clocks_mhz(const GpuModel& model);

/// The highest supported clock <= `mhz`, or the lowest supported one.
std::uint32_t snap_down_mhz(const GpuModel& model, std::uint32_t mhz);

double relative_voltage(const GpuModel& model, double mhz);
double busy_power_w(const GpuModel& model, double mhz, double activity);

/// Time of a kernel at a clock.
double kernel_time_s(const GpuModel& model, double mhz, const KernelCost& cost);

/// The highest supported clock <= `wanted_mhz` whose busy power fits `limit_w` (or the lowest clock).
std::uint32_t throttled_clock_mhz(const GpuModel& model, std::uint32_t wanted_mhz, double activity, double limit_w);

}  // namespace perseus::simulated
