#include "python/extension/python_implementation.h"

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <pybind11/stl.h>
#include <stdexcept>
#include <vector>

#include <ATen/ops/tensor.h>
#include <fmt/format.h>

#include "cases/case_json.h"
#include "cases/enum_names.h"
#include "cp_core/attention/backend_unsupported.h"
#include "worker/rank_outcome.h"

namespace cp_pool {
namespace {

// Convert between tensors and Python objects without copies. None stands for an undefined tensor. Need the GIL.
py::object to_python(const at::Tensor& tensor) {
  return py::reinterpret_steal<py::object>(THPVariable_Wrap(tensor));
}
at::Tensor to_tensor(const py::handle& object) {
  return object.is_none() ? at::Tensor() : THPVariable_Unpack(object.ptr());
}

// Returns a number of each row as int64 on the device.
template <typename Number>
at::Tensor column(const std::vector<verify::LocalRow>& rows, const Number& number, const at::Device& device) {
  std::vector<std::int64_t> numbers;
  numbers.reserve(rows.size());
  for (const verify::LocalRow& row : rows) numbers.push_back(std::invoke(number, row));
  return at::tensor(numbers).to(device);
}

class PythonStep final : public Step {
 public:
  // step: a Step of step.py. Needs the GIL.
  PythonStep(py::object step, WaitBreaker& breaker) : step_(std::move(step)), breaker_(breaker) {}
  PythonStep(const PythonStep&) = delete;
  PythonStep& operator=(const PythonStep&) = delete;
  ~PythonStep() override {
    const py::gil_scoped_acquire gil;
    step_ = py::object();
  }

  void forward(verify::Results& r) override {
    call("forward", {&r.out, &r.lse, &r.max_logit, &r.part_lse, &r.fp8_scales});
  }
  void backward(verify::Results& r) override {
    call("backward", {&r.dq, &r.dk, &r.dv, &r.dbias, &r.dsink, &r.fp8_scales});
  }

 private:
  // Calls a method of the step, which returns these results in their order.
  void call(const char* method, std::initializer_list<at::Tensor*> results) {
    with_python(breaker_, [&] {
      const auto given = py::reinterpret_borrow<py::tuple>(step_.attr(method)());
      for (std::size_t i = 0; at::Tensor* const result : results) *result = to_tensor(given[i++]);
    });
  }

  py::object step_;
  WaitBreaker& breaker_;
};

}  // namespace

PythonImplementation::PythonImplementation(py::object runner, WaitBreaker& breaker)
    : runner_(std::move(runner)), breaker_(breaker) {
  const auto text = [this](const char* name) { return runner_.attr(name)().cast<std::string>(); };
  name_ = text("backend");
  for (std::size_t side = 0; side < conventions_.size(); ++side) {
    const auto convention = runner_.attr("convention")(side).cast<std::string>();
    if (convention.empty()) continue;
    conventions_.at(side) = verify::parse_convention(convention);
    if (!conventions_.at(side)) throw std::invalid_argument(fmt::format("there is no convention '{}'", convention));
  }
  const std::string padding = text("padding");
  without_padding_ = padding == "absent";
  using enum verify::PaddingFill;
  declared_.padding = padding == "nan" ? nan : padding == "zeros" ? zeros : garbage;
  declared_.judges_padding = runner_.attr("judges_padding")().cast<bool>();
  declared_.heads = text("head_order") == "interleaved" ? verify::HeadOrder::interleaved : verify::HeadOrder::blocked;
  declared_.needs_lse = false;
  declared_.bound_factor = runner_.attr("bound_factor")().cast<double>();
  promises_bits_on_cpu_ = runner_.attr("promises_bits")("cpu").cast<bool>();
  promises_bits_on_cuda_ = runner_.attr("promises_bits")("cuda").cast<bool>();
  remarks_other_bits_ = runner_.attr("remarks_other_bits")().cast<bool>();
  odd_ = runner_.attr("odd")().cast<bool>();
  probe_heads_ = runner_.attr("probe_heads")().cast<std::int64_t>();
}

std::string PythonImplementation::skip_reason(const Case& c, const at::Device& device) {
  if (last_skip_ && last_skip_->first == c) return last_skip_->second;
  std::string reason = with_python(breaker_, [&] {
    return runner_.attr("skip_reason")(to_json(c).dump(), device.is_cuda() ? "cuda" : "cpu").cast<std::string>();
  });
  if (reason.empty()) reason = obstacle(c);
  last_skip_.emplace(c, reason);
  return reason;
}

bool PythonImplementation::has_one_convention() const {
  return conventions_[0] && conventions_[0] == conventions_[1] && !without_padding_;
}

PythonImplementation::SideLengths PythonImplementation::lengths_of(std::size_t side,
                                                                   const SequenceLengths& lengths) const {
  if (side == 0) return {lengths.valid_q, without_padding_ ? lengths.valid_q : lengths.padded_q, lengths.replicated_q};
  return {lengths.valid_kv, without_padding_ ? lengths.valid_kv : lengths.padded_kv, lengths.replicated_kv};
}

std::string PythonImplementation::obstacle(const Case& c) const {
  if (has_one_convention()) return {};
  const SequenceLengths lengths = resolve_lengths(c);
  for (std::size_t side = 0; side < conventions_.size(); ++side) {
    if (!conventions_.at(side)) continue;
    const auto& [valid, padded, replicated] = lengths_of(side, lengths);
    const std::string found =
        verify::convention_obstacle(*conventions_.at(side), c.layout, valid, padded, c.cp_size, replicated);
    if (found.empty()) continue;
    return without_padding_ ? fmt::format("without padding, as the adapter {} declares it: {}", name_, found) : found;
  }
  return {};
}

verify::Sharding PythonImplementation::sharding(const Case& c, const SequenceLengths& lengths) {
  verify::Sharding sharding = declared_;
  if (has_one_convention()) {
    sharding.rows = *conventions_[0];
    return sharding;
  }
  sharding.rows =
      verify::Ownership{.q = c.all_queries ? verify::rows_by_convention({}, c.layout, lengths.valid_q, lengths.valid_q,
                                                                        c.cp_size, lengths.replicated_q)
                                           : rows(0, c, lengths),
                        .kv = rows(1, c, lengths)};
  if (const std::string fault = verify::sharding_fault(sharding, c, lengths, c.cp_size); !fault.empty()) {
    const std::string text = fmt::format("the rows of {}, by its shard function: {}", name_, fault);
    throw RunnerError(Failure{.summary = text, .text = text});
  }
  return sharding;
}

verify::RowsByRank PythonImplementation::rows(std::size_t side, const Case& c, const SequenceLengths& lengths) {
  const auto& [valid, padded, replicated] = lengths_of(side, lengths);
  if (const auto& convention = conventions_.at(side)) {
    return verify::rows_by_convention(*convention, c.layout, valid, padded, c.cp_size, replicated);
  }
  const auto listed = with_python(breaker_, [&, &valid = valid] {
    return runner_.attr("rows")(side, valid, c.cp_size, c.replicated).cast<std::vector<std::vector<std::int64_t>>>();
  });
  verify::RowsByRank out;
  for (std::size_t rank = 0; rank < listed.size(); ++rank) {
    try {
      out.push_back(verify::local_rows(listed[rank], valid));
    } catch (const std::out_of_range& error) {
      const std::string text =
          fmt::format("the shard function of {} gives rank {} a row that there is not: {}", name_, rank, error.what());
      throw RunnerError(Failure{.summary = text, .text = text});
    }
  }
  return out;
}

std::unique_ptr<Step> PythonImplementation::make_step(const StepSetting& setting, const verify::Shards& shards) {
  if (setting.replayed && setting.device.is_cuda()) {
    throw BackendUnsupported("the step of an adapter is not captured as a CUDA graph (--perf without graph times it)");
  }
  const verify::RankView& view = setting.view;
  const SequenceLengths& lengths = setting.lengths;
  const auto is_padding = [](const verify::LocalRow& row) { return row.canonical < 0; };
  idle_ = std::ranges::all_of(view.q.rows(), is_padding) && std::ranges::all_of(view.kv.rows(), is_padding);
  const auto position = [&](const verify::LocalRow& row) { return is_padding(row) ? -1 : row.position; };
  const at::Tensor positions_q = column(view.q.rows(), position, setting.device);
  const at::Tensor sequences_q = column(view.q.rows(), &verify::LocalRow::sequence, setting.device);
  const at::Tensor positions_kv = column(view.kv.rows(), position, setting.device);
  const at::Tensor sequences_kv = column(view.kv.rows(), &verify::LocalRow::sequence, setting.device);
  return with_python(breaker_, [&]() -> std::unique_ptr<Step> {
    return std::make_unique<PythonStep>(
        runner_.attr("make_step")(to_json(setting.c).dump(),
                                  std::vector{lengths.valid_q, lengths.padded_q, lengths.valid_kv, lengths.padded_kv},
                                  to_python(shards.q), to_python(shards.k), to_python(shards.v), to_python(shards.dout),
                                  to_python(shards.bias), to_python(shards.sink), to_python(positions_q),
                                  to_python(sequences_q), to_python(positions_kv), to_python(sequences_kv)),
        breaker_);
  });
}

void throw_python_error(pybind11::error_already_set& error) {
  const py::object& value = error.value();
  if (!py::hasattr(value, "kind") || !py::hasattr(value, "summary") || !py::hasattr(value, "text")) {
    const std::string text = error.what();
    throw RunnerError(Failure{.summary = "cp_pool: " + text.substr(0, text.find('\n')), .text = text});
  }
  const auto attribute = [&value](const char* name) { return value.attr(name).cast<std::string>(); };
  Failure failure{.summary = attribute("summary"), .text = attribute("text"), .collective = attribute("collective")};
  const auto known = parse_name<FailureKind>(attribute("kind"));
  if (!known) {
    const std::string wrong =
        fmt::format("internal error: runner.py reports a failure of unknown kind '{}'", attribute("kind"));
    throw RunnerError(Failure{.summary = fmt::format("cp_pool: {}: {}", wrong, failure.summary),
                              .text = wrong + '\n' + failure.text});
  }
  failure.kind = *known;
  const auto place = attribute("declined_in");
  if (!place.empty()) throw Declined(attribute("reason"), place, std::move(failure));
  throw RunnerError(std::move(failure));
}

}  // namespace cp_pool
