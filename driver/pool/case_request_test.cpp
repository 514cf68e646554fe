#include "driver/pool/case_request.h"

#include <gtest/gtest.h>

#include "cases/case_json.h"

namespace cp_pool {
namespace {

Case scaled_case() {
  Case c;
  c.input_scale = 10;
  return c;
}

TEST(CaseRequest, LeavesOutWhatAWorkerDoesNotList) {
  nlohmann::ordered_json of_version_1 = to_json(Case{});
  of_version_1.erase("input_scale");
  of_version_1.erase("score_offset");
  of_version_1.erase("strided");
  of_version_1.erase("replicated");
  of_version_1.erase("group");
  for (const nlohmann::json& capabilities :
       {nlohmann::json::object(), nlohmann::json{{"case_fields", nlohmann::json::array()}},
        nlohmann::json{{"case_fields", {"another"}}}, nlohmann::json{{"case_fields", "input_scale"}}}) {
    EXPECT_EQ(case_for_worker(Case{}, capabilities), of_version_1) << capabilities;
    EXPECT_EQ(unknown_to_worker(Case{}, capabilities), "") << capabilities;
    EXPECT_EQ(unknown_to_worker(scaled_case(), capabilities),
              "the worker does not know the case field input_scale (here 10): its capabilities.case_fields does not "
              "list it")
        << capabilities;
  }
}

TEST(CaseRequest, TellsAWorkerWhatItLists) {
  const nlohmann::json capabilities{
      {"case_fields", {"another", "input_scale", "score_offset", "strided", "replicated", "group"}}};
  EXPECT_EQ(case_for_worker(Case{}, capabilities), to_json(Case{}));
  EXPECT_EQ(case_for_worker(scaled_case(), capabilities), to_json(scaled_case()));
  EXPECT_EQ(unknown_to_worker(scaled_case(), capabilities), "");
}

}  // namespace
}  // namespace cp_pool
