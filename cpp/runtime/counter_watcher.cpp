#include "counter_watcher.hpp"

#include <chrono>
#include <ctime>
#include <utility>

namespace perseus::runtime {
namespace {

double monotonic_s() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

}  // namespace

CounterWatcher::CounterWatcher(std::unique_ptr<GpuControl> gpu, double poll_s)
    : gpu_(std::move(gpu)), poll_s_(poll_s), thread_(std::make_unique<std::thread>([this] { run(); })) {}

CounterWatcher::~CounterWatcher() { stop(); }

void CounterWatcher::stop() {
  stopping_.store(true);
  if (thread_ != nullptr && thread_->joinable()) thread_->join();
}

void CounterWatcher::abandon() noexcept {
  stopping_.store(true);
  static_cast<void>(thread_.release());
  static_cast<void>(gpu_.release());
}

void CounterWatcher::run() {
  std::uint64_t last_mj = 0;
  bool first = true;
  double previous_s = monotonic_s();
  while (!stopping_.load()) {
    std::uint64_t now_mj = 0;
    const double before_s = monotonic_s();
    if (const int code = gpu_->energy_mj(now_mj); code != code_success) return code_.store(code);
    const double after_s = monotonic_s();
    if (!first && now_mj != last_mj) {
      const std::lock_guard guard(changes_mutex_);
      changes_.push_back({previous_s, after_s, now_mj});
    }
    first = false;
    last_mj = now_mj;
    previous_s = before_s;
    std::this_thread::sleep_for(std::chrono::duration<double>(poll_s_));
  }
}

std::vector<CounterChange> CounterWatcher::take_changes() {
  const std::lock_guard guard(changes_mutex_);
  return std::exchange(changes_, {});
}

}  // namespace perseus::runtime
