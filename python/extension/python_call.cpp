#include "python/extension/python_call.h"

#include <map>

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
  if (kind == "skip") throw SkippedByAll(summary);
  static const std::map<std::string, FailureKind, std::less<>> kKinds{{"timeout", FailureKind::timeout},
                                                                      {"aborted", FailureKind::aborted},
                                                                      {"communication", FailureKind::communication},
                                                                      {"unsupported", FailureKind::unsupported}};
  const auto known = kKinds.find(kind);
  throw RunnerError(known == kKinds.end() ? FailureKind::exception : known->second, summary,
                    value.attr("text").cast<std::string>());
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
