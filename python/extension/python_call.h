// Calls from C++ into the adapter's side, runner.py.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

#include <torch/csrc/autograd/python_variable.h>

#include "python/extension/wait_breaker.h"

namespace cp_pool {

// Every rank skips the case, at the same step: no rank waits for another.
class SkippedByAll : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Throws what a Failure of runner.py stands for: RunnerError or SkippedByAll. Any other exception is a RunnerError with
// its traceback. Needs the GIL.
[[noreturn]] void throw_python_error(pybind11::error_already_set& error);

// Takes the GIL for `function`, which calls Python. The result must not be a Python object.
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

// None stands for an undefined tensor. No copies. Need the GIL.
pybind11::object to_python(const at::Tensor& tensor);
at::Tensor to_tensor(const pybind11::handle& object);

}  // namespace cp_pool
