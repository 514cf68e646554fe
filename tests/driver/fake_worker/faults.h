// What a fake rank can do to its driver.
#pragma once

#include <cstdint>
#include <string>

namespace cp_pool::fake {

// Kills this process, leaves processes behind, floods its streams, ..: everything that a rank can do by itself,
// whatever its number. Returns if the rank lives on and its case goes on; false: there is no such fault.
bool commit_fault(const std::string& kind);

// Sits still for ever, as a rank does in a collective that nobody joins.
[[noreturn]] void hang();

// All of it, whatever it takes.
void write_all(int fd, const std::string& bytes);

}  // namespace cp_pool::fake
