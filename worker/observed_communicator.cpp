#include "worker/observed_communicator.h"

#include <string>
#include <utility>

#include <fmt/format.h>

#include "cp_core/comm/wrapped_communicator.h"
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

class ObservedCommunicator final : public WrappedCommunicator {
 public:
  ObservedCommunicator(std::shared_ptr<Communicator> target, std::string name, std::function<void()> before_operation)
      : WrappedCommunicator(std::move(target)),
        name_(std::move(name)),
        before_operation_(std::move(before_operation)) {}

  void synchronize(std::string_view what) override {
    const PendingOperationGuard guard(describe("synchronize on", what));
    target().synchronize(what);
  }

  void checked_barrier(std::int64_t tag, std::chrono::milliseconds limit) override {
    before_operation_();
    const PendingOperationGuard guard(describe("barrier on", "after the case"));
    target().checked_barrier(tag, limit);
  }

 private:
  CpGroups divide(const Division& division) override;

  WorkPtr carry_out(const Operation& operation, const std::function<WorkPtr()>& start) override {
    std::string description = describe(operation.name, operation.what);
    const PendingOperationGuard guard(description);
    before_operation_();
    return std::make_unique<ObservedWork>(start(), std::move(description));
  }

  [[nodiscard]] std::string describe(std::string_view operation, std::string_view what) const {
    return fmt::format("{} group {}: {}", operation, name_, what);
  }

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

CpGroups ObservedCommunicator::divide(const Division& division) {
  const std::size_t groups = groups_of(division).size();
  const std::string of = groups == 1 ? "" : fmt::format(" of group {} of {}", group_of_rank(division, rank()), groups);
  return wrap(target().divided(division), before_operation_, of);
}

}  // namespace

CpGroups observe(const CpGroups& groups, const std::function<void()>& before_operation) {
  return wrap(groups, before_operation, "");
}

}  // namespace cp_pool
