// How a PeerLink comes to be.
#include <algorithm>
#include <exception>
#include <stdexcept>
#include <utility>

#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAFunctions.h>
#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "cp_core/comm/peer_environment.h"
#include "cp_core/comm/peer_link.h"

namespace cp_pool {
namespace {

using Clock = PeerLink::Clock;

std::chrono::milliseconds until(Clock::time_point deadline) {
  return std::max(std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()), std::chrono::milliseconds{1});
}

std::vector<std::uint8_t> as_bytes(std::string_view text) {
  return {text.begin(), text.end()};
}

std::string get_text(c10d::Store& store, const std::string& key, Clock::time_point deadline) {
  store.wait({key}, until(deadline));
  const std::vector<std::uint8_t> bytes = store.get(key);
  return {bytes.begin(), bytes.end()};
}

// Rank 0's board, on every rank. Throws where there is none for this rank.
PeerBoard share_board(c10d::Store& store, const std::string& key, int rank, int size, Clock::time_point deadline) {
  if (rank != 0) {
    const std::string name = get_text(store, key, deadline);
    if (name.empty()) throw std::runtime_error("rank 0 has no board");
    return PeerBoard::attach(name, size);
  }
  PeerBoard board = PeerBoard::create(size);
  store.set(key, as_bytes(board.name()));
  return board;
}

}  // namespace

PeerLink::Connection PeerLink::connect(const c10::intrusive_ptr<c10d::Store>& store, const std::string& prefix,
                                       int rank, int size, Clock::time_point deadline) {
  if (size == 1) return {.link = nullptr, .why_not = "there is one rank"};
  const std::string board_key = prefix + "peer_board";
  const auto key_of = [&](int of_rank) { return fmt::format("{}peer/{}", prefix, of_rank); };
  Connection own;
  try {
    try {
      if (const std::string forbidden = peer_copies_forbidden(); !forbidden.empty()) {
        throw std::runtime_error(forbidden);
      }
      own.link = std::make_shared<PeerLink>(share_board(*store, board_key, rank, size, deadline), rank, size,
                                            c10::cuda::current_device());
    } catch (const std::exception& error) {
      own.why_not = fmt::format("rank {}: {}", rank, error.what());
      if (rank == 0) store->set(board_key, std::vector<std::uint8_t>());
    }
    store->set(key_of(rank), as_bytes(own.why_not));
    for (int peer = 0; peer < size; ++peer) {
      const std::string why_not = get_text(*store, key_of(peer), deadline);
      if (!why_not.empty()) return {.link = nullptr, .why_not = why_not};
    }
  } catch (const std::exception& error) {
    throw CommError(CommError::Kind::timeout, fmt::format("rank {}: connecting peers: {}", rank, error.what()));
  }
  // Everybody is attached.
  own.link->board_.remove_name();
  own.why_not = own.link->prove(deadline);
  if (!own.why_not.empty()) own.link = nullptr;
  return own;
}

// Every rank opens memory of every other and says whether it could. Gives the reason if one could not.
std::string PeerLink::prove(Clock::time_point deadline) {
  const at::Tensor tensor = at::empty({1}, at::TensorOptions(at::kByte).device(at::kCUDA, device_));
  Operation operation{
      .group = 0, .number = -1, .name = "connecting peers", .step = "connecting peers", .incoming = {}, .outgoing = {}};
  std::string why_not;
  const Window window{.first = static_cast<std::byte*>(tensor.data_ptr()), .bytes = 1};
  std::vector<Window> windows;
  try {
    std::vector<Note> gone;
    (void)memory_.describe(window.first, window.bytes, gone);
    windows.push_back(window);
  } catch (const c10::Error& error) {
    why_not = fmt::format("rank {}: {}", rank_, error.what_without_backtrace());
  }
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    operation.incoming.push_back({.rank = peer, .windows = windows});
    operation.outgoing.push_back({.rank = peer, .blocks = {}});
  }
  const std::vector<std::vector<Note>> theirs = meet(operation, deadline, {});
  for (std::size_t i = 0; i < theirs.size(); ++i) {
    try {
      for (const Note& note : theirs[i]) (void)memory_.open(operation.outgoing[i].rank, note);
    } catch (const c10::Error& error) {
      why_not = fmt::format("rank {}: memory of rank {}: {}", rank_, operation.outgoing[i].rank,
                            error.what_without_backtrace());
    }
  }
  // One window more says: it could.
  for (Incoming& incoming : operation.incoming) {
    incoming.windows = why_not.empty() ? std::vector<Window>{window} : std::vector<Window>{};
  }
  const std::vector<std::vector<Note>> verdicts = meet(operation, deadline, {});
  for (std::size_t i = 0; i < verdicts.size() && why_not.empty(); ++i) {
    if (verdicts[i].empty()) why_not = fmt::format("rank {} could not", operation.outgoing[i].rank);
  }
  return why_not;
}

}  // namespace cp_pool
