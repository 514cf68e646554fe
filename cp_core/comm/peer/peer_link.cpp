#include "cp_core/comm/peer/peer_link.h"

#include <algorithm>
#include <cuda_runtime_api.h>
#include <iterator>
#include <optional>
#include <utility>

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <fmt/format.h>

namespace cp_pool {
namespace {

using Clock = PeerLink::Clock;
using Note = PeerBoard::Note;

constexpr std::chrono::microseconds kBetweenReleases{200};

// Barriers have numbers below zero.
std::string place_text(std::int64_t number, std::string_view name) {
  if (number < 0) return fmt::format("the {}", name);
  return fmt::format("its operation {} ({})", number, name);
}

}  // namespace

// The notes that have been received from a peer for the operation.
struct PeerLink::Heard {
  std::optional<std::uint32_t> count;  // the number of the peer's windows
  std::vector<Note> windows;
  [[nodiscard]] bool complete() const { return count && windows.size() == *count; }
};

PeerLink::PeerLink(PeerBoard board, int rank, int size, bool shares, c10::DeviceIndex device)
    : board_(std::move(board)), rank_(rank), size_(size), shares_(shares), device_(device), memory_(device) {
  C10_CUDA_CHECK(cudaHostRegister(board_.memory(), board_.flag_bytes(), cudaHostRegisterMapped));
  void* flags = nullptr;
  C10_CUDA_CHECK(cudaHostGetDevicePointer(&flags, board_.memory(), 0));
  flags_on_device_ = static_cast<std::byte*>(flags);
}

PeerLink::~PeerLink() {
  leave("the groups are gone");
  const c10::cuda::CUDAGuard guard(device_);
  C10_CUDA_CHECK_WARN(cudaDeviceSynchronize());
  releaser_ = {};
  C10_CUDA_CHECK_WARN(cudaHostUnregister(board_.memory()));
}

void PeerLink::leave(std::string_view reason) {
  board_.leave(rank_, reason);
  const std::lock_guard lock(leave_mutex_);
  if (releaser_.joinable()) return;
  // Raises the flags again and again, since a stream lowers a flag after its wait and may wait for it again.
  releaser_ = std::jthread([this](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      board_.release_flags_of(rank_);
      std::this_thread::sleep_for(kBetweenReleases);
    }
  });
}

void PeerLink::close_idle_memory(std::int64_t number, Clock::time_point deadline, const std::function<void()>& check) {
  Operation operation = with_all(number, "closing memory");
  tell_gone(memory_.give_up_idle());
  (void)meet(operation, deadline, check);  // receives the notes on freed allocations
  memory_.close_gone();
  (void)meet(operation, deadline, check);  // waits until every rank has closed them
}

// An operation with all peers and without windows, in which host threads only meet.
PeerLink::Operation PeerLink::with_all(std::int64_t number, std::string_view name) const {
  Operation operation;
  operation.number = number;
  operation.name = operation.step = name;
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    operation.incoming.push_back({.rank = peer, .windows = {}});
    operation.outgoing.push_back({.rank = peer, .blocks = {}});
  }
  return operation;
}

// Posts this rank's windows to the peers and waits for theirs. Returns the peers' windows in the order of
// operation.outgoing.
std::vector<std::vector<PeerBoard::Note>> PeerLink::meet(const Operation& operation, Clock::time_point deadline,
                                                         const std::function<void()>& check) {
  std::vector<std::vector<Note>> notes;
  notes.reserve(operation.incoming.size());
  for (const Incoming& incoming : operation.incoming) notes.push_back(notes_for(incoming, operation));
  std::vector<std::span<const Note>> left(notes.begin(), notes.end());
  std::vector<Heard> heard(operation.outgoing.size());
  const Pause pause;
  while (true) {
    const bool posted = post_some(operation, left);
    const bool taken = take_some(operation, heard);
    if (std::ranges::all_of(left, [](auto rest) { return rest.empty(); }) &&
        std::ranges::all_of(heard, [](const Heard& of_peer) { return of_peer.complete(); })) {
      break;
    }
    if (posted || taken) continue;
    if (check) check();
    if (const std::optional<std::string> why = error_of_missing_peer(operation, left, heard)) {
      // The peer may have posted its last notes and left since they were looked for.
      if (take_some(operation, heard)) continue;
      throw CommError(CommError::Kind::aborted, fmt::format("{}: aborted ({})", operation.step, *why));
    }
    if (Clock::now() >= deadline) {
      const auto silent = std::ranges::find_if(heard, [](const Heard& of_peer) { return !of_peer.complete(); });
      throw CommError(CommError::Kind::timeout,
                      silent == heard.end()
                          ? fmt::format("{}: timed out", operation.step)
                          : fmt::format("{}: timed out: rank {} has not begun this operation", operation.step,
                                        operation.outgoing[static_cast<std::size_t>(silent - heard.begin())].rank));
    }
    pause();
  }
  std::vector<std::vector<Note>> windows;
  windows.reserve(heard.size());
  for (Heard& of_peer : heard) windows.push_back(std::move(of_peer.windows));
  return windows;
}

std::vector<PeerBoard::Note> PeerLink::notes_for(const Incoming& incoming, const Operation& operation) {
  std::vector<Note> windows;
  std::vector<Note> gone;
  for (const Window& window : incoming.windows) {
    if (window.bytes > 0) {
      windows.push_back(memory_.describe(window.first, window.bytes, gone));
    } else {
      windows.push_back({.kind = Note::Kind::window});
    }
  }
  tell_gone(gone);
  std::vector<Note> notes = std::exchange(gone_[incoming.rank], {});
  Note head{.kind = Note::Kind::operation,
            .count = static_cast<std::uint32_t>(windows.size()),
            .number = static_cast<std::uint64_t>(operation.number)};
  head.set_text(operation.name);
  notes.push_back(head);
  notes.insert(notes.end(), windows.begin(), windows.end());
  return notes;
}

// Queues the notes for each peer, which receives them with the next operation.
void PeerLink::tell_gone(const std::vector<Note>& gone) {
  for (int peer = 0; peer < size_; ++peer) {
    if (peer != rank_) std::ranges::copy(gone, std::back_inserter(gone_[peer]));
  }
}

// left: the notes still to post, in the order of operation.incoming. Returns whether a note was posted.
bool PeerLink::post_some(const Operation& operation, std::vector<std::span<const Note>>& left) {
  bool posted = false;
  for (std::size_t i = 0; i < left.size(); ++i) {
    while (!left[i].empty() && board_.post(operation.group, rank_, operation.incoming[i].rank, left[i].front())) {
      left[i] = left[i].subspan(1);
      posted = true;
    }
  }
  return posted;
}

// heard: in the order of operation.outgoing. Returns whether a note was taken.
bool PeerLink::take_some(const Operation& operation, std::vector<Heard>& heard) {
  bool taken = false;
  for (std::size_t i = 0; i < heard.size(); ++i) {
    const int peer = operation.outgoing[i].rank;
    while (!heard[i].complete()) {
      const std::optional<Note> note = board_.take(operation.group, peer, rank_);
      if (!note) break;
      taken = true;
      if (note->kind == Note::Kind::gone) {
        memory_.add_gone(peer, *note);
        if (!shares_) memory_.close_gone();
      } else if (note->kind == Note::Kind::window) {
        heard[i].windows.push_back(*note);
      } else if (note->number != static_cast<std::uint64_t>(operation.number)) {
        throw CommError(CommError::Kind::failed,
                        fmt::format("{}: rank {} is in {}, this rank in {}", operation.step, peer,
                                    place_text(static_cast<std::int64_t>(note->number), note->get_text()),
                                    place_text(operation.number, operation.name)));
      } else {
        heard[i].count = note->count;
      }
    }
  }
  return taken;
}

// Returns which peer left, and why, before this rank had posted all its notes to it and had taken all of its; nullopt
// if none did. A peer that has everything and has said everything may leave: it has passed the operation.
std::optional<std::string> PeerLink::error_of_missing_peer(const Operation& operation,
                                                           const std::vector<std::span<const Note>>& left,
                                                           const std::vector<Heard>& heard) const {
  const auto end_of = [&](int peer) -> std::optional<std::string> {
    const auto reason = board_.left(peer);
    return reason ? std::optional(fmt::format("rank {}: {}", peer, *reason)) : std::nullopt;
  };
  for (std::size_t i = 0; i < left.size(); ++i) {
    if (left[i].empty()) continue;
    if (auto end = end_of(operation.incoming[i].rank)) return end;
  }
  for (std::size_t i = 0; i < heard.size(); ++i) {
    if (heard[i].complete()) continue;
    if (auto end = end_of(operation.outgoing[i].rank)) return end;
  }
  return std::nullopt;
}

}  // namespace cp_pool
