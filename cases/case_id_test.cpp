#include "cases/case_id.h"

#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

namespace cp_pool {
namespace {

Case some_case() {
  Case c;
  c.suite = "te-flash";
  c.model = "cp_2_0";
  c.layout = Layout::thd;
  return c;
}

std::string id_with(const Case& c, const std::vector<std::string_view>& names) {
  std::vector<const CaseField*> fields;
  fields.reserve(names.size());
  for (const std::string_view name : names) fields.push_back(find_case_field(name));
  return case_id(c, fields);
}

TEST(CaseId, NamesWhatEveryMatrixVaries) {
  Case c = some_case();
  EXPECT_EQ(case_id(c), "te-flash/cp_2_0/p2p/cp2/thd/bf16");
  c.pad_between_seqs = true;
  EXPECT_EQ(case_id(c), "te-flash/cp_2_0/p2p/cp2/thd/bf16/pad");
  c.comm = CommType::a2a_p2p;
  c.cp_size = 16;
  c.dtype = DType::fp32;
  EXPECT_EQ(case_id(c), "te-flash/cp_2_0/a2a+p2p/cp16/thd/fp32/pad");
}

TEST(CaseId, FurtherFieldsBecomeParts) {
  Case c = some_case();
  c.pad_between_seqs = true;
  c.backend = Backend::cudnn;
  c.window = {512, 0};
  c.seqlens = {0, 8};
  c.input_scale = 10;
  c.score_offset = -100;
  c.group = 2;
  EXPECT_EQ(
      id_with(c, {"backend", "window", "bias", "seqlens", "chunk", "causal", "input_scale", "score_offset", "group"}),
      "te-flash/cp_2_0/p2p/cp2/thd/bf16/pad/backend=cudnn/window=512,0/bias=none/seqlens=0,8/chunk=0/"
      "causal=false/input_scale=10/score_offset=-100/group=2");
}

TEST(CaseId, SwitchesAreShort) {
  Case c = some_case();
  EXPECT_EQ(id_with(c, {"training", "deterministic", "max_logit"}), case_id(c));
  c.training = false;
  c.deterministic = true;
  c.max_logit = true;
  EXPECT_EQ(id_with(c, {"training", "deterministic", "max_logit"}), case_id(c) + "/fwd/deterministic/max_logit");
}

TEST(CaseId, PartsAreNeverRepeated) {
  const Case c = some_case();
  EXPECT_EQ(id_with(c, {"suite", "model", "comm", "cp_size", "layout", "dtype", "pad_between_seqs"}), case_id(c));
}

}  // namespace
}  // namespace cp_pool
