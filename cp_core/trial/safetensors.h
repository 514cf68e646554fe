// Writes tensors in the safetensors format (github.com/huggingface/safetensors), little-endian: 8 bytes with the length
// of the header, a JSON header of names, dtypes, shapes and offsets, then the data.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include <ATen/core/Tensor.h>

namespace cp_pool::verify {

// Leaves out undefined tensors. Writes the file atomically. Throws FileError.
void write_safetensors(const std::filesystem::path& path, const std::map<std::string, at::Tensor>& tensors,
                       const std::map<std::string, std::string>& metadata);

}  // namespace cp_pool::verify
