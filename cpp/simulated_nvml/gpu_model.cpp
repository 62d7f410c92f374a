#include "gpu_model.hpp"

#include <algorithm>

namespace perseus::simulated {
namespace {

// Where the numbers come from
//
// [nvsmi-v100]  `nvidia-smi -q` of a Tesla V100-SXM2-32GB, printed in NVIDIA/nvidia-docker issue 1076.
// [nvsmi-a40]   `nvidia-smi -q` of an A40, printed in NVIDIA/nvidia-docker issue 1447.
// [nvsmi-a100]  `nvidia-smi -q` of an A100-SXM4-80GB, printed in NVIDIA/DCGM issue 152.
// [nvsmi-h100]  `nvidia-smi -q` of an H100 80GB HBM3, printed in NVIDIA/DCGM issue 120.
// [dgx]         DGX H100/H200 user guide, Redfish `PowerLimitWatts` (AllowableMin 200, AllowableMax 700).
// [sosp24]      measured (time, energy) of GPT-3 175B operations at each clock, artifact of "Reducing Energy
//               Bloat in Large Model Training" (SOSP'24): the blocking power as published; static and dynamic power and the
//               voltage curve are a least-squares fit of energy/time over the clock, at most 1.8 % rms (the A40 below its
//               throttling range). That A100 drew more than 400 W at its highest clocks; this one throttles there.
// [nsdi23]      power-limit traces of "Zeus" (NSDI'23): DNN training on a V100 draws 228 W on average at most.
// [yang23]      "Part-time Power Measurements: nvidia-smi's Lack of Attention" (arXiv 2312.02741): an A100 and an H100 sample
//               25 % of the time, which is 25 ms of every 100 ms.
// [nvsmi-gv100] `nvidia-smi -q` of a TITAN V (same chip as the V100) at rest, printed in 4paradigm/k8s-vgpu-scheduler issue 25.
// [nvml]        NVML API reference: nvmlDeviceGetPowerUsage (averaged on Ampere and newer except GA100).
// [datasheet]   NVIDIA data sheet of the product (memory size, power).
// [assumed]     not looked up: as commonly seen on such boards, or set between measured neighbours.
constexpr std::uint64_t gib = 1024ULL * 1024 * 1024;

constexpr std::array<GpuModel, 4> models{{
    {
        .key = "v100",
        .name = "Tesla V100-SXM2-32GB",  // [nvsmi-v100]
        .min_mhz = 135,                  // [nvsmi-gv100] clock at rest; that it is the lowest one is [assumed]
        .max_mhz = 1530,                 // [nvsmi-v100]
        .step_khz = 7500,                // [assumed] 1530, 1522, 1515, 1507 ...: 7.5 MHz, rounded down
        .idle_mhz = 135,                 // [nvsmi-gv100]
        .memory_mhz = 877,               // [nvsmi-v100]
        .idle_w = 42.0,                  // [assumed]; [nvsmi-v100] shows 56.6 W with raised clocks
        .blocking_w = 62.0,              // [assumed]
        .static_w = 50.0,                // [assumed]
        .dynamic_w = 240.0,              // static + dynamic = 290 W of the 300 W [datasheet]; see [nsdi23]
        .voltage_floor = 0.72,           // [assumed]
        .voltage_knee = 0.60,            // [assumed]
        .min_limit_w = 150.0,            // [nvsmi-v100]
        .max_limit_w = 300.0,            // [nvsmi-v100]
        .default_limit_w = 300.0,        // [nvsmi-v100]
        .counter_period_s = 0.020,       // [assumed]
        .averages_power = false,         // [nvml]
        .capability_major = 7,
        .capability_minor = 0,
        .memory_bytes = 32 * gib,  // [datasheet]
    },
    {
        .key = "a40",
        .name = "NVIDIA A40",
        .min_mhz = 210,            // [assumed]
        .max_mhz = 1740,           // [nvsmi-a40]
        .step_khz = 15000,         // [sosp24]
        .idle_mhz = 210,           // [assumed] lowest supported
        .memory_mhz = 7251,        // [nvsmi-a40]
        .idle_w = 30.5,            // [nvsmi-a40]
        .blocking_w = 70.38,       // [sosp24]
        .static_w = 70.0,          // [sosp24] fit gives 80; held below the blocking power
        .dynamic_w = 312.0,        // [sosp24] fit
        .voltage_floor = 0.82,     // [sosp24] fit
        .voltage_knee = 0.65,      // [sosp24] fit
        .min_limit_w = 100.0,      // [nvsmi-a40]
        .max_limit_w = 300.0,      // [nvsmi-a40]
        .default_limit_w = 300.0,  // [nvsmi-a40]
        .counter_period_s = 0.100,  // [assumed] as the A100
        .averages_power = true,     // [nvml]
        .capability_major = 8,
        .capability_minor = 6,
        .memory_bytes = 48 * gib,  // [datasheet]
    },
    {
        .key = "a100",
        .name = "NVIDIA A100-SXM4-80GB",
        .min_mhz = 210,            // [assumed]
        .max_mhz = 1410,           // [nvsmi-a100]
        .step_khz = 15000,         // [sosp24]
        .idle_mhz = 210,           // [assumed] lowest supported
        .memory_mhz = 1593,        // [nvsmi-a100]
        .idle_w = 62.0,            // [assumed]
        .blocking_w = 83.64,       // [sosp24]
        .static_w = 65.0,          // [sosp24] fits from 25 to 70 do as well; held above the idle power
        .dynamic_w = 430.0,        // [sosp24] fit
        .voltage_floor = 0.82,     // [sosp24] fit
        .voltage_knee = 0.78,      // [sosp24] fit
        .min_limit_w = 100.0,      // [nvsmi-a100]
        .max_limit_w = 400.0,      // [nvsmi-a100]
        .default_limit_w = 400.0,  // [nvsmi-a100]
        .counter_period_s = 0.100,  // [yang23]
        .averages_power = false,    // [nvml]: GA100
        .capability_major = 8,
        .capability_minor = 0,
        .memory_bytes = 80 * gib,  // [datasheet]
    },
    {
        .key = "h100",
        .name = "NVIDIA H100 80GB HBM3",  // [nvsmi-h100]
        .min_mhz = 210,                   // [assumed]
        .max_mhz = 1980,                  // [nvsmi-h100]
        .step_khz = 15000,                // [assumed] as Ampere
        .idle_mhz = 345,                  // [nvsmi-h100]
        .memory_mhz = 2619,               // [nvsmi-h100]
        .idle_w = 70.0,                   // [assumed]
        .blocking_w = 115.0,              // [assumed]
        .static_w = 90.0,                 // [assumed]
        .dynamic_w = 700.0,               // [assumed] so that a large matrix product throttles below 1980 MHz at 700 W
        .voltage_floor = 0.76,            // [assumed]
        .voltage_knee = 0.60,             // [assumed]
        .min_limit_w = 200.0,             // [dgx]
        .max_limit_w = 700.0,             // [dgx]
        .default_limit_w = 700.0,         // [dgx]
        .counter_period_s = 0.100,        // [yang23]
        .averages_power = true,           // [nvml]
        .capability_major = 9,
        .capability_minor = 0,
        .memory_bytes = 80 * gib,  // [datasheet]
    },
}};

}  // namespace

const std::array<GpuModel, 4>& gpu_models() { return models; }

int find_gpu_model(std::string_view key) {
  const auto found = std::find_if(models.begin(), models.end(), [key](const GpuModel& m) { return m.key == key; });
  return found == models.end() ? -1 : static_cast<int>(found - models.begin());
}

std::vector<std::uint32_t> supported_clocks_mhz(const GpuModel& model) {
  std::vector<std::uint32_t> clocks;
  for (std::uint32_t khz = model.max_mhz * 1000; khz >= model.min_mhz * 1000; khz -= model.step_khz) {
    clocks.push_back(khz / 1000);
  }
  return clocks;
}

std::uint32_t snap_down_mhz(const GpuModel& model, std::uint32_t mhz) {
  if (mhz >= model.max_mhz) return model.max_mhz;
  if (mhz <= model.min_mhz) return model.min_mhz;
  // Supported clocks are floor((max_khz - k * step) / 1000): the smallest k whose clock is <= mhz.
  const std::uint32_t below_khz = model.max_mhz * 1000 - (mhz * 1000 + 999);
  const std::uint32_t k = (below_khz + model.step_khz - 1) / model.step_khz;
  return std::max(model.min_mhz, (model.max_mhz * 1000 - k * model.step_khz) / 1000);
}

double relative_voltage(const GpuModel& model, double mhz) {
  const double x = mhz / model.max_mhz;
  if (x <= model.voltage_knee) return model.voltage_floor;
  return model.voltage_floor + (1.0 - model.voltage_floor) * (x - model.voltage_knee) / (1.0 - model.voltage_knee);
}

double busy_power_w(const GpuModel& model, double mhz, double activity) {
  const double v = relative_voltage(model, mhz);
  return model.static_w + activity * model.dynamic_w * v * v * (mhz / model.max_mhz);
}

double kernel_time_s(const GpuModel& model, double mhz, const KernelCost& cost) {
  return cost.work_s * ((1.0 - cost.memory_share) * (model.max_mhz / mhz) + cost.memory_share);
}

std::uint32_t throttled_clock_mhz(const GpuModel& model, std::uint32_t wanted_mhz, double activity, double limit_w) {
  if (busy_power_w(model, wanted_mhz, activity) <= limit_w) return wanted_mhz;
  // Busy power rises with the clock, so a bisection over the supported steps finds the last that fits.
  const auto clock_at = [&](std::uint32_t k) { return (model.max_mhz * 1000 - k * model.step_khz) / 1000; };
  std::uint32_t too_high = 0;
  std::uint32_t fits = (model.max_mhz - model.min_mhz) * 1000 / model.step_khz;
  while (fits - too_high > 1) {
    const std::uint32_t middle = (too_high + fits) / 2;
    const bool ok = clock_at(middle) <= wanted_mhz && busy_power_w(model, clock_at(middle), activity) <= limit_w;
    (ok ? fits : too_high) = middle;
  }
  return clock_at(fits);
}

}  // namespace perseus::simulated
