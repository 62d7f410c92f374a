#include "guardian.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <ctime>
#include <exception>
#include <optional>
#include <thread>

namespace perseus::runtime {
namespace {

constexpr int acquire_tries = 10;
constexpr auto acquire_pause = std::chrono::milliseconds(15);
constexpr int restore_tries = 8;
constexpr auto late_request_pause = std::chrono::milliseconds(200);
constexpr auto first_pause = std::chrono::milliseconds(20);  // doubled after each try
constexpr int poll_without_descriptor_ms = 50;               // kernels before 5.3 have no process descriptors

void say(int socket, const std::string& line) {
  const std::string text = line + "\n";
  static_cast<void>(send(socket, text.data(), text.size(), MSG_NOSIGNAL));
}

template <class Try>
int try_again(Try&& attempt) {
  auto pause = first_pause;
  int code = attempt();
  for (int i = 1; code != code_success && i < restore_tries; ++i, pause *= 2) {
    std::this_thread::sleep_for(pause);
    code = attempt();
  }
  return code;
}

int restore_power_limit(GpuControl& gpu, unsigned original_mw) {
  unsigned now_mw = 0;
  if (original_mw == 0 || (gpu.power_limit_mw(now_mw) == code_success && now_mw == original_mw)) return code_success;
  return gpu.set_power_limit_mw(original_mw);
}

bool process_lives(long pid) { return kill(static_cast<pid_t>(pid), 0) == 0 || errno == EPERM; }

/// Wait until the trainer says "release" (true) or is gone (false).
bool wait_for_end(int socket, long pid, int process) {
  pollfd waits[] = {{socket, POLLIN, 0}, {process, POLLIN, 0}};
  for (;;) {
    const int timeout_ms = process >= 0 ? -1 : poll_without_descriptor_ms;
    if (poll(waits, 2, timeout_ms) < 0 && errno != EINTR) return false;
    if (waits[0].revents != 0) {
      char text[64];
      return recv(socket, text, sizeof text, 0) > 0;
    }
    if (waits[1].revents != 0 || (process < 0 && !process_lives(pid))) return false;
  }
}

/// A reader holds the lock for a moment, an owner for long: look again before believing in an owner.
std::optional<LockFile> acquire_patiently(const std::string& path) {
  for (int i = 1; i < acquire_tries; ++i) {
    if (auto file = LockFile::acquire(path); file.has_value()) return file;
    std::this_thread::sleep_for(acquire_pause);
  }
  return LockFile::acquire(path);
}

LockRecord make_record(const GuardianTask& task, GpuControl& gpu) {
  LockRecord record;
  record.uuid = task.gpu.uuid;
  record.boot_id = boot_id();
  record.library = task.gpu.library;
  record.zeusd_socket = task.gpu.zeusd_socket;
  record.zeusd_gpu = task.gpu.zeusd_gpu;
  record.trainer_pid = task.trainer_pid;
  record.guardian_pid = getpid();
  record.started_at = static_cast<long>(std::time(nullptr));
  record.original_min_mhz = task.original_min_mhz;
  record.original_max_mhz = task.original_max_mhz;
  unsigned limit_mw = 0;
  if (gpu.power_limit_mw(limit_mw) == code_success) record.original_limit_mw = limit_mw;
  return record;
}

/// Restore, and forget the record if that worked; else note why in it, for the next start.
int finish(LockFile& file, GpuControl& gpu, LockRecord record) {
  const int code = restore(gpu, record);
  if (code == code_success) {
    file.clear();
  } else {
    record.error = "NVML code " + std::to_string(code);
    file.write(record);
  }
  return code;
}

int watch(const GuardianTask& task, LockFile& file, GpuControl& gpu) {
  const int process = static_cast<int>(syscall(SYS_pidfd_open, task.trainer_pid, 0));
  const bool gone = process < 0 && errno == ESRCH;
  if (const auto stale = file.stale(); stale.has_value()) {
    if (const int code = finish(file, gpu, *stale); code != code_success) {
      say(task.socket, "error " + std::to_string(code) + " reset the settings that a dead process left");
      return 1;
    }
    say(task.socket, "recovered");
  }
  if (gone) return 0;
  const LockRecord record = make_record(task, gpu);
  file.write(record);
  say(task.socket, "ready");
  const bool asked = wait_for_end(task.socket, task.trainer_pid, process);
  if (!asked && !task.gpu.zeusd_socket.empty()) {
    // The daemon may still be at a request that the trainer sent before it died: restore at once, and again later.
    restore(gpu, record);
    std::this_thread::sleep_for(late_request_pause);
  }
  const int code = finish(file, gpu, record);
  if (asked) say(task.socket, code == code_success ? "restored" : "failed " + std::to_string(code));
  return code == code_success ? 0 : 1;
}

}  // namespace

int restore(GpuControl& gpu, const LockRecord& record) {
  const int code = try_again([&] {
    if (record.original_max_mhz == 0) return gpu.reset_clocks();
    return gpu.lock_clocks(record.original_min_mhz, record.original_max_mhz);
  });
  const int limit_code = try_again([&] { return restore_power_limit(gpu, record.original_limit_mw); });
  return code != code_success ? code : limit_code;
}

int guard(const GuardianTask& task) {
  for (const int ignored : {SIGTERM, SIGINT, SIGHUP, SIGPIPE}) signal(ignored, SIG_IGN);
  try {
    auto file = acquire_patiently(task.record_path);
    if (!file.has_value()) {
      say(task.socket, "busy " + std::to_string(LockRecord::parse(read_record_text(task.record_path)).trainer_pid));
      return 1;
    }
    const auto gpu = open_gpu(task.gpu);
    return watch(task, *file, *gpu);
  } catch (const OpenError& error) {
    say(task.socket, "error " + std::to_string(error.code()) + " " + error.what());
  } catch (const std::exception& error) {
    say(task.socket, "error " + std::to_string(code_unknown) + " " + error.what());
  }
  return 1;
}

}  // namespace perseus::runtime
