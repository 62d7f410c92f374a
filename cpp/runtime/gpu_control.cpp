#include "gpu_control.hpp"

#include <dlfcn.h>

#include "zeusd.hpp"

namespace perseus::runtime {
namespace {

using Device = void*;
constexpr const char* usual_library = "libnvidia-ml.so.1";
constexpr int clock_sm = 1;

/// The functions of NVML used here. A missing one stays null and answers "function not found".
class NvmlLibrary {
 public:
  explicit NvmlLibrary(const std::string& path)
      : handle_(dlopen(path.empty() ? usual_library : path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (handle_ == nullptr) throw OpenError(code_library_not_found, std::string("load the NVML library: ") + dlerror());
    load(init, "nvmlInitWithFlags");
    load(shutdown, "nvmlShutdown");
    load(handle_by_uuid, "nvmlDeviceGetHandleByUUID");
    load(lock_clocks, "nvmlDeviceSetGpuLockedClocks");
    load(reset_clocks, "nvmlDeviceResetGpuLockedClocks");
    load(set_power_limit, "nvmlDeviceSetPowerManagementLimit");
    load(power_limit, "nvmlDeviceGetPowerManagementLimit");
    load(clock_info, "nvmlDeviceGetClockInfo");
    load(event_reasons, "nvmlDeviceGetCurrentClocksEventReasons");
    if (event_reasons == nullptr) load(event_reasons, "nvmlDeviceGetCurrentClocksThrottleReasons");
    load(energy, "nvmlDeviceGetTotalEnergyConsumption");
    const int code = init == nullptr ? code_function_not_found : init(0);
    if (code != code_success) {
      dlclose(handle_);
      throw OpenError(code, "initialise NVML");
    }
  }
  ~NvmlLibrary() {
    if (shutdown != nullptr) shutdown();
    dlclose(handle_);
  }
  NvmlLibrary(const NvmlLibrary&) = delete;
  NvmlLibrary& operator=(const NvmlLibrary&) = delete;

  int (*init)(unsigned) = nullptr;
  int (*shutdown)() = nullptr;
  int (*handle_by_uuid)(const char*, Device*) = nullptr;
  int (*lock_clocks)(Device, unsigned, unsigned) = nullptr;
  int (*reset_clocks)(Device) = nullptr;
  int (*set_power_limit)(Device, unsigned) = nullptr;
  int (*power_limit)(Device, unsigned*) = nullptr;
  int (*clock_info)(Device, int, unsigned*) = nullptr;
  int (*event_reasons)(Device, unsigned long long*) = nullptr;
  int (*energy)(Device, unsigned long long*) = nullptr;

 private:
  template <class Function>
  void load(Function& function, const char* name) {
    function = reinterpret_cast<Function>(dlsym(handle_, name));
  }

  void* handle_;
};

template <class... Arguments, class... Values>
int call(int (*function)(Arguments...), Values... values) {
  return function == nullptr ? code_function_not_found : function(values...);
}

class NvmlGpu final : public GpuControl {
 public:
  explicit NvmlGpu(const GpuAddress& address) : library_(address.library) {
    const int code = call(library_.handle_by_uuid, address.uuid.c_str(), &device_);
    if (code != code_success) throw OpenError(code, "find GPU " + address.uuid);
  }
  int lock_clocks(unsigned min_mhz, unsigned max_mhz) override { return call(library_.lock_clocks, device_, min_mhz, max_mhz); }
  int reset_clocks() override { return call(library_.reset_clocks, device_); }
  int set_power_limit_mw(unsigned limit_mw) override { return call(library_.set_power_limit, device_, limit_mw); }
  int power_limit_mw(unsigned& limit_mw) override { return call(library_.power_limit, device_, &limit_mw); }
  int clock_mhz(unsigned& mhz) override { return call(library_.clock_info, device_, clock_sm, &mhz); }
  int event_reasons(std::uint64_t& reasons) override { return read_long(library_.event_reasons, reasons); }
  int energy_mj(std::uint64_t& energy_mj) override { return read_long(library_.energy, energy_mj); }

 private:
  int read_long(int (*function)(Device, unsigned long long*), std::uint64_t& out) const {
    unsigned long long value = 0;
    const int code = call(function, device_, &value);
    if (code == code_success) out = value;
    return code;
  }

  NvmlLibrary library_;
  Device device_ = nullptr;
};

/// Reads through NVML, which any user may; sets through the daemon.
class ZeusdGpu final : public GpuControl {
 public:
  explicit ZeusdGpu(const GpuAddress& address)
      : reads_(address), daemon_(address.zeusd_socket, address.zeusd_token, address.zeusd_gpu) {}
  int lock_clocks(unsigned min_mhz, unsigned max_mhz) override {
    return daemon_.post("set_gpu_locked_clocks",
                        "&min_clock_mhz=" + std::to_string(min_mhz) + "&max_clock_mhz=" + std::to_string(max_mhz));
  }
  int reset_clocks() override { return daemon_.post("reset_gpu_locked_clocks", ""); }
  int set_power_limit_mw(unsigned limit_mw) override {
    return daemon_.post("set_power_limit", "&power_limit_mw=" + std::to_string(limit_mw));
  }
  int power_limit_mw(unsigned& limit_mw) override { return reads_.power_limit_mw(limit_mw); }
  int clock_mhz(unsigned& mhz) override { return reads_.clock_mhz(mhz); }
  int event_reasons(std::uint64_t& reasons) override { return reads_.event_reasons(reasons); }
  int energy_mj(std::uint64_t& energy_mj) override { return reads_.energy_mj(energy_mj); }

 private:
  NvmlGpu reads_;
  Zeusd daemon_;
};

}  // namespace

std::unique_ptr<GpuControl> open_gpu(const GpuAddress& address) {
  if (address.zeusd_socket.empty()) return std::make_unique<NvmlGpu>(address);
  return std::make_unique<ZeusdGpu>(address);
}

std::string nvml_library_path(const std::string& library) {
  void* handle = dlopen(library.empty() ? usual_library : library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return "";
  Dl_info info{};
  void* symbol = dlsym(handle, "nvmlInitWithFlags");
  const bool found = symbol != nullptr && dladdr(symbol, &info) != 0 && info.dli_fname != nullptr;
  const std::string path = found ? info.dli_fname : "";
  dlclose(handle);
  return path;
}

}  // namespace perseus::runtime
