#include "cp_core/comm/peer/peer_board.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <new>
#include <random>
#include <sys/mman.h>
#include <system_error>
#include <type_traits>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "cases/unique_fd.h"

namespace cp_pool {
namespace {

constexpr std::size_t kLine = 64;           // flags and counters of different writers share no cache line
constexpr std::size_t kMailboxNotes = 128;  // usually more than an operation posts, so that posting need not wait
constexpr int kFlagsOfAPair = 2;

[[noreturn]] void throw_errno(const char* operation, const std::string& name) {
  throw std::system_error(errno, std::generic_category(), fmt::format("{} of shared memory {}", operation, name));
}

std::string fresh_name() {
  std::random_device random;
  return fmt::format("/cp_pool.{}.{:08x}{:08x}", getpid(), random(), random());
}

}  // namespace

// Notes [taken, posted) are on their way.
struct PeerBoard::Mailbox {
  alignas(kLine) std::atomic<std::uint64_t> posted;
  alignas(kLine) std::atomic<std::uint64_t> taken;
  alignas(kLine) std::array<Note, kMailboxNotes> notes;
};

struct PeerBoard::Departure {
  enum State : std::uint32_t { here, leaving, left };
  std::atomic<std::uint32_t> state;
  std::array<char, 1020> reason;
};

static_assert(std::is_trivially_copyable_v<PeerBoard::Note>);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<std::uint32_t>::is_always_lock_free);

void PeerBoard::Note::set_text(std::string_view value) {
  std::ranges::fill(text, '\0');
  std::ranges::copy(value.substr(0, kTextBytes), text);
}

std::string_view PeerBoard::Note::get_text() const {
  return {text, strnlen(text, kTextBytes)};
}

PeerBoard PeerBoard::create(int ranks) {
  return {fresh_name(), ranks, /*creates=*/true};
}

PeerBoard PeerBoard::attach(const std::string& name, int ranks) {
  return {name, ranks, /*creates=*/false};
}

PeerBoard::PeerBoard(std::string name, int ranks, bool creates)
    : name_(std::move(name)), ranks_(ranks), owns_name_(creates) {
  const UniqueFd file(shm_open(name_.c_str(), O_RDWR | (creates ? O_CREAT | O_EXCL : 0), 0600));
  if (!file) throw_errno("opening", name_);
  try {
    // New memory is all zero: flags are down, mailboxes are empty, no rank has left. posix_fallocate reserves it now,
    // since a later write that a full file system has no memory for would kill the process.
    if (creates) {
      errno = posix_fallocate(file.get(), 0, static_cast<off_t>(total_bytes()));
      if (errno != 0) throw_errno("sizing", name_);
    }
    void* memory = mmap(nullptr, total_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    if (memory == MAP_FAILED) throw_errno("mapping", name_);
    memory_ = static_cast<std::byte*>(memory);
  } catch (...) {
    remove_name();
    throw;
  }
}

PeerBoard::PeerBoard(PeerBoard&& other) noexcept
    : name_(std::move(other.name_)),
      ranks_(other.ranks_),
      owns_name_(std::exchange(other.owns_name_, false)),
      memory_(std::exchange(other.memory_, nullptr)) {}

PeerBoard::~PeerBoard() {
  remove_name();
  if (memory_ != nullptr) munmap(memory_, total_bytes());
}

void PeerBoard::remove_name() {
  if (std::exchange(owns_name_, false)) shm_unlink(name_.c_str());
}

bool PeerBoard::post(int group, int from, int to, const Note& note) {
  Mailbox& mailbox = this->mailbox(group, from, to);
  const std::uint64_t next = mailbox.posted.load(std::memory_order_relaxed);
  if (next - mailbox.taken.load(std::memory_order_acquire) == kMailboxNotes) return false;
  mailbox.notes[next % kMailboxNotes] = note;
  mailbox.posted.store(next + 1, std::memory_order_release);
  return true;
}

std::optional<PeerBoard::Note> PeerBoard::take(int group, int from, int to) {
  Mailbox& mailbox = this->mailbox(group, from, to);
  const std::uint64_t next = mailbox.taken.load(std::memory_order_relaxed);
  if (next == mailbox.posted.load(std::memory_order_acquire)) return std::nullopt;
  const Note note = mailbox.notes[next % kMailboxNotes];
  mailbox.taken.store(next + 1, std::memory_order_release);
  return note;
}

int PeerBoard::mailbox_groups() const {
  return std::min(groups(), 2 * kKinds);
}

std::size_t PeerBoard::index(int group, int from, int to) const {
  const auto ranks = static_cast<std::size_t>(ranks_);
  return (static_cast<std::size_t>(group) * ranks + static_cast<std::size_t>(from)) * ranks +
         static_cast<std::size_t>(to);
}

std::size_t PeerBoard::flag_bytes() const {
  const std::size_t bytes = index(groups(), 0, 0) * kFlagsOfAPair * kLine;
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

std::size_t PeerBoard::flag(Flag flag, int group, int from, int to) const {
  return (index(group, from, to) * kFlagsOfAPair + static_cast<std::size_t>(flag)) * kLine;
}

void PeerBoard::release_flags_of(int rank) const {
  for (int group = 0; group < groups(); ++group) {
    for (int from = 0; from < ranks_; ++from) {
      for (const Flag kind : {Flag::ready, Flag::arrived}) {
        auto* word = reinterpret_cast<std::uint32_t*>(memory_ + flag(kind, group, from, rank));
        std::atomic_ref(*word).store(1, std::memory_order_release);
      }
    }
  }
}

PeerBoard::Mailbox& PeerBoard::mailbox(int group, int from, int to) const {
  auto* mailboxes = reinterpret_cast<Mailbox*>(memory_ + flag_bytes());
  return *std::launder(mailboxes + index(std::min(group, kKinds + group % kKinds), from, to));
}

PeerBoard::Departure& PeerBoard::departure(int rank) const {
  auto* departures =
      reinterpret_cast<Departure*>(memory_ + flag_bytes() + index(mailbox_groups(), 0, 0) * sizeof(Mailbox));
  return *std::launder(departures + rank);
}

std::size_t PeerBoard::total_bytes() const {
  return flag_bytes() + index(mailbox_groups(), 0, 0) * sizeof(Mailbox) +
         static_cast<std::size_t>(ranks_) * sizeof(Departure);
}

void PeerBoard::leave(int rank, std::string_view reason) {
  Departure& own = departure(rank);
  std::uint32_t expected = Departure::here;
  if (!own.state.compare_exchange_strong(expected, Departure::leaving)) return;
  const std::size_t count = std::min(reason.size(), own.reason.size() - 1);
  std::ranges::copy(reason.substr(0, count), own.reason.begin());
  own.reason.at(count) = '\0';
  own.state.store(Departure::left, std::memory_order_release);
}

std::optional<std::string> PeerBoard::left(int rank) const {
  const Departure& of_rank = departure(rank);
  if (of_rank.state.load(std::memory_order_acquire) != Departure::left) return std::nullopt;
  return of_rank.reason.data();
}

}  // namespace cp_pool
