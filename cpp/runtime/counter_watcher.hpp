// The counter watcher: a thread that notes when a GPU's energy counter changes.
//
// The counter moves every 20 to 100 ms only. Energy between two *changes* belongs to a known time span; energy
// between two arbitrary readings doesn't. The thread polls the counter and keeps, for each change, the new value
// and the two times between which it happened.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "gpu_control.hpp"

namespace perseus::runtime {

/// A change of the counter: it happened after `after_s` and no later than `by_s` (CLOCK_MONOTONIC, seconds).
struct CounterChange {
  double after_s;
  double by_s;
  std::uint64_t energy_mj;
};

class CounterWatcher {
 public:
  CounterWatcher(std::unique_ptr<GpuControl> gpu, double poll_s);
  ~CounterWatcher();
  CounterWatcher(const CounterWatcher&) = delete;
  CounterWatcher& operator=(const CounterWatcher&) = delete;

  /// The changes since the last call, oldest first.
  std::vector<CounterChange> take_changes();

  /// NVML code of the reading that ended the watch; 0 while it goes on.
  int code() const { return code_.load(); }

  void stop();
  /// In a forked child: see ClockWorker::abandon.
  void abandon() noexcept;

 private:
  void run();

  std::unique_ptr<GpuControl> gpu_;  ///< Used by the thread only.
  const double poll_s_;
  std::atomic<bool> stopping_{false};
  std::atomic<int> code_{0};
  std::mutex changes_mutex_;
  std::vector<CounterChange> changes_;
  std::unique_ptr<std::thread> thread_;
};

}  // namespace perseus::runtime
