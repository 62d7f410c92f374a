// The functions of libnvidia-ml.so.1 that the simulated driver offers, with NVML's names and signatures.
//
// A handle holds the number of the initialisation that gave it, so that a handle from before a fork (or a
// shutdown) is refused rather than acted on.

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>

#include "nvml_abi.hpp"
#include "shared_state.hpp"

#define PERSEUS_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using namespace perseus::nvml;
using perseus::simulated::ClockRange;
using perseus::simulated::GpuModel;
using perseus::simulated::GpuState;
using perseus::simulated::Machine;
using perseus::simulated::machine;
using perseus::simulated::model_of;

constexpr std::uintptr_t handle_mark = 0x5053;

/// Who initialised the library: a forked child has to do it again.
/// Reads are lock-free, so that a child forked while another thread was inside is not stuck.
struct Session {
  std::mutex mutex;                          ///< Guards the writes.
  std::atomic<int> pid{0};                   ///< The process that initialised last.
  int references = 0;                        ///< Initialisations not yet shut down.
  std::uintptr_t generation = 0;             ///< Initialisations ever made.
  std::atomic<std::uintptr_t> live{0};       ///< The generation that handles must have; 0: none.
};

Session& session() {
  static auto* only = new Session();
  return *only;
}

std::uintptr_t live_generation() {
  const Session& s = session();
  return s.pid.load() == getpid() ? s.live.load() : 0;
}

Device make_handle(unsigned index) {
  return reinterpret_cast<Device>((handle_mark << 32) | (live_generation() << 8) | (index + 1));
}

/// The index of a handle of this initialisation, or -1.
int handle_index(Device device) {
  const auto bits = reinterpret_cast<std::uintptr_t>(device);
  const auto index = static_cast<int>(bits & 0xff) - 1;
  if (bits >> 32 != handle_mark || ((bits >> 8) & 0xffffff) != live_generation()) return -1;
  return index < static_cast<int>(machine()->gpu_count()) ? index : -1;
}

/// Checks common to all calls that are about no GPU.
Result enter(std::string_view function) {
  if (live_generation() == 0) return uninitialized;
  return machine()->take_fault(function, -1);
}

/// Run `body(GpuState&)` for a handle, after the checks and faults common to all calls about a GPU.
template <class Body>
Result with_gpu(std::string_view function, Device device, Body&& body) {
  if (live_generation() == 0) return uninitialized;
  const int index = handle_index(device);
  if (index < 0) return invalid_argument;
  if (const Result fault = machine()->take_fault(function, index); fault != success) return fault;
  return machine()->transact(static_cast<unsigned>(index), [&](GpuState& gpu) -> Result {
    return gpu.options.lost != 0 ? gpu_is_lost : body(gpu);
  });
}

template <class Value, class Read>
Result read_value(std::string_view function, Device device, Value* out, Read&& read) {
  return with_gpu(function, device, [&](GpuState& gpu) -> Result {
    if (out == nullptr) return invalid_argument;
    *out = static_cast<Value>(read(gpu));
    return success;
  });
}

Result copy_text(const std::string& text, char* out, unsigned size) {
  if (out == nullptr) return invalid_argument;
  if (text.size() + 1 > size) return insufficient_size;
  std::memcpy(out, text.c_str(), text.size() + 1);
  return success;
}

std::string uuid_of(unsigned index) {
  char text[64];
  std::snprintf(text, sizeof text, "GPU-%08x-5e05-4000-8000-%012x", 0x51a70000U + index * 0x1111U, index);
  return text;
}

std::string bus_id_of(unsigned index) {
  char text[32];
  std::snprintf(text, sizeof text, "00000000:%02X:00.0", 0x10U + index);
  return text;
}

unsigned to_mw(double watts) { return static_cast<unsigned>(std::lround(watts * 1000.0)); }

unsigned noisy_mw(GpuState& gpu, double watts) {
  return to_mw(watts * (1.0 + gpu.options.reading_noise * perseus::simulated::draw_normal(gpu)));
}

unsigned power_usage_mw(GpuState& gpu) {
  const bool averages = model_of(gpu).averages_power;
  return noisy_mw(gpu, averages ? perseus::simulated::average_power_w(gpu) : gpu.tick_power_w);
}

std::uint64_t counter_mj(const GpuState& gpu) {
  return static_cast<std::uint64_t>(perseus::simulated::counter_j(gpu) * 1000.0);
}

void audit(Device device, int kind, Result code, unsigned first, unsigned second) {
  if (live_generation() == 0 || handle_index(device) < 0) return;
  machine()->record({machine()->now_s(), getpid(), handle_index(device), kind, code, first, second});
}

/// Whether calls that change settings are refused: for the GPU, or for this process (as if it weren't root).
bool may_not_set(const GpuState& gpu) {
  return gpu.options.permission_denied != 0 || std::getenv("PERSEUS_SIMULATED_GPU_UNPRIVILEGED") != nullptr;
}

/// Order new clocks and, as the real call does, come back when they are in effect.
Result change_clocks(const char* function, Device device, ClockRange asked) {
  double effective_s = 0;
  bool blocks = false;
  const Result result = with_gpu(function, device, [&](GpuState& gpu) -> Result {
    if (may_not_set(gpu)) return no_permission;
    if (asked.min_mhz > asked.max_mhz) return invalid_argument;
    ClockRange range{0, 0};
    if (asked.max_mhz > 0) {
      range = {snap_down_mhz(model_of(gpu), asked.min_mhz), snap_down_mhz(model_of(gpu), asked.max_mhz)};
    }
    effective_s = order_clocks(gpu, range);
    blocks = gpu.options.set_clock_blocks != 0;
    return effective_s < 0 ? in_use : success;
  });
  audit(device, asked.max_mhz > 0 ? 0 : 1, result, asked.min_mhz, asked.max_mhz);
  if (result == success && blocks) machine()->sleep_until(effective_s);
  return result;
}

Result list_clocks(const std::vector<std::uint32_t>& clocks, unsigned* count, unsigned* out) {
  if (count == nullptr) return invalid_argument;
  const auto needed = static_cast<unsigned>(clocks.size());
  const bool fits = out != nullptr && *count >= needed;
  *count = needed;
  if (!fits) return insufficient_size;
  std::copy(clocks.begin(), clocks.end(), out);
  return success;
}

Result give_handle(const char* function, unsigned index, Device* out) {
  const Result fault = machine()->take_fault(function, static_cast<int>(index));
  if (fault == success) *out = make_handle(index);
  return fault;
}

Result find_device(const char* function, Device* out, const char* key, std::string (*name_of)(unsigned)) {
  if (live_generation() == 0) return uninitialized;
  if (key == nullptr || out == nullptr) return invalid_argument;
  unsigned index = 0;
  while (index < machine()->gpu_count() && name_of(index) != key) ++index;
  return index < machine()->gpu_count() ? give_handle(function, index, out) : not_found;
}

FieldValue read_field(GpuState& gpu, FieldValue field) {
  field.result = success;
  field.value_type = value_unsigned;
  field.value.large = 0;
  if (field.field == field_power_instant) {
    field.value.natural = noisy_mw(gpu, gpu.tick_power_w);
  } else if (field.field == field_power_average) {
    field.value.natural = noisy_mw(gpu, perseus::simulated::average_power_w(gpu));
  } else if (field.field == field_total_energy && gpu.options.counter_supported != 0) {
    field.value_type = value_unsigned_long_long;
    field.value.large = counter_mj(gpu);
  } else {
    field.result = not_supported;
  }
  field.timestamp_us = static_cast<std::int64_t>(gpu.now_s * 1e6);
  return field;
}

}  // namespace

// --- The library -------------------------------------------------------------------------------

PERSEUS_EXPORT Result nvmlInitWithFlags(unsigned) {
  Machine* const present = machine();
  if (present == nullptr) return driver_not_loaded;
  if (const Result fault = present->take_fault("nvmlInit", -1); fault != success) return fault;
  Session& s = session();
  const std::lock_guard guard(s.mutex);
  if (s.pid.load() != getpid()) s.references = 0;
  if (s.references++ == 0) s.live.store(++s.generation);
  s.pid.store(getpid());
  return success;
}
PERSEUS_EXPORT Result nvmlInit_v2() { return nvmlInitWithFlags(0); }
PERSEUS_EXPORT Result nvmlInit() { return nvmlInitWithFlags(0); }

PERSEUS_EXPORT Result nvmlShutdown() {
  Session& s = session();
  const std::lock_guard guard(s.mutex);
  if (s.pid.load() != getpid() || s.references == 0) return uninitialized;
  if (--s.references == 0) s.live.store(0);
  return success;
}

PERSEUS_EXPORT const char* nvmlErrorString(Result code) {
  switch (code) {
    case success: return "The operation was successful";
    case uninitialized: return "Uninitialized";
    case invalid_argument: return "Invalid Argument";
    case not_supported: return "Not Supported";
    case no_permission: return "Insufficient Permissions";
    case not_found: return "Not Found";
    case insufficient_size: return "Insufficient Size";
    case driver_not_loaded: return "Driver Not Loaded";
    case gpu_is_lost: return "GPU is lost";
    default: return "Unknown Error";
  }
}

PERSEUS_EXPORT Result nvmlSystemGetDriverVersion(char* out, unsigned size) {
  const Result fault = enter("nvmlSystemGetDriverVersion");
  return fault != success ? fault : copy_text("580.00.perseus-simulated", out, size);
}
PERSEUS_EXPORT Result nvmlSystemGetNVMLVersion(char* out, unsigned size) {
  const Result fault = enter("nvmlSystemGetNVMLVersion");
  return fault != success ? fault : copy_text("13.580.00", out, size);
}
PERSEUS_EXPORT Result nvmlSystemGetCudaDriverVersion_v2(int* out) {
  if (const Result fault = enter("nvmlSystemGetCudaDriverVersion"); fault != success) return fault;
  if (out == nullptr) return invalid_argument;
  *out = 13000;
  return success;
}
PERSEUS_EXPORT Result nvmlSystemGetCudaDriverVersion(int* out) { return nvmlSystemGetCudaDriverVersion_v2(out); }

// --- Which GPU ---------------------------------------------------------------------------------

PERSEUS_EXPORT Result nvmlDeviceGetCount_v2(unsigned* out) {
  if (const Result fault = enter("nvmlDeviceGetCount"); fault != success) return fault;
  if (out == nullptr) return invalid_argument;
  *out = machine()->gpu_count();
  return success;
}
PERSEUS_EXPORT Result nvmlDeviceGetCount(unsigned* out) { return nvmlDeviceGetCount_v2(out); }

PERSEUS_EXPORT Result nvmlDeviceGetHandleByIndex_v2(unsigned index, Device* out) {
  if (live_generation() == 0) return uninitialized;
  if (out == nullptr || index >= machine()->gpu_count()) return invalid_argument;
  return give_handle("nvmlDeviceGetHandleByIndex", index, out);
}
PERSEUS_EXPORT Result nvmlDeviceGetHandleByIndex(unsigned i, Device* out) { return nvmlDeviceGetHandleByIndex_v2(i, out); }
PERSEUS_EXPORT Result nvmlDeviceGetHandleByUUID(const char* uuid, Device* out) {
  return find_device("nvmlDeviceGetHandleByUUID", out, uuid, uuid_of);
}
PERSEUS_EXPORT Result nvmlDeviceGetHandleByPciBusId_v2(const char* bus_id, Device* out) {
  return find_device("nvmlDeviceGetHandleByPciBusId", out, bus_id, bus_id_of);
}

PERSEUS_EXPORT Result nvmlDeviceGetName(Device device, char* out, unsigned size) {
  return with_gpu("nvmlDeviceGetName", device,
                  [&](GpuState& gpu) { return copy_text(std::string(model_of(gpu).name), out, size); });
}
PERSEUS_EXPORT Result nvmlDeviceGetUUID(Device device, char* out, unsigned size) {
  return with_gpu("nvmlDeviceGetUUID", device, [&](GpuState& gpu) { return copy_text(uuid_of(gpu.index), out, size); });
}
PERSEUS_EXPORT Result nvmlDeviceGetIndex(Device device, unsigned* out) {
  return read_value("nvmlDeviceGetIndex", device, out, [](GpuState& gpu) { return gpu.index; });
}
PERSEUS_EXPORT Result nvmlDeviceGetMinorNumber(Device device, unsigned* out) {
  return read_value("nvmlDeviceGetMinorNumber", device, out, [](GpuState& gpu) { return gpu.index; });
}
PERSEUS_EXPORT Result nvmlDeviceGetPciInfo_v3(Device device, PciInfo* out) {
  return with_gpu("nvmlDeviceGetPciInfo", device, [&](GpuState& gpu) -> Result {
    if (out == nullptr) return invalid_argument;
    *out = PciInfo{};
    out->bus = 0x10U + gpu.index;
    out->pci_device_id = 0x20B210DEU;
    copy_text(bus_id_of(gpu.index), out->bus_id, sizeof out->bus_id);
    copy_text(bus_id_of(gpu.index).substr(4), out->bus_id_legacy, sizeof out->bus_id_legacy);
    return success;
  });
}
PERSEUS_EXPORT Result nvmlDeviceGetCudaComputeCapability(Device device, int* major, int* minor) {
  return with_gpu("nvmlDeviceGetCudaComputeCapability", device, [&](GpuState& gpu) -> Result {
    if (major == nullptr || minor == nullptr) return invalid_argument;
    *major = static_cast<int>(model_of(gpu).capability_major);
    *minor = static_cast<int>(model_of(gpu).capability_minor);
    return success;
  });
}
PERSEUS_EXPORT Result nvmlDeviceGetMigMode(Device device, unsigned*, unsigned*) {
  return with_gpu("nvmlDeviceGetMigMode", device, [](GpuState&) { return not_supported; });
}

// --- What it does now --------------------------------------------------------------------------

PERSEUS_EXPORT Result nvmlDeviceGetTotalEnergyConsumption(Device device, std::uint64_t* out) {
  return with_gpu("nvmlDeviceGetTotalEnergyConsumption", device, [&](GpuState& gpu) -> Result {
    if (gpu.options.counter_supported == 0) return not_supported;
    if (out == nullptr) return invalid_argument;
    *out = counter_mj(gpu);
    return success;
  });
}
PERSEUS_EXPORT Result nvmlDeviceGetPowerUsage(Device device, unsigned* out) {
  return read_value("nvmlDeviceGetPowerUsage", device, out, power_usage_mw);
}
PERSEUS_EXPORT Result nvmlDeviceGetFieldValues(Device device, int count, FieldValue* values) {
  return with_gpu("nvmlDeviceGetFieldValues", device, [&](GpuState& gpu) -> Result {
    if (values == nullptr || count < 0) return invalid_argument;
    std::transform(values, values + count, values, [&](const FieldValue& field) { return read_field(gpu, field); });
    return success;
  });
}
PERSEUS_EXPORT Result nvmlDeviceGetUtilizationRates(Device device, Utilization* out) {
  return with_gpu("nvmlDeviceGetUtilizationRates", device, [&](GpuState& gpu) -> Result {
    if (out == nullptr) return invalid_argument;
    *out = {gpu.queue_count > 0 ? 100U : 0U, 0U};
    return success;
  });
}
PERSEUS_EXPORT Result nvmlDeviceGetTemperature(Device device, int, unsigned* out) {
  return read_value("nvmlDeviceGetTemperature", device, out,
                    [](GpuState& gpu) { return 30.0 + 0.1 * perseus::simulated::current_power_w(gpu); });
}
PERSEUS_EXPORT Result nvmlDeviceGetPerformanceState(Device device, int* out) {
  return read_value("nvmlDeviceGetPerformanceState", device, out, [](GpuState&) { return 0; });
}
PERSEUS_EXPORT Result nvmlDeviceGetMemoryInfo(Device device, Memory* out) {
  return with_gpu("nvmlDeviceGetMemoryInfo", device, [&](GpuState& gpu) -> Result {
    if (out == nullptr) return invalid_argument;
    *out = {model_of(gpu).memory_bytes, model_of(gpu).memory_bytes, 0};
    return success;
  });
}
PERSEUS_EXPORT Result nvmlDeviceGetComputeRunningProcesses_v3(Device device, unsigned* count, ProcessInfo* out) {
  return with_gpu("nvmlDeviceGetComputeRunningProcesses", device, [&](GpuState& gpu) -> Result {
    if (count == nullptr) return invalid_argument;
    const unsigned room = *count;
    *count = 0;
    for (const std::int32_t pid : gpu.contexts) {
      if (pid == 0) continue;
      if (out != nullptr && *count < room) out[*count] = {static_cast<unsigned>(pid), 0, 0xffffffffU, 0xffffffffU};
      ++*count;
    }
    return *count > room ? insufficient_size : success;
  });
}

// --- Clocks ------------------------------------------------------------------------------------

PERSEUS_EXPORT Result nvmlDeviceGetClockInfo(Device device, int type, unsigned* out) {
  return read_value("nvmlDeviceGetClockInfo", device, out, [type](GpuState& gpu) {
    return type == 2 ? model_of(gpu).memory_mhz : perseus::simulated::current_clock_mhz(gpu);
  });
}
PERSEUS_EXPORT Result nvmlDeviceGetMaxClockInfo(Device device, int type, unsigned* out) {
  return read_value("nvmlDeviceGetMaxClockInfo", device, out, [type](GpuState& gpu) {
    return type == 2 ? model_of(gpu).memory_mhz : model_of(gpu).max_mhz;
  });
}
PERSEUS_EXPORT Result nvmlDeviceGetSupportedMemoryClocks(Device device, unsigned* count, unsigned* out) {
  return with_gpu("nvmlDeviceGetSupportedMemoryClocks", device,
                  [&](GpuState& gpu) { return list_clocks({model_of(gpu).memory_mhz}, count, out); });
}
PERSEUS_EXPORT Result nvmlDeviceGetSupportedGraphicsClocks(Device device, unsigned memory, unsigned* count, unsigned* out) {
  return with_gpu("nvmlDeviceGetSupportedGraphicsClocks", device, [&](GpuState& gpu) -> Result {
    if (memory != model_of(gpu).memory_mhz) return not_found;
    return list_clocks(supported_clocks_mhz(model_of(gpu)), count, out);
  });
}
PERSEUS_EXPORT Result nvmlDeviceSetGpuLockedClocks(Device device, unsigned min_mhz, unsigned max_mhz) {
  if (max_mhz == 0) return invalid_argument;
  return change_clocks("nvmlDeviceSetGpuLockedClocks", device, {min_mhz, max_mhz});
}
PERSEUS_EXPORT Result nvmlDeviceResetGpuLockedClocks(Device device) {
  return change_clocks("nvmlDeviceResetGpuLockedClocks", device, {0, 0});
}
PERSEUS_EXPORT Result nvmlDeviceSetMemoryLockedClocks(Device device, unsigned, unsigned) {
  return with_gpu("nvmlDeviceSetMemoryLockedClocks", device, [](GpuState&) { return not_supported; });
}
PERSEUS_EXPORT Result nvmlDeviceResetMemoryLockedClocks(Device device) {
  return with_gpu("nvmlDeviceResetMemoryLockedClocks", device, [](GpuState&) { return not_supported; });
}
PERSEUS_EXPORT Result nvmlDeviceGetCurrentClocksEventReasons(Device device, std::uint64_t* out) {
  return read_value("nvmlDeviceGetCurrentClocksEventReasons", device, out, perseus::simulated::current_reasons);
}
PERSEUS_EXPORT Result nvmlDeviceGetCurrentClocksThrottleReasons(Device device, std::uint64_t* out) {
  return nvmlDeviceGetCurrentClocksEventReasons(device, out);
}
PERSEUS_EXPORT Result nvmlDeviceGetSupportedClocksEventReasons(Device device, std::uint64_t* out) {
  return read_value("nvmlDeviceGetSupportedClocksEventReasons", device, out, [](GpuState&) { return 0x1ffU; });
}

// --- Power limit and persistence ---------------------------------------------------------------

PERSEUS_EXPORT Result nvmlDeviceGetPowerManagementLimit(Device device, unsigned* out) {
  return read_value("nvmlDeviceGetPowerManagementLimit", device, out, [](GpuState& gpu) { return to_mw(gpu.power_limit_w); });
}
PERSEUS_EXPORT Result nvmlDeviceGetEnforcedPowerLimit(Device device, unsigned* out) {
  return read_value("nvmlDeviceGetEnforcedPowerLimit", device, out, [](GpuState& gpu) { return to_mw(gpu.power_limit_w); });
}
PERSEUS_EXPORT Result nvmlDeviceGetPowerManagementDefaultLimit(Device device, unsigned* out) {
  return read_value("nvmlDeviceGetPowerManagementDefaultLimit", device, out,
                    [](GpuState& gpu) { return to_mw(model_of(gpu).default_limit_w); });
}
PERSEUS_EXPORT Result nvmlDeviceGetPowerManagementLimitConstraints(Device device, unsigned* low, unsigned* high) {
  return with_gpu("nvmlDeviceGetPowerManagementLimitConstraints", device, [&](GpuState& gpu) -> Result {
    if (low == nullptr || high == nullptr) return invalid_argument;
    *low = to_mw(model_of(gpu).min_limit_w);
    *high = to_mw(model_of(gpu).max_limit_w);
    return success;
  });
}
PERSEUS_EXPORT Result nvmlDeviceSetPowerManagementLimit(Device device, unsigned limit_mw) {
  const Result result = with_gpu("nvmlDeviceSetPowerManagementLimit", device, [&](GpuState& gpu) -> Result {
    const double limit_w = limit_mw / 1000.0;
    gpu.lowest_limit_asked_w = std::min(gpu.lowest_limit_asked_w, limit_w);
    if (may_not_set(gpu)) return no_permission;
    if (limit_w < model_of(gpu).min_limit_w || limit_w > model_of(gpu).max_limit_w) return invalid_argument;
    gpu.power_limit_w = limit_w;
    return success;
  });
  audit(device, 2, result, limit_mw, 0);
  return result;
}
PERSEUS_EXPORT Result nvmlDeviceGetPersistenceMode(Device device, int* out) {
  return read_value("nvmlDeviceGetPersistenceMode", device, out, [](GpuState& gpu) { return gpu.persistence_mode; });
}
PERSEUS_EXPORT Result nvmlDeviceSetPersistenceMode(Device device, int mode) {
  return with_gpu("nvmlDeviceSetPersistenceMode", device, [&](GpuState& gpu) -> Result {
    if (may_not_set(gpu)) return no_permission;
    gpu.persistence_mode = mode != 0;
    return success;
  });
}
