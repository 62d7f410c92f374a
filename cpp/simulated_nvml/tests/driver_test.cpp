// The driver as several threads and processes use it.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <doctest/doctest.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "control.hpp"
#include "nvml_abi.hpp"

extern "C" {
int nvmlInitWithFlags(unsigned);
int nvmlShutdown(void);
int nvmlDeviceGetHandleByIndex_v2(unsigned, void**);
int nvmlDeviceSetGpuLockedClocks(void*, unsigned, unsigned);
int nvmlDeviceResetGpuLockedClocks(void*);
int nvmlDeviceGetTotalEnergyConsumption(void*, std::uint64_t*);
int nvmlDeviceGetClockInfo(void*, int, unsigned*);
int nvmlDeviceSetPowerManagementLimit(void*, unsigned);
int nvmlDeviceGetSupportedGraphicsClocks(void*, unsigned, unsigned*, unsigned*);
}

namespace {

struct Driver {
  std::string path;
  void* gpu = nullptr;

  explicit Driver(double time_scale) {
    char name[] = "/tmp/perseus-driver-test-XXXXXX";
    close(mkstemp(name));
    path = name;
    REQUIRE(perseus_sim_create(name, "a100", 2, time_scale, 3) == 0);
    REQUIRE(perseus_sim_attach(name) == 0);
    REQUIRE(nvmlInitWithFlags(0) == 0);
    REQUIRE(nvmlDeviceGetHandleByIndex_v2(0, &gpu) == 0);
  }
  ~Driver() {
    nvmlShutdown();
    unlink(path.c_str());
  }
};

}  // namespace

TEST_CASE("a machine that makes no sense is refused") {
  CHECK(perseus_sim_create("/tmp/x", "a100", 0, 1, 1) == -1);
  CHECK(perseus_sim_create("/tmp/x", "a100", 99, 1, 1) == -1);
  CHECK(perseus_sim_create("/tmp/x", "b200", 1, 1, 1) == -2);
  CHECK(perseus_sim_create("/nowhere/x", "a100", 1, 1, 1) == -3);
  CHECK(perseus_sim_attach("/etc/passwd") == -1);
}

TEST_CASE("virtual time: a kernel takes its model's time and energy") {
  Driver driver(0);
  CHECK(perseus_sim_set(0, "time_noise", 0) == 0);
  CHECK(perseus_sim_set(0, "power_noise", 0) == 0);
  CHECK(nvmlDeviceSetGpuLockedClocks(driver.gpu, 705, 705) == 0);
  const double before = perseus_sim_get(0, "energy_j");
  double start = 0;
  double end = 0;
  CHECK(perseus_sim_wait(0, perseus_sim_launch(0, 0.1, 0.25, 0.7), &start, &end) == 0);
  const double time = perseus_sim_true_time(0, 705, 0.1, 0.25);
  CHECK(end - start == doctest::Approx(time).epsilon(1e-6));
  const double energy = perseus_sim_get(0, "energy_j") - before;
  CHECK(energy == doctest::Approx(time * perseus_sim_true_power(0, 705, 0.7)).epsilon(1e-4));
}

TEST_CASE("real time: setting a clock blocks for its latency") {
  Driver driver(1);
  const double before = perseus_sim_now();
  CHECK(nvmlDeviceSetGpuLockedClocks(driver.gpu, 900, 900) == 0);
  CHECK(perseus_sim_now() - before >= 0.010);
  CHECK(perseus_sim_get(0, "locked_max_mhz") == 900);
  CHECK(perseus_sim_get(1, "locked_max_mhz") == 0);
  CHECK(nvmlDeviceResetGpuLockedClocks(driver.gpu) == 0);
  CHECK(perseus_sim_get(0, "locked_max_mhz") == 0);
  CHECK(nvmlDeviceSetPowerManagementLimit(driver.gpu, 50'000) == perseus::nvml::invalid_argument);
  CHECK(perseus_sim_get(0, "lowest_limit_asked_w") == 50);
}

TEST_CASE("handles do not outlive their initialisation") {
  Driver driver(0);
  CHECK(nvmlShutdown() == 0);
  std::uint64_t energy = 0;
  CHECK(nvmlDeviceGetTotalEnergyConsumption(driver.gpu, &energy) == perseus::nvml::uninitialized);
  CHECK(nvmlInitWithFlags(0) == 0);
  CHECK(nvmlDeviceGetTotalEnergyConsumption(driver.gpu, &energy) == perseus::nvml::invalid_argument);
  CHECK(nvmlDeviceGetHandleByIndex_v2(0, &driver.gpu) == 0);
  const pid_t child = fork();
  if (child == 0) _exit(nvmlDeviceGetTotalEnergyConsumption(driver.gpu, &energy));
  int status = 0;
  waitpid(child, &status, 0);
  CHECK(WEXITSTATUS(status) == perseus::nvml::uninitialized);
}

TEST_CASE("faults answer when, where and as often as ordered") {
  Driver driver(0);
  std::uint64_t energy = 0;
  CHECK(perseus_sim_fault("nvmlDeviceGetTotalEnergyConsumption", 0, 15, 1, 2) == 0);
  CHECK(nvmlDeviceGetTotalEnergyConsumption(driver.gpu, &energy) == 0);
  CHECK(nvmlDeviceGetTotalEnergyConsumption(driver.gpu, &energy) == 15);
  CHECK(nvmlDeviceGetTotalEnergyConsumption(driver.gpu, &energy) == 15);
  CHECK(nvmlDeviceGetTotalEnergyConsumption(driver.gpu, &energy) == 0);
  CHECK(perseus_sim_fault("", 1, 999, 0, -1) == 0);
  CHECK(nvmlDeviceGetTotalEnergyConsumption(driver.gpu, &energy) == 0);
  CHECK(perseus_sim_clear_faults() == 0);
}

TEST_CASE("threads share one GPU") {
  Driver driver(1);
  perseus_sim_set(0, "set_clock_latency_s", 0.0001);
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([&driver, t] {
      for (unsigned i = 0; i < 50; ++i) {
        nvmlDeviceSetGpuLockedClocks(driver.gpu, 600 + 15 * t, 600 + 15 * t);
        std::uint64_t energy = 0;
        nvmlDeviceGetTotalEnergyConsumption(driver.gpu, &energy);
        perseus_sim_wait(0, perseus_sim_launch(0, 1e-5, 0, 0.5), nullptr, nullptr);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(perseus_sim_call_count() == 200);
  CHECK(perseus_sim_get(0, "set_clock_calls") == 200);
}

#ifndef __SANITIZE_THREAD__
TEST_CASE("processes killed at any moment leave a whole state") {
  Driver driver(1);
  perseus_sim_set(0, "set_clock_latency_s", 0);
  for (int round = 0; round < 60; ++round) {
    const pid_t child = fork();
    if (child == 0) {
      void* gpu = nullptr;
      nvmlInitWithFlags(0);
      nvmlDeviceGetHandleByIndex_v2(0, &gpu);
      for (;;) nvmlDeviceSetGpuLockedClocks(gpu, 900, 900);
    }
    usleep(static_cast<useconds_t>(500 + 37 * round));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    const double clock = perseus_sim_get(0, "locked_max_mhz");  // would hang on a lost lock
    const bool whole = clock == 900 || clock == 0;
    CHECK(whole);
  }
}
#endif
