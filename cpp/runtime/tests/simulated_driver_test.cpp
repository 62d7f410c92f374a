// The run-time part on the simulated driver, loaded as the real one would be.
#include <dlfcn.h>
#include <unistd.h>

#include <doctest/doctest.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "clock_worker.hpp"
#include "counter_watcher.hpp"
#include "guardian.hpp"

using namespace perseus::runtime;

namespace {

const std::string library = SIMULATED_NVML_PATH;
const std::string uuid = "GPU-51a70000-5e05-4000-8000-000000000000";

/// A simulated machine in real time, seen from behind.
class Machine {
 public:
  Machine() : handle_(dlopen(library.c_str(), RTLD_NOW)) {
    REQUIRE(handle_ != nullptr);
    char name[] = "/tmp/perseus-runtime-test-XXXXXX";
    close(mkstemp(name));
    path_ = name;
    auto* create = load<int (*)(const char*, const char*, unsigned, double, double)>("perseus_sim_create");
    auto* attach = load<int (*)(const char*)>("perseus_sim_attach");
    REQUIRE(create(name, "v100", 1, 1.0, 1.0) == 0);
    REQUIRE(attach(name) == 0);
  }
  ~Machine() { unlink(path_.c_str()); }
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  double get(const char* name) const { return load<double (*)(unsigned, const char*)>("perseus_sim_get")(0, name); }
  void fail(const char* function, int code, long times) const {
    load<int (*)(const char*, int, int, long, long)>("perseus_sim_fault")(function, 0, code, 0, times);
  }

 private:
  template <class Function>
  Function load(const char* name) const {
    return reinterpret_cast<Function>(dlsym(handle_, name));
  }
  void* handle_;
  std::string path_;
};

}  // namespace

TEST_CASE("worker and watcher share a GPU") {
  const Machine machine;
  const GpuAddress address{uuid, library, "", "", -1};
  CounterWatcher watcher(open_gpu(address), 0.001);
  ClockWorker worker(open_gpu(address));
  for (unsigned i = 0; i < 200; ++i) {
    worker.request(600 + i % 7, i % 3 == 0 ? 0.05 : 0.0);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  worker.request(900);
  REQUIRE(worker.drain(20));
  CHECK(machine.get("locked_max_mhz") == 900);
  CHECK(worker.statistics().latency_s >= 0.009);
  const std::vector<CounterChange> changes = watcher.take_changes();
  CHECK(changes.size() >= 3);
  for (std::size_t i = 1; i < changes.size(); ++i) CHECK(changes[i].energy_mj > changes[i - 1].energy_mj);
  worker.stop();
  watcher.stop();
  CHECK(watcher.code() == 0);
  LockRecord record;
  record.original_limit_mw = 300'000;
  CHECK(restore(*open_gpu(address), record) == 0);
  CHECK(machine.get("locked_max_mhz") == 0);
}

TEST_CASE("what can't be opened says so with NVML's code") {
  const Machine machine;
  const auto code_of = [](const GpuAddress& address) {
    try {
      open_gpu(address);
    } catch (const OpenError& error) {
      return error.code();
    }
    return 0;
  };
  CHECK(code_of({uuid, library, "", "", -1}) == 0);
  CHECK(code_of({"GPU-nothing", library, "", "", -1}) == 6);
  CHECK(code_of({uuid, "/nowhere/libnvidia-ml.so.1", "", "", -1}) == code_library_not_found);
  machine.fail("nvmlDeviceGetHandleByUUID", 15, 1);
  CHECK(code_of({uuid, library, "", "", -1}) == 15);
  CHECK(nvml_library_path(library) == library);
  CHECK(nvml_library_path("/nowhere/libnvidia-ml.so.1").empty());
}
