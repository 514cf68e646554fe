// A call: a function of keyword arguments that every rank runs. It is the other kind of case, beside attention
// (docs/functions.md).
#pragma once

#include <string>
#include <string_view>

#include "cases/json_place.h"

namespace cp_pool {

struct Call {
  std::string function;             // "package.module:name" or "FILE.py:name"
  Json arguments = Json::object();  // by name
  int cp_size = 2;                  // number of ranks

  bool operator==(const Call&) const = default;
};

// Reads {"function": .., "arguments": {..}, "cp_size": ..}, of which only the function is required. Throws CaseError,
// which names `source` and the JSON path.
Call parse_call(const Json& json, std::string_view source);
// parse_call gives the same call back.
Json to_json(const Call& call);

// Reads a call from an object that may have other keys, too. function: the key of Call::function, which the object has.
// Throws CaseError.
Call read_call(const Json& json, const JsonPlace& place, const char* function);
// Reads a number of ranks. Throws CaseError.
int expect_ranks(const Json& json, const JsonPlace& place);

// An argument as IDs and filters spell it: a text as it is, any other value as JSON.
std::string argument_text(const Json& value);

// The module or file of the function without folders and ".py", and the function without its module.
std::string_view module_of(const Call& call);
std::string_view name_of(const Call& call);

// The ID of a call that was given none: module, function, ranks and a hash of the arguments.
std::string call_id(const Call& call);

}  // namespace cp_pool
