// Stack traces for people.
#pragma once

#include <string>
#include <string_view>

namespace cp_pool {

// What a function's demangled name says at a glance: without return type, parameters, template arguments ("foo<..>")
// and "(anonymous namespace)::".
std::string short_function_name(std::string_view name);

// The frames of a stack trace become "#3 FUNCTION (PLACE)": the short name of the function, and the name of the program
// or library, or "folder/file.cpp:12". Lines are frames as our worker writes them ("#3 foo(int) in /path/program",
// "#3 foo(int) at /path/file.cpp:12"), as LibTorch does ("frame #3: foo(int) + 0x9d (0x7f.. in /path/program)"), and as
// glibc's backtrace_symbols does ("/path/program(_Z3fooi+0x12)[0x55..]").
//
// Left out is what is the same in every trace: the frames below main and of what runs a case, those of what injects a
// fault or observes a communicator, and of the signal handler that wrote the trace. Where nothing else is in a trace,
// its innermost frame stays. Other lines stay as they are.
std::string readable_stack(std::string_view text);

// The innermost frame of the first trace in a text, as readable_stack shows it; empty if there is none.
std::string throw_site(std::string_view text);

}  // namespace cp_pool
