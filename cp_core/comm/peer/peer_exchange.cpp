#include "cp_core/comm/peer/peer_exchange.h"

#include <string>
#include <utility>

#include "cp_core/comm/peer/puts.h"

namespace cp_pool {
namespace {

PeerLink::Window window_of(const at::Tensor& tensor) {
  return {.first = static_cast<std::byte*>(tensor.data_ptr()), .bytes = tensor.nbytes()};
}

// Places the whole tensor into the whole window.
PeerLink::Placed all_of(const at::Tensor& tensor, std::size_t window) {
  return {.window = window,
          .first = 0,
          .block = {.source = tensor.const_data_ptr(), .rows = 1, .width = static_cast<std::int64_t>(tensor.nbytes())}};
}

}  // namespace

PeerExchange::PeerExchange(std::shared_ptr<GpuLink> link, const GroupTag& group, std::vector<int> members, int rank,
                           c10::cuda::CUDAStream stream)
    : link_(std::move(link)), group_(PeerBoard::group_number(group)), members_(std::move(members)), stream_(stream) {
  const auto size = static_cast<int>(members_.size());
  for (int distance = 1; distance < size; ++distance) others_.push_back((rank + distance) % size);
}

void PeerExchange::exchange(const Place& place, std::span<const at::Tensor> sends, int to,
                            std::span<const at::Tensor> receives, int from) {
  PeerLink::Operation operation;
  operation.incoming = {from_peer(from, receives)};
  operation.outgoing = {to_peer(to, sends)};
  enqueue(place, operation);
}

void PeerExchange::exchange_all(const Place& place, std::span<const Message> sends, std::span<const Message> receives) {
  PeerLink::Operation operation;
  for (const int peer : others_) {
    operation.incoming.push_back(from_peer(peer, Communicator::of_peer(receives, peer)));
    operation.outgoing.push_back(to_peer(peer, Communicator::of_peer(sends, peer)));
  }
  enqueue(place, operation);
}

void PeerExchange::put(const Place& place, std::span<const at::Tensor> windows, std::span<const Put> puts) {
  PeerLink::Operation operation;
  for (const int peer : others_) {
    operation.incoming.push_back(from_peer(peer, windows));
    operation.outgoing.push_back({.rank = member(peer), .blocks = {}});
    for (const Put& put : puts_to(puts, peer)) {
      operation.outgoing.back().blocks.push_back({.window = put.window, .first = put.first, .block = put.block});
    }
  }
  enqueue(place, operation);
}

PeerLink::Incoming PeerExchange::from_peer(int peer, std::span<const at::Tensor> windows) const {
  PeerLink::Incoming incoming{.rank = member(peer), .windows = {}};
  for (const at::Tensor& window : windows) incoming.windows.push_back(window_of(window));
  return incoming;
}

PeerLink::Outgoing PeerExchange::to_peer(int peer, std::span<const at::Tensor> tensors) const {
  PeerLink::Outgoing outgoing{.rank = member(peer), .blocks = {}, .fills = true};
  for (const at::Tensor& tensor : tensors) outgoing.blocks.push_back(all_of(tensor, outgoing.blocks.size()));
  return outgoing;
}

void PeerExchange::enqueue(const Place& place, PeerLink::Operation& operation) {
  const std::string step(place.step);
  operation.group = group_;
  operation.number = place.number;
  operation.name = place.name;
  operation.step = place.step;
  const auto deadline = place.wait == nullptr ? link_->deadline() : place.wait->deadline;
  auto next_look = GpuLink::Clock::now() + GpuLink::kBetweenLooks;
  const auto check = [&] {
    link_->throw_if_failed(step);
    if (place.wait == nullptr || !place.wait->look || GpuLink::Clock::now() < next_look) return;
    place.wait->look();
    next_look = GpuLink::Clock::now() + GpuLink::kBetweenLooks;
  };
  try {
    link_->peers()->enqueue(operation, stream_, deadline, check);
  } catch (const CommError& error) {
    const bool explains = place.wait != nullptr && error.kind() == CommError::Kind::timeout;
    link_->fail(error.kind(), step, explains ? place.wait->explain() : error.what());
  }
}

}  // namespace cp_pool
