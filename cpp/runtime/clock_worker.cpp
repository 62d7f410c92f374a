#include "clock_worker.hpp"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <utility>

namespace perseus::runtime {
namespace {

constexpr std::int64_t settle_us = 50'000;  // how long to look for the clock after a call
constexpr auto settle_poll = std::chrono::milliseconds(2);
constexpr std::int64_t latency_memory = 4;  // the newest call weighs 1/4 in the averaged latency
constexpr std::uint64_t deadline_mask = (std::uint64_t{1} << 40) - 1;

std::int64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

unsigned mhz_of(std::uint64_t wish) { return static_cast<unsigned>(wish & 0xffff); }

std::int64_t deadline_of(std::uint64_t wish) { return static_cast<std::int64_t>((wish >> 16) & deadline_mask); }

}  // namespace

ClockWorker::ClockWorker(std::unique_ptr<GpuControl> gpu)
    : gpu_(std::move(gpu)), start_ns_(monotonic_ns()), thread_(std::make_unique<std::thread>([this] { run(); })) {}

ClockWorker::~ClockWorker() { stop(); }

std::int64_t ClockWorker::now_us() const { return (monotonic_ns() - start_ns_) / 1000; }

std::uint64_t ClockWorker::pack(std::uint64_t sequence, std::int64_t deadline_us, unsigned mhz) {
  const auto deadline = static_cast<std::uint64_t>(deadline_us) & deadline_mask;
  return (sequence << 56) | (deadline << 16) | (mhz & 0xffffU);
}

void ClockWorker::request(unsigned mhz, double hold_s) noexcept {
  if (!live_.load(std::memory_order_relaxed) || mhz == 0) return;
  const std::uint64_t count = requests_.fetch_add(1, std::memory_order_relaxed) + 1;
  const std::int64_t now = now_us();
  const std::int64_t deadline = hold_s > 0 ? std::max<std::int64_t>(1, now + static_cast<std::int64_t>(hold_s * 1e6)) : 0;
  requested_us_.store(now, std::memory_order_relaxed);
  // Sequentially consistent with `await_wish`: either the thread sees the wish, or this sees that it is asleep.
  wish_.store(pack(count & 0xff, deadline, mhz));
  if (asleep_.load()) wish_.notify_one();
}

bool ClockWorker::drain(double timeout_s) {
  const std::int64_t until = now_us() + static_cast<std::int64_t>(timeout_s * 1e6);
  while (handled_.load() != wish_.load() && live_.load()) {
    if (now_us() > until) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return true;
}

void ClockWorker::stop() {
  live_.store(false);
  stopping_.store(true);
  if (thread_ == nullptr || !thread_->joinable()) return;
  wish_.fetch_xor(std::uint64_t{1} << 63);  // a new value, so that a waiting thread wakes
  wish_.notify_all();
  thread_->join();
}

void ClockWorker::abandon() noexcept {
  live_.store(false);
  stopping_.store(true);
  // Neither the thread nor the library session is here; their objects are left to the parent's copy.
  static_cast<void>(thread_.release());
  static_cast<void>(gpu_.release());
}

void ClockWorker::run() {
  std::uint64_t seen = 0;
  while (!stopping_.load()) {
    seen = await_wish(seen);
    if (stopping_.load()) return;
    taken_.fetch_add(1, std::memory_order_relaxed);
    handle(seen);
    handled_.store(seen);
  }
}

/// Wait for a wish other than `seen` (or for the end) and return it.
std::uint64_t ClockWorker::await_wish(std::uint64_t seen) {
  const std::int64_t asleep_at = now_us() + std::chrono::microseconds(awake_for).count();
  while (wish_.load() == seen && now_us() < asleep_at) std::this_thread::sleep_for(poll_interval);
  asleep_.store(true);
  wish_.wait(seen);
  asleep_.store(false);
  return wish_.load();
}

void ClockWorker::handle(std::uint64_t wish) {
  const unsigned mhz = mhz_of(wish);
  const std::int64_t deadline = deadline_of(wish);
  if (mhz == 0 || gave_up_.load()) return;
  if (mhz == set_mhz_.load()) {
    repeated_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  if (deadline != 0 && now_us() + latency_us_.load() >= deadline) {
    skipped_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  apply(wish, requested_us_.load(std::memory_order_relaxed));
}

void ClockWorker::apply(std::uint64_t wish, std::int64_t requested_us) {
  const unsigned mhz = mhz_of(wish);
  const std::int64_t deadline_us = deadline_of(wish);
  const std::int64_t before = now_us();
  const int code = gpu_->lock_clocks(mhz, mhz);
  const std::int64_t after = now_us();
  const auto to_s = [this](std::int64_t us) { return (static_cast<double>(start_ns_) + static_cast<double>(us) * 1e3) * 1e-9; };
  ClockRecord record{to_s(requested_us), to_s(after), mhz, 0, 0, code};
  if (code != code_success) {
    note_failure(code);
    return keep(record);
  }
  failures_in_a_row_ = 0;
  const std::int64_t average = latency_us_.load();
  latency_us_.store(average == 0 ? after - before : average + (after - before - average) / latency_memory);
  set_mhz_.store(mhz);
  applied_.fetch_add(1, std::memory_order_relaxed);
  if (deadline_us != 0 && after > deadline_us) missed_.fetch_add(1, std::memory_order_relaxed);
  read_back(record, wish);
  keep(record);
}

void ClockWorker::read_back(ClockRecord& record, std::uint64_t wish) {
  const std::int64_t until = now_us() + settle_us;
  for (;;) {
    unsigned mhz = 0;
    if (gpu_->clock_mhz(mhz) != code_success) return;
    record.achieved_mhz = mhz;
    achieved_mhz_.store(mhz);
    const bool newer = wish_.load(std::memory_order_relaxed) != wish;
    if (mhz == record.requested_mhz || newer || stopping_.load() || now_us() > until) break;
    std::this_thread::sleep_for(settle_poll);
  }
  gpu_->event_reasons(record.reasons);
}

void ClockWorker::note_failure(int code) {
  failed_.fetch_add(1, std::memory_order_relaxed);
  last_code_.store(code);
  if (++failures_in_a_row_ < failures_to_give_up) return;
  gave_up_.store(true);
  if (set_mhz_.load() != 0) gpu_->reset_clocks();
}

void ClockWorker::keep(const ClockRecord& record) {
  const std::lock_guard guard(records_mutex_);
  if (records_.size() == kept_records) records_.erase(records_.begin(), records_.begin() + kept_records / 4);
  records_.push_back(record);
}

ClockStatistics ClockWorker::statistics() const {
  ClockStatistics s{};
  const std::uint64_t taken = taken_.load();
  s.requests = std::max(requests_.load(), taken);
  s.applied = applied_.load();
  s.coalesced = s.requests - taken + repeated_.load();
  s.skipped = skipped_.load();
  s.failed = failed_.load();
  s.missed_deadlines = missed_.load();
  s.latency_s = static_cast<double>(latency_us_.load()) * 1e-6;
  s.requested_mhz = mhz_of(wish_.load());
  s.achieved_mhz = achieved_mhz_.load();
  s.last_code = last_code_.load();
  s.gave_up = gave_up_.load();
  return s;
}

std::vector<ClockRecord> ClockWorker::take_records() {
  const std::lock_guard guard(records_mutex_);
  return std::exchange(records_, {});
}

}  // namespace perseus::runtime
