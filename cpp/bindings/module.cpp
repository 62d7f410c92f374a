// Table of contents of perseus._native.
#include <pybind11/pybind11.h>

namespace py = pybind11;

namespace perseus {
void register_plan_rounding(py::module_& module);
void register_tradeoff_solver(py::module_& module);
}  // namespace perseus

PYBIND11_MODULE(_native, module) {
  module.doc() = "Native core of Perseus: see perseus.solve and perseus.plan for the public interface.";
  perseus::register_tradeoff_solver(module);
  perseus::register_plan_rounding(module);
}
