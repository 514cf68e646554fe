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

void PeerExchange::exchange(const Place& place, std::span<const Message> sends, std::span<const int> to,
                            std::span<const Message> receives, std::span<const int> from) {
  std::vector<PeerLink::Incoming> incoming;
  for (const int peer : from) {
    incoming.push_back({.rank = member(peer), .windows = {}});
    for (const Message& message : receives) {
      if (message.peer == peer) incoming.back().windows.push_back(window_of(message.tensor));
    }
  }
  std::vector<PeerLink::Outgoing> outgoing;
  for (const int peer : to) {
    outgoing.push_back({.rank = member(peer), .blocks = {}, .fills = true});
    std::vector<PeerLink::Placed>& blocks = outgoing.back().blocks;
    for (const Message& message : sends) {
      if (message.peer == peer) blocks.push_back(all_of(message.tensor, blocks.size()));
    }
  }
  enqueue(place, std::move(incoming), std::move(outgoing));
}

void PeerExchange::put(const Place& place, std::span<const at::Tensor> windows, std::span<const Put> puts,
                       std::span<const int> others) {
  std::vector<PeerLink::Incoming> incoming;
  std::vector<PeerLink::Outgoing> outgoing;
  for (const int peer : others) {
    incoming.push_back({.rank = member(peer), .windows = {}});
    for (const at::Tensor& window : windows) incoming.back().windows.push_back(window_of(window));
    outgoing.push_back({.rank = member(peer), .blocks = {}});
    for (const Put& put : puts) {
      if (put.peer != peer) continue;
      outgoing.back().blocks.push_back({.window = put.window, .first = put.first, .block = put.block});
    }
  }
  enqueue(place, std::move(incoming), std::move(outgoing));
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
