// The simulated machine: its clock, its GPUs, and the faults ordered for it, in one mapped file.
//
// Every process that loads the driver maps the same file, so they see one machine, as with a real driver.
//
// Safety against sudden death. A process may be killed at any instruction. Therefore
//   * the lock is a robust process-shared mutex: the next process gets it when its holder died;
//   * a GPU is kept twice. A transaction copies the valid copy to the other one, changes that, and then
//     flips `valid` with one atomic store. A transaction that was cut off leaves the old state.
// So no kill can leave a half-made state behind.
//
// Time. Simulated time starts at 0 when the file is made. It follows CLOCK_MONOTONIC times `time_scale`
// (1 by default: real time), or, if `time_scale` is 0, it moves only when told to (virtual time).
#pragma once

#include <pthread.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "gpu_state.hpp"

namespace perseus::simulated {

inline constexpr std::size_t max_gpus = 16;
inline constexpr std::size_t max_faults = 32;
inline constexpr std::size_t max_calls = 4096;
inline constexpr std::size_t name_size = 56;

/// "From its `skip`-th call on, `function` about `gpu` answers `code`, `times` times."
struct Fault {
  std::array<char, name_size> function;  ///< Empty: every function.
  std::int32_t gpu;                      ///< -1: every GPU, and calls that are about none.
  std::int32_t code;                     ///< 0: the entry is free.
  std::int64_t skip;
  std::int64_t times;  ///< Negative: for ever.
};

/// One call that asked to change a setting; the audit that tests read.
struct SettingCall {
  double time_s;
  std::int32_t pid;
  std::int32_t gpu;
  std::int32_t kind;  ///< 0 lock clocks, 1 reset clocks, 2 power limit (mW).
  std::int32_t code;
  std::uint32_t first;   ///< min MHz or mW.
  std::uint32_t second;  ///< max MHz.
};

struct GpuSlot {
  std::atomic<std::uint32_t> valid;  ///< Which copy holds.
  std::array<GpuState, 2> copies;
};

struct MachineFile {
  std::atomic<std::uint64_t> magic;  ///< Stored last, when everything else is in place.
  pthread_mutex_t mutex;
  std::int64_t epoch_ns;          ///< CLOCK_MONOTONIC at simulated time 0.
  double time_scale;              ///< 0: virtual time.
  std::atomic<double> virtual_s;  ///< Simulated time when virtual.
  std::uint32_t gpu_count;
  std::atomic<std::uint64_t> call_count;
  std::array<Fault, max_faults> faults;
  std::array<SettingCall, max_calls> calls;  ///< Ring.
  std::array<GpuSlot, max_gpus> gpus;
};

class Machine {
 public:
  struct Setup {
    std::array<std::uint32_t, max_gpus> models;
    std::uint32_t count;
    double time_scale;
    double seed;
  };

  /// Make a new machine's file (replacing any). Returns 0 or an errno.
  static int create(const std::string& path, const Setup& setup);

  /// Map an existing machine's file; null when it isn't one.
  static std::unique_ptr<Machine> open(const std::string& path);

  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  std::uint32_t gpu_count() const { return file_->gpu_count; }
  bool is_virtual() const { return file_->time_scale == 0; }
  double now_s() const;

  /// Move virtual time forward to `time_s`; earlier times change nothing.
  void move_to(double time_s);

  /// Sleep until simulated time `time_s` (moves the clock when virtual).
  void sleep_until(double time_s);

  /// Bring GPU `index` to now and run `change(GpuState&)` on it as one transaction.
  template <class Change>
  auto transact(std::uint32_t index, Change&& change) {
    const Lock lock(file_->mutex);
    GpuSlot& slot = file_->gpus[index];
    const std::uint32_t valid = slot.valid.load(std::memory_order_acquire);
    GpuState& next = slot.copies[1 - valid];
    next = slot.copies[valid];
    advance(next, now_s());
    struct Flip {  // also for a void result
      GpuSlot& slot;
      std::uint32_t to;
      ~Flip() { slot.valid.store(to, std::memory_order_release); }
    } flip{slot, 1 - valid};
    return change(next);
  }

  /// The code that `function` about `gpu` must answer because of an ordered fault, or 0.
  int take_fault(std::string_view function, int gpu);

  /// Order a fault; false when there are too many.
  bool add_fault(std::string_view function, int gpu, int code, long skip, long times);
  void clear_faults();

  void record(const SettingCall& call);
  std::uint64_t call_count() const { return file_->call_count.load(); }
  SettingCall call(std::uint64_t number);

 private:
  class Lock {
   public:
    explicit Lock(pthread_mutex_t& mutex);
    ~Lock();
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;

   private:
    pthread_mutex_t& mutex_;
  };

  explicit Machine(MachineFile* file) : file_(file) {}

  MachineFile* file_;  ///< Mapped, shared.
};

/// The machine of this process: attached by `attach`, or found by PERSEUS_SIMULATED_GPU_STATE. May be null.
Machine* machine();

/// Use the machine in `path` from now on; false when there is none. Earlier machines stay mapped, because
/// another thread may be inside a call about them.
bool attach(const std::string& path);

}  // namespace perseus::simulated
