#include "python/extension/python_call.h"

#include <fmt/format.h>

#include "cases/enum_names.h"
#include "worker/runner_error.h"

namespace cp_pool {

void throw_python_error(pybind11::error_already_set& error) {
  const py::object& value = error.value();
  if (!py::hasattr(value, "kind") || !py::hasattr(value, "summary") || !py::hasattr(value, "text")) {
    const std::string text = error.what();
    throw RunnerError(FailureKind::exception, "cp_pool: " + text.substr(0, text.find('\n')), text);
  }
  const auto kind = value.attr("kind").cast<std::string>();
  const auto summary = value.attr("summary").cast<std::string>();
  const auto text = value.attr("text").cast<std::string>();
  const auto known = parse_name<FailureKind>(kind);
  if (!known) {
    const std::string wrong = fmt::format("internal error: runner.py reports a failure of unknown kind '{}'", kind);
    throw RunnerError(FailureKind::exception, fmt::format("cp_pool: {}: {}", wrong, summary), wrong + '\n' + text);
  }
  if (const auto place = value.attr("declined_in").cast<std::string>(); !place.empty()) {
    throw Declined(value.attr("reason").cast<std::string>(), place,
                   Failure{.kind = *known, .phase = FailurePhase::run, .summary = summary, .text = text});
  }
  throw RunnerError(*known, summary, text, value.attr("collective").cast<std::string>());
}

py::object to_python(const at::Tensor& tensor) {
  if (!tensor.defined()) return py::none();
  return py::reinterpret_steal<py::object>(THPVariable_Wrap(tensor));
}

at::Tensor to_tensor(const py::handle& object) {
  if (object.is_none()) return {};
  return THPVariable_Unpack(object.ptr());
}

}  // namespace cp_pool
