// perseus._native: the frontier solver. Only transcribes: arrays in, arrays out, no logic.
#include "perseus/tradeoff_solver.hpp"

#include <pybind11/functional.h>
#include <pybind11/pybind11.h>

#include <exception>
#include <optional>
#include <string>

#include "arrays.hpp"

namespace py = pybind11;

namespace perseus {

namespace {

// Runs the caller's progress function and Python's signal handlers with the GIL held; an exception from either stops
// the solve and is raised again afterwards, from the calling thread.
class ProgressBridge {
 public:
  explicit ProgressBridge(py::object callback) : callback_(std::move(callback)) {}

  bool operator()(const SolveProgress& progress) {
    py::gil_scoped_acquire gil;
    try {
      if (PyErr_CheckSignals() != 0) throw py::error_already_set();
      if (!callback_.is_none()) {
        callback_(progress.phases, progress.time_s, progress.longest_s, progress.shortest_s);
      }
      return true;
    } catch (...) {
      failure_ = std::current_exception();
      return false;
    }
  }

  void rethrow() const {
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  py::object callback_;
  std::exception_ptr failure_;
};

TradeoffSolution solve(const Array<std::int64_t>& offsets, const Array<double>& times_s,
                       const Array<double>& energies_j, const Array<std::int32_t>& curve_of,
                       const Array<double>& fixed_time_s, const Array<std::int32_t>& predecessor,
                       const Array<std::int32_t>& successor, const Array<double>& latency_s, MaxFlowMethod max_flow,
                       bool certify, py::object progress, const Array<std::int32_t>& slot,
                       const Array<std::int32_t>& place, const Array<std::int32_t>& region, std::int32_t num_regions,
                       std::int64_t repeats, double stop_at_s) {
  TradeoffProblem problem;
  problem.curves = {view(offsets), view(times_s), view(energies_j)};
  problem.curve_of = view(curve_of);
  problem.fixed_time_s = view(fixed_time_s);
  problem.predecessor = view(predecessor);
  problem.successor = view(successor);
  problem.latency_s = view(latency_s);
  problem.slots = {view(slot), view(place), view(region), num_regions, repeats};
  ProgressBridge bridge(std::move(progress));
  SolveOptions options;
  options.max_flow = max_flow;
  options.certify = certify;
  options.stop_at_s = stop_at_s;
  options.progress = [&bridge](const SolveProgress& p) { return bridge(p); };
  TradeoffSolution solution;
  {
    py::gil_scoped_release release;
    solution = solve_tradeoff(problem, options);
  }
  bridge.rethrow();
  return solution;
}

py::array_t<double> times_s(const TradeoffSolution& solution) {
  std::vector<double> seconds;
  for (const Time t : solution.frontier.time) seconds.push_back(solution.quantum.seconds(t));
  return copied(seconds);
}

py::array_t<double> durations_s(const TradeoffSolution& solution, std::size_t index, double share) {
  std::vector<double> durations;
  {
    py::gil_scoped_release release;
    durations = solution.frontier.durations_between(index, share);
    const double one_s = solution.quantum.quanta(1.0);
    for (double& d : durations) d /= one_s;
  }
  return copied(durations);
}

}  // namespace

void register_tradeoff_solver(py::module_& module) {
  py::enum_<MaxFlowMethod>(module, "MaxFlowMethod")
      .value("push_relabel", MaxFlowMethod::kPushRelabel)
      .value("augment", MaxFlowMethod::kAugment);

  py::enum_<SolveStatus>(module, "SolveStatus")
      .value("complete", SolveStatus::kComplete)
      .value("stopped", SolveStatus::kStopped)
      .value("interrupted", SolveStatus::kInterrupted)
      .value("cyclic", SolveStatus::kCyclic)
      .value("out_of_range", SolveStatus::kOutOfRange)
      .value("not_spliceable", SolveStatus::kNotSpliceable)
      .value("certificate_failed", SolveStatus::kCertificateFailed);

  module.def("describe_status", [](SolveStatus status) { return std::string(describe(status)); }, py::arg("status"));

  py::class_<TradeoffSolution>(module, "TradeoffSolution")
      .def_readonly("status", &TradeoffSolution::status)
      .def_property_readonly("times_s", &times_s, "Breakpoints (s), decreasing.")
      .def_property_readonly(
          "energies_j", [](const TradeoffSolution& s) { return copied(s.frontier.energy_j); },
          "Effective energy (J) of the operations with a curve at each breakpoint.")
      .def_property_readonly(
          "slopes_w", [](const TradeoffSolution& s) { return copied(s.frontier.slope_w); },
          "-dE/dT (W) between each breakpoint and the next.")
      .def("durations_s", &durations_s, py::arg("index"), py::arg("share"),
           "Durations (s) of all operations, `share` of the way from breakpoint `index` to the next.")
      .def_property_readonly(
          "repeated_slots", [](const TradeoffSolution& s) { return copied(s.frontier.repeated_slots); },
          "If spliced: per interval between breakpoints, the slot of each region that is repeated.")
      .def_property_readonly("time_quantum_exponent",
                             [](const TradeoffSolution& s) { return s.quantum.exponent(); })
      .def_property_readonly("slope_unit_w", [](const TradeoffSolution& s) { return s.statistics.slope_unit_w; })
      .def_property_readonly("flow_bits",
                             [](const TradeoffSolution& s) { return s.statistics.flows_of_64_bits ? 64 : 128; })
      .def_property_readonly("phases", [](const TradeoffSolution& s) { return s.statistics.phases; })
      .def_property_readonly("rounds", [](const TradeoffSolution& s) { return s.statistics.rounds; })
      .def_property_readonly("certificates", [](const TradeoffSolution& s) { return s.statistics.certificates; })
      .def_property_readonly("nodes", [](const TradeoffSolution& s) { return s.statistics.nodes; })
      .def_property_readonly("arcs", [](const TradeoffSolution& s) { return s.statistics.arcs; })
      .def_property_readonly("duration_changes",
                             [](const TradeoffSolution& s) { return s.frontier.durations.num_changes(); })
      .def_property_readonly("memory_bytes",
                             [](const TradeoffSolution& s) { return s.frontier.durations.memory_bytes(); });

  module.def("solve_tradeoff", &solve, py::arg("curve_offsets"), py::arg("curve_times_s"),
             py::arg("curve_energies_j"), py::arg("curve_of"), py::arg("fixed_time_s"), py::arg("predecessor"),
             py::arg("successor"), py::arg("latency_s"), py::kw_only(), py::arg("max_flow"), py::arg("certify"),
             py::arg("progress"), py::arg("slot") = Array<std::int32_t>(0), py::arg("place") = Array<std::int32_t>(0),
             py::arg("region") = Array<std::int32_t>(0), py::arg("num_regions") = 0, py::arg("repeats") = 0, py::arg("stop_at_s") = 0.0);
}

}  // namespace perseus
