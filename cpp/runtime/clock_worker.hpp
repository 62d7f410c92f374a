// The clock worker: a thread that sets one GPU's clock, so that whoever asks for a clock never waits.
//
// Setting a clock takes 10 ms and more inside the driver; a training step asks for one every few tens of
// milliseconds, from its critical path. So `request` only stores the wish in one atomic word.
//
// Waking a thread costs the one who wakes it a system call, and the woken thread may take over its core: 20 us were seen.
// So while wishes keep coming the thread looks for them by itself every `poll_interval`; only after `awake_for` without
// one does it sleep until it is woken.
//
// Rules of the thread
//   latest wins   while it is busy inside the driver, newer wishes replace older ones unseen;
//   coalesce      a wish for the clock that is already set costs no driver call;
//   skip          a wish that comes with a time to hold is dropped when that time would be over before
//                 the driver has done it (the driver's latency is measured, exponentially averaged);
//   give up       after `failures_to_give_up` driver errors in a row it unlocks the clocks and stays quiet.
//
// Threads: `request` is lock-free and may be called from any number of threads. All other members may be
// called from any thread too, but not after `abandon`.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "gpu_control.hpp"

namespace perseus::runtime {

/// One clock that the worker asked the driver for.
struct ClockRecord {
  double requested_s;    ///< When the wish came (CLOCK_MONOTONIC, seconds).
  double applied_s;      ///< When the driver's call returned.
  unsigned requested_mhz;
  unsigned achieved_mhz;  ///< As read back; 0 when it couldn't be read.
  std::uint64_t reasons;  ///< NVML event reasons at the reading.
  int code;               ///< NVML return code of the call.
};

/// Counts since the start.
struct ClockStatistics {
  std::uint64_t requests;         ///< Wishes.
  std::uint64_t applied;          ///< Driver calls that succeeded.
  std::uint64_t coalesced;        ///< Wishes replaced by a newer one, or equal to the clock already set.
  std::uint64_t skipped;          ///< Wishes too short for the driver's latency.
  std::uint64_t failed;           ///< Driver calls that failed.
  std::uint64_t missed_deadlines; ///< Calls that returned after the wish's time was over.
  double latency_s;               ///< The driver's latency, averaged; 0 before the first call.
  unsigned requested_mhz;         ///< Latest wish; 0: none yet.
  unsigned achieved_mhz;          ///< Latest reading; 0: none yet.
  int last_code;                  ///< Of the latest failed call; 0: none failed.
  bool gave_up;
};

class ClockWorker {
 public:
  static constexpr int failures_to_give_up = 3;
  static constexpr std::size_t kept_records = 4096;
  static constexpr std::chrono::microseconds poll_interval{500};
  static constexpr std::chrono::microseconds awake_for{2'000'000};

  explicit ClockWorker(std::unique_ptr<GpuControl> gpu);
  ~ClockWorker();
  ClockWorker(const ClockWorker&) = delete;
  ClockWorker& operator=(const ClockWorker&) = delete;

  /// Wish for a clock; `hold_s` > 0: for so long only. Never blocks. Clocks are 1 ... 65535 MHz.
  void request(unsigned mhz, double hold_s = 0) noexcept;

  /// Wait until the wishes so far are dealt with, at most `timeout_s`; whether they are.
  bool drain(double timeout_s);

  /// End the thread after the call that it is in. The clock stays as it is.
  void stop();

  /// In a forked child: the thread is not here; forget it. Requests do nothing from then on.
  void abandon() noexcept;

  ClockStatistics statistics() const;
  std::vector<ClockRecord> take_records();

 private:
  void run();
  std::uint64_t await_wish(std::uint64_t seen);
  void handle(std::uint64_t wish);
  void apply(std::uint64_t wish, std::int64_t requested_us);
  void read_back(ClockRecord& record, std::uint64_t wish);
  void note_failure(int code);
  void keep(const ClockRecord& record);
  std::int64_t now_us() const;

  // A wish is one word: sequence (8 bits) | deadline in us since the start, 0 for none (40) | MHz (16).
  static std::uint64_t pack(std::uint64_t sequence, std::int64_t deadline_us, unsigned mhz);

  std::unique_ptr<GpuControl> gpu_;  ///< Used by the thread only.
  const std::int64_t start_ns_;
  std::atomic<std::uint64_t> wish_{0};          ///< Latest wish; 0: none.
  std::atomic<std::int64_t> requested_us_{0};   ///< When it came, since the start.
  std::atomic<std::uint64_t> requests_{0};
  std::atomic<std::uint64_t> handled_{0};       ///< The wish that the thread dealt with last.
  std::atomic<bool> live_{true};                ///< Requests are taken.
  std::atomic<bool> stopping_{false};
  std::atomic<bool> asleep_{false};             ///< The thread sleeps, or is about to, and must be woken.
  std::atomic<unsigned> set_mhz_{0};            ///< Clock that the driver was last asked for; 0: none.
  std::atomic<unsigned> achieved_mhz_{0};
  std::atomic<std::uint64_t> taken_{0};         ///< Wishes that the thread saw.
  std::atomic<std::uint64_t> applied_{0};
  std::atomic<std::uint64_t> repeated_{0};      ///< Seen, but already set.
  std::atomic<std::uint64_t> skipped_{0};
  std::atomic<std::uint64_t> failed_{0};
  std::atomic<std::uint64_t> missed_{0};
  std::atomic<std::int64_t> latency_us_{0};
  std::atomic<int> last_code_{0};
  std::atomic<bool> gave_up_{false};
  int failures_in_a_row_ = 0;                   ///< Thread only.
  mutable std::mutex records_mutex_;            ///< Never taken by `request`.
  std::vector<ClockRecord> records_;            ///< The last `kept_records` not yet taken.
  std::unique_ptr<std::thread> thread_;         ///< Last: it uses all the others.
};

}  // namespace perseus::runtime
