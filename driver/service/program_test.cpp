#include "driver/service/program.h"

#include <cstdio>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <gmock/gmock.h>

#include "cases/testing/temporary_folder.h"
#include "cases/unique_fd.h"

namespace cp_pool::service {
namespace {

namespace fs = std::filesystem;
using test::TemporaryFolder;
using test::write_file;
using namespace ::testing;

// The files that have changed since they were stamped.
std::vector<fs::path> changed(const std::vector<FileStamp>& stamps) {
  std::vector<fs::path> out;
  for (const FileStamp& stamp : stamps) {
    if (FileStamp(stamp.file) != stamp) out.push_back(stamp.file);
  }
  return out;
}

TEST(FileStamps, AFileThatNobodyTouchesHasNotChanged) {
  const TemporaryFolder folder;
  write_file(folder / "a", "one");
  const std::vector stamps{FileStamp(folder / "a"), FileStamp(folder / "missing")};
  EXPECT_THAT(changed(stamps), IsEmpty());
}

TEST(FileStamps, WritingTouchingRenamingRemovingAndCreatingAreChanges) {
  const TemporaryFolder folder;
  for (const char* name : {"written", "touched", "replaced", "removed", "kept"}) write_file(folder / name, "one");
  // As an editor saves: another file with the same size and time.
  write_file(folder / "new", "two");
  fs::last_write_time(folder / "new", fs::last_write_time(folder / "replaced"));
  std::vector<FileStamp> stamps;
  for (const char* name : {"written", "touched", "replaced", "removed", "created", "kept"}) {
    stamps.emplace_back(folder / name);
  }
  write_file(folder / "written", "longer");
  fs::last_write_time(folder / "touched", fs::last_write_time(folder / "touched") + std::chrono::nanoseconds{1000});
  fs::rename(folder / "new", folder / "replaced");
  fs::remove(folder / "removed");
  write_file(folder / "created", "");
  EXPECT_THAT(changed(stamps), ElementsAre(folder / "written", folder / "touched", folder / "replaced",
                                           folder / "removed", folder / "created"));
}

TEST(FileStamps, ALinkIsTheFileThatItLeadsTo) {
  const TemporaryFolder folder;
  write_file(folder / "v1", "one");
  write_file(folder / "v2", "two");
  fs::create_symlink(folder / "v1", folder / "link");
  const std::vector stamps{FileStamp(folder / "link")};
  write_file(folder / "v2", "three");
  EXPECT_THAT(changed(stamps), IsEmpty());
  fs::remove(folder / "link");
  fs::create_symlink(folder / "v2", folder / "link");
  EXPECT_THAT(changed(stamps), ElementsAre(folder / "link"));
}

TEST(FileStamps, FoldersOfTheSystemAreThoseOfItsPackages) {
  EXPECT_TRUE(is_of_system("/usr/lib/x86_64-linux-gnu/libc.so.6"));
  EXPECT_TRUE(is_of_system("/lib64/ld-linux-x86-64.so.2"));
  EXPECT_TRUE(is_of_system("/bin/sh"));
  EXPECT_FALSE(is_of_system("/usr/local/lib/libmine.so"));
  EXPECT_FALSE(is_of_system("/home/me/usr/lib/libmine.so"));
  EXPECT_FALSE(is_of_system("/libraries/libmine.so"));
}

// Maps a file as a loader maps code, as long as the object lives.
class Mapping {
 public:
  explicit Mapping(const fs::path& file) {
    const UniqueFd fd{::open(file.c_str(), O_RDONLY | O_CLOEXEC)};
    at_ = ::mmap(nullptr, kSize, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd.get(), 0);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() { ::munmap(at_, kSize); }
  [[nodiscard]] bool ok() const { return at_ != MAP_FAILED; }

 private:
  static constexpr std::size_t kSize = 4096;
  void* at_ = nullptr;
};

TEST(MappedFiles, AreTheProgramAndItsLibrariesWithoutTheSystems) {
  const TemporaryFolder folder;
  const fs::path library = folder / "a library\nof two lines.so";
  write_file(library, std::string(8192, 'x'));
  write_file(folder / "replaced.so", std::string(8192, 'x'));
  const Mapping mapping{library};
  const Mapping replaced{folder / "replaced.so"};
  if (!mapping.ok()) GTEST_SKIP() << "the folder for temporary files is mounted noexec";
  fs::remove(folder / "replaced.so");
  const std::vector<fs::path> files = mapped_files(::getpid());
  EXPECT_THAT(files, Contains(fs::read_symlink("/proc/self/exe")));
  EXPECT_THAT(files, Contains(library));
  EXPECT_THAT(files, Contains(folder / "replaced.so"));
  EXPECT_THAT(files, Each(::testing::Truly([](const fs::path& file) { return !is_of_system(file); })));
}

TEST(MappedFiles, OfAProcessThatIsGoneAreNone) {
  constexpr pid_t kNobody = 0x7fffffff;  // above every pid_max
  EXPECT_THAT(mapped_files(kNobody), IsEmpty());
}

}  // namespace
}  // namespace cp_pool::service
