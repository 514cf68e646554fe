// Case fields beyond protocol version 1, with workers that list them in their capabilities and workers that do not.
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "driver/testing/attention.h"
#include "tests/driver/harness.h"

namespace cp_pool::driver_test {
namespace {

using namespace ::testing;

Item scaled(const std::string& model) {
  Item named = fake_case(model);
  test::attention(named.payload).input_scale = 10;
  return named;
}

TEST(CaseFields, ThatAWorkerDoesNotListAreASkipAndItsPoolGoesOn) {
  const Recorder recorder =
      run({fake_case("pass"), scaled("pass"), fake_case("tells_its_case")}, fake_config({"--offers=prepare"}));
  EXPECT_THAT(recorder.outcomes(), ElementsAre("pass", "skip", "fail"));
  EXPECT_THAT(recorder.finished(1).reason, HasSubstr("does not know the case field input_scale (here 10)"));
  EXPECT_FALSE(nlohmann::json::parse(recorder.finished(2).reason).contains("input_scale"));
  EXPECT_THAT(recorder.all<PoolReady>(), SizeIs(1));
  EXPECT_EQ(recorder.end().exit_code, 100);
}

TEST(CaseFields, ThatAWorkerListsAreSent) {
  const Recorder recorder =
      run({scaled("tells_its_case"), fake_case("tells_its_case")}, fake_config({"--case-field=input_scale"}));
  EXPECT_THAT(recorder.outcomes(), ElementsAre("fail", "fail"));
  EXPECT_EQ(nlohmann::json::parse(recorder.finished(0).reason).at("input_scale"), 10);
  EXPECT_EQ(nlohmann::json::parse(recorder.finished(1).reason).at("input_scale"), 1);
}

}  // namespace
}  // namespace cp_pool::driver_test
