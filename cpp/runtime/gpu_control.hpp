// Setting and reading one GPU from native code: NVML for reading, NVML or zeusd for setting.
//
// The NVML library is loaded at run time, by the name that every NVML program uses, so that this code
// meets whatever the process already loaded. Results are NVML return codes; 0 is success. Nothing throws
// but the constructors.
#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>

namespace perseus::runtime {

/// Codes of NVML that this code gives itself.
inline constexpr int code_success = 0;
inline constexpr int code_invalid_argument = 2;
inline constexpr int code_not_supported = 3;
inline constexpr int code_no_permission = 4;
inline constexpr int code_driver_not_loaded = 9;
inline constexpr int code_library_not_found = 12;
inline constexpr int code_function_not_found = 13;
inline constexpr int code_unknown = 999;

/// A failure to open a GPU: an NVML return code and what was being done.
class OpenError : public std::runtime_error {
 public:
  OpenError(int code, const std::string& doing) : std::runtime_error(doing), code_(code) {}
  int code() const { return code_; }

 private:
  int code_;
};

/// Where a GPU is and who may set it.
struct GpuAddress {
  std::string uuid;          ///< As NVML gives it: "GPU-...".
  std::string library;       ///< Path of the NVML library; empty: the usual name.
  std::string zeusd_socket;  ///< Empty: settings go to NVML itself.
  std::string zeusd_token;   ///< Bearer token, when the daemon asks for one.
  int zeusd_gpu = -1;        ///< The daemon's number of this GPU.
};

/// What the worker, the watcher and the guardian need of a GPU. Tests put their own in.
class GpuControl {
 public:
  virtual ~GpuControl() = default;
  virtual int lock_clocks(unsigned min_mhz, unsigned max_mhz) = 0;
  virtual int reset_clocks() = 0;
  virtual int set_power_limit_mw(unsigned limit_mw) = 0;
  virtual int power_limit_mw(unsigned& limit_mw) = 0;
  virtual int clock_mhz(unsigned& mhz) = 0;
  virtual int event_reasons(std::uint64_t& reasons) = 0;
  virtual int energy_mj(std::uint64_t& energy_mj) = 0;
};

/// Open the GPU at an address. Throws OpenError.
std::unique_ptr<GpuControl> open_gpu(const GpuAddress& address);

/// The file of the NVML library in use ("" when none can be loaded).
std::string nvml_library_path(const std::string& library);

}  // namespace perseus::runtime
