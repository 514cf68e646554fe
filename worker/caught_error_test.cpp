#include <exception>
#include <stdexcept>
#include <string>
#include <thread>

#include <c10/util/Exception.h>
#include <gmock/gmock.h>

#include "cp_core/comm/communicator.h"
#include "worker/protocol/messages.h"
#include "worker/rank_outcome.h"

namespace cp_pool {

// This function is not in the anonymous namespace, so that a release build can name it.
[[gnu::noinline]] void throw_from_a_function_with_a_name() {
  throw std::runtime_error("boom\nmore");
}

namespace {

using testing::HasSubstr;
using testing::StartsWith;

template <typename Action>
CaughtError caught(Action action) {
  try {
    action();
  } catch (...) {
    return describe_current_exception(FailurePhase::run);
  }
  return {};
}

struct CatchesOnTheWayUp {
  ~CatchesOnTheWayUp() {
    try {
      throw std::logic_error("another");
    } catch (const std::logic_error&) {  // NOLINT(bugprone-empty-catch): that is the point
    }
  }
};

TEST(CaughtError, SaysTypeTextAndWhereItWasThrown) {
  const CaughtError error = caught(throw_from_a_function_with_a_name);
  EXPECT_EQ(error.failure.kind, FailureKind::exception);
  EXPECT_EQ(error.failure.summary, "std::runtime_error: boom");
  const std::string text = with_stack_trace(error).text;
  EXPECT_THAT(text, StartsWith("std::runtime_error: boom\nmore\nthrown from:\n  #0 "));
  const std::string first = text.substr(text.find("#0"), text.find("#1") - text.find("#0"));
  EXPECT_THAT(first, HasSubstr("throw_from_a_function_with_a_name"));
}

TEST(CaughtError, IsNotConfusedByExceptionsOnTheWayUp) {
  const CaughtError error = caught([] {
    const CatchesOnTheWayUp catches;
    throw_from_a_function_with_a_name();
  });
  EXPECT_THAT(with_stack_trace(error).text, HasSubstr("throw_from_a_function_with_a_name"));
}

TEST(CaughtError, GivesLibTorchErrorsOurTrace) {
  const CaughtError error = caught([] { TORCH_CHECK(false, "bad shape"); });
  EXPECT_EQ(error.failure.summary, "c10::Error: bad shape");
  EXPECT_THAT(with_stack_trace(error).text, HasSubstr("thrown from:"));
}

TEST(CaughtError, TakesAnExceptionOfAnotherThreadWithoutATrace) {
  std::exception_ptr carried;
  std::thread([&] {
    try {
      throw std::out_of_range("far");
    } catch (...) {
      carried = std::current_exception();
    }
  }).join();
  const CaughtError error = caught([&] { std::rethrow_exception(carried); });
  EXPECT_EQ(with_stack_trace(error).text, "std::out_of_range: far");
}

TEST(CaughtError, TellsTheKindsOfCommErrorApart) {
  const auto kind_of = [](CommError::Kind kind) {
    return caught([kind] { throw CommError(kind, "what"); }).failure.kind;
  };
  EXPECT_EQ(kind_of(CommError::Kind::timeout), FailureKind::timeout);
  EXPECT_EQ(kind_of(CommError::Kind::aborted), FailureKind::aborted);
  EXPECT_EQ(kind_of(CommError::Kind::failed), FailureKind::communication);
}

TEST(CaughtError, TakesWhatIsNoStdException) {
  const CaughtError error = caught([] { throw 3; });  // NOLINT(hicpp-exception-baseclass)
  EXPECT_EQ(error.failure.summary, "int: not derived from std::exception");
}

TEST(CaughtError, TextIsCut) {
  const CaughtError error = caught([] { throw std::runtime_error(std::string(100000, 'x')); });
  EXPECT_EQ(with_stack_trace(error).text.size(), protocol::kMaxErrorBytes);
  EXPECT_LT(error.failure.summary.size(), 2000U);
}

}  // namespace
}  // namespace cp_pool
