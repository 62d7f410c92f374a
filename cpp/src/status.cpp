#include "perseus/status.hpp"

namespace perseus {

const char* describe(SolveStatus status) {
  switch (status) {
    case SolveStatus::kComplete:
      return "complete";
    case SolveStatus::kStopped:
      return "stopped at the iteration time asked for";
    case SolveStatus::kInterrupted:
      return "interrupted by the caller";
    case SolveStatus::kCyclic:
      return "the dependencies contain a cycle";
    case SolveStatus::kOutOfRange:
      return "the times and energies span too many orders of magnitude for exact 128-bit integers";
    case SolveStatus::kNotSpliceable:
      return "no slot of the steady state qualifies for being repeated";
    case SolveStatus::kCertificateFailed:
      return "a breakpoint failed its optimality certificate";
  }
  return "unknown";
}

}  // namespace perseus
