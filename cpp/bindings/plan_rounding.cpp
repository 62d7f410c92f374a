// perseus._native: rounding of continuous durations to profiled choices. Only transcribes: no logic.
#include "perseus/plan_rounding.hpp"

#include <pybind11/pybind11.h>

#include "arrays.hpp"

namespace py = pybind11;

namespace perseus {

namespace {

PlanSpace make_space(const Array<std::int64_t>& menu_offsets, const Array<double>& choice_times_s,
                     const Array<double>& choice_energies_j, const Array<std::int32_t>& menu_of,
                     const Array<std::int32_t>& predecessor, const Array<std::int32_t>& successor,
                     const Array<double>& latency_s) {
  PlanProblem problem;
  problem.menu_offsets = view(menu_offsets);
  problem.choice_time_s = view(choice_times_s);
  problem.choice_energy_j = view(choice_energies_j);
  problem.menu_of = view(menu_of);
  problem.predecessor = view(predecessor);
  problem.successor = view(successor);
  problem.latency_s = view(latency_s);
  const py::gil_scoped_release release;
  return PlanSpace(problem);
}

RoundedPlan round(const PlanSpace& space, const Array<double>& planned_s, double deadline_s,
                  const RoundingOptions& options) {
  const std::span<const double> planned = view(planned_s);
  const py::gil_scoped_release release;
  return space.round(planned, deadline_s, options);
}

RoundedPlan splice(const PlanSpace& space, const Array<std::int32_t>& base, const Array<std::int32_t>& other,
                   SplicedPart part, double deadline_s, const RoundingOptions& options) {
  const std::span<const std::int32_t> base_choices = view(base);
  const std::span<const std::int32_t> other_choices = view(other);
  const py::gil_scoped_release release;
  return space.splice(base_choices, other_choices, part, deadline_s, options);
}

RoundedPlan improve(const PlanSpace& space, const Array<std::int32_t>& choices, double deadline_s,
                    const RoundingOptions& options) {
  const std::span<const std::int32_t> start = view(choices);
  const py::gil_scoped_release release;
  return space.improve(start, deadline_s, options);
}

RoundingOptions make_options(bool carry, std::int64_t reclaim_effort, std::int64_t exchange_effort,
                             std::int64_t chain_effort) {
  RoundingOptions options;
  options.carry = carry;
  options.reclaim_effort = reclaim_effort;
  options.exchange_effort = exchange_effort;
  options.chain_effort = chain_effort;
  return options;
}

}  // namespace

void register_plan_rounding(py::module_& module) {
  py::enum_<RoundingStatus>(module, "RoundingStatus")
      .value("complete", RoundingStatus::kComplete)
      .value("deadline_too_short", RoundingStatus::kDeadlineTooShort)
      .value("cyclic", RoundingStatus::kCyclic)
      .value("invalid", RoundingStatus::kInvalid);

  py::enum_<SplicedPart>(module, "SplicedPart")
      .value("beginning", SplicedPart::kBeginning)
      .value("end", SplicedPart::kEnd);

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

  py::class_<RoundingOptions>(module, "RoundingOptions")
      .def(py::init(&make_options), py::kw_only(), py::arg("carry"), py::arg("reclaim_effort"),
           py::arg("exchange_effort"), py::arg("chain_effort"));

  py::class_<PlanSpace>(module, "PlanSpace")
      .def(py::init(&make_space), py::arg("menu_offsets"), py::arg("choice_times_s"), py::arg("choice_energies_j"),
           py::arg("menu_of"), py::arg("predecessor"), py::arg("successor"), py::arg("latency_s"))
      .def_property_readonly("status", &PlanSpace::status)
      .def("round", &round, py::arg("planned_s"), py::arg("deadline_s"), py::arg("options"))
      .def("splice", &splice, py::arg("base"), py::arg("other"), py::arg("part"), py::arg("deadline_s"),
           py::arg("options"))
      .def("improve", &improve, py::arg("choices"), py::arg("deadline_s"), py::arg("options"));
}

}  // namespace perseus
