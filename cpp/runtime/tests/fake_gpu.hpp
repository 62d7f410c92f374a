// A GPU for the tests of the run-time part: answers from memory, counts calls, can be slow and can fail.
#pragma once

#include <atomic>
#include <chrono>
#include <thread>

#include "gpu_control.hpp"

struct FakeState {
  std::atomic<unsigned> clock{1410};
  std::atomic<unsigned> limit_mw{400'000};
  std::atomic<int> locks{0};
  std::atomic<int> resets{0};
  std::atomic<int> fail_next{0};  ///< So many calls that set something fail.
  std::atomic<int> fail_code{15};
  std::atomic<unsigned> held_mhz{0};  ///< > 0: no clock above it is reached.
  std::atomic<std::uint64_t> energy{0};
  std::atomic<int> energy_code{0};
  std::chrono::microseconds latency{0};
};

class FakeGpu final : public perseus::runtime::GpuControl {
 public:
  explicit FakeGpu(FakeState& state) : state_(state) {}
  int lock_clocks(unsigned, unsigned max_mhz) override {
    std::this_thread::sleep_for(state_.latency);
    state_.locks.fetch_add(1);
    if (failing()) return state_.fail_code;
    const unsigned held = state_.held_mhz;
    state_.clock = held > 0 && max_mhz > held ? held : max_mhz;
    return 0;
  }
  int reset_clocks() override {
    state_.resets.fetch_add(1);
    if (failing()) return state_.fail_code;
    state_.clock = 1410;
    return 0;
  }
  int set_power_limit_mw(unsigned limit_mw) override {
    if (failing()) return state_.fail_code;
    state_.limit_mw = limit_mw;
    return 0;
  }
  int power_limit_mw(unsigned& limit_mw) override {
    limit_mw = state_.limit_mw;
    return 0;
  }
  int clock_mhz(unsigned& mhz) override {
    mhz = state_.clock;
    return 0;
  }
  int event_reasons(std::uint64_t& reasons) override {
    reasons = state_.held_mhz > 0 ? 0x20 : 0;
    return 0;
  }
  int energy_mj(std::uint64_t& energy_mj) override {
    energy_mj = state_.energy;
    return state_.energy_code;
  }

 private:
  bool failing() {
    if (state_.fail_next.load() <= 0) return false;
    state_.fail_next.fetch_sub(1);
    return true;
  }
  FakeState& state_;
};
