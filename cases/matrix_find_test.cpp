#include "cases/matrix_find.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cases/case_error.h"

namespace cp_pool {
namespace {

namespace fs = std::filesystem;

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;
using testing::StartsWith;

constexpr const char* kMatrix = R"({"suite": "s", "sizes": {"full": {}}, "models": {"a": {"seqlen_q": 64,
  "seqlen_kv": 64, "heads": 4, "kv_heads": 4, "head_dim_qk": 8, "head_dim_v": 8}}})";

class MatrixFind : public testing::Test {
 protected:
  MatrixFind() : root_(testing::TempDir() + testing::UnitTest::GetInstance()->current_test_info()->name()) {
    for (const std::string& folder : {first(), second()}) fs::create_directories(folder);
    write(first() + "/one.json");
    write(second() + "/one.json");
    write(second() + "/quick.json");
    write(second() + "/notes.txt");
  }
  ~MatrixFind() override { fs::remove_all(root_); }
  MatrixFind(const MatrixFind&) = delete;
  MatrixFind& operator=(const MatrixFind&) = delete;

  static void write(const std::string& path) { std::ofstream(path) << kMatrix; }
  std::string first() const { return root_ + "/first"; }
  std::string second() const { return root_ + "/second"; }
  std::vector<std::string> folders() const { return {first(), root_ + "/absent", second()}; }

  std::string root_;
};

TEST_F(MatrixFind, ListsTheNamesInAllFolders) {
  EXPECT_THAT(matrix_names(folders()), ElementsAre("one", "quick"));
}

TEST_F(MatrixFind, ANameIsLookedUpInOrder) {
  EXPECT_EQ(find_matrix("one", folders()), first() + "/one.json");
  EXPECT_EQ(find_matrix("quick", folders()), second() + "/quick.json");
}

TEST_F(MatrixFind, APathStandsForItself) {
  EXPECT_EQ(find_matrix("./x", folders()), "./x");
  EXPECT_EQ(find_matrix("x.json", folders()), "x.json");
}

TEST_F(MatrixFind, AnUnknownNameIsAnErrorWithTheKnownOnes) {
  try {
    find_matrix("quik", folders());
    FAIL();
  } catch (const CaseError& e) {
    EXPECT_THAT(e.what(),
                AllOf(StartsWith("unknown matrix 'quik'; did you mean 'quick'? (known: one, quick; looked in "),
                      HasSubstr(second())));
  }
}

TEST_F(MatrixFind, LoadsCasesByNameAndPath) {
  const std::vector<std::string> by_name{"quick"};
  const std::vector<std::string> by_path{first() + "/one.json"};
  EXPECT_THAT(load_cases(by_name, "full", folders()), SizeIs(1));
  EXPECT_THAT(load_cases(by_path, "full", {}), SizeIs(1));
}

TEST_F(MatrixFind, AMatrixGivenTwiceIsAnError) {
  const std::vector<std::string> twice{"quick", "quick"};
  EXPECT_THROW(load_cases(twice, "full", folders()), CaseError);
}

TEST_F(MatrixFind, AMissingFileIsAnErrorWithTheReason) {
  const std::vector<std::string> absent{root_ + "/absent.json"};
  try {
    load_cases(absent, "full", {});
    FAIL();
  } catch (const CaseError& e) {
    EXPECT_THAT(e.what(), HasSubstr("/absent.json: cannot be read: No such file or directory"));
  }
}

}  // namespace
}  // namespace cp_pool
