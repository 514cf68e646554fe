// Calls from C++ into runner.py.
#pragma once

#include <utility>

#include <torch/csrc/autograd/python_variable.h>

#include "python/extension/wait_breaker.h"

namespace cp_pool {

// Translates a Python exception. A Failure of errors.py becomes a RunnerError or Declined; any other exception becomes
// a RunnerError with the traceback. Needs the GIL.
[[noreturn]] void throw_python_error(pybind11::error_already_set& error);

// Calls `function`, which calls Python, with the GIL held. The result must not be a Python object.
template <typename Function>
auto with_python(WaitBreaker& breaker, Function&& function) -> decltype(function()) {
  const pybind11::gil_scoped_acquire gil;
  const WaitBreaker::InPython in_python(breaker);
  try {
    return std::forward<Function>(function)();
  } catch (pybind11::error_already_set& error) {
    throw_python_error(error);
  }
}

// Convert between tensors and Python objects without copies. None stands for an undefined tensor. Need the GIL.
pybind11::object to_python(const at::Tensor& tensor);
at::Tensor to_tensor(const pybind11::handle& object);

}  // namespace cp_pool
