#include "cp_core/trial/safetensors.h"

#include <bit>
#include <cstdint>
#include <stdexcept>
#include <system_error>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cases/whole_file.h"
#include "cp_core/file_error.h"

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

std::string_view bytes_of(const void* data, std::size_t count) {
  return {static_cast<const char*>(data), count};
}

}  // namespace

void write_safetensors(const std::filesystem::path& path, const std::map<std::string, at::Tensor>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  const std::string header = header_of(tensors, metadata);
  const auto length = static_cast<std::uint64_t>(header.size());
  try {
    WholeFile file(path);
    file.write(bytes_of(&length, sizeof length));
    file.write(header);
    for (const auto& [name, tensor] : tensors) {
      if (!tensor.defined() || tensor.numel() == 0) continue;
      const at::Tensor data = tensor.cpu().contiguous();
      file.write(bytes_of(data.const_data_ptr(), data.nbytes()));
    }
    file.keep();
  } catch (const std::system_error& error) {
    throw FileError(fmt::format("cannot write {}: {}", path.string(), error.code().message()));
  }
}

}  // namespace cp_pool::verify
