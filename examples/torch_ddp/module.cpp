// SPDX-License-Identifier: Apache-2.0
/// @file
/// The Python module _globalq_ddp: bucket_averager for Python. python/globalq_ddp.py is what users see.

#include "bucket_averager.hpp"

#include <pybind11/functional.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>  // of torch/extension.h, the casters alone

#include <Kokkos_Core.hpp>

namespace gq = globalq;
using globalq_ddp::bucket_averager;

namespace {

/// Averagers end before Kokkos does, and Kokkos before Python.
std::vector<std::weak_ptr<bucket_averager>>& averagers() {
  static std::vector<std::weak_ptr<bucket_averager>> all;
  return all;
}

void end_all() {
  for (auto const& each : averagers())
    if (auto const averager = each.lock()) {
      py::gil_scoped_release const others_may_run;
      averager->close();
    }
  averagers().clear();
  if (Kokkos::is_initialized() && !Kokkos::is_finalized()) Kokkos::finalize();
}

std::shared_ptr<bucket_averager> make(
    c10::intrusive_ptr<c10d::ProcessGroup> const& group,
    std::vector<std::pair<std::string, std::vector<std::uint64_t>>> const& model, std::string const& op,
    std::vector<std::pair<std::string, std::string>> const& layers, std::vector<std::string> const& exclude,
    std::uint64_t min_size, std::size_t min_dimensions, std::uint64_t seed, std::uint64_t warm_up,
    std::uint64_t first_step, double deadline) {
  if (!Kokkos::is_initialized())
    Kokkos::initialize(Kokkos::InitializationSettings{}.set_num_threads(1).set_disable_warnings(true));
  if (!(deadline > 0 && deadline < 1e8))
    throw gq::configuration_error("globalq_ddp: a deadline of " + std::to_string(deadline) +
                                  " s; give seconds above 0 and below 10^8");
  gq::adapt::layout names;
  for (auto const& [name, shape] : model) names.add(name, shape);
  globalq_ddp::settings s;
  s.op = op;
  s.layers = layers;
  s.exclude = exclude;
  s.min_size = min_size;
  s.min_dimensions = min_dimensions;
  s.seed = seed;
  s.warm_up = warm_up;
  s.first_step = first_step;
  s.deadline = std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(deadline));
  // The thread may want the interpreter's lock while it ends, to drop what it holds.
  std::shared_ptr<bucket_averager> averager(new bucket_averager(group, std::move(names), s),
                                            [](bucket_averager* which) {
                                              py::gil_scoped_release const others_may_run;
                                              delete which;
                                            });
  averagers().push_back(averager);
  return averager;
}

}  // namespace

PYBIND11_MODULE(_globalq_ddp, m) {
  py::module::import("torch.distributed");  // registers ProcessGroup
  py::register_exception<gq::error>(m, "Error", PyExc_RuntimeError);
  py::class_<bucket_averager, std::shared_ptr<bucket_averager>>(m, "Averager")
      .def(py::init(&make), py::kw_only(), py::arg("group"), py::arg("model"), py::arg("operator"),
           py::arg("layers"), py::arg("exclude"), py::arg("min_size"), py::arg("min_dimensions"),
           py::arg("seed"), py::arg("warm_up"), py::arg("first_step"), py::arg("deadline"))
      .def("start", &bucket_averager::start, py::arg("index"), py::arg("layers"), py::arg("gradients"),
           py::arg("done"))
      .def("report",
           [](bucket_averager const& averager) {
             py::list all;
             for (auto const& l : averager.report()) all.append(py::make_tuple(l.name, l.size, l.op, l.why));
             return all;
           })
      .def_property_readonly("step", &bucket_averager::step)
      .def_property_readonly("bytes_sent", &bucket_averager::bytes_sent)
      .def_property_readonly("non_finite", &bucket_averager::non_finite)
      .def("close", &bucket_averager::close, py::call_guard<py::gil_scoped_release>());
  m.def("operators_help", &gq::named::operators_help);
  py::module::import("atexit").attr("register")(py::cpp_function(&end_all));
}
