// perseus._native: rounding of continuous durations to profiled choices. Only transcribes: no logic.
#include "perseus/plan_rounding.hpp"

#include <pybind11/pybind11.h>

#include "arrays.hpp"

namespace py = pybind11;

namespace perseus {

namespace {

RoundedPlan round(const Array<std::int64_t>& menu_offsets, const Array<double>& choice_times_s,
                  const Array<double>& choice_energies_j, const Array<std::int32_t>& menu_of,
                  const Array<double>& planned_s, const Array<std::int32_t>& predecessor,
                  const Array<std::int32_t>& successor, const Array<double>& latency_s, double deadline_s,
                  bool reclaim, std::int64_t exchange_effort) {
  PlanProblem problem;
  problem.menu_offsets = view(menu_offsets);
  problem.choice_time_s = view(choice_times_s);
  problem.choice_energy_j = view(choice_energies_j);
  problem.menu_of = view(menu_of);
  problem.planned_s = view(planned_s);
  problem.predecessor = view(predecessor);
  problem.successor = view(successor);
  problem.latency_s = view(latency_s);
  problem.deadline_s = deadline_s;
  RoundingOptions options;
  options.reclaim = reclaim;
  options.exchange_effort = exchange_effort;
  const py::gil_scoped_release release;
  return round_plan(problem, options);
}

}  // namespace

void register_plan_rounding(py::module_& module) {
  py::enum_<RoundingStatus>(module, "RoundingStatus")
      .value("complete", RoundingStatus::kComplete)
      .value("deadline_too_short", RoundingStatus::kDeadlineTooShort)
      .value("cyclic", RoundingStatus::kCyclic)
      .value("invalid", RoundingStatus::kInvalid);

  py::class_<RoundedPlan>(module, "RoundedPlan")
      .def_readonly("status", &RoundedPlan::status)
      .def_property_readonly("choices", [](const RoundedPlan& p) { return copied(p.choice); },
                             "Per operation: index into its menu.")
      .def_property_readonly("start_times_s", [](const RoundedPlan& p) { return copied(p.start_s); },
                             "Per operation: earliest start (s).")
      .def_readonly("makespan_s", &RoundedPlan::makespan_s)
      .def_readonly("rounded_energy_j", &RoundedPlan::rounded_energy_j)
      .def_readonly("reclaimed_energy_j", &RoundedPlan::reclaimed_energy_j)
      .def_readonly("energy_j", &RoundedPlan::energy_j)
      .def_readonly("exchanges", &RoundedPlan::exchanges);

  module.def("round_plan", &round, py::arg("menu_offsets"), py::arg("choice_times_s"), py::arg("choice_energies_j"),
             py::arg("menu_of"), py::arg("planned_s"), py::arg("predecessor"), py::arg("successor"),
             py::arg("latency_s"), py::arg("deadline_s"), py::kw_only(), py::arg("reclaim"),
             py::arg("exchange_effort"));
}

}  // namespace perseus
