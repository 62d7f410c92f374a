#include "gpu_state.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

namespace perseus::simulated {
namespace {

constexpr double history_step_s = 0.025;
constexpr double average_window_s = 1.0;

bool has_context(const GpuState& gpu) {
  return std::any_of(gpu.contexts.begin(), gpu.contexts.end(), [](std::int32_t pid) { return pid != 0; });
}

bool busy(const GpuState& gpu) { return gpu.queue_count > 0; }

/// The clock that the lock (or the lack of one) asks for, before throttling.
std::uint32_t wanted_clock_mhz(const GpuState& gpu) {
  const GpuModel& model = model_of(gpu);
  if (gpu.lock.max_mhz > 0) return busy(gpu) ? gpu.lock.max_mhz : gpu.lock.min_mhz;
  return busy(gpu) || has_context(gpu) ? model.max_mhz : model.idle_mhz;
}

bool capped(const GpuState& gpu) {
  return gpu.options.cap_mhz > 0 && wanted_clock_mhz(gpu) > gpu.options.cap_mhz;
}

std::uint32_t clock_before_power_cap_mhz(const GpuState& gpu) {
  const std::uint32_t wanted = wanted_clock_mhz(gpu);
  if (!capped(gpu)) return wanted;
  return snap_down_mhz(model_of(gpu), static_cast<std::uint32_t>(gpu.options.cap_mhz));
}

/// Kernel work done per second at a clock, as a share of the kernel's time at that clock.
double kernel_left_s(const GpuModel& model, const QueuedKernel& kernel, double mhz) {
  return kernel.compute_left_s * (model.max_mhz / mhz) + kernel.memory_left_s;
}

void start_next_kernel(GpuState& gpu) {
  if (busy(gpu) && gpu.queue[0].start_s < 0) gpu.queue[0].start_s = gpu.now_s;
}

void finish_kernel(GpuState& gpu) {
  const QueuedKernel& done = gpu.queue[0];
  gpu.finished[gpu.finished_count % max_finished] = {done.ticket, done.start_s, gpu.now_s};
  ++gpu.finished_count;
  --gpu.queue_count;
  std::move(gpu.queue.begin() + 1, gpu.queue.begin() + 1 + gpu.queue_count, gpu.queue.begin());
  start_next_kernel(gpu);
}

void apply_pending(GpuState& gpu) {
  gpu.lock = gpu.pending[0].range;
  --gpu.pending_count;
  std::move(gpu.pending.begin() + 1, gpu.pending.begin() + 1 + gpu.pending_count, gpu.pending.begin());
}

void remember_energy(GpuState& gpu) {
  const auto last = (gpu.history_count + max_history - 1) % max_history;
  if (gpu.history_count > 0 && gpu.now_s - gpu.history[last].time_s < history_step_s) return;
  gpu.history[gpu.history_count % max_history] = {gpu.now_s, gpu.energy_j};
  ++gpu.history_count;
}

void tick(GpuState& gpu) {
  gpu.tick_energy_j = gpu.energy_j;
  gpu.tick_power_w = current_power_w(gpu);
  gpu.next_tick_s += gpu.options.counter_period_s;
  remember_energy(gpu);
}

/// Let `step_s` pass at constant clock and power.
void integrate(GpuState& gpu, double step_s) {
  gpu.energy_j += current_power_w(gpu) * step_s;
  gpu.now_s += step_s;
  if (!busy(gpu)) return;
  gpu.busy_s += step_s;
  QueuedKernel& kernel = gpu.queue[0];
  const double left = kernel_left_s(model_of(gpu), kernel, current_clock_mhz(gpu));
  const double keep = left > step_s ? 1.0 - step_s / left : 0.0;
  kernel.compute_left_s *= keep;
  kernel.memory_left_s *= keep;
}

/// A long quiet time is skipped in one step: all but the last tick would be overwritten.
void skip_quiet_ticks(GpuState& gpu, double to_s) {
  if (busy(gpu) || gpu.pending_count > 0) return;
  const double quiet_s = to_s - gpu.now_s - 2 * average_window_s;
  const double ticks = std::floor(quiet_s / gpu.options.counter_period_s);
  if (ticks < 1) return;
  const double skipped_s = ticks * gpu.options.counter_period_s;
  gpu.energy_j += current_power_w(gpu) * skipped_s;
  gpu.tick_energy_j = gpu.energy_j;
  gpu.now_s += skipped_s;
  gpu.next_tick_s += skipped_s;
}

std::uint64_t mix(std::uint64_t x) {  // splitmix64
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

double draw_uniform(GpuState& gpu) {
  const auto seed = static_cast<std::uint64_t>(gpu.options.seed) * 1000003ULL + gpu.index;
  const std::uint64_t bits = mix(mix(seed) ^ ++gpu.noise_count);
  return (static_cast<double>(bits >> 11) + 0.5) * 0x1.0p-53;
}

}  // namespace

const GpuModel& model_of(const GpuState& gpu) { return gpu_models()[gpu.model]; }

GpuState make_gpu(std::uint32_t model, std::uint32_t index, double seed) {
  GpuState gpu{};
  gpu.model = model;
  gpu.index = index;
  gpu.options.seed = seed;
  gpu.options.counter_period_s = gpu_models()[model].counter_period_s;
  gpu.power_limit_w = gpu_models()[model].default_limit_w;
  gpu.lowest_limit_asked_w = std::numeric_limits<double>::infinity();
  gpu.persistence_mode = 1;
  // Each GPU ticks at its own phase, as real boards do.
  gpu.next_tick_s = gpu.options.counter_period_s * draw_uniform(gpu);
  gpu.tick_power_w = current_power_w(gpu);
  return gpu;
}

double draw_normal(GpuState& gpu) {
  const double radius = std::sqrt(-2.0 * std::log(draw_uniform(gpu)));
  return radius * std::cos(2.0 * std::numbers::pi * draw_uniform(gpu));
}

std::uint32_t current_clock_mhz(const GpuState& gpu) {
  const std::uint32_t clock = clock_before_power_cap_mhz(gpu);
  if (!busy(gpu)) return clock;
  return throttled_clock_mhz(model_of(gpu), clock, gpu.queue[0].activity, gpu.power_limit_w);
}

double current_power_w(const GpuState& gpu) {
  const GpuModel& model = model_of(gpu);
  if (busy(gpu)) return busy_power_w(model, current_clock_mhz(gpu), gpu.queue[0].activity);
  return has_context(gpu) ? model.blocking_w : model.idle_w;
}

std::uint64_t current_reasons(const GpuState& gpu) {
  std::uint64_t reasons = 0;
  if (!busy(gpu) && !has_context(gpu)) reasons |= reason_idle;
  if (gpu.lock.max_mhz > 0) reasons |= reason_application_clocks;
  if (capped(gpu)) reasons |= static_cast<std::uint64_t>(gpu.options.cap_reason);
  if (busy(gpu) && current_clock_mhz(gpu) < clock_before_power_cap_mhz(gpu)) reasons |= reason_power_cap;
  return reasons;
}

double counter_j(const GpuState& gpu) {
  if (gpu.options.counter_frozen != 0) return gpu.frozen_counter_j;
  return std::max(0.0, gpu.tick_energy_j - gpu.counter_zero_j);
}

double average_power_w(const GpuState& gpu) {
  const std::size_t kept = std::min<std::size_t>(gpu.history_count, max_history);
  for (std::size_t back = 0; back < kept; ++back) {
    const EnergySample& sample = gpu.history[(gpu.history_count - 1 - back) % max_history];
    const bool far_enough = gpu.now_s - sample.time_s >= average_window_s || back + 1 == kept;
    if (far_enough && gpu.now_s > sample.time_s) return (gpu.energy_j - sample.energy_j) / (gpu.now_s - sample.time_s);
  }
  return current_power_w(gpu);
}

double order_clocks(GpuState& gpu, ClockRange range) {
  if (gpu.pending_count == max_pending) return -1.0;
  const double after = gpu.pending_count > 0 ? gpu.pending[gpu.pending_count - 1].effective_s : gpu.now_s;
  const double effective = std::max(after, gpu.now_s) + gpu.options.set_clock_latency_s;
  gpu.pending[gpu.pending_count++] = {effective, range};
  ++gpu.set_clock_calls;
  return effective;
}

std::uint64_t launch(GpuState& gpu, const KernelCost& cost) {
  if (gpu.queue_count == max_queue) return 0;
  const double work = cost.work_s * std::max(0.1, 1.0 + gpu.options.time_noise * draw_normal(gpu));
  const double activity = cost.activity * std::max(0.1, 1.0 + gpu.options.power_noise * draw_normal(gpu));
  const std::uint64_t ticket = ++gpu.launched_count;
  gpu.queue[gpu.queue_count++] = {ticket, work * (1.0 - cost.memory_share), work * cost.memory_share, activity, -1.0};
  start_next_kernel(gpu);
  return ticket;
}

double time_left_s(const GpuState& gpu, std::uint64_t ticket) {
  if (ticket == 0 || ticket > gpu.launched_count) return -1.0;
  double left = 0;
  for (std::uint32_t i = 0; i < gpu.queue_count; ++i) {
    const QueuedKernel& kernel = gpu.queue[i];
    const std::uint32_t clock =
        throttled_clock_mhz(model_of(gpu), clock_before_power_cap_mhz(gpu), kernel.activity, gpu.power_limit_w);
    left += kernel_left_s(model_of(gpu), kernel, clock);
    if (kernel.ticket == ticket) return left;
  }
  return 0;
}

void advance(GpuState& gpu, double to_s) {
  while (gpu.now_s < to_s) {
    skip_quiet_ticks(gpu, to_s);
    const double clock_s = gpu.pending_count > 0 ? gpu.pending[0].effective_s : to_s;
    const double left_s = busy(gpu) ? kernel_left_s(model_of(gpu), gpu.queue[0], current_clock_mhz(gpu)) : to_s;
    const double end_s = gpu.now_s + left_s;
    const double next_s = std::min({to_s, clock_s, busy(gpu) ? end_s : to_s, gpu.next_tick_s});
    integrate(gpu, std::max(0.0, next_s - gpu.now_s));
    gpu.now_s = std::max(gpu.now_s, next_s);
    if (busy(gpu) && next_s >= end_s - 1e-12) finish_kernel(gpu);
    if (gpu.pending_count > 0 && next_s >= clock_s) apply_pending(gpu);
    if (next_s >= gpu.next_tick_s) tick(gpu);
  }
}

}  // namespace perseus::simulated
