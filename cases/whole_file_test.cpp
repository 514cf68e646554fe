#include "cases/whole_file.h"

#include <iterator>
#include <system_error>

#include <gtest/gtest.h>

#include "cases/testing/file_size_limit.h"
#include "cases/testing/temporary_folder.h"

namespace cp_pool {
namespace {

using test::read_file;
using test::TemporaryFolder;

std::size_t count_files(const TemporaryFolder& folder) {
  return static_cast<std::size_t>(
      std::distance(std::filesystem::directory_iterator{folder.path()}, std::filesystem::directory_iterator{}));
}

TEST(WholeFile, ReplacesWhatWasThereOnceItIsKept) {
  const TemporaryFolder folder;
  test::write_file(folder / "f", "old");
  WholeFile file(folder / "f");
  file.write("new ");
  file.write("text");
  file.sync();
  EXPECT_EQ(read_file(folder / "f"), "old");
  file.keep();
  EXPECT_EQ(read_file(folder / "f"), "new text");
  EXPECT_EQ(count_files(folder), 1U);
}

TEST(WholeFile, LeavesNothingBehindUnlessItIsKept) {
  const TemporaryFolder folder;
  {
    WholeFile one(folder / "f");
    WholeFile other(folder / "f");  // two drafts at a time have different names
    EXPECT_EQ(count_files(folder), 2U);
    one.write("text");
  }
  EXPECT_EQ(count_files(folder), 0U);
}

TEST(WholeFile, SaysWhyItCannotBeWritten) {
  const TemporaryFolder folder;
  const auto cause_of = [](const auto& action) {
    try {
      action();
    } catch (const std::system_error& e) {
      return std::errc(e.code().value());
    }
    return std::errc{};
  };
  EXPECT_EQ(cause_of([&] { WholeFile{folder / "none/f"}; }), std::errc::no_such_file_or_directory);
  std::filesystem::create_directory(folder / "d");
  EXPECT_EQ(cause_of([&] { WholeFile{folder / "d"}.keep(); }), std::errc::is_a_directory);
  {
    const test::FileSizeLimit limit(100);
    EXPECT_EQ(cause_of([&] { WholeFile{folder / "f"}.write(std::string(1000, 'x')); }), std::errc::file_too_large);
  }
  EXPECT_EQ(count_files(folder), 1U) << "the folder d alone";
}

}  // namespace
}  // namespace cp_pool
