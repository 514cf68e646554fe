// An adapter as the implementation under test.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <torch/csrc/autograd/python_variable.h>

#include "cases/comm_facts.h"
#include "cp_core/run_case/implementation.h"
#include "python/extension/wait_breaker.h"

namespace cp_pool {

class PythonImplementation final : public Implementation {
 public:
  // runner: a Runner of runner.py. Only the constructor and the destructor must be called with the GIL held.
  PythonImplementation(py::object runner, WaitBreaker& breaker);

  std::string skip_reason(const Case& c, const at::Device& device) override;
  std::string backend(const Case& /*c*/, const at::Device& /*device*/) override { return name_; }
  verify::Sharding sharding(const Case& c, const SequenceLengths& lengths) override;
  bool repeats_bits(const Case& c, const at::Device& device) override {
    return c.deterministic || (device.is_cuda() ? promises_bits_on_cuda_ : promises_bits_on_cpu_);
  }
  bool remarks_other_bits() override { return remarks_other_bits_; }
  bool is_odd() override { return odd_; }
  std::int64_t probe_heads(const Case& c) override { return probe_heads_ > 0 ? probe_heads_ : head_ranks(c); }
  std::string single_rank_obstacle() override { return "the groups of an adapter have all ranks of the pool"; }
  std::unique_ptr<Step> make_step(const StepSetting& setting, const verify::Shards& shards) override;

  // Whether this rank has no tokens in the step that was made last. May be called from any thread.
  [[nodiscard]] bool idle() const { return idle_; }
  void forget_idle() { idle_ = false; }

 private:
  // Whether one convention cuts all rows, padding included.
  [[nodiscard]] bool has_one_convention() const;
  // Why the conventions cannot shard the case, unless they are one that cuts all rows; else empty.
  [[nodiscard]] std::string obstacle(const Case& c) const;
  // The lengths of queries (side 0) or of keys (side 1) that conventions cut.
  struct SideLengths {
    const std::vector<std::int64_t>& valid;
    const std::vector<std::int64_t>& padded;  // the valid ones if the adapter takes no padding
    std::int64_t replicated;
  };
  [[nodiscard]] SideLengths lengths_of(std::size_t side, const SequenceLengths& lengths) const;
  verify::RowsByRank rows(std::size_t side, const Case& c, const SequenceLengths& lengths);

  py::object runner_;
  WaitBreaker& breaker_;
  // What the adapter declares.
  std::string name_;
  // Of queries and of keys; nullopt: the adapter's function lists the rows.
  std::array<std::optional<verify::Convention>, 2> conventions_;
  bool without_padding_ = false;
  verify::Sharding declared_;
  bool promises_bits_on_cpu_ = true;
  bool promises_bits_on_cuda_ = true;
  bool remarks_other_bits_ = false;
  bool odd_ = true;
  std::int64_t probe_heads_ = 0;

  std::optional<std::pair<Case, std::string>> last_skip_;
  std::atomic<bool> idle_ = false;
};

// Calls from C++ into runner.py.

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

}  // namespace cp_pool
