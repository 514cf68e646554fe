#include "cp_core/attention/cudnn/plan_store.h"

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cases/testing/temporary_folder.h"

namespace cp_pool {
namespace {

namespace fs = std::filesystem;
using Bytes = PlanStore::Bytes;
using testing::HasSubstr;
using testing::IsEmpty;

class PlanStoreTest : public testing::Test {
 protected:
  // Changes the stored file of a key.
  void damage(const std::string& key, const std::function<void(std::string&)>& change) const {
    const fs::path path = PlanStore(folder_).file_of(key);
    std::string text = test::read_file(path);
    change(text);
    test::write_file(path, text);
  }

  [[nodiscard]] std::ptrdiff_t files() const {
    return std::distance(fs::directory_iterator(folder_), fs::directory_iterator());
  }

  const test::TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path();
  const Bytes bytes_{0, 255, 10, 13, 10, 7};
};

TEST_F(PlanStoreTest, GivesBackWhatAnotherWrote) {
  PlanStore(folder_ / "made").write("key\nof two lines", bytes_);
  EXPECT_EQ(PlanStore(folder_ / "made").read("key\nof two lines"), bytes_);
  EXPECT_EQ(PlanStore(folder_ / "made").read("another key"), std::nullopt);
}

TEST_F(PlanStoreTest, KeepsAnEmptyBlob) {
  PlanStore(folder_).write("key", {});
  EXPECT_EQ(PlanStore(folder_).read("key"), Bytes{});
}

TEST_F(PlanStoreTest, LacksWhatNobodyWrote) {
  PlanStore store(folder_);
  EXPECT_TRUE(store.lacks("key"));
  PlanStore(folder_).write("key", bytes_);
  EXPECT_FALSE(store.lacks("key"));
  EXPECT_TRUE(store.lacks("another key"));
}

TEST_F(PlanStoreTest, TakesNoDamagedFileAndRemovesIt) {
  PlanStore store(folder_);
  const std::vector<std::function<void(std::string&)>> damages{
      [](std::string& text) { text.clear(); },      [](std::string& text) { text.pop_back(); },
      [](std::string& text) { text += 'x'; },       [](std::string& text) { text.back() ^= 1; },
      [](std::string& text) { text.front() ^= 1; }, [](std::string& text) { text.resize(25); },
      [](std::string& text) { text[21] ^= 1; },     [](std::string& text) { text[text.size() - 17] ^= 1; },
      [](std::string& text) { text.resize(28); },   [](std::string& text) { text = std::string(1000, '\n'); },
  };
  for (std::size_t i = 0; i < damages.size(); ++i) {
    store.write("key", bytes_);
    ASSERT_EQ(store.read("key"), bytes_);
    damage("key", damages[i]);
    EXPECT_EQ(store.read("key"), std::nullopt) << "damage " << i;
    EXPECT_TRUE(store.lacks("key")) << "damage " << i;
  }
}

TEST_F(PlanStoreTest, TellsOfDamageOnce) {
  PlanStore store(folder_);
  for (const char* key : {"a", "b"}) store.write(key, bytes_);
  for (const char* key : {"a", "b"}) damage(key, [](std::string& text) { text.pop_back(); });
  testing::internal::CaptureStderr();
  (void)store.read("a");
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("discarded " + store.file_of("a").string()));
  testing::internal::CaptureStderr();
  (void)store.read("b");
  EXPECT_THAT(testing::internal::GetCapturedStderr(), IsEmpty());
}

// File names are only hashes of keys, so the key inside the file decides.
TEST_F(PlanStoreTest, TakesNoFileOfAnotherKey) {
  PlanStore store(folder_);
  store.write("key", bytes_);
  fs::rename(store.file_of("key"), store.file_of("kez"));
  EXPECT_EQ(store.read("kez"), std::nullopt);
}

class PlanStoreOfTwo : public PlanStoreTest {
 protected:
  PlanStore store_{folder_, 2500, /*writes_a_look=*/1};
  const Bytes large_ = Bytes(1000, 1);

  void make_older(const std::string& key, int hours) const {
    fs::last_write_time(store_.file_of(key), fs::file_time_type::clock::now() - std::chrono::hours(hours));
  }
};

TEST_F(PlanStoreOfTwo, DropsWhatWasWrittenFirstPastItsSize) {
  store_.write("a", large_);
  store_.write("b", large_);
  make_older("a", 1);
  store_.write("c", large_);
  EXPECT_EQ(store_.read("a"), std::nullopt);
  EXPECT_EQ(store_.read("b"), large_);
  EXPECT_EQ(store_.read("c"), large_);
}

TEST_F(PlanStoreOfTwo, KeepsWhatWasReadLately) {
  store_.write("a", large_);
  store_.write("b", large_);
  make_older("a", 2);
  make_older("b", 1);
  EXPECT_EQ(store_.read("a"), large_);
  store_.write("c", large_);
  EXPECT_EQ(store_.read("a"), large_);
  EXPECT_EQ(store_.read("b"), std::nullopt);
}

// A folder that the user chooses may hold other files.
TEST_F(PlanStoreOfTwo, DropsOnlyFilesOfItsOwn) {
  const fs::path other = folder_ / "notes.plan";
  std::ofstream(other) << std::string(3000, 'x');
  fs::last_write_time(other, fs::file_time_type::clock::now() - std::chrono::hours(9));
  store_.write("a", large_);
  store_.write("b", large_);
  EXPECT_TRUE(fs::exists(other));
  EXPECT_EQ(store_.read("a"), large_);
}

TEST_F(PlanStoreOfTwo, DropsDraftsThatWereLeftBehind) {
  const fs::path draft = store_.file_of("gone").string() + ".1.0.tmp";
  std::ofstream(draft) << std::string(3000, 'x');
  fs::last_write_time(draft, fs::file_time_type::clock::now() - std::chrono::hours(9));
  store_.write("a", large_);
  EXPECT_FALSE(fs::exists(draft));
  EXPECT_EQ(store_.read("a"), large_);
}

TEST_F(PlanStoreTest, LeavesNoDraftBehind) {
  PlanStore(folder_).write("key", bytes_);
  EXPECT_EQ(files(), 1);
}

TEST_F(PlanStoreTest, IsWholeWhileOthersWriteTheSame) {
  const Bytes large(100'000, 7);
  PlanStore(folder_).write("key", large);
  constexpr int kWriters = 4;
  std::vector<std::jthread> writers;
  writers.reserve(kWriters);
  for (int i = 0; i < kWriters; ++i) {
    writers.emplace_back([&] {
      PlanStore store(folder_);
      for (int repeat = 0; repeat < 20; ++repeat) store.write("key", large);
    });
  }
  PlanStore store(folder_);
  for (int repeat = 0; repeat < 50; ++repeat) ASSERT_EQ(store.read("key"), large);
  writers.clear();
  EXPECT_EQ(files(), 1);
}

TEST_F(PlanStoreTest, DoesWithoutAFolderThatCannotBeMadeAndSaysSoOnce) {
  std::ofstream(folder_ / "file") << "in the way";
  PlanStore store(folder_ / "file" / "folder");
  EXPECT_TRUE(store.lacks("key"));
  testing::internal::CaptureStderr();
  store.write("key", bytes_);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr((folder_ / "file").string()));
  testing::internal::CaptureStderr();
  store.write("key", bytes_);
  EXPECT_EQ(store.read("key"), std::nullopt);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), IsEmpty());
  EXPECT_FALSE(store.lacks("key")) << "nothing is prepared for a write that would fail";
}

class PlanStoreFolder : public testing::Test {
 protected:
  PlanStoreFolder() { unsetenv("XDG_CACHE_HOME"); }
  ~PlanStoreFolder() override {
    unsetenv("CP_POOL_PLAN_STORE");
    unsetenv("XDG_CACHE_HOME");
    setenv("HOME", home_.c_str(), 1);
  }

 private:
  const std::string home_ = getenv("HOME") == nullptr ? "" : getenv("HOME");
};

TEST_F(PlanStoreFolder, IsTheOneThatTheEnvironmentNames) {
  setenv("CP_POOL_PLAN_STORE", "off", 1);
  EXPECT_EQ(plan_store_folder(), std::nullopt);
  setenv("CP_POOL_PLAN_STORE", "/plans", 1);
  EXPECT_EQ(plan_store_folder(), "/plans");
}

TEST_F(PlanStoreFolder, IsInTheUsersCacheOtherwise) {
  setenv("CP_POOL_PLAN_STORE", "on", 1);
  setenv("HOME", "/home/me", 1);
  EXPECT_EQ(plan_store_folder(), "/home/me/.cache/cp-pool/cudnn-plans");
  setenv("XDG_CACHE_HOME", "relative", 1);  // the XDG base directory specification says to ignore relative paths
  EXPECT_EQ(plan_store_folder(), "/home/me/.cache/cp-pool/cudnn-plans");
  setenv("XDG_CACHE_HOME", "/cache", 1);
  EXPECT_EQ(plan_store_folder(), "/cache/cp-pool/cudnn-plans");
  const std::optional<fs::path> on = plan_store_folder();
  for (const char* unset : {"", static_cast<const char*>(nullptr)}) {
    unset == nullptr ? unsetenv("CP_POOL_PLAN_STORE") : setenv("CP_POOL_PLAN_STORE", unset, 1);
    EXPECT_EQ(plan_store_folder(), on);
  }
}

TEST_F(PlanStoreFolder, IsNoneForAUserWithoutAHome) {
  setenv("CP_POOL_PLAN_STORE", "on", 1);
  unsetenv("HOME");
  EXPECT_EQ(plan_store_folder(), std::nullopt);
}

}  // namespace
}  // namespace cp_pool
