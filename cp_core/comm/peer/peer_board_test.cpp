#include "cp_core/comm/peer/peer_board.h"

#include <filesystem>
#include <sys/wait.h>
#include <system_error>
#include <thread>
#include <unistd.h>

#include <gtest/gtest.h>

namespace cp_pool {
namespace {

using Note = PeerBoard::Note;
using Flag = PeerBoard::Flag;

Note numbered(std::uint64_t number) {
  Note note;
  note.number = number;
  return note;
}

std::uint32_t& word(const PeerBoard& board, Flag flag, int group, int from, int to) {
  return *reinterpret_cast<std::uint32_t*>(board.memory() + board.flag(flag, group, from, to));
}

TEST(PeerBoard, CarriesNotesInOrderBetweenProcesses) {
  constexpr std::uint64_t kNotes = 5000;
  PeerBoard board = PeerBoard::create(2);
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    PeerBoard other = PeerBoard::attach(board.name(), 2);
    for (std::uint64_t i = 0; i < kNotes; ++i) {
      Note note = numbered(i);
      note.set_text("of the child");
      while (!other.post(1, 1, 0, note)) std::this_thread::yield();
    }
    _exit(0);
  }
  alarm(20);
  for (std::uint64_t i = 0; i < kNotes; ++i) {
    std::optional<Note> note;
    while (!(note = board.take(1, 1, 0))) std::this_thread::yield();
    ASSERT_EQ(note->number, i);
    ASSERT_EQ(note->get_text(), "of the child");
  }
  alarm(0);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(PeerBoard, KeepsTheLanesOfGroupsAndDirectionsApart) {
  PeerBoard board = PeerBoard::create(3);
  for (int group = 0; group < board.groups(); ++group) {
    for (int from = 0; from < 3; ++from) {
      for (int to = 0; to < 3; ++to) {
        ASSERT_TRUE(board.post(group, from, to, numbered(static_cast<std::uint64_t>(100 * group + 10 * from + to))));
      }
    }
  }
  EXPECT_EQ(board.take(2, 1, 0)->number, 210U);
  EXPECT_EQ(board.take(0, 1, 0)->number, 10U);
  EXPECT_EQ(board.take(0, 0, 1)->number, 1U);
  EXPECT_FALSE(board.take(0, 0, 1));
}

TEST(PeerBoard, KeepsPartsApartFromAllRanksAndTheirFlagsFromThoseOfOtherNumbers) {
  PeerBoard board = PeerBoard::create(8);
  const int of_all = PeerBoard::group_number({});
  const int of_halves = PeerBoard::group_number({.division = strided(8, 2)});
  const int of_pairs = PeerBoard::group_number({.division = strided(8, 4)});
  EXPECT_EQ(PeerBoard::group_number({.division = strided(8, 1, 4)}), of_pairs);
  EXPECT_LT(PeerBoard::group_number({.division = strided(8, 7), .group = CpGroup::outer}), board.groups());
  ASSERT_TRUE(board.post(of_halves, 0, 4, numbered(1)));
  ASSERT_TRUE(board.post(of_all, 0, 4, numbered(2)));
  ASSERT_TRUE(board.post(of_pairs, 0, 4, numbered(3)));
  EXPECT_EQ(board.take(of_all, 0, 4)->number, 2U);
  EXPECT_EQ(board.take(of_halves, 0, 4)->number, 1U);
  EXPECT_EQ(board.take(of_pairs, 0, 4)->number, 3U);
  EXPECT_NE(board.flag(Flag::ready, of_halves, 0, 4), board.flag(Flag::ready, of_pairs, 0, 4));
}

TEST(PeerBoard, AFullLaneTakesNothingMoreAndLosesNothing) {
  PeerBoard board = PeerBoard::create(2);
  std::uint64_t posted = 0;
  while (board.post(0, 0, 1, numbered(posted))) ++posted;
  EXPECT_GT(posted, 100U);
  EXPECT_EQ(board.take(0, 0, 1)->number, 0U);
  EXPECT_TRUE(board.post(0, 0, 1, numbered(posted)));
  for (std::uint64_t i = 1; i <= posted; ++i) ASSERT_EQ(board.take(0, 0, 1)->number, i);
  EXPECT_FALSE(board.take(0, 0, 1));
}

TEST(PeerBoard, CutsTextsToWhatFits) {
  Note note;
  note.set_text(std::string(200, 'x'));
  EXPECT_EQ(note.get_text(), std::string(PeerBoard::kTextBytes, 'x'));
  note.set_text("short");
  EXPECT_EQ(note.get_text(), "short");
}

TEST(PeerBoard, ReleasesTheFlagsThatOneRankWaitsForAndNoOthers) {
  const PeerBoard board = PeerBoard::create(4);
  board.release_flags_of(1);
  for (int group = 0; group < board.groups(); ++group) {
    for (int from = 0; from < 4; ++from) {
      for (int to = 0; to < 4; ++to) {
        for (const Flag flag : {Flag::ready, Flag::arrived}) {
          EXPECT_EQ(word(board, flag, group, from, to), to == 1 ? 1U : 0U) << group << from << to;
          EXPECT_LE(board.flag(flag, group, from, to) + sizeof(std::uint32_t), board.flag_bytes());
        }
      }
    }
  }
}

TEST(PeerBoard, SaysWhyARankLeft) {
  PeerBoard board = PeerBoard::create(2);
  PeerBoard other = PeerBoard::attach(board.name(), 2);
  EXPECT_FALSE(board.left(1));
  other.leave(1, "out of memory");
  other.leave(1, "aborted");
  EXPECT_EQ(board.left(1), "out of memory");
  EXPECT_FALSE(board.left(0));
  board.leave(0, std::string(5000, 'y'));
  EXPECT_EQ(other.left(0), std::string(1019, 'y'));
}

TEST(PeerBoard, LeavesNothingBehind) {
  std::string name;
  {
    PeerBoard board = PeerBoard::create(2);
    name = board.name();
    const PeerBoard other = PeerBoard::attach(name, 2);
    board.remove_name();
    EXPECT_FALSE(std::filesystem::exists("/dev/shm" + name));
    EXPECT_TRUE(board.post(0, 0, 1, numbered(3)));
  }
  EXPECT_THROW(PeerBoard::attach(name, 2), std::system_error);
  {
    const PeerBoard board = PeerBoard::create(2);
    name = board.name();
    EXPECT_TRUE(std::filesystem::exists("/dev/shm" + name));
  }
  EXPECT_FALSE(std::filesystem::exists("/dev/shm" + name));
}

}  // namespace
}  // namespace cp_pool
