#include "worker/observed_communicator.h"

#include <string>
#include <utility>

#include <fmt/format.h>

#include "cp_core/comm/peer/windows.h"
#include "worker/pending_operation.h"

namespace cp_pool {

namespace {

class ObservedWork final : public Work {
 public:
  ObservedWork(std::unique_ptr<Work> work, std::string description)
      : work_(std::move(work)), description_(std::move(description)) {}

  void wait() override {
    const PendingOperationGuard guard(description_);
    work_->wait();
  }

 private:
  std::unique_ptr<Work> work_;
  std::string description_;
};

class ObservedCommunicator final : public Communicator, public PeerWindows {
 public:
  ObservedCommunicator(std::shared_ptr<Communicator> target, std::string name, std::function<void()> before_operation)
      : target_(std::move(target)), name_(std::move(name)), before_operation_(std::move(before_operation)) {}

  [[nodiscard]] int rank() const override { return target_->rank(); }
  [[nodiscard]] int size() const override { return target_->size(); }
  [[nodiscard]] std::string description() const override { return target_->description(); }
  void set_deadline(Clock::time_point deadline) override { target_->set_deadline(deadline); }
  void abort() override { target_->abort(); }

  [[nodiscard]] WorkPtr exchange(const at::Tensor& send, int to, at::Tensor& recv, int from,
                                 std::string_view what) override {
    return observed(fmt::format("exchange with ranks {} (to) and {} (from) of group {}: {}", to, from, name_, what),
                    [&] { return target_->exchange(send, to, recv, from, what); });
  }
  [[nodiscard]] WorkPtr exchange_many(std::span<const at::Tensor> sends, int to, std::span<const at::Tensor> receives,
                                      int from, std::string_view what) override {
    return observed(fmt::format("exchange with ranks {} (to) and {} (from) of group {}: {}", to, from, name_, what),
                    [&] { return target_->exchange_many(sends, to, receives, from, what); });
  }
  [[nodiscard]] WorkPtr exchange_all(std::span<const Message> sends, std::span<const Message> receives,
                                     std::string_view what) override {
    return observed(describe("all_to_all", what), [&] { return target_->exchange_all(sends, receives, what); });
  }
  PeerWindows* windows() override { return target_->windows() == nullptr ? nullptr : this; }
  [[nodiscard]] WorkPtr put_all(std::span<const at::Tensor> windows, std::span<const at::Tensor> sources,
                                std::span<const Put> puts, std::string_view what) override {
    return observed(describe("put", what), [&] { return target_->windows()->put_all(windows, sources, puts, what); });
  }
  [[nodiscard]] WorkPtr all_gather(at::Tensor& out, const at::Tensor& in, std::string_view what) override {
    return observed(describe("all_gather", what), [&] { return target_->all_gather(out, in, what); });
  }
  [[nodiscard]] WorkPtr reduce_scatter(at::Tensor& out, const at::Tensor& in, std::string_view what) override {
    return observed(describe("reduce_scatter", what), [&] { return target_->reduce_scatter(out, in, what); });
  }
  [[nodiscard]] WorkPtr all_reduce(at::Tensor& inout, ReduceOp op, std::string_view what) override {
    return observed(describe("all_reduce", what), [&] { return target_->all_reduce(inout, op, what); });
  }

  void synchronize(std::string_view what) override {
    const PendingOperationGuard guard(describe("synchronize", what));
    target_->synchronize(what);
  }

  void checked_barrier(std::int64_t tag, std::chrono::milliseconds limit) override {
    before_operation_();
    const PendingOperationGuard guard(describe("barrier", "after the case"));
    target_->checked_barrier(tag, limit);
  }
  [[nodiscard]] std::vector<BegunInGroup> begun() const override { return target_->begun(); }

  [[nodiscard]] CpGroups divided(const Division& division) override;

 private:
  [[nodiscard]] std::string describe(const char* operation, std::string_view what) const {
    return fmt::format("{} on group {}: {}", operation, name_, what);
  }

  template <typename Start>
  WorkPtr observed(std::string description, Start start) {
    const PendingOperationGuard guard(description);
    before_operation_();
    WorkPtr work = start();
    return std::make_unique<ObservedWork>(std::move(work), std::move(description));
  }

  std::shared_ptr<Communicator> target_;
  std::string name_;
  std::function<void()> before_operation_;
};

// of: the end of the groups' names.
CpGroups wrap(const CpGroups& groups, const std::function<void()>& before_operation, const std::string& of) {
  const auto wrapped = [&](const std::shared_ptr<Communicator>& target,
                           const char* name) -> std::shared_ptr<Communicator> {
    if (!target) return nullptr;
    return std::make_shared<ObservedCommunicator>(target, name + of, before_operation);
  };
  return {wrapped(groups.cp, "cp"), wrapped(groups.inner, "inner"), wrapped(groups.outer, "outer")};
}

CpGroups ObservedCommunicator::divided(const Division& division) {
  const std::size_t groups = groups_of(division).size();
  const std::string of = groups == 1 ? "" : fmt::format(" of group {} of {}", group_of_rank(division, rank()), groups);
  return wrap(target_->divided(division), before_operation_, of);
}

}  // namespace

CpGroups observe(const CpGroups& groups, const std::function<void()>& before_operation) {
  return wrap(groups, before_operation, "");
}

}  // namespace cp_pool
