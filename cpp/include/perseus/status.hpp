// How a solve ended. The core neither throws nor prints: the caller turns a status into words.
#pragma once

namespace perseus {

enum class SolveStatus {
  kComplete,            // the whole frontier, down to the shortest iteration time
  kStopped,             // reached SolveOptions::stop_at_s: the frontier is whole from there to the longest times
  kInterrupted,         // the progress callback asked to stop; the frontier is not usable
  kCyclic,              // the dependencies contain a cycle
  kOutOfRange,          // the magnitudes do not fit 128-bit integers
  kNotSpliceable,       // no slot of the steady state could be repeated at some breakpoint: solve a larger pipeline
  kCertificateFailed,   // a breakpoint did not pass its optimality check: a defect of the solver
};

const char* describe(SolveStatus status);

}  // namespace perseus
