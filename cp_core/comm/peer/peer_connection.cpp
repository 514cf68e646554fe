// Implements PeerLink::connect.
#include <algorithm>
#include <cuda_runtime_api.h>
#include <exception>
#include <functional>
#include <stdexcept>
#include <utility>

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "cp_core/comm/peer/peer_environment.h"
#include "cp_core/comm/peer/peer_link.h"

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

constexpr std::int64_t kProofWords = 4096;

// The byte at which the proof that `rank` writes to another rank begins.
std::int64_t proof_place(int rank) {
  return rank * kProofWords * std::int64_t{sizeof(std::int64_t)};
}

// The bytes that `rank` writes to the memory of others to prove that it can.
at::Tensor proof_of(int rank) {
  return at::arange(kProofWords, at::kLong).add(kProofWords * (rank + 1)).view(at::kByte);
}

// Returns rank 0's board on every rank. Throws if this rank cannot attach to it.
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
                                       int rank, int size, bool shares, Clock::time_point deadline) {
  if (size == 1) return {.link = nullptr, .why_not = "there is one rank"};
  const std::string board_key = prefix + "peer_board";
  const auto key_of = [&](int of_rank) { return fmt::format("{}peer/{}", prefix, of_rank); };
  Connection own;
  try {
    try {
      if (const std::string forbidden = peer_copies_forbidden(shares); !forbidden.empty()) {
        throw std::runtime_error(forbidden);
      }
      own.link = std::make_shared<PeerLink>(share_board(*store, board_key, rank, size, deadline), rank, size, shares,
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
  // All ranks are attached.
  own.link->board_.remove_name();
  own.why_not = own.link->prove(deadline);
  if (own.why_not.empty()) {
    own.link->close_idle_memory(-1, deadline, {});
  } else {
    own.link = nullptr;
  }
  return own;
}

// Every rank writes to the memory of every other rank and checks what the others wrote to its own, since on some
// machines the driver reports peer access although data does not arrive. If that fails on a rank, returns the reason;
// else returns an empty string.
std::string PeerLink::prove(Clock::time_point deadline) {
  const auto options = at::TensorOptions().dtype(at::kByte).device(at::kCUDA, device_);
  const at::Tensor proofs = at::zeros({proof_place(size_)}, options);
  c10::cuda::getCurrentCUDAStream(device_).synchronize();
  Operation operation = with_all(-1, "connecting peers");
  std::string why_not;
  const auto attempt = [&](const std::function<void()>& body) {
    if (!why_not.empty()) return;
    try {
      body();
    } catch (const c10::Error& error) {
      why_not = fmt::format("rank {}: {}", rank_, error.what_without_backtrace());
    }
  };
  const Window window{.first = static_cast<std::byte*>(proofs.data_ptr()), .bytes = proofs.nbytes()};
  // Meets the peers. A rank that has failed comes without its window, by which the others know.
  const auto meet_if_well = [&] {
    for (Incoming& incoming : operation.incoming) {
      incoming.windows = why_not.empty() ? std::vector<Window>{window} : std::vector<Window>{};
    }
    std::vector<std::vector<Note>> theirs = meet(operation, deadline, {});
    for (std::size_t i = 0; i < theirs.size() && why_not.empty(); ++i) {
      if (theirs[i].empty()) why_not = fmt::format("rank {} could not set up peer copies", operation.outgoing[i].rank);
    }
    return theirs;
  };
  attempt([&] {
    std::vector<Note> gone;
    (void)memory_.describe(window.first, window.bytes, gone);
  });
  const std::vector<std::vector<Note>> theirs = meet_if_well();
  attempt([&] { write_proofs(theirs, operation); });
  (void)meet_if_well();
  attempt([&] {
    const at::Tensor here = proofs.cpu();
    for (int peer = 0; peer < size_; ++peer) {
      const at::Tensor proof = proof_of(peer);
      if (peer == rank_ || at::equal(here.narrow(0, proof_place(peer), proof.numel()), proof)) continue;
      why_not = fmt::format("rank {}: data that rank {} wrote to this rank's memory did not arrive", rank_, peer);
    }
  });
  (void)meet_if_well();
  return why_not;
}

void PeerLink::write_proofs(const std::vector<std::vector<Note>>& windows, const Operation& operation) {
  const c10::cuda::CUDAStream stream = c10::cuda::getCurrentCUDAStream(device_);
  const at::Tensor proof = proof_of(rank_).to(at::Device(at::kCUDA, device_));
  for (std::size_t i = 0; i < windows.size(); ++i) {
    const int peer = operation.outgoing[i].rank;
    std::byte* const theirs = memory_.open(peer, windows[i].front());
    C10_CUDA_CHECK(cudaMemcpyAsync(theirs + proof_place(rank_), proof.const_data_ptr(), proof.nbytes(),
                                   cudaMemcpyDeviceToDevice, stream));
  }
  stream.synchronize();
}

}  // namespace cp_pool
