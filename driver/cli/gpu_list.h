// Which GPUs pools may have: the value of --gpus, and what this machine shows.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cp_pool {

// "0-3,6": the numbers that it names, in its order. nullopt: it is no such list, or names one twice.
std::optional<std::vector<int>> parse_gpu_list(std::string_view text);

// What is wrong with the value of --gpus, for its user; empty: nothing.
std::string wrong_with_gpus(const std::string& text);

// The GPUs that CUDA would show, as CUDA_VISIBLE_DEVICES names them: the entries of its value, or the numbers of the
// device files under `dev`. visible: the value, null = unset. Empty where they cannot be seen without CUDA.
std::vector<std::string> visible_gpu_names(const std::filesystem::path& dev, const char* visible);

// Of the GPUs that are shown, those that the list names by their places. Where none can be seen, the numbers
// themselves. Throws CommandError (usage) for a place that no GPU has.
std::vector<std::string> chosen_gpus(const std::vector<int>& list, const std::vector<std::string>& shown);

}  // namespace cp_pool
