// The faults that a fake rank can commit by itself.
#pragma once

#include <string>

namespace cp_pool::fake {

// Commits the fault of this name: it kills this process, leaves processes behind, floods a stream and so on. Any rank
// can commit these faults. Returns only if the rank lives on and its case continues: true, or false if there is no such
// fault.
bool commit_fault(const std::string& kind);

// Blocks for ever, as a rank does in a collective that nobody joins.
[[noreturn]] void hang();

// Writes all bytes, however many calls that takes. Does nothing if the descriptor is closed.
void write_all(int fd, const std::string& bytes);

}  // namespace cp_pool::fake
