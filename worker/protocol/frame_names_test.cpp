#include "worker/protocol/frame_names.h"

#include <dlfcn.h>
#include <filesystem>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>
#include <gmock/gmock.h>

// The tests look this function up by its name and line.
__attribute__((noinline)) int frame_names_outer(int value);

namespace cp_pool {
namespace {

using namespace ::testing;

std::string own_file() {
  return std::filesystem::read_symlink("/proc/self/exe").string();
}

std::uint64_t offset_in_module(const void* address) {
  Dl_info info{};
  EXPECT_NE(dladdr(address, &info), 0);
  return static_cast<std::uint64_t>(static_cast<const char*>(address) - static_cast<const char*>(info.dli_fbase));
}

std::string stack_of(const std::string& file, const std::string& build_id = "-") {
  return fmt::format("words\n  #1 t+0x{:x}\n  #0 0x10\n[CP_POOL_MODULE] t {} {}\nmore words\n",
                     offset_in_module(reinterpret_cast<const void*>(&frame_names_outer)), build_id, file);
}

std::string named(const std::string& text) {
  FrameNames names;
  look_up_frames(raw_frames(text),
                 [&](const FrameAddress& frame, const std::vector<std::string>& calls) { names[frame] = calls; });
  return with_names(text, names);
}

TEST(FrameNames, AFrameGetsItsFunctionFileAndLineAndTheModuleIsNoLongerSaid) {
  EXPECT_THAT(named(stack_of(own_file())),
              MatchesRegex("words\n  #1 frame_names_outer\\(int\\) at .*frame_names_test.cpp:[0-9]+\n"
                           "(  #1 .*\n)?  #0 0x10\nmore words\n"));
}

TEST(FrameNames, AModuleWithoutDebugInformationNamesTheFunctionAndTheFile) {
  Dl_info info{};
  ASSERT_NE(dladdr(reinterpret_cast<const void*>(&::getpid), &info), 0);
  const std::string file = std::filesystem::canonical(info.dli_fname).string();
  const std::string text = fmt::format("  #0 libc.so.6+0x{:x}\n[CP_POOL_MODULE] libc.so.6 - {}\n",
                                       offset_in_module(reinterpret_cast<const void*>(&::getpid)), file);
  EXPECT_THAT(named(text), MatchesRegex("  #0 .*getpid in .*libc.*\n"));
}

TEST(FrameNames, AnotherBuildOfTheModuleIsNotBelieved) {
  const std::string text = stack_of(own_file(), "00112233");
  EXPECT_EQ(named(text), text);
}

TEST(FrameNames, AModuleThatCannotBeReadLeavesTheFramesAsTheyAre) {
  const std::string fifo = (std::filesystem::temp_directory_path() / fmt::format("frames-{}", ::getpid())).string();
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  for (const std::string& file : {std::string("/nowhere"), std::string("/etc/passwd"), std::string("/"), fifo}) {
    const std::string text = stack_of(file);
    EXPECT_EQ(named(text), text);
  }
  std::filesystem::remove(fifo);
}

TEST(FrameNames, AnAddressBehindTheModuleHasNoName) {
  const std::string text = fmt::format("  #0 t+0xffffffffffff\n[CP_POOL_MODULE] t - {}\n", own_file());
  EXPECT_EQ(named(text), text);
}

TEST(RawFrames, AreThoseWhoseModuleIsNamedAfterThem) {
  EXPECT_THAT(raw_frames("  #1 a+0x10\n  #0 b+0x20\n[CP_POOL_MODULE] a 0f /lib/a b\n"),
              ElementsAre(FrameAddress{"/lib/a b", "0f", 16}));
  EXPECT_THAT(raw_frames("  #1 a+0x10\n[CP_POOL_MODULE] a 0f /one\n  #1 a+0x10\n[CP_POOL_MODULE] a 0f /two\n"),
              ElementsAre(FrameAddress{"/one", "0f", 16}, FrameAddress{"/two", "0f", 16}));
}

TEST(RawFrames, WhatIsNoneIsNone) {
  for (const char* text : {"", "\n", "  #", "  #0", "  #0 a", "  #0 a+0x", "  #0 +0x1", "  #0 a+0xzz",
                           "  #0 f at x.cpp:3", "[CP_POOL_MODULE]", "[CP_POOL_MODULE] a", "[CP_POOL_MODULE] a 0"}) {
    EXPECT_THAT(raw_frames(std::string(text) + "\n[CP_POOL_MODULE] a 0 /a\n"), IsEmpty()) << text;
    EXPECT_THAT(with_names(text, {}), HasSubstr(text));
  }
}

}  // namespace
}  // namespace cp_pool

int frame_names_outer(int value) {
  static volatile int sum = 0;
  sum = sum + value;
  return sum;
}
