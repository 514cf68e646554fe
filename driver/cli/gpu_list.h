// The GPUs that pools may use: the value of --gpus, and the GPUs that this machine shows.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cp_pool {

// Reads a list such as "0-3,6". Returns its numbers in its order; nullopt if it is no such list or names a number
// twice.
std::optional<std::vector<int>> parse_gpu_list(std::string_view text);

// Returns why a value of --gpus is refused, for the user; empty if it is valid.
std::string wrong_with_gpus(const std::string& text);

// Returns the names of the GPUs that CUDA would show: the entries of CUDA_VISIBLE_DEVICES, or the numbers of the device
// files under `dev`. `visible` is the value of that variable, nullptr if it is unset. Empty if the GPUs cannot be seen
// without CUDA.
std::vector<std::string> visible_gpu_names(const std::filesystem::path& dev, const char* visible);

// Returns the names of the GPUs at the places that `list` holds among those in `shown`. If `shown` is empty, returns
// the numbers of the list. Throws CommandError (usage) for a place that no GPU has.
std::vector<std::string> chosen_gpus(const std::vector<int>& list, const std::vector<std::string>& shown);

}  // namespace cp_pool
