// The Python module perseus._runtime: transcription only, no logic.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "clock_worker.hpp"
#include "counter_watcher.hpp"
#include "gpu_control.hpp"

namespace py = pybind11;
using namespace perseus::runtime;

namespace {

GpuAddress make_address(std::string uuid, std::string library, std::string socket, std::string token, int zeusd_gpu) {
  return {std::move(uuid), std::move(library), std::move(socket), std::move(token), zeusd_gpu};
}

std::unique_ptr<GpuControl> open_released(const GpuAddress& address) {
  const py::gil_scoped_release released;
  return open_gpu(address);
}

py::tuple transcribe(const ClockRecord& r) {
  return py::make_tuple(r.requested_s, r.applied_s, r.requested_mhz, r.achieved_mhz, r.reasons, r.code);
}

py::list take_records(ClockWorker& worker) {
  py::list out;
  for (const ClockRecord& record : worker.take_records()) out.append(transcribe(record));
  return out;
}

// The request path is a plain C function: pybind11's dispatcher touches so much memory that a call from code that was
// busy elsewhere (cold caches) takes ten times as long.
constexpr const char* worker_capsule = "perseus.ClockWorker";

PyObject* request(PyObject* self, PyObject* const* arguments, Py_ssize_t positional, PyObject* names) {
  const Py_ssize_t named = names == nullptr ? 0 : PyTuple_GET_SIZE(names);
  const Py_ssize_t count = positional + named;
  const bool known = named == 0 || (named == 1 && PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, 0), "hold_s") == 0);
  if (positional < 1 || count > 2 || !known) {
    PyErr_SetString(PyExc_TypeError, "request(mhz, hold_s=0.0) takes a clock and, if it has an end, how long to hold it");
    return nullptr;
  }
  const long mhz = PyLong_AsLong(arguments[0]);
  const double hold_s = count == 2 ? PyFloat_AsDouble(arguments[1]) : 0.0;
  if ((mhz == -1 || hold_s == -1.0) && PyErr_Occurred() != nullptr) return nullptr;
  if (mhz < 0 || mhz > 0xffff) {
    PyErr_SetString(PyExc_ValueError, "a clock is between 0 and 65535 MHz");
    return nullptr;
  }
  static_cast<ClockWorker*>(PyCapsule_GetPointer(self, worker_capsule))->request(static_cast<unsigned>(mhz), hold_s);
  Py_RETURN_NONE;
}

/// The function `request` bound to a worker, which it keeps alive.
py::object make_requester(const py::object& worker) {
  static PyMethodDef definition = {"request", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(&request)),
                                   METH_FASTCALL | METH_KEYWORDS, "request(mhz, hold_s=0.0): ask for a clock and return at once."};
  worker.inc_ref();
  const auto capsule = py::reinterpret_steal<py::object>(PyCapsule_New(
      worker.cast<ClockWorker*>(), worker_capsule, [](PyObject* c) { Py_DECREF(static_cast<PyObject*>(PyCapsule_GetContext(c))); }));
  PyCapsule_SetContext(capsule.ptr(), worker.ptr());
  return py::reinterpret_steal<py::object>(PyCFunction_New(&definition, capsule.ptr()));
}

py::list take_changes(CounterWatcher& watcher) {
  py::list out;
  for (const CounterChange& c : watcher.take_changes()) out.append(py::make_tuple(c.after_s, c.by_s, c.energy_mj));
  return out;
}

py::dict transcribe_statistics(const ClockWorker& worker) {
  const ClockStatistics s = worker.statistics();
  py::dict out;
  out["requests"] = s.requests;
  out["applied"] = s.applied;
  out["coalesced"] = s.coalesced;
  out["skipped"] = s.skipped;
  out["failed"] = s.failed;
  out["missed_deadlines"] = s.missed_deadlines;
  out["latency_s"] = s.latency_s;
  out["requested_mhz"] = s.requested_mhz;
  out["achieved_mhz"] = s.achieved_mhz;
  out["last_code"] = s.last_code;
  out["gave_up"] = s.gave_up;
  return out;
}

}  // namespace

PYBIND11_MODULE(_runtime, m) {
  m.doc() = "Native run-time parts: the clock worker and the counter watcher.";

  static PyObject* code_error = PyErr_NewException("perseus._runtime.CodeError", PyExc_RuntimeError, nullptr);
  m.attr("CodeError") = py::handle(code_error);
  py::register_exception_translator([](std::exception_ptr raised) {
    try {
      if (raised) std::rethrow_exception(raised);
    } catch (const OpenError& error) {
      PyErr_SetObject(code_error, py::make_tuple(error.code(), error.what()).ptr());
    }
  });

  py::class_<GpuAddress>(m, "GpuAddress")
      .def(py::init(&make_address), py::arg("uuid"), py::arg("library") = "", py::arg("zeusd_socket") = "",
           py::arg("zeusd_token") = "", py::arg("zeusd_gpu") = -1);

  py::class_<ClockWorker>(m, "ClockWorker")
      .def(py::init([](const GpuAddress& a) { return std::make_unique<ClockWorker>(open_released(a)); }))
      .def("requester", [](const py::object& self) { return make_requester(self); })
      .def("drain", &ClockWorker::drain, py::arg("timeout_s"), py::call_guard<py::gil_scoped_release>())
      .def("stop", &ClockWorker::stop, py::call_guard<py::gil_scoped_release>())
      .def("abandon", &ClockWorker::abandon)
      .def("statistics", &transcribe_statistics)
      .def("take_records", &take_records);

  py::class_<CounterWatcher>(m, "CounterWatcher")
      .def(py::init([](const GpuAddress& a, double s) { return std::make_unique<CounterWatcher>(open_released(a), s); }),
           py::arg("address"), py::arg("poll_s"))
      .def("take_changes", &take_changes)
      .def("code", &CounterWatcher::code)
      .def("stop", &CounterWatcher::stop, py::call_guard<py::gil_scoped_release>())
      .def("abandon", &CounterWatcher::abandon);

  m.def("nvml_library_path", &nvml_library_path, py::arg("library") = "");
}
