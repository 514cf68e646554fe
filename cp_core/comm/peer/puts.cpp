#include "cp_core/comm/peer/puts.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <iterator>
#include <stdexcept>

#include <fmt/format.h>

namespace cp_pool {
namespace {

using Put = PeerWindows::Put;

bool is_in(const at::Tensor& source, const BlockCopy& block) {
  const auto* data = static_cast<const std::byte*>(source.const_data_ptr());
  const auto* first = static_cast<const std::byte*>(block.source);
  const auto bytes = static_cast<std::int64_t>(source.nbytes());
  const bool begins_here = !std::less<>()(first, data) && std::less<>()(first, data + bytes);
  return begins_here && lies_in(bytes, block, first - data, block.source_stride);
}

}  // namespace

void check_puts(std::span<const Put> puts, std::span<const at::Tensor> sources, int size, const std::string& where) {
  for (const Put& put : puts) {
    if (put.peer < 0 || put.peer >= size) {
      throw std::invalid_argument(fmt::format("{}: a put to rank {} of {}", where, put.peer, size));
    }
    const auto has_block = [&put](const at::Tensor& source) { return is_in(source, put.block); };
    if (!is_empty(put.block) && std::ranges::none_of(sources, has_block)) {
      throw std::invalid_argument(
          fmt::format("{}: a put to rank {} comes from memory outside the sources", where, put.peer));
    }
  }
}

std::vector<Put> puts_to(std::span<const Put> puts, int peer) {
  std::vector<Put> result;
  std::ranges::copy_if(puts, std::back_inserter(result), [peer](const Put& put) { return put.peer == peer; });
  return result;
}

std::string misfit(std::span<const Put> puts, std::span<const at::Tensor> windows) {
  for (const Put& put : puts) {
    const BlockCopy& block = put.block;
    const auto text = [&](const std::string& limit) {
      return fmt::format("{} rows of {} bytes, {} apart, from byte {} of window {} on, of {}", block.rows, block.width,
                         block.target_stride, put.first, put.window, limit);
    };
    if (put.window >= windows.size()) return text(fmt::format("{} windows", windows.size()));
    const auto bytes = static_cast<std::int64_t>(windows[put.window].nbytes());
    if (!lies_in(bytes, block, put.first, block.target_stride)) return text(fmt::format("{} bytes", bytes));
  }
  return {};
}

std::vector<BlockCopy> blocks_of(std::span<const Put> puts, std::span<const at::Tensor> windows) {
  std::vector<BlockCopy> blocks;
  blocks.reserve(puts.size());
  for (const Put& put : puts) {
    if (is_empty(put.block)) continue;
    blocks.push_back(put.block);
    blocks.back().target = static_cast<std::byte*>(windows[put.window].mutable_data_ptr()) + put.first;
  }
  return blocks;
}

}  // namespace cp_pool
