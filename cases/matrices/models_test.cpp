// Tests that the matrix models has the attention of public models, unchanged but for lengths.
#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "cases/matrix.h"

namespace cp_pool {
namespace {

std::vector<MatrixCase> models(const std::string& size) {
  return expand(std::vector{load_matrix(CP_POOL_MATRICES "/models.json")}, size);
}

TEST(Models, AreADozenOrMoreWithEveryCommunicationType) {
  std::set<std::string> names;
  for (const MatrixCase& entry : models("small")) names.insert(entry.c.model);
  EXPECT_GE(names.size(), 12U);
  EXPECT_EQ(models("small").size(), 4 * names.size());
}

TEST(Models, DifferBetweenTheSizesInLengthsAlone) {
  const auto full = models("full");
  const auto small = models("small");
  ASSERT_EQ(full.size(), small.size());
  for (std::size_t i = 0; i < full.size(); ++i) {
    Case scaled = full[i].c;
    scaled.seqlen_q /= 64;
    scaled.seqlen_kv /= 64;
    scaled.chunk /= 64;
    if (scaled.window[0] > 0) scaled.window[0] /= 64;
    if (scaled.seqlens) {
      for (auto& length : *scaled.seqlens) length /= 64;
    }
    EXPECT_EQ(small[i].c, scaled) << full[i].id;
  }
}

TEST(Models, HaveWhatModelsDifferIn) {
  std::set<std::string> met;
  for (const MatrixCase& entry : models("full")) {
    const Case& c = entry.c;
    if (c.chunk > 0) met.insert("chunks");
    if (c.window[0] >= 0) met.insert("a window");
    if (c.softmax == SoftmaxType::learnable) met.insert("sinks");
    if (c.head_dim_v < c.head_dim_qk) met.insert("MLA");
    if (c.softcap > 0) met.insert("a softcap");
    if (c.head_dim_qk == 256) met.insert("heads of 256");
    if (c.heads == c.kv_heads) met.insert("MHA");
    if (c.heads == 8 * c.kv_heads) met.insert("GQA 8:1");
    if (c.seqlens && c.seqlens->size() == 1) met.insert("one document");
    if (c.seqlens && c.seqlens->size() == 64) met.insert("64 documents");
  }
  EXPECT_EQ(met, (std::set<std::string>{"chunks", "a window", "sinks", "a softcap", "MLA", "heads of 256", "MHA",
                                        "GQA 8:1", "one document", "64 documents"}));
}

}  // namespace
}  // namespace cp_pool
