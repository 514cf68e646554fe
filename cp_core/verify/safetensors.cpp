#include "cp_core/verify/safetensors.h"

#include <bit>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <stdexcept>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace cp_pool::verify {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

std::string_view name_of(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
      return "F32";
    case at::kDouble:
      return "F64";
    case at::kHalf:
      return "F16";
    case at::kBFloat16:
      return "BF16";
    case at::kInt:
      return "I32";
    case at::kLong:
      return "I64";
    default:
      throw std::runtime_error(fmt::format("safetensors: no name for dtype {}", c10::toString(dtype)));
  }
}

std::string header_of(const std::map<std::string, at::Tensor>& tensors,
                      const std::map<std::string, std::string>& metadata) {
  nlohmann::json header = {{"__metadata__", metadata}};
  std::size_t offset = 0;
  for (const auto& [name, tensor] : tensors) {
    if (!tensor.defined()) continue;
    const std::size_t end = offset + tensor.nbytes();
    header[name] = {
        {"dtype", name_of(tensor.scalar_type())}, {"shape", tensor.sizes().vec()}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // aligns the data
  return text;
}

}  // namespace

void write_safetensors(const std::filesystem::path& path, const std::map<std::string, at::Tensor>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  std::filesystem::path partial = path;
  partial += ".partial";
  std::ofstream file(partial, std::ios::binary | std::ios::trunc);
  const std::string header = header_of(tensors, metadata);
  const auto length = static_cast<std::uint64_t>(header.size());
  file.write(reinterpret_cast<const char*>(&length), sizeof length);
  file.write(header.data(), static_cast<std::streamsize>(header.size()));
  for (const auto& [name, tensor] : tensors) {
    if (!tensor.defined() || tensor.numel() == 0) continue;
    const at::Tensor data = tensor.cpu().contiguous();
    file.write(static_cast<const char*>(data.const_data_ptr()), static_cast<std::streamsize>(data.nbytes()));
  }
  file.close();
  if (!file) throw std::runtime_error(fmt::format("cannot write {}: {}", partial.string(), std::strerror(errno)));
  std::filesystem::rename(partial, path);
}

}  // namespace cp_pool::verify
