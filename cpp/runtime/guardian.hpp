// The guardian: a process that outlives a trainer and undoes what the trainer did to one GPU.
//
// NVML's settings stay when their process dies, even by SIGKILL, which no handler in the process sees. So a second
// process, in its own session and no child of the trainer (so that killing the trainer's group, session or process
// tree misses it), waits for the trainer's death on a process descriptor, restores, and ends.
//
// Protocol, over a socket: the guardian says one line, "ready", "busy <pid>" or "error <code> <doing>"; before "ready" it may
// say "recovered" (it undid the stale settings of an earlier trainer). The trainer says "release" or just dies.
// Then the guardian restores and answers "restored" or "failed <code>".
//
// What is original: NVML can tell the power limit, so that is put back as found. NVML can't tell a clock lock, so
// clocks are unlocked, unless the trainer says what lock to put back.
//
// SIGTERM, SIGINT and SIGHUP are ignored: on an orderly shutdown they come to the trainer too, whose end is what
// the guardian waits for.
#pragma once

#include <string>

#include "gpu_control.hpp"
#include "lock_record.hpp"

namespace perseus::runtime {

struct GuardianTask {
  GpuAddress gpu;
  std::string record_path;
  long trainer_pid = 0;
  int socket = -1;
  unsigned original_min_mhz = 0;
  unsigned original_max_mhz = 0;
};

/// Undo what a record says; the NVML code of the first step that failed after some tries, or 0.
int restore(GpuControl& gpu, const LockRecord& record);

/// Do the guardian's whole work; the process's exit status.
int guard(const GuardianTask& task);

}  // namespace perseus::runtime
