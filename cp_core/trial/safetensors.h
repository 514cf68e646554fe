// Writes tensors in the safetensors format (github.com/huggingface/safetensors): the length of the header as 8 bytes,
// a JSON header of names, dtypes, shapes and offsets, then the data; little-endian.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include <ATen/core/Tensor.h>

namespace cp_pool::verify {

// Undefined tensors are left out. The file is written atomically. Throws FileError.
void write_safetensors(const std::filesystem::path& path, const std::map<std::string, at::Tensor>& tensors,
                       const std::map<std::string, std::string>& metadata);

}  // namespace cp_pool::verify
