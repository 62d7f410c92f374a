// The part of NVML's binary interface that the simulated driver speaks: layouts and numbers only.
#pragma once

#include <cstdint>

namespace perseus::nvml {

using Device = void*;
using Result = int;

inline constexpr Result success = 0;
inline constexpr Result uninitialized = 1;
inline constexpr Result invalid_argument = 2;
inline constexpr Result not_supported = 3;
inline constexpr Result no_permission = 4;
inline constexpr Result not_found = 6;
inline constexpr Result insufficient_size = 7;
inline constexpr Result driver_not_loaded = 9;
inline constexpr Result gpu_is_lost = 15;
inline constexpr Result in_use = 19;
inline constexpr Result unknown = 999;

struct PciInfo {
  char bus_id_legacy[16];
  unsigned domain;
  unsigned bus;
  unsigned device;
  unsigned pci_device_id;
  unsigned pci_subsystem_id;
  char bus_id[32];
};

struct Memory {
  std::uint64_t total;
  std::uint64_t free;
  std::uint64_t used;
};

struct Utilization {
  unsigned gpu;
  unsigned memory;
};

struct ProcessInfo {
  unsigned pid;
  std::uint64_t used_memory;
  unsigned gpu_instance;
  unsigned compute_instance;
};

struct FieldValue {
  unsigned field;
  unsigned scope;
  std::int64_t timestamp_us;
  std::int64_t latency_us;
  int value_type;
  Result result;
  union {
    double real;
    unsigned natural;
    std::uint64_t large;
  } value;
};

inline constexpr unsigned field_total_energy = 83;
inline constexpr unsigned field_power_average = 185;
inline constexpr unsigned field_power_instant = 186;
inline constexpr int value_unsigned = 1;
inline constexpr int value_unsigned_long_long = 3;

}  // namespace perseus::nvml
