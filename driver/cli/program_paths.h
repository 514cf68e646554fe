// Where this installation keeps what belongs to cp-pool.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace cp_pool {

// The binary that runs, symbolic links resolved. Throws std::runtime_error if /proc does not tell.
std::filesystem::path program_path();

// cp-pool-worker beside the program.
std::filesystem::path default_worker();

// Folders of shipped matrices, in the order of search: share/cp-pool/matrices of the installation, then the source
// tree that the program was built from. Only those that exist.
std::vector<std::filesystem::path> matrix_folders();

// The file of a matrix argument: a file if it holds a '/' or ends in .json, else the name of a shipped one. Throws
// CommandError (bad_input) that lists the shipped names.
std::filesystem::path find_matrix(const std::string& name_or_file);

// Names of the shipped matrices, sorted.
std::vector<std::string> shipped_matrices();

}  // namespace cp_pool
