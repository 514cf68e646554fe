// What the ranks of one host tell each other about the memory that they open to each other, in memory that they share:
// notes for hosts, flags for devices. Nothing here needs a device.
//
// A mailbox carries the notes of one rank to another, in order, for one group of ranks. One thread at a time posts to a
// mailbox, one takes from it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace cp_pool {

class PeerBoard {
 public:
  static constexpr int kGroups = 3;
  static constexpr std::size_t kTextBytes = 64;

  struct Note {
    enum class Kind : std::uint32_t {
      operation,  // number, count: windows that follow, idle: nothing is done meanwhile, by_kernel: the rank is
                  // for that, text: what it is
      window,     // number: of the allocation it lies in, first, bytes; text: the allocation's IPC handle
      gone        // number: of an allocation that is there no more
    };
    Kind kind = Kind::operation;
    std::uint32_t count = 0;
    std::uint64_t number = 0;
    std::uint64_t first = 0;  // byte of the allocation
    std::uint64_t bytes = 0;
    bool idle = false;
    bool by_kernel = false;
    char text[kTextBytes] = {};  // NOLINT(*-avoid-c-arrays): lies in shared memory

    void set_text(std::string_view value);  // cut to what fits
    [[nodiscard]] std::string_view get_text() const;
  };

  // Devices write 1 to say so and wait for 1; the rank that waited writes 0.
  enum class Flag {
    ready,   // `from` lets `to` write to the windows of its operation
    arrived  // what `from` writes to the windows of `to` is there
  };

  // Makes a board of `ranks` ranks, under a name that nobody else has. Throws std::system_error.
  static PeerBoard create(int ranks);
  // The board that another rank of this host made. Throws std::system_error.
  static PeerBoard attach(const std::string& name, int ranks);
  PeerBoard(PeerBoard&& other) noexcept;
  PeerBoard& operator=(PeerBoard&&) = delete;
  PeerBoard(const PeerBoard&) = delete;
  PeerBoard& operator=(const PeerBoard&) = delete;
  ~PeerBoard();  // removes the name, if this is the rank that made it

  [[nodiscard]] const std::string& name() const { return name_; }
  // No other rank can attach; those that have stay. Dying ranks then leave nothing behind.
  void remove_name();

  // False: the mailbox is full.
  bool post(int group, int from, int to, const Note& note);
  // nullopt: nothing there.
  std::optional<Note> take(int group, int from, int to);

  // All flags lie in the first flag_bytes() of memory().
  [[nodiscard]] std::byte* memory() const { return memory_; }
  [[nodiscard]] std::size_t flag_bytes() const;
  // Offset in memory().
  [[nodiscard]] std::size_t flag(Flag flag, int group, int from, int to) const;
  // One that no device writes: down until release_flags_of(rank).
  [[nodiscard]] std::size_t stop_flag(int rank) const { return flag(Flag::ready, 0, rank, rank); }
  // Lets all that the device of `rank` waits for come true, once.
  void release_flags_of(int rank) const;

  // Tells all ranks that `rank` takes part no longer, and why. The first reason stays.
  void leave(int rank, std::string_view reason);
  // Why `rank` left; nullopt: it has not.
  [[nodiscard]] std::optional<std::string> left(int rank) const;

 private:
  struct Mailbox;
  struct Departure;

  PeerBoard(std::string name, int ranks, bool creates);
  [[nodiscard]] std::size_t mailbox_index(int group, int from, int to) const;
  [[nodiscard]] Mailbox& mailbox(int group, int from, int to) const;
  [[nodiscard]] Departure& departure(int rank) const;
  [[nodiscard]] std::size_t total_bytes() const;

  std::string name_;
  int ranks_;
  bool owns_name_;
  std::byte* memory_ = nullptr;
};

}  // namespace cp_pool
