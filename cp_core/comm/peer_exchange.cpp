#include "cp_core/comm/peer_exchange.h"

#include <string>
#include <utility>

namespace cp_pool {
namespace {

PeerLink::Window window_of(const at::Tensor& tensor) {
  return {.first = static_cast<std::byte*>(tensor.data_ptr()), .bytes = tensor.nbytes()};
}

// The whole tensor, to the whole window.
PeerLink::Placed all_of(const at::Tensor& tensor, std::size_t window) {
  return {.window = window,
          .first = 0,
          .block = {.source = tensor.const_data_ptr(), .rows = 1, .width = static_cast<std::int64_t>(tensor.nbytes())}};
}

}  // namespace

PeerExchange::PeerExchange(std::shared_ptr<NcclLink> link, NcclLink::Group group, std::vector<int> members, int rank,
                           c10::cuda::CUDAStream stream)
    : link_(std::move(link)), group_(group), members_(std::move(members)), stream_(stream) {
  const auto size = static_cast<int>(members_.size());
  for (int distance = 1; distance < size; ++distance) others_.push_back((rank + distance) % size);
}

void PeerExchange::exchange(const Place& place, std::span<const at::Tensor> sends, int to,
                            std::span<const at::Tensor> receives, int from) {
  enqueue(place, {from_peer(from, receives)}, {to_peer(to, sends)});
}

void PeerExchange::exchange_all(const Place& place, std::span<const Message> sends, std::span<const Message> receives) {
  std::vector<PeerLink::Incoming> incoming;
  std::vector<PeerLink::Outgoing> outgoing;
  for (const int peer : others_) {
    incoming.push_back(from_peer(peer, Communicator::of_peer(receives, peer)));
    outgoing.push_back(to_peer(peer, Communicator::of_peer(sends, peer)));
  }
  enqueue(place, std::move(incoming), std::move(outgoing));
}

void PeerExchange::put(const Place& place, std::span<const at::Tensor> windows, std::span<const Put> puts) {
  std::vector<PeerLink::Incoming> incoming;
  std::vector<PeerLink::Outgoing> outgoing;
  for (const int peer : others_) {
    incoming.push_back(from_peer(peer, windows));
    outgoing.push_back({.rank = member(peer), .blocks = {}});
    for (const Put& put : puts) {
      if (put.peer != peer) continue;
      outgoing.back().blocks.push_back({.window = put.window, .first = put.first, .block = put.block});
    }
  }
  enqueue(place, std::move(incoming), std::move(outgoing));
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

void PeerExchange::enqueue(const Place& place, std::vector<PeerLink::Incoming> incoming,
                           std::vector<PeerLink::Outgoing> outgoing) {
  const std::string step(place.step);
  const PeerLink::Operation operation{.group = static_cast<int>(group_),
                                      .number = place.number,
                                      .name = place.name,
                                      .step = place.step,
                                      .incoming = std::move(incoming),
                                      .outgoing = std::move(outgoing)};
  try {
    link_->peers()->enqueue(operation, stream_, link_->deadline(), [&] { link_->throw_if_failed(step); });
  } catch (const CommError& error) {
    link_->fail(error.kind(), step, error.what());
  }
}

}  // namespace cp_pool
