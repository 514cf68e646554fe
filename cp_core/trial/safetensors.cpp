#include "cp_core/trial/safetensors.h"

#include <bit>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <system_error>
#include <unistd.h>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

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

// Removed again unless it is kept.
class PartialFile {
 public:
  explicit PartialFile(const std::filesystem::path& path) : path_(path), partial_(path) {
    partial_ += ".partial";
    file_.reset(std::fopen(partial_.c_str(), "wb"));
    if (!file_) fail();
  }
  PartialFile(const PartialFile&) = delete;
  PartialFile& operator=(const PartialFile&) = delete;
  ~PartialFile() {
    if (!kept_) ::unlink(partial_.c_str());
  }

  void write(const void* bytes, std::size_t count) {
    if (std::fwrite(bytes, 1, count, file_.get()) != count) fail();
  }
  void keep() {
    if (std::fclose(file_.release()) != 0) fail();
    if (std::rename(partial_.c_str(), path_.c_str()) != 0) fail();
    kept_ = true;
  }

 private:
  [[noreturn]] void fail() const {
    const int error = errno;
    throw FileError(fmt::format("cannot write {}: {}", path_.string(), std::generic_category().message(error)));
  }

  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  const std::filesystem::path& path_;
  std::filesystem::path partial_;
  std::unique_ptr<std::FILE, Close> file_;
  bool kept_ = false;
};

}  // namespace

void write_safetensors(const std::filesystem::path& path, const std::map<std::string, at::Tensor>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  PartialFile file(path);
  const std::string header = header_of(tensors, metadata);
  const auto length = static_cast<std::uint64_t>(header.size());
  file.write(&length, sizeof length);
  file.write(header.data(), header.size());
  for (const auto& [name, tensor] : tensors) {
    if (!tensor.defined() || tensor.numel() == 0) continue;
    const at::Tensor data = tensor.cpu().contiguous();
    file.write(data.const_data_ptr(), data.nbytes());
  }
  file.keep();
}

}  // namespace cp_pool::verify
