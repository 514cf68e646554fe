// Shared memory through which the ranks of one host exchange buffer addresses and synchronise: notes for host threads,
// flags for devices. Nothing here needs a device.
//
// A mailbox carries the notes of one rank to another, in order, for one group of ranks. One thread at a time posts to a
// mailbox, one takes from it. The groups that ranks are divided into share mailboxes with those of other divisions,
// since ranks are divided in one way at a time, and flags with those of the same GroupTag::parts.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "cp_core/comm/communicator.h"

namespace cp_pool {

class PeerBoard {
 public:
  static constexpr int kKinds = 3;
  static constexpr std::size_t kTextBytes = 64;

  struct Note {
    enum class Kind : std::uint32_t {
      operation,  // an operation begins. number: its number in the group; count: how many window notes follow;
                  // text: the operation's name
      window,     // memory that the receiver may write. number: its allocation's; first, bytes: its place in the
                  // allocation; text: the allocation's IPC handle
      gone        // an allocation has been freed. number: the allocation's
    };
    Kind kind = Kind::operation;
    std::uint32_t count = 0;
    std::uint64_t number = 0;
    std::uint64_t first = 0;  // byte of the allocation
    std::uint64_t bytes = 0;
    char text[kTextBytes] = {};  // NOLINT(*-avoid-c-arrays): lies in shared memory

    void set_text(std::string_view value);  // cuts the value to kTextBytes
    [[nodiscard]] std::string_view get_text() const;
  };

  // A device writes 1 to raise a flag, and another device waits for the 1 and then writes 0.
  enum class Flag {
    ready,   // `to` may write to the windows of `from`
    arrived  // the data that `from` writes to the windows of `to` is complete
  };

  // Makes a board for `ranks` ranks, at least two, under a unique name. Throws std::system_error.
  static PeerBoard create(int ranks);
  // Attaches to the board that another rank of this host made. Throws std::system_error.
  static PeerBoard attach(const std::string& name, int ranks);
  PeerBoard(PeerBoard&& other) noexcept;
  PeerBoard& operator=(PeerBoard&&) = delete;
  PeerBoard(const PeerBoard&) = delete;
  PeerBoard& operator=(const PeerBoard&) = delete;
  ~PeerBoard();  // removes the name if this rank made the board

  [[nodiscard]] const std::string& name() const { return name_; }
  // The number by which the other functions know a group.
  static int group_number(const GroupTag& tag) { return (tag.parts() - 1) * kKinds + static_cast<int>(tag.group); }
  // One more than the largest number of a group of several ranks.
  [[nodiscard]] int groups() const { return (ranks_ - 1) * kKinds; }
  // Removes the name from the file system if this rank made the board. Attached ranks are not affected, no other rank
  // can attach any more, and ranks that die leave nothing behind.
  void remove_name();

  // Returns false if the mailbox is full.
  bool post(int group, int from, int to, const Note& note);
  // Returns nullopt if the mailbox is empty.
  std::optional<Note> take(int group, int from, int to);

  // All flags lie in the first flag_bytes() of memory().
  [[nodiscard]] std::byte* memory() const { return memory_; }
  [[nodiscard]] std::size_t flag_bytes() const;
  // The offset of a flag in memory(), in bytes.
  [[nodiscard]] std::size_t flag(Flag flag, int group, int from, int to) const;
  // Raises every flag that the device of `rank` may be waiting for, once.
  void release_flags_of(int rank) const;

  // Tells all ranks that `rank` no longer takes part, and why. The first reason is kept.
  void leave(int rank, std::string_view reason);
  // Returns why `rank` left; nullopt if it has not.
  [[nodiscard]] std::optional<std::string> left(int rank) const;

 private:
  struct Mailbox;
  struct Departure;

  PeerBoard(std::string name, int ranks, bool creates);
  [[nodiscard]] std::size_t index(int group, int from, int to) const;
  [[nodiscard]] int mailbox_groups() const;
  [[nodiscard]] Mailbox& mailbox(int group, int from, int to) const;
  [[nodiscard]] Departure& departure(int rank) const;
  [[nodiscard]] std::size_t total_bytes() const;

  std::string name_;
  int ranks_;
  bool owns_name_;
  std::byte* memory_ = nullptr;
};

}  // namespace cp_pool
