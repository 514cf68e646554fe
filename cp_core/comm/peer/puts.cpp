#include "cp_core/comm/peer/puts.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <iterator>
#include <stdexcept>

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include "cp_core/thd/copy_rows.h"

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

// Calls fn(put, its first byte in the message) for each put that is not empty.
template <typename Fn>
void for_each_packed(std::span<const Put> puts, Fn fn) {
  std::int64_t begin = 0;
  for (const Put& put : puts) {
    if (is_empty(put.block)) continue;
    fn(put, begin);
    begin += put.block.rows * put.block.width;
  }
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

at::Tensor pack_puts(std::span<const Put> puts, const at::Device& device) {
  std::int64_t bytes = 0;
  for_each_packed(puts, [&](const Put& put, std::int64_t begin) { bytes = begin + put.block.rows * put.block.width; });
  at::Tensor packed = at::empty({bytes}, at::TensorOptions(at::kByte).device(device));
  auto* message = static_cast<std::byte*>(packed.mutable_data_ptr());
  std::vector<BlockCopy> copies;
  for_each_packed(puts, [&](const Put& put, std::int64_t begin) {
    BlockCopy copy = put.block;
    copy.target = message + begin;
    copy.target_stride = copy.width;
    copies.push_back(copy);
  });
  copy_blocks(copies, device);
  return packed;
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

void write_puts(std::span<const Put> puts, const at::Tensor& packed, std::span<const at::Tensor> windows) {
  const auto* message = static_cast<const std::byte*>(packed.const_data_ptr());
  std::vector<BlockCopy> copies;
  for_each_packed(puts, [&](const Put& put, std::int64_t begin) {
    BlockCopy copy = put.block;
    copy.source = message + begin;
    copy.source_stride = copy.width;
    copy.target = static_cast<std::byte*>(windows[put.window].mutable_data_ptr()) + put.first;
    copies.push_back(copy);
  });
  copy_blocks(copies, packed.device());
}

}  // namespace cp_pool
