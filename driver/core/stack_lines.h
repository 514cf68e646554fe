// Makes stack traces readable.
#pragma once

#include <string>
#include <string_view>

namespace cp_pool {

// Returns a function's demangled name without return type, parameters, template arguments ("foo<..>") and
// "(anonymous namespace)::".
std::string short_function_name(std::string_view name);

// Turns the frames of a stack trace into "#3 FUNCTION (PLACE)". FUNCTION is the short name of the function; PLACE is
// the name of the program or library, or "folder/file.cpp:12". It reads these kinds of frames:
// - of cp-pool-worker: "#3 foo(int) in /path/program", "#3 foo(int) at /path/file.cpp:12"
// - of LibTorch: "frame #3: foo(int) + 0x9d (0x7f.. in /path/program)"
// - of glibc's backtrace_symbols: "/path/program(_Z3fooi+0x12)[0x55..]"
//
// Frames that every trace has are left out: main and the frames below it, and those that run a case, inject a fault or
// observe a communicator. If a trace has no other frames, its innermost one stays. Other lines stay as they are.
std::string readable_stack(std::string_view text);

// Returns the innermost frame of the first trace in a text, as readable_stack shows it; empty if there is none.
std::string throw_site(std::string_view text);

}  // namespace cp_pool
