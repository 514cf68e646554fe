#include "cp_core/run_case/counting_communicator.h"

#include <memory>
#include <utility>

#include "cp_core/comm/wrapped_communicator.h"

namespace cp_pool {
namespace {

class CountingCommunicator final : public WrappedCommunicator {
 public:
  CountingCommunicator(std::shared_ptr<Communicator> target, std::int64_t& sent)
      : WrappedCommunicator(std::move(target)), sent_(sent) {}

 private:
  WorkPtr carry_out(const Operation& operation, const std::function<WorkPtr()>& start) override {
    sent_ += operation.sent;
    return start();
  }

  std::int64_t& sent_;
};

}  // namespace

CpGroups count_sent(const CpGroups& groups, std::int64_t& sent) {
  const auto counting = [&](const std::shared_ptr<Communicator>& group) -> std::shared_ptr<Communicator> {
    return group ? std::make_shared<CountingCommunicator>(group, sent) : nullptr;
  };
  return {counting(groups.cp), counting(groups.inner), counting(groups.outer)};
}

}  // namespace cp_pool
