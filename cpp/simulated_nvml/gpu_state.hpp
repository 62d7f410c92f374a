// The state of one simulated GPU and its evolution in time.
//
// The state is plain data, because it lives in a file that several processes map. Nothing runs in the
// background: every access first calls `advance`, which integrates energy and kernel progress from the
// last access to now. Between two events (a clock change that takes effect, a kernel that ends, a tick of
// the energy counter) clock and power are constant, so the integration is exact.
//
// Invariants: energy_j never decreases; pending changes and queued kernels are in order of time; tick_energy_j
// is the exact energy at the last tick <= now_s.
#pragma once

#include <array>
#include <cstdint>

#include "gpu_model.hpp"

namespace perseus::simulated {

inline constexpr std::size_t max_pending = 16;   // clock changes on their way
inline constexpr std::size_t max_queue = 64;     // kernels launched and not yet finished
inline constexpr std::size_t max_finished = 128; // remembered ends of kernels
inline constexpr std::size_t max_history = 64;   // energy samples for the averaged power
inline constexpr std::size_t max_contexts = 32;  // processes with a context

/// NVML clocks event reasons used by the simulation.
inline constexpr std::uint64_t reason_idle = 0x1;
inline constexpr std::uint64_t reason_application_clocks = 0x2;
inline constexpr std::uint64_t reason_power_cap = 0x4;

struct ClockRange {
  std::uint32_t min_mhz;  ///< 0 and 0: not locked.
  std::uint32_t max_mhz;
};

struct PendingClocks {
  double effective_s;
  ClockRange range;
};

struct QueuedKernel {
  std::uint64_t ticket;
  double compute_left_s;  ///< Remaining clock-bound part, as time at the highest clock.
  double memory_left_s;   ///< Remaining memory-bound part. Both shrink together.
  double activity;        ///< With this launch's power noise in it.
  double start_s;         ///< When the kernel began; < 0 while it waits.
};

struct FinishedKernel {
  std::uint64_t ticket;
  double start_s;
  double end_s;
};

struct EnergySample {
  double time_s;
  double energy_j;
};

/// Settings that a test or user may change; all in one place so that a state can be described by them.
struct GpuOptions {
  double set_clock_latency_s = 0.010;  ///< From the call to the new clock.
  double set_clock_blocks = 1;         ///< The call returns when the clock is in effect (1) or at once (0).
  double counter_period_s = 0;         ///< Filled from the model.
  double counter_supported = 1;        ///< 0: the energy counter answers NotSupported.
  double counter_frozen = 0;           ///< 1: the counter stops at its present value.
  double time_noise = 0.002;           ///< Relative standard deviation of a kernel's time.
  double power_noise = 0.005;          ///< Relative standard deviation of a kernel's dynamic power.
  double reading_noise = 0.005;        ///< Relative standard deviation of a power reading.
  double lost = 0;                     ///< 1: every call about this GPU answers GpuIsLost.
  double permission_denied = 0;        ///< 1: every call that changes a setting answers NoPermission.
  double cap_mhz = 0;                  ///< > 0: the GPU doesn't hold clocks above this one.
  double cap_reason = 0x20;            ///< Event reason shown while capped (SwThermalSlowdown).
  double seed = 1;                     ///< Of all noise on this GPU.
};

struct GpuState {
  std::uint32_t model;  ///< Index in gpu_models().
  std::uint32_t index;  ///< Index of the GPU.
  double now_s;         ///< Simulated time up to which everything below holds.
  double energy_j;      ///< Exact energy since the state was made.
  double counter_zero_j;   ///< Exact energy at the counter's last reset.
  double tick_energy_j;    ///< Exact energy at the last counter tick.
  double tick_power_w;     ///< Power at the last tick.
  double next_tick_s;
  double frozen_counter_j; ///< What a frozen counter shows.
  double power_limit_w;
  double lowest_limit_asked_w;  ///< Smallest limit ever asked for, refused or not.
  double busy_s;           ///< Time spent on kernels.
  ClockRange lock;
  std::uint32_t pending_count;
  std::uint32_t queue_count;
  std::uint32_t history_count;  ///< Samples ever written; the ring holds the last max_history.
  std::uint32_t persistence_mode;
  std::uint64_t finished_count; ///< Kernels ever finished; the ring holds the last max_finished.
  std::uint64_t launched_count;
  std::uint64_t noise_count;    ///< Draws made so far.
  std::uint64_t set_clock_calls;
  GpuOptions options;
  std::array<PendingClocks, max_pending> pending;
  std::array<QueuedKernel, max_queue> queue;
  std::array<FinishedKernel, max_finished> finished;
  std::array<EnergySample, max_history> history;
  std::array<std::int32_t, max_contexts> contexts;  ///< Process ids; 0: free.
};

const GpuModel& model_of(const GpuState& gpu);

/// A fresh GPU at time 0.
GpuState make_gpu(std::uint32_t model, std::uint32_t index, double seed);

/// Bring the GPU to `to_s`; earlier times change nothing.
void advance(GpuState& gpu, double to_s);

/// Core clock at this moment.
std::uint32_t current_clock_mhz(const GpuState& gpu);

/// Power at this moment.
double current_power_w(const GpuState& gpu);

/// NVML event reasons at this moment.
std::uint64_t current_reasons(const GpuState& gpu);

/// The energy counter, as of its last tick.
double counter_j(const GpuState& gpu);

/// Mean power over the last second (or since the start).
double average_power_w(const GpuState& gpu);

/// Order a clock change; returns when it takes effect, or a negative time when too many are on their way.
double order_clocks(GpuState& gpu, ClockRange range);

/// Queue a kernel; returns its ticket (> 0), or 0 when the queue is full.
std::uint64_t launch(GpuState& gpu, const KernelCost& cost);

/// Time until the kernel ends if nothing changes; 0 when it has ended. Negative: no such ticket.
double time_left_s(const GpuState& gpu, std::uint64_t ticket);

/// A standard normal draw of this GPU's seeded noise.
double draw_normal(GpuState& gpu);

}  // namespace perseus::simulated
