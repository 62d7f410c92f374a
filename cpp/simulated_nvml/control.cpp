#include "control.hpp"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <string>
#include <vector>

#include "shared_state.hpp"

#define PERSEUS_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using namespace perseus::simulated;

constexpr double wait_slice_s = 0.001;  // real time between two looks at a running kernel
constexpr double least_step_s = 1e-9;   // virtual time always moves on

struct NamedOption {
  std::string_view name;
  double GpuOptions::*member;
};

constexpr NamedOption named_options[] = {
    {"set_clock_latency_s", &GpuOptions::set_clock_latency_s},
    {"set_clock_blocks", &GpuOptions::set_clock_blocks},
    {"counter_period_s", &GpuOptions::counter_period_s},
    {"counter_supported", &GpuOptions::counter_supported},
    {"counter_frozen", &GpuOptions::counter_frozen},
    {"time_noise", &GpuOptions::time_noise},
    {"power_noise", &GpuOptions::power_noise},
    {"reading_noise", &GpuOptions::reading_noise},
    {"lost", &GpuOptions::lost},
    {"permission_denied", &GpuOptions::permission_denied},
    {"cap_mhz", &GpuOptions::cap_mhz},
    {"cap_reason", &GpuOptions::cap_reason},
    {"seed", &GpuOptions::seed},
};

struct NamedQuantity {
  std::string_view name;
  double (*read)(const GpuState&);
};

constexpr NamedQuantity named_quantities[] = {
    {"energy_j", [](const GpuState& g) { return g.energy_j; }},
    {"counter_j", [](const GpuState& g) { return counter_j(g); }},
    {"power_w", [](const GpuState& g) { return current_power_w(g); }},
    {"clock_mhz", [](const GpuState& g) { return static_cast<double>(current_clock_mhz(g)); }},
    {"locked_min_mhz", [](const GpuState& g) { return static_cast<double>(g.lock.min_mhz); }},
    {"locked_max_mhz", [](const GpuState& g) { return static_cast<double>(g.lock.max_mhz); }},
    {"pending_changes", [](const GpuState& g) { return static_cast<double>(g.pending_count); }},
    {"power_limit_w", [](const GpuState& g) { return g.power_limit_w; }},
    {"lowest_limit_asked_w", [](const GpuState& g) { return g.lowest_limit_asked_w; }},
    {"set_clock_calls", [](const GpuState& g) { return static_cast<double>(g.set_clock_calls); }},
    {"busy_s", [](const GpuState& g) { return g.busy_s; }},
    {"blocking_power_w", [](const GpuState& g) { return model_of(g).blocking_w; }},
    {"idle_power_w", [](const GpuState& g) { return model_of(g).idle_w; }},
};

bool valid(unsigned gpu) { return machine() != nullptr && gpu < machine()->gpu_count(); }

void set_option(GpuState& gpu, double GpuOptions::*member, double value) {
  if (member == &GpuOptions::counter_frozen) gpu.frozen_counter_j = counter_j(gpu);
  if (member == &GpuOptions::counter_period_s) gpu.next_tick_s = gpu.now_s + value;
  gpu.options.*member = value;
}

bool dead(std::int32_t pid) { return pid != 0 && kill(pid, 0) != 0 && errno == ESRCH; }

/// "a100" or "a100,v100" -> one model index a GPU; empty when a key is unknown.
std::vector<std::uint32_t> parse_models(const std::string& keys, unsigned count) {
  std::vector<std::uint32_t> models;
  for (std::size_t at = 0; at <= keys.size();) {
    const std::size_t comma = std::min(keys.find(',', at), keys.size());
    const int model = find_gpu_model(keys.substr(at, comma - at));
    if (model < 0) return {};
    models.push_back(static_cast<std::uint32_t>(model));
    at = comma + 1;
  }
  models.resize(count, models.back());
  return models;
}

int read_times(unsigned gpu, std::int64_t ticket, double* start_s, double* end_s) {
  return machine()->transact(gpu, [&](GpuState& state) {
    for (const FinishedKernel& done : state.finished) {
      if (done.ticket != static_cast<std::uint64_t>(ticket)) continue;
      if (start_s != nullptr) *start_s = done.start_s;
      if (end_s != nullptr) *end_s = done.end_s;
      return 0;
    }
    return -2;  // ended too long ago to be remembered
  });
}

}  // namespace

PERSEUS_EXPORT int perseus_sim_create(const char* path, const char* models, unsigned count, double time_scale, double seed) {
  if (count == 0 || count > max_gpus || !(time_scale >= 0)) return -1;
  const std::vector<std::uint32_t> indices = parse_models(models, count);
  if (indices.empty()) return -2;
  Machine::Setup setup{{}, count, time_scale, seed};
  std::copy_n(indices.begin(), count, setup.models.begin());
  return Machine::create(path, setup) == 0 ? 0 : -3;
}

PERSEUS_EXPORT int perseus_sim_attach(const char* path) { return attach(path) ? 0 : -1; }

PERSEUS_EXPORT double perseus_sim_now() {
  return machine() == nullptr ? std::numeric_limits<double>::quiet_NaN() : machine()->now_s();
}

PERSEUS_EXPORT int perseus_sim_sleep(double seconds) {
  if (machine() == nullptr) return -1;
  machine()->sleep_until(machine()->now_s() + std::max(seconds, 0.0));
  return 0;
}

PERSEUS_EXPORT int perseus_sim_context(unsigned gpu, int open) {
  if (!valid(gpu)) return -1;
  return machine()->transact(gpu, [&](GpuState& state) {
    const auto own = static_cast<std::int32_t>(getpid());
    auto& contexts = state.contexts;
    std::replace_if(contexts.begin(), contexts.end(), [own](std::int32_t pid) { return pid == own || dead(pid); }, 0);
    if (open == 0) return 0;
    const auto room = std::find(contexts.begin(), contexts.end(), 0);
    if (room == contexts.end()) return -2;
    *room = own;
    return 0;
  });
}

PERSEUS_EXPORT std::int64_t perseus_sim_launch(unsigned gpu, double work_s, double memory_share, double activity) {
  const bool sound = work_s > 0 && memory_share >= 0 && memory_share <= 1 && activity >= 0 && activity <= 1.5;
  if (!valid(gpu) || !sound) return -1;
  const KernelCost cost{work_s, memory_share, activity};
  const std::uint64_t ticket = machine()->transact(gpu, [&](GpuState& state) {
    return state.options.lost != 0 ? 0 : launch(state, cost);
  });
  return ticket == 0 ? -2 : static_cast<std::int64_t>(ticket);
}

PERSEUS_EXPORT double perseus_sim_time_left(unsigned gpu, std::int64_t ticket) {
  if (!valid(gpu)) return -1;
  return machine()->transact(gpu, [&](GpuState& state) { return time_left_s(state, static_cast<std::uint64_t>(ticket)); });
}

PERSEUS_EXPORT int perseus_sim_wait(unsigned gpu, std::int64_t ticket, double* start_s, double* end_s) {
  for (double left = perseus_sim_time_left(gpu, ticket); left != 0; left = perseus_sim_time_left(gpu, ticket)) {
    if (left < 0) return -1;
    const double slice_s = machine()->is_virtual() ? left + least_step_s : std::min(left + 1e-6, wait_slice_s);
    machine()->sleep_until(machine()->now_s() + slice_s);
  }
  return read_times(gpu, ticket, start_s, end_s);
}

PERSEUS_EXPORT double perseus_sim_true_time(unsigned gpu, double mhz, double work_s, double memory_share) {
  if (!valid(gpu)) return std::numeric_limits<double>::quiet_NaN();
  return machine()->transact(
      gpu, [&](GpuState& state) { return kernel_time_s(model_of(state), mhz, {work_s, memory_share, 1.0}); });
}

PERSEUS_EXPORT double perseus_sim_true_power(unsigned gpu, double mhz, double activity) {
  if (!valid(gpu)) return std::numeric_limits<double>::quiet_NaN();
  return machine()->transact(gpu, [&](GpuState& state) { return busy_power_w(model_of(state), mhz, activity); });
}

PERSEUS_EXPORT int perseus_sim_set(unsigned gpu, const char* name, double value) {
  if (!valid(gpu)) return -1;
  for (const NamedOption& option : named_options) {
    if (option.name != name) continue;
    machine()->transact(gpu, [&](GpuState& state) { set_option(state, option.member, value); });
    return 0;
  }
  return -2;
}

PERSEUS_EXPORT double perseus_sim_get(unsigned gpu, const char* name) {
  if (!valid(gpu)) return std::numeric_limits<double>::quiet_NaN();
  return machine()->transact(gpu, [&](GpuState& state) {
    for (const NamedOption& option : named_options) {
      if (option.name == name) return state.options.*option.member;
    }
    for (const NamedQuantity& quantity : named_quantities) {
      if (quantity.name == name) return quantity.read(state);
    }
    return std::numeric_limits<double>::quiet_NaN();
  });
}

PERSEUS_EXPORT int perseus_sim_reload(unsigned gpu) {
  if (!valid(gpu)) return -1;
  machine()->transact(gpu, [](GpuState& state) {
    state.counter_zero_j = state.tick_energy_j;
    state.lock = {0, 0};
    state.pending_count = 0;
    state.power_limit_w = model_of(state).default_limit_w;
  });
  return 0;
}

PERSEUS_EXPORT int perseus_sim_fault(const char* function, int gpu, int code, long skip, long times) {
  if (machine() == nullptr) return -1;
  return machine()->add_fault(function, gpu, code, skip, times) ? 0 : -2;
}

PERSEUS_EXPORT int perseus_sim_clear_faults() {
  if (machine() == nullptr) return -1;
  machine()->clear_faults();
  return 0;
}

PERSEUS_EXPORT std::int64_t perseus_sim_call_count() {
  return machine() == nullptr ? -1 : static_cast<std::int64_t>(machine()->call_count());
}

PERSEUS_EXPORT int perseus_sim_call(std::int64_t number, double* time_s, std::int32_t* fields6) {
  if (machine() == nullptr || number < 0 || number >= perseus_sim_call_count()) return -1;
  const SettingCall call = machine()->call(static_cast<std::uint64_t>(number));
  *time_s = call.time_s;
  const std::int32_t fields[] = {call.pid,  call.gpu, call.kind, call.code, static_cast<std::int32_t>(call.first),
                                 static_cast<std::int32_t>(call.second)};
  std::copy(std::begin(fields), std::end(fields), fields6);
  return 0;
}
